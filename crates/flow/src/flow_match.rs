//! What a rule matches.

use crate::field::{Field, FieldId};
use crate::{FlowKey, Wide};

/// Priority of a flow whose text gives none.
/// Source: OpenFlow 1.0, `OFP_DEFAULT_PRIORITY`.
pub const DEFAULT_PRIORITY: u16 = 0x8000;

/// A mask, and the value that a packet's key must have under it. Bits of `key` outside `mask` are zero.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Match {
    /// The values.
    pub key: FlowKey,
    /// The bits that matter.
    pub mask: FlowKey,
}

impl Match {
    /// Matches every packet.
    pub const ANY: Match = Match { key: FlowKey::ZERO, mask: FlowKey::ZERO };

    /// The match on the `mask` bits of `key`.
    pub fn new(mask: FlowKey, key: &FlowKey) -> Self {
        Match { key: key.and(&mask), mask }
    }

    /// Whether it matches every packet.
    pub fn is_catchall(&self) -> bool {
        self.mask == FlowKey::ZERO
    }

    /// Whether it matches that key.
    pub fn contains(&self, key: &FlowKey) -> bool {
        key.matches(&self.mask, &self.key)
    }

    /// Whether some key matches both.
    pub fn overlaps(&self, other: &Match) -> bool {
        let common = self.mask.and(&other.mask);
        self.key.and(&common) == other.key.and(&common)
    }

    /// Whether every key that matches `self` matches `other` too.
    pub fn is_within(&self, other: &Match) -> bool {
        self.mask.and(&other.mask) == other.mask && self.key.and(&other.mask) == other.key
    }

    /// Adds a match on a field's whole value, in place of what was said of these bits before.
    pub fn set(&mut self, field: FieldId, value: u128) {
        match field.field() {
            wide if wide.is_wide() => self.set_masked_wide(field, value.into(), wide.all_ones_wide()),
            narrow => self.set_masked(field, value, narrow.match_ones()),
        }
    }

    /// [`Match::set_masked`], of any length. A mask of zero on a tunnel's option says that it is there.
    pub fn set_masked_wide(&mut self, field: FieldId, value: Wide, mask: Wide) {
        let Some(i) = field.tunnel_option() else { return self.set_masked(field, value.low(), mask.low()) };
        let row = field.field();
        row.set_mask_wide(&mut self.mask, mask);
        let mask = mask.and(&row.all_ones_wide());
        let value = self.key.tun_metadata.value(i).replaced(&value, &mask);
        row.set_wide(&mut self.key, value);
    }

    /// Adds a match on the `mask` bits of a field, in place of what was said of these bits before. A mask of zero says
    /// nothing. `vlan_vid`'s value includes bit 12, which says that there is a tag; for `dl_vlan`, `dl_vlan_pcp` and
    /// `vlan_pcp` that is implied.
    pub fn set_masked(&mut self, field: FieldId, value: u128, mask: u128) {
        let field: &Field = field.field();
        if field.is_wide() {
            return self.set_masked_wide(field.id, value.into(), mask.into());
        }
        // The field is written where nothing else is, and then what was there before is put back around its bits.
        let before = field.spans().map(|span| {
            let span = span?;
            let (value, mask) = (span.read(&self.key), span.read(&self.mask));
            span.write(&mut self.key, 0);
            span.write(&mut self.mask, 0);
            Some((span, value, mask))
        });
        field.set_mask(&mut self.mask, mask);
        match field.id {
            FieldId::VlanVid => field.place.write(&mut self.key, value),
            _ => field.set(&mut self.key, value),
        }
        for (span, old_value, old_mask) in before.into_iter().flatten() {
            let (value, bits) = (span.read(&self.key), span.read(&self.mask));
            span.write(&mut self.key, old_value & !bits | value & bits);
            span.write(&mut self.mask, old_mask | bits);
        }
    }

    /// As [`Match::set`], by value.
    pub fn with(mut self, field: FieldId, value: u128) -> Self {
        self.set(field, value);
        self
    }

    /// As [`Match::set_masked`], by value.
    pub fn with_masked(mut self, field: FieldId, value: u128, mask: u128) -> Self {
        self.set_masked(field, value, mask);
        self
    }

    /// Value and mask of a field of any length, as [`Match::field`].
    pub fn field_wide(&self, field: FieldId) -> (Wide, Wide) {
        match field.tunnel_option() {
            Some(i) => (self.key.tun_metadata.value(i), self.mask.tun_metadata.value(i)),
            None => {
                let (value, mask) = self.field(field);
                (value.into(), mask.into())
            }
        }
    }

    /// Value and mask of a field; where fields share bits, only the match's prerequisites tell which is meant.
    pub fn field(&self, field: FieldId) -> (u128, u128) {
        let place = field.field().place;
        (place.read(&self.key), place.read(&self.mask))
    }

    /// Takes back what was said of a field.
    pub fn clear(&mut self, field: FieldId) {
        if let Some(i) = field.tunnel_option() {
            for key in [&mut self.key, &mut self.mask] {
                key.tun_metadata.set_present(i, false);
                key.tun_metadata.set_value(i, Wide::ZERO);
            }
            return;
        }
        let mut bits = FlowKey::ZERO;
        field.field().set_mask(&mut bits, u128::MAX);
        self.mask.and_not(&bits);
        self.key.and_not(&bits);
    }
}

impl std::fmt::Debug for Match {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Match({self})")
    }
}

impl Default for Match {
    fn default() -> Self {
        Match::ANY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::FIELDS;
    use crate::layout;

    #[test]
    fn a_vlan_id_implies_the_tag() {
        let m = Match::ANY.with(FieldId::DlVlan, 5);
        assert_eq!((m.key.number(layout::VLAN0_TCI), m.mask.number(layout::VLAN0_TCI)), (0x1005, 0x1fff));
    }

    #[test]
    fn an_exact_match_covers_the_whole_span() {
        let m = Match::ANY.with(FieldId::Icmpv4Type, 8);
        assert_eq!((m.key.number(layout::TP_SRC), m.mask.number(layout::TP_SRC)), (8, 0xffff));
        let m = Match::ANY.with(FieldId::InPort, 0xfffe);
        assert_eq!((m.key.number(layout::IN_PORT), m.mask.number(layout::IN_PORT)), (0xfffe, 0xffff_ffff));
        assert_eq!(m, Match::ANY.with(FieldId::InPortOxm, 0xffff_fffe));
    }

    /// [`Match::set_masked`] by whole keys.
    fn set_masked_plainly(to: &mut Match, field: &Field, value: u128, mask: u128) {
        let (mut bits, mut values) = (FlowKey::ZERO, FlowKey::ZERO);
        field.set_mask(&mut bits, mask);
        match field.id {
            FieldId::VlanVid => field.place.write(&mut values, value),
            _ => field.set(&mut values, value),
        }
        to.mask.or_with(&bits);
        for ((line, bits), values) in to.key.lines.iter_mut().zip(&bits.lines).zip(&values.lines) {
            for ((byte, bit), value) in line.0.iter_mut().zip(bits.0).zip(values.0) {
                *byte = *byte & !bit | value & bit;
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn fields_are_set_as_by_whole_keys(
            said in proptest::collection::vec((0..FIELDS.len(), proptest::num::u128::ANY, 0..5u8, proptest::num::u128::ANY), 1..12),
        ) {
            let (mut fast, mut plain) = (Match::ANY, Match::ANY);
            for (field, value, how, mask) in said {
                let field = &FIELDS[field];
                let mask = match how {
                    0 => 0,
                    1 | 2 => field.match_ones(),
                    _ => mask & field.match_ones(),
                };
                if !field.is_wide() {
                    fast.set_masked(field.id, value, mask);
                    set_masked_plainly(&mut plain, field, value, mask);
                    proptest::prop_assert_eq!(&fast, &plain, "{}={:#x}/{:#x}", field.name, value, mask);
                }
            }
        }
    }

    #[test]
    fn a_tunnel_may_have_addresses_of_both_families() {
        let v4 = Match::ANY.with(FieldId::TunSrc, 0x0102_0304);
        let v6 = Match::ANY.with_masked(FieldId::TunIpv6Src, 0x0102_0304 << 96, 0xffff_ffff << 96);
        assert!(v4.overlaps(&v6) && !v4.overlaps(&Match::ANY.with(FieldId::TunSrc, 5)));
    }

    #[test]
    fn within_and_overlap() {
        let net = Match::ANY.with_masked(FieldId::Ipv4Src, 0x0a00_0000, 0xff00_0000);
        let host = Match::ANY.with(FieldId::Ipv4Src, 0x0a01_0203);
        let port = Match::ANY.with(FieldId::InPort, 1);
        assert!(host.is_within(&net) && !net.is_within(&host) && net.overlaps(&host) && port.overlaps(&host));
        assert!(!port.is_within(&host) && host.is_within(&Match::ANY) && Match::ANY.is_catchall());
    }
}

//! Filters of dumps and captures by a packet's options of Geneve.
//!
//! The mapping of a bridge is looked at once, when a filter is made. Then a packet is compared as it stood in the header, without
//! an allocation: captures ask of every packet.

use crate::geneve::{LENGTH, OPTION_HEADER, OptionBytes, OptionMap, options};
use crate::{FieldId, FlowKey, Match, PacketKey, TunMetadata};

/// Conditions on a packet's options, all of which must hold. The default has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionFilter(Vec<Wanted>);

/// A packet has an option with such a header, and the last of them has such a value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    /// Header and value, which have ones only where the mask has.
    bytes: Box<[u8]>,
    /// As long.
    mask: Box<[u8]>,
}

/// A filter of packets by what a match can say of them and by options.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketFilter {
    /// What it says of the rest; nothing of options.
    matches: Match,
    options: OptionFilter,
}

/// Why a filter can match no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFilterable {
    /// No option is mapped to it, or there is no bridge.
    #[error("no option is mapped to {}; expected geneve({{class=…,type=…,len=…,0xVALUE/0xMASK}})", .0.field().name)]
    Unmapped(FieldId),
    /// The value has more bytes than the option.
    #[error("the value of {} is longer than its option", .0.field().name)]
    TooLong(FieldId),
}

impl OptionFilter {
    /// The options of a list, each with its part of the mask. Bytes of the header that the mask leaves out may be any.
    pub fn of_lists(list: &OptionBytes, mask: &OptionBytes) -> Self {
        let wanted = options(list).map_while(Result::ok).map(|(at, _, value)| {
            let all = at..at + OPTION_HEADER + value.len();
            Wanted::new(&list.all()[all.clone()], &mask.all()[all])
        });
        OptionFilter(wanted.collect())
    }

    /// What a match says of the fields that stand for options.
    ///
    /// # Errors
    /// If a field has no option in this mapping, or a value that no such option has.
    pub fn of_match(map: &OptionMap, matches: &Match) -> Result<Self, NotFilterable> {
        let wanted = matches.mask.tun_metadata.fields().filter_map(FieldId::tun_metadata).map(|id| {
            let kind = id.tunnel_option().and_then(|i| map.get(i)).ok_or(NotFilterable::Unmapped(id))?;
            let (value, mask) = matches.field_wide(id);
            if value.bit_len() > 8 * u32::from(kind.length) {
                return Err(NotFilterable::TooLong(id));
            }
            let with = |header: [u8; OPTION_HEADER], value: Vec<u8>| [&header[..], &value].concat();
            let (value, mask) = (value.to_be(kind.length.into()), mask.to_be(kind.length.into()));
            Ok(Wanted::new(&with(kind.header(), value), &with([0xff; OPTION_HEADER], mask)))
        });
        wanted.collect::<Result<_, _>>().map(OptionFilter)
    }

    /// Both conditions.
    #[must_use]
    pub fn and(mut self, other: OptionFilter) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Whether a packet with these options is wanted.
    pub fn admits(&self, list: &[u8]) -> bool {
        self.0.iter().all(|wanted| wanted.is_in(list))
    }
}

impl Wanted {
    fn new(bytes: &[u8], mask: &[u8]) -> Self {
        let mut mask: Box<[u8]> = mask.into();
        // The bits beside the length are ignored. Source: RFC 8926, section 3.5.
        mask[OPTION_HEADER - 1] &= LENGTH;
        Wanted { bytes: bytes.iter().zip(&mask).map(|(byte, mask)| byte & mask).collect(), mask }
    }

    /// Of an option that comes twice the last counts, as [`OptionMap::read`] has it.
    fn is_in(&self, list: &[u8]) -> bool {
        let fits = |found: &[u8], part: std::ops::Range<usize>| {
            let wanted = self.bytes[part.clone()].iter().zip(&self.mask[part]);
            found.iter().zip(wanted).all(|(found, (byte, mask))| found & mask == *byte)
        };
        let alike = options(list).map_while(Result::ok).filter(|(at, _, value)| {
            OPTION_HEADER + value.len() == self.bytes.len() && fits(&list[*at..at + OPTION_HEADER], 0..OPTION_HEADER)
        });
        alike.last().is_some_and(|(_, _, value)| fits(value, OPTION_HEADER..self.bytes.len()))
    }
}

impl PacketFilter {
    /// A match of packets of a bridge that maps options so, and further conditions on options.
    ///
    /// # Errors
    /// As [`OptionFilter::of_match`].
    pub fn new(matches: &Match, map: &OptionMap, options: OptionFilter) -> Result<Self, NotFilterable> {
        let options = options.and(OptionFilter::of_match(map, matches)?);
        let mut matches = matches.clone();
        matches.mask.tun_metadata = TunMetadata::NONE;
        matches.key.tun_metadata = TunMetadata::NONE;
        Ok(PacketFilter { matches, options })
    }

    /// Whether a packet with that key is wanted.
    pub fn admits(&self, key: &PacketKey) -> bool {
        FlowKey::of_packet(key).matches(&self.matches.mask, &self.matches.key)
            && (self.options.0.is_empty() || self.options.admits(&key.options()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geneve::OptionKind;
    use crate::{PortNames, Wide};
    use proptest::prelude::*;

    const KINDS: [OptionKind; 3] = [
        OptionKind { class: 0x102, kind: 0x80, length: 4 },
        OptionKind { class: 0x102, kind: 1, length: 0 },
        OptionKind { class: 0x103, kind: 1, length: 20 },
    ];

    fn map() -> OptionMap {
        let mut map = OptionMap::default();
        KINDS.into_iter().enumerate().for_each(|(i, kind)| assert!(map.set(i, kind)));
        map
    }

    /// A list of few options with few bits, so that they meet.
    fn list() -> impl Strategy<Value = Vec<u8>> {
        let option = (0..4usize, 0..4u8, 0..4u8, 0..8u8).prop_map(|(which, first, last, reserved)| {
            let kind = KINDS.get(which).copied().unwrap_or(OptionKind { class: 9, kind: 1, length: 4 });
            let mut value = vec![0; kind.length.into()];
            value.iter_mut().next().into_iter().for_each(|byte| *byte = first);
            value.iter_mut().last().into_iter().for_each(|byte| *byte = last);
            let mut header = kind.header();
            header[3] |= reserved << 5;
            [&header[..], &value].concat()
        });
        proptest::collection::vec(option, 0..4).prop_map(|options| options.concat())
    }

    proptest! {
        /// The plain twin reads the packet's fields by the mapping and matches them.
        #[test]
        fn it_admits_what_a_rule_would_match(
            list in list(),
            wanted in proptest::collection::vec((0..3usize, 0..4u128, 0..4u128, any::<bool>()), 0..3),
        ) {
            let mut matches = Match::ANY;
            for (i, value, mask, is_high) in wanted {
                // Other bits of an option without bytes are in no packet.
                let shift = if is_high && i == 2 { 152 } else { 0 };
                let part = |bits: u128| if i == 1 { Wide::ZERO } else { Wide::from(bits).shl(shift) };
                matches.set_masked_wide(FieldId::tun_metadata(i).unwrap(), part(value & mask), part(mask));
            }
            let filter = PacketFilter::new(&matches, &map(), OptionFilter::default()).unwrap();
            let mut key = PacketKey::ZERO;
            key.put_options(&list);
            let mut flow = FlowKey::of_packet(&key);
            flow.tun_metadata = map().read(&list).unwrap();
            prop_assert_eq!(filter.admits(&key), flow.matches(&matches.mask, &matches.key));
        }
    }

    #[test]
    fn a_list_of_options_is_a_filter_without_a_mapping() {
        let list = |bytes: &[u8]| OptionBytes::new(bytes).unwrap();
        let wanted = list(&[1, 2, 0x80, 1, 0, 0, 0, 5]);
        let with_mask = |mask: &[u8]| OptionFilter::of_lists(&wanted, &list(mask));
        let five_of_low = with_mask(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xf]);
        assert!(five_of_low.admits(&[9, 9, 9, 0, 1, 2, 0x80, 1, 7, 7, 7, 0xf5]));
        assert!(!five_of_low.admits(&[1, 2, 0x80, 1, 0, 0, 0, 6]));
        assert!(
            !five_of_low.admits(&[1, 2, 0x80, 0])
                && !five_of_low.admits(&[1, 2, 0x80, 1, 0])
                && !five_of_low.admits(&[])
        );
        let of_any_class = with_mask(&[0, 0, 0xff, 0xff, 0, 0, 0, 0]);
        assert!(of_any_class.admits(&[3, 3, 0x80, 1, 0, 0, 0, 0]));
        assert!(OptionFilter::default().admits(&[]));
    }

    #[test]
    fn what_no_packet_has_is_said() {
        let new = |text: &str| {
            let matches = Match::parse(text, &PortNames::NONE).unwrap();
            PacketFilter::new(&matches, &map(), OptionFilter::default()).unwrap_err()
        };
        assert_eq!(new("tun_metadata3=1"), NotFilterable::Unmapped(FieldId::TunMetadata3));
        assert_eq!(new("tun_metadata0=0x100000000"), NotFilterable::TooLong(FieldId::TunMetadata0));
        assert!(new("tun_metadata3").to_string().contains("tun_metadata3; expected geneve({class="));
    }
}

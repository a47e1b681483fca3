//! Fields written the short way against their plain twins: a mask by reading and writing the field's place, a range of bits
//! one bit at a time.

use proptest::prelude::*;
use sluice_flow::field::{FIELDS, Field, Place, ones};
use sluice_flow::layout::{self, FLOW_LINES};
use sluice_flow::{FieldId, FlowKey, LINE_SIZE, Line, PacketKey, SubField};

/// A key of any bits.
fn key() -> impl Strategy<Value = FlowKey> {
    proptest::collection::vec(any::<u8>(), FLOW_LINES * LINE_SIZE).prop_map(|bytes| {
        let (lines, _) = bytes.as_chunks::<LINE_SIZE>();
        FlowKey { lines: std::array::from_fn(|i| Line(lines[i])), ..FlowKey::ZERO }
    })
}

fn field() -> impl Strategy<Value = &'static Field> {
    let fields: Vec<&'static Field> = FIELDS.iter().filter(|field| !field.is_wide()).collect();
    proptest::sample::select(fields)
}

/// Masks of all bits of a field, and of one of its bits less, are common.
fn mask() -> impl Strategy<Value = u128> {
    prop_oneof![Just(u128::MAX), (0..128u32).prop_map(|bit| u128::MAX ^ 1 << bit), any::<u128>(), Just(0)]
}

/// [`Field::set_mask`] without a short way.
fn set_mask_plainly(field: &Field, to: &mut FlowKey, mask: u128) {
    if mask & field.match_ones() == 0 {
        return;
    }
    let is_whole = field.owns_span && mask & field.match_ones() == field.match_ones();
    let mask = match field.id {
        _ if is_whole => u128::MAX,
        FieldId::InPortOxm | FieldId::ActsetOutput => u128::MAX,
        FieldId::IpDscp => mask & 0xfc,
        _ => mask,
    };
    if matches!(field.id, FieldId::DlVlan | FieldId::DlVlanPcp | FieldId::VlanPcp) {
        Place { span: layout::VLAN0_TCI, lsb: 12, n_bits: 1 }.write(to, 1);
    }
    let place = if is_whole { Place::whole(field.place.span) } else { field.place };
    place.write(to, place.read(to) | mask);
    if matches!(field.id, FieldId::CtNwSrc | FieldId::CtNwDst | FieldId::CtIpv6Src | FieldId::CtIpv6Dst) {
        Place::whole(layout::CT_IS_IPV6).write(to, 1);
    }
}

proptest! {
    #[test]
    fn a_mask_is_set_as_its_plain_twin_does(field in field(), mask in mask(), key in key(), is_empty in any::<bool>()) {
        let mut now = if is_empty { FlowKey::ZERO } else { key };
        let mut plain = now.clone();
        field.set_mask(&mut now, mask);
        set_mask_plainly(field, &mut plain, mask);
        prop_assert_eq!(now, plain, "{} {:x}", field.name, mask);
    }

    #[test]
    fn bits_of_a_field_are_set_one_by_one_or_together(
        field in field(), from in 0..128u32, n in 1..=128u32, value in any::<u128>(), key in key(), whole in any::<bool>(),
    ) {
        let start = if whole { 0 } else { from % field.n_bits };
        let bits = SubField { field: field.id, start, n_bits: if whole { field.n_bits } else { n.min(field.n_bits - start) } };
        let (mut now, mut plain) = (key.clone(), key.clone());
        bits.set(&mut now, value & ones(bits.n_bits));
        let mask = ones(bits.n_bits) << start;
        field.set(&mut plain, field.get(&key) & !mask | (value & ones(bits.n_bits)) << start);
        prop_assert_eq!(now, plain, "{}", bits);
    }

    #[test]
    fn a_word_is_read_and_written_bit_by_bit(key in key(), lsb in 0..64u32, n in 1..=64u32, value in any::<u64>()) {
        let place = Place { span: layout::METADATA, lsb, n_bits: n.min(64 - lsb) };
        let bit = |key: &FlowKey, i: u32| key.number(layout::METADATA) >> i & 1;
        let read = (0..place.n_bits).fold(0, |sum, i| sum | u128::from(bit(&key, lsb + i)) << i);
        prop_assert_eq!(place.read(&key), read);
        let mut written = key.clone();
        place.write(&mut written, value.into());
        for i in 0..64 {
            let is_of_it = i >= lsb && i < lsb + place.n_bits;
            let want = if is_of_it { value >> (i - lsb) & 1 } else { bit(&key, i) };
            prop_assert_eq!(bit(&written, i), want);
        }
    }

    /// Two keys of few bits, so that they are often equal, whose lines may be there without a bit or hold bits without being
    /// there.
    #[test]
    fn keys_are_equal_if_all_their_lines_are(a in few_bits(), b in few_bits()) {
        let plain = (0..layout::PACKET_LINES).all(|i| {
            let line = |key: &PacketKey| {
                let mut line = *key.line(i);
                if i == 0 { line.0[layout::PRESENCE.offset] = 0 }
                line
            };
            line(&a) == line(&b)
        });
        prop_assert_eq!(a == b, plain);
    }

    /// Into a key that holds something already.
    #[test]
    fn a_mask_is_copied_as_it_is_returned(mask in key(), lines in any::<u8>(), old in few_bits()) {
        let mut mask = mask;
        (0..FLOW_LINES).filter(|i| lines >> i & 1 != 0).for_each(|i| mask.lines[i] = Line::ZERO);
        let mut copied = old;
        mask.copy_packet_mask(&mut copied);
        prop_assert_eq!(copied, mask.packet_mask());
    }
}

fn few_bits() -> impl Strategy<Value = PacketKey> {
    (any::<u8>(), 0..3u8, 0..layout::PACKET_LINES).prop_map(|(presence, byte, line)| {
        let mut key = PacketKey::ZERO;
        key.lines[line].0[40] = byte;
        key.lines[0].0[layout::PRESENCE.offset] = presence & 0xfe & 0b1011;
        key
    })
}

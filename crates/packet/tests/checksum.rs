//! The checksums against their definitions.

use proptest::collection::vec;
use proptest::prelude::*;
use sluice_packet::checksum::*;
use sluice_testkit::plain_checksum as plain;

/// Bytes of which many are extreme, so that sums carry and reach both zeros.
fn bytes(len: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(0), Just(0xff), any::<u8>()], len)
}

/// Even places and lengths for a field in `n` bytes behind a checksum in the first two.
fn field(n: usize) -> impl Strategy<Value = (usize, usize)> {
    (1..n / 2).prop_flat_map(move |at| (Just(at * 2), (0..=n / 2 - at).prop_map(|len| len * 2)))
}

proptest! {
    #[test]
    fn internet_checksum_is_its_definition(bytes in bytes(0..200)) {
        prop_assert_eq!(internet(&bytes), plain::internet(&bytes));
    }

    #[test]
    fn a_sum_is_the_same_in_either_byte_order(bytes in bytes(0..200)) {
        prop_assert_eq!(finish(native_sum(&bytes)).to_ne_bytes(), internet(&bytes).to_be_bytes());
    }

    #[test]
    fn pieces_add_up(a in bytes(0..40usize), b in bytes(0..40usize)) {
        let a = &a[..a.len() & !1];
        prop_assert_eq!(finish(sum(a) + sum(&b)), internet(&[a, &b].concat()));
    }

    #[test]
    fn an_update_is_a_computation(mut packet in bytes(40..41usize), (at, len) in field(40), new in bytes(40..41usize)) {
        packet[..2].fill(0);
        let before = internet(&packet);
        let old = packet[at..at + len].to_vec();
        packet[at..at + len].copy_from_slice(&new[..len]);
        let updated = update(before, &old, &new[..len]);
        // Ones' complement has two zeros, which are the same sum.
        prop_assert_eq!(updated % 0xffff, internet(&packet) % 0xffff);
    }

    #[test]
    fn crc32c_is_its_definition(bytes in bytes(0..200)) {
        prop_assert_eq!(crc32c(&bytes), plain::crc32c(&bytes));
    }

    #[test]
    fn crc32c_changes_by_the_difference(mut packet in bytes(20..300), new in bytes(4..5usize)) {
        let before = plain::crc32c(&packet);
        let old = packet[..4].to_vec();
        packet[..4].copy_from_slice(&new);
        let behind = packet.len() - 4;
        prop_assert_eq!(before ^ crc32c_difference(&old, &new, behind), plain::crc32c(&packet));
    }

    #[test]
    fn pseudo_headers_are_their_bytes(src in any::<[u8; 16]>(), dst in any::<[u8; 16]>(), proto: u8, size: u16) {
        let v6 = [&src[..], &dst, &u32::from(size).to_be_bytes(), &[0, 0, 0, proto]].concat();
        prop_assert_eq!(finish(pseudo_v6(src, dst, proto, size.into())), plain::internet(&v6));
        let (src, dst): ([u8; 4], [u8; 4]) = (*src.first_chunk().unwrap(), *dst.first_chunk().unwrap());
        let v4 = [&src[..], &dst, &[0, proto], &size.to_be_bytes()].concat();
        prop_assert_eq!(finish(pseudo_v4(src, dst, proto, size)), plain::internet(&v4));
    }
}

#[test]
fn an_update_gives_the_zero_that_rfc_1624_asks_for() {
    // Source: RFC 1624, section 4: from 0xdd2f with 0x5555 changed to 0x3285, the checksum is 0x0000.
    assert_eq!(update(0xdd2f, &[0x55, 0x55], &[0x32, 0x85]), 0x0000);
}

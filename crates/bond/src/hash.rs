//! The bucket that a station's packets belong to. Users see it (`bond/hash`), so it is Open vSwitch's, bit for bit. Source:
//! ofproto/bond.c, lib/hash.h.

use crate::BUCKETS;

/// The bucket of packets from an address in a VLAN.
pub fn bucket_of_source([a, b, c, d, e, f]: [u8; 6], vlan: u16, basis: u32) -> u8 {
    let [v, w] = vlan.to_be_bytes();
    let low = u32::from_be_bytes([c, d, e, f]);
    let high = u32::from_be_bytes([v, w, a, b]);
    (finish(add(add(basis, low), high) ^ 8) % BUCKETS as u32) as u8
}

/// MurmurHash3's step for one word.
fn add(hash: u32, word: u32) -> u32 {
    let mixed = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    (hash ^ mixed).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

/// MurmurHash3's last step.
fn finish(mut hash: u32) -> u32 {
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Debian's Open vSwitch 3.1.0 answers.
    #[test]
    fn buckets_are_open_vswitchs() {
        const A: [u8; 6] = [0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];
        assert_eq!(bucket_of_source(A, 0, 0), 168);
        assert_eq!(bucket_of_source(A, 10, 0), 247);
        assert_eq!(bucket_of_source(A, 10, 5), 185);
        assert_eq!(bucket_of_source([0; 6], 0, 0), 252);
        assert_eq!(bucket_of_source([0, 0, 0, 0, 0, 1], 4095, u32::MAX), 43);
        assert_eq!(bucket_of_source([1, 2, 3, 4, 5, 6], 70000_u32 as u16, 1), 66);
    }
}

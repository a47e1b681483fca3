//! `bond/hash`: the bucket of a bond that a station's packets belong to. Source: Open vSwitch ofproto/bond.c, lib/hash.h.

use super::Reply;
use sluice_flow::Mac;
use sluice_vswitch::Switch;

/// Buckets of a bond.
const BUCKETS: u32 = 256;

pub fn hash(_: &Switch, args: &[&str]) -> Reply {
    let vlan: u32 = args.get(1).map_or(Some(0), |vlan| vlan.parse().ok()).ok_or("invalid vlan")?;
    let basis: u32 = args.get(2).map_or(Some(0), |basis| basis.parse().ok()).ok_or("invalid basis")?;
    let mac: Mac = args[0].parse().map_err(|_| "invalid mac")?;
    Ok(bucket(mac, vlan as u16, basis).to_string())
}

fn bucket(Mac([a, b, c, d, e, f]): Mac, vlan: u16, basis: u32) -> u32 {
    let [v, w] = vlan.to_be_bytes();
    let low = u32::from_be_bytes([c, d, e, f]);
    let high = u32::from_be_bytes([v, w, a, b]);
    finish(add(add(basis, low), high) ^ 8) % BUCKETS
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
        let of = |mac: &str, vlan, basis| bucket(mac.parse().unwrap(), vlan, basis);
        assert_eq!(of("aa:bb:cc:dd:ee:ff", 0, 0), 168);
        assert_eq!(of("aa:bb:cc:dd:ee:ff", 10, 0), 247);
        assert_eq!(of("aa:bb:cc:dd:ee:ff", 10, 5), 185);
        assert_eq!(of("00:00:00:00:00:00", 0, 0), 252);
        assert_eq!(of("00:00:00:00:00:01", 4095, u32::MAX), 43);
        assert_eq!(of("01:02:03:04:05:06", 70000u32 as u16, 1), 66);
    }
}

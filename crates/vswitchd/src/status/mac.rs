//! A bridge's Ethernet address. Source: Open vSwitch vswitchd/bridge.c, `bridge_pick_local_hw_addr`.

use sluice_flow::Mac;
use sluice_ovsdb::Uuid;

/// Addresses of Extreme's protocols, which are neither multicast nor local and yet no host's.
/// Source: Open vSwitch lib/packets.c, `eth_addr_is_reserved`.
const RESERVED: [u128; 3] = [0x00e0_2b00_0000, 0x00e0_2b00_0004, 0x00e0_2b00_0006];

/// The smallest address of a port that can stand for the bridge.
pub fn smallest_usable(ports: impl Iterator<Item = Mac>) -> Option<Mac> {
    ports.filter(|mac| is_usable(*mac)).min()
}

/// A bridge without a port that has a usable address gets this one. It comes from the bridge's row and stays the same
/// at each start.
/// Source: `bridge_create`: the first bytes of the UUID as x86 keeps its words, marked as a local unicast address.
pub fn from_row(bridge: Uuid) -> Mac {
    let words = bridge.to_u128() >> 64;
    let (first, second) = ((words >> 32) as u32, words as u32);
    let ([a, b, c, d], [e, f, ..]) = (first.to_le_bytes(), second.to_le_bytes());
    Mac([a & !1 | 2, b, c, d, e, f])
}

fn is_usable(mac: Mac) -> bool {
    let [first, ..] = mac.0;
    first & 3 == 0 && mac.number() != 0 && !RESERVED.contains(&mac.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(text: &str) -> Mac {
        text.parse().unwrap()
    }

    #[test]
    fn local_group_and_reserved_addresses_do_not_count() {
        let macs = ["02:00:00:00:00:01", "01:00:00:00:00:01", "00:00:00:00:00:00", "00:e0:2b:00:00:04"].map(mac);
        assert_eq!(smallest_usable(macs.into_iter()), None);
        let usable = ["00:16:3e:00:00:02", "00:16:3e:00:00:01"].map(mac);
        assert_eq!(smallest_usable(macs.into_iter().chain(usable)), Some(mac("00:16:3e:00:00:01")));
    }

    #[test]
    fn the_address_of_a_row_is_open_vswitchs() {
        let row: Uuid = "02099acb-838a-4bb4-8f5c-eb1416e54a99".parse().unwrap();
        assert_eq!(from_row(row), mac("ca:9a:09:02:b4:4b"));
    }
}

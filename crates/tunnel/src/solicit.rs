//! Questions for the Ethernet address of a neighbour.

use sluice_packet::checksum;
use std::net::Ipv6Addr;

const BROADCAST: [u8; 6] = [0xff; 6];
/// Neighbour solicitation, and its option with the sender's address.
const SOLICITATION: u8 = 135;
const SOURCE_LINK_OPTION: [u8; 2] = [1, 1];
const ICMPV6: u8 = 58;
const ICMPV6_SIZE: u16 = 32;

/// The question of the device with that Ethernet address and that IP address: ARP's, or neighbour discovery's. Addresses
/// of IPv4 are IPv6 addresses that map them. Source: RFC 826; RFC 4861, 4.3.
pub fn solicit(mac: [u8; 6], src: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let mut out = Vec::with_capacity(86);
    if let Some(target) = target.to_ipv4_mapped() {
        out.extend(BROADCAST);
        out.extend(mac);
        out.extend([0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4, 0, 1]);
        out.extend(mac);
        out.extend(src.to_ipv4_mapped().map_or([0; 4], |src| src.octets()));
        out.extend([0; 6]);
        out.extend(target.octets());
        return out;
    }
    let [.., a, b, c] = target.octets();
    let group = solicited_node(target);
    out.extend([0x33, 0x33, 0xff, a, b, c]);
    out.extend(mac);
    out.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    out.extend(ICMPV6_SIZE.to_be_bytes());
    out.extend([ICMPV6, 255]);
    out.extend(src.octets());
    out.extend(group.octets());
    let icmp_at = out.len();
    out.extend([SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
    out.extend(target.octets());
    out.extend(SOURCE_LINK_OPTION);
    out.extend(mac);
    let pseudo = checksum::pseudo_v6(src.octets(), group.octets(), ICMPV6, ICMPV6_SIZE.into());
    let sum = checksum::finish(pseudo + checksum::sum(&out[icmp_at..]));
    out[icmp_at + 2..icmp_at + 4].copy_from_slice(&sum.to_be_bytes());
    out
}

/// The group of the hosts whose addresses end like this one. Source: RFC 4291, 2.7.1.
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [0xaa, 0x55, 0xaa, 0x55, 0, 0];

    #[test]
    fn arp_asks_everybody() {
        let v4 = |text: &str| text.parse::<std::net::Ipv4Addr>().unwrap().to_ipv6_mapped();
        let packet = solicit(MAC, v4("172.31.1.1"), v4("172.31.1.2"));
        let hex: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "ffffffffffffaa55aa55000008060001080006040001aa55aa550000ac1f0101000000000000ac1f0102");
    }

    #[test]
    fn neighbour_discovery_asks_the_group_of_the_target() {
        let packet = solicit(MAC, "2001:cafe::88".parse().unwrap(), "2001:cafe::1:92".parse().unwrap());
        let read = etherparse::PacketHeaders::from_ethernet_slice(&packet).unwrap();
        let (Some(etherparse::NetHeaders::Ipv6(ip, _)), Some(etherparse::TransportHeader::Icmpv6(icmp))) =
            (read.net, read.transport)
        else {
            panic!("{packet:?}");
        };
        assert_eq!(ip.destination_addr(), "ff02::1:ff01:92".parse::<Ipv6Addr>().unwrap());
        assert_eq!((ip.hop_limit, packet[..6].to_vec()), (255, vec![0x33, 0x33, 0xff, 1, 0, 0x92]));
        let sum = icmp.icmp_type.calc_checksum(ip.source, ip.destination, read.payload.slice()).unwrap();
        assert_eq!(icmp.checksum, sum);
    }
}

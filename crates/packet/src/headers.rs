//! Constants of the wire formats (Ethernet types, IP protocols, header sizes), and reading numbers from bytes.

/// Bytes in an Ethernet header without tags.
pub const ETHERNET_SIZE: usize = 14;
/// Bytes in a VLAN tag: TPID and TCI.
pub const VLAN_SIZE: usize = 4;
/// Bytes in an MPLS label stack entry.
pub const MPLS_SIZE: usize = 4;
/// Bytes in an IPv4 header without options.
pub const IPV4_SIZE: usize = 20;
/// Bytes in the fixed IPv6 header.
pub const IPV6_SIZE: usize = 40;
/// Bytes in an ARP packet for IPv4 over Ethernet.
pub const ARP_SIZE: usize = 28;
/// How ARP for IPv4 over Ethernet begins: hardware and protocol type, address sizes.
pub const ARP_IPV4_OVER_ETHERNET: [u8; 6] = [0, 1, 8, 0, 6, 4];
/// Bytes in a TCP header without options.
pub const TCP_SIZE: usize = 20;
/// Bytes in a UDP header.
pub const UDP_SIZE: usize = 8;
/// Bytes in an SCTP common header.
pub const SCTP_SIZE: usize = 12;
/// Bytes an ICMP, ICMPv6 or IGMP header has at least.
pub const ICMP_SIZE: usize = 8;

/// The smallest Ethernet type; smaller numbers are an 802.3 length.
pub const ETHERTYPE_MIN: u16 = 0x0600;
/// The Ethernet type in the key of an 802.2 frame without one. Source: OVS FLOW_DL_TYPE_NONE.
pub const ETHERTYPE_NONE: u16 = 0x05ff;

/// Ethernet types the switch knows.
pub mod ethertype {
    #![expect(missing_docs, reason = "the names are the protocols'")]
    pub const IPV4: u16 = 0x0800;
    pub const ARP: u16 = 0x0806;
    pub const RARP: u16 = 0x8035;
    pub const VLAN: u16 = 0x8100;
    pub const QINQ: u16 = 0x88a8;
    pub const IPV6: u16 = 0x86dd;
    pub const MPLS: u16 = 0x8847;
    pub const MPLS_MULTICAST: u16 = 0x8848;
    pub const NSH: u16 = 0x894f;

    /// Whether it announces a VLAN tag.
    #[inline]
    pub const fn is_vlan(ethertype: u16) -> bool {
        matches!(ethertype, VLAN | QINQ)
    }

    /// Whether it announces an MPLS label stack.
    #[inline]
    pub const fn is_mpls(ethertype: u16) -> bool {
        matches!(ethertype, MPLS | MPLS_MULTICAST)
    }
}

/// IP protocols the switch knows, IPv6 extension headers among them.
pub mod ip_proto {
    #![expect(missing_docs, reason = "the names are the protocols'")]
    pub const HOP_BY_HOP: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const IGMP: u8 = 2;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    /// GRE.
    pub const GRE: u8 = 47;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const AH: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const DESTINATION: u8 = 60;
    pub const SCTP: u8 = 132;
}

/// Whether the protocol has ports, or as ICMP a type and a code in their place.
#[inline]
pub const fn has_ports(proto: u8) -> bool {
    use ip_proto::{ICMP, ICMPV6, SCTP, TCP, UDP};
    matches!(proto, ICMP | TCP | UDP | ICMPV6 | SCTP)
}

/// ICMPv6 types of neighbour discovery.
pub mod nd {
    /// Neighbour solicitation.
    pub const SOLICIT: u8 = 135;
    /// Neighbour advertisement.
    pub const ADVERT: u8 = 136;
    /// Option: source link-layer address.
    pub const SOURCE_LINK_ADDRESS: u8 = 1;
    /// Option: target link-layer address.
    pub const TARGET_LINK_ADDRESS: u8 = 2;
    /// Bytes before the options: ICMPv6 header, flags and target.
    pub const SIZE: usize = 24;
}

/// The packet is a fragment. As in the key's `NW_FRAG`.
pub const FRAG_ANY: u8 = 1;
/// The packet is a fragment but not the first, so it has no L4 header. As in the key's `NW_FRAG`.
pub const FRAG_LATER: u8 = 2;

/// The big-endian 16-bit number at `at`, if the bytes are there.
#[inline]
pub fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The big-endian 32-bit number at `at`, if the bytes are there.
#[inline]
pub fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

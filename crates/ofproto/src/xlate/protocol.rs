//! Which protocols the packet of a key has.

use sluice_flow::{FlowKey, layout};
use sluice_packet::headers::ethertype;

/// The Ethernet type.
pub fn ethertype_of(key: &FlowKey) -> u16 {
    key.number(layout::DL_TYPE) as u16
}

/// The IP protocol; ARP keeps its operation here.
pub fn ip_proto_of(key: &FlowKey) -> u8 {
    key.number(layout::NW_PROTO) as u8
}

/// Whether it is IPv4 or IPv6.
pub fn is_ip(key: &FlowKey) -> bool {
    matches!(ethertype_of(key), ethertype::IPV4 | ethertype::IPV6)
}

/// Whether it has MPLS labels.
pub fn is_mpls(key: &FlowKey) -> bool {
    ethertype::is_mpls(ethertype_of(key))
}

//! Where a packet's headers are.
//!
//! Both key extraction (its general path) and header edits use this parser, so an edit finds exactly the headers that
//! are in the key. It reads truncated and malformed packets as Open vSwitch does: a header counts if all of it is there
//! and its own lengths are consistent; otherwise the packet ends before it.
//!
//! The result is not stored with the packet. Most packets are forwarded without being read after lookup, and parsing
//! again for an edit costs about twenty cycles, since the packet's lines are in the cache.

use crate::VlanLimit;
use crate::headers::*;

/// The MPLS label stack entries that a key can hold.
pub const LABELS_MAX: usize = 3;

/// Where a packet's headers are. Offsets are bytes from the start of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// VLAN tags in front of the Ethernet type, as many as the limit on tags allows.
    pub vlans: usize,
    /// Ethernet type behind the tags, or [`ETHERTYPE_NONE`].
    pub ethertype: u16,
    /// Where the Ethernet header ends, tags and SNAP header included: the label stack if there is one, else L3.
    pub l2_end: usize,
    /// Label stack entries, the bottom of stack included.
    pub labels: usize,
    /// Where L3 begins, or would begin.
    pub l3: usize,
    /// The IP header at `l3`, if it is valid.
    pub ip: Option<Ip>,
}

/// A valid IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// Whether it is IPv6.
    pub v6: bool,
    /// Where the IP packet ends according to its length field; what follows is L2 padding. At most the packet's length.
    pub end: usize,
    /// What is behind the IP header; `None` if the IPv6 extension headers are broken.
    pub payload: Option<Payload>,
    /// Whether an IPv6 routing header has segments left: the L4 checksum then covers the final destination instead.
    pub rerouted: bool,
}

/// What is behind IP headers, IPv6 extension headers included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// IP protocol; [`ip_proto::FRAGMENT`] for later IPv6 fragments.
    pub proto: u8,
    /// [`FRAG_ANY`] and [`FRAG_LATER`].
    pub frag: u8,
    /// Where it begins.
    pub l4: usize,
}

impl Layers {
    /// Whether the Ethernet type stands in the Ethernet header (or a tag), where an IEEE 802.3 frame has its length.
    #[inline]
    pub fn is_ethernet_ii(&self) -> bool {
        self.l2_end == ETHERNET_SIZE + self.vlans * VLAN_SIZE
    }

    /// Parses the headers; `None` if the packet is shorter than an Ethernet header.
    ///
    /// It reads as many tags as a key holds.
    #[inline(always)]
    pub fn of(bytes: &[u8]) -> Option<Layers> {
        Layers::with_vlan_limit(bytes, VlanLimit::MAX)
    }

    /// [`Layers::of`], which reads no more tags than `limit` allows.
    #[inline(always)]
    pub fn with_vlan_limit(bytes: &[u8], limit: VlanLimit) -> Option<Layers> {
        let (vlans, type_at) = vlan_tags(bytes, limit)?;
        let (ethertype, l2_end) = ethertype_at(bytes, type_at)?;
        let mut layers = Layers { vlans, ethertype, l2_end, labels: 0, l3: l2_end, ip: None };
        match ethertype {
            ethertype::IPV4 => layers.ip = ipv4(bytes, l2_end),
            ethertype::IPV6 => layers.ip = ipv6(bytes, l2_end),
            ethertype::MPLS | ethertype::MPLS_MULTICAST => {
                layers.labels = labels(&bytes[l2_end..]);
                layers.l3 += layers.labels * MPLS_SIZE;
            }
            _ => {}
        }
        Some(layers)
    }

    /// Where the L4 header begins: of IP packets that are not later fragments.
    #[inline]
    pub fn l4(&self) -> Option<(u8, usize)> {
        let payload = self.ip?.payload?;
        (payload.frag & FRAG_LATER == 0).then_some((payload.proto, payload.l4))
    }
}

/// The number of tags, and where the Ethernet type behind them is. A tag counts if an Ethernet type follows it.
#[inline(always)]
fn vlan_tags(bytes: &[u8], limit: VlanLimit) -> Option<(usize, usize)> {
    let mut at = ETHERNET_SIZE - 2;
    let mut vlans = 0;
    let mut ethertype = be16(bytes, at)?;
    while vlans < limit.tags() && ethertype::is_vlan(ethertype) {
        let Some(next) = be16(bytes, at + VLAN_SIZE) else { break };
        ethertype = next;
        at += VLAN_SIZE;
        vlans += 1;
    }
    Some((vlans, at))
}

/// The Ethernet type at `at`, or behind the SNAP header that follows a length there, and where its payload begins.
#[inline(always)]
fn ethertype_at(bytes: &[u8], at: usize) -> Option<(u16, usize)> {
    /// LLC with SNAP in all three octets, and the organisation code that means "an Ethernet type follows".
    const SNAP: [u8; 6] = [0xaa, 0xaa, 0x03, 0, 0, 0];

    let (payload, ethertype) = (at + 2, be16(bytes, at)?);
    if ethertype >= ETHERTYPE_MIN {
        return Some((ethertype, payload));
    }
    match bytes[payload..].first_chunk::<8>() {
        Some([llc @ .., a, b]) if *llc == SNAP => {
            let ethertype = u16::from_be_bytes([*a, *b]);
            Some((if ethertype >= ETHERTYPE_MIN { ethertype } else { ETHERTYPE_NONE }, payload + 8))
        }
        _ => Some((ETHERTYPE_NONE, payload)),
    }
}

/// Complete label stack entries up to the bottom of stack, or up to the end if that is missing.
fn labels(stack: &[u8]) -> usize {
    let (entries, _) = stack.as_chunks::<MPLS_SIZE>();
    entries.iter().position(|lse| lse[2] & 1 != 0).map_or(entries.len(), |bottom| bottom + 1)
}

/// The IPv4 header at `at`, if its lengths are consistent and fit the packet. Like OVS, ignores the version.
#[inline(always)]
fn ipv4(bytes: &[u8], at: usize) -> Option<Ip> {
    let header = bytes[at..].first_chunk::<IPV4_SIZE>()?;
    let size = bytes.len() - at;
    let header_size = usize::from(header[0] & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // The last bound is OVS's: its count of padding bytes has 16 bits.
    if header_size < IPV4_SIZE || total < header_size || total > size || size - total > usize::from(u16::MAX) {
        return None;
    }
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    let frag = if fragment & 0x1fff != 0 {
        FRAG_ANY | FRAG_LATER
    } else if fragment & 0x2000 != 0 {
        FRAG_ANY
    } else {
        0
    };
    let payload = Payload { proto: header[9], frag, l4: at + header_size };
    Some(Ip { v6: false, end: at + total, payload: Some(payload), rerouted: false })
}

/// The IPv6 header at `at`, if its length fits the packet. Like OVS, ignores the version.
fn ipv6(bytes: &[u8], at: usize) -> Option<Ip> {
    let header = bytes[at..].first_chunk::<IPV6_SIZE>()?;
    let rest = bytes.len() - at - IPV6_SIZE;
    let payload_size = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if payload_size > rest || rest - payload_size > usize::from(u16::MAX) {
        return None;
    }
    let end = at + IPV6_SIZE + payload_size;
    let mut rerouted = false;
    let payload = extension_headers(&bytes[..end], at + IPV6_SIZE, header[6], &mut rerouted);
    Some(Ip { v6: true, end, payload, rerouted })
}

/// Follows the chain of extension headers that begins at `at` with header `proto`.
///
/// Each iteration advances by at least eight bytes, so the packet's length bounds the loop.
fn extension_headers(packet: &[u8], mut at: usize, mut proto: u8, rerouted: &mut bool) -> Option<Payload> {
    let mut frag = 0;
    loop {
        let is_extension = matches!(
            proto,
            ip_proto::HOP_BY_HOP | ip_proto::ROUTING | ip_proto::DESTINATION | ip_proto::AH | ip_proto::FRAGMENT
        );
        if !is_extension {
            return Some(Payload { proto, frag, l4: at });
        }
        let &[next, len, hi, lo, ..] = packet.get(at..)?.first_chunk::<8>()?;
        let size = match proto {
            ip_proto::FRAGMENT => 8,
            ip_proto::AH => (usize::from(len) + 2) * 4,
            _ => (usize::from(len) + 1) * 8,
        };
        if packet.len() - at < size {
            return None;
        }
        at += size;
        match proto {
            // hi is the routing type, lo the segments left.
            ip_proto::ROUTING if lo > 0 => *rerouted = true,
            ip_proto::FRAGMENT => {
                let fragment = u16::from_be_bytes([hi, lo]);
                // As OVS: reserved bits alone make it a fragment too, and a second fragment header adds to the first.
                if fragment != 0 {
                    frag = FRAG_ANY;
                    if fragment & 0xfff8 != 0 {
                        return Some(Payload { proto, frag: FRAG_ANY | FRAG_LATER, l4: at });
                    }
                }
            }
            _ => {}
        }
        proto = next;
    }
}

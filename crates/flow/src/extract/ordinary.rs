//! The path of ordinary packets: at most one VLAN tag, IPv4 without options, not a fragment, TCP, UDP, SCTP or ICMP.

use super::Metadata;
use crate::Line;
use sluice_packet::headers::*;

/// What IPv4 and L4 put into line 0.
struct Ipv4 {
    /// TCP flags in the last two bytes of word 5.
    tcp_flags: u64,
    /// Addresses.
    word6: u64,
    /// Protocol, type of service, time to live, fragment, ports.
    word7: u64,
}

/// Line 0 of an ordinary packet; `None` if the packet is not one.
#[inline]
pub(super) fn line(bytes: &[u8], metadata: &Metadata) -> Option<Line> {
    let ethernet = bytes.first_chunk::<18>()?;
    let macs = word(&ethernet[..8]);
    let source = u64::from(half(&ethernet[8..12]));
    let [w0, w1, w2] = metadata.words;
    let ethertype = u16::from_be_bytes([ethernet[12], ethernet[13]]);
    if ethertype == ethertype::IPV4 {
        let ip = ipv4(&bytes[ETHERNET_SIZE..])?;
        let word5 = dl_type(ethertype::IPV4) | ip.tcp_flags;
        return Some(Line::from_words([w0, w1, w2, macs, source, word5, ip.word6, ip.word7]));
    }
    if ethertype == ethertype::VLAN && ethernet[16..18] == ethertype::IPV4.to_be_bytes() {
        let ip = ipv4(&bytes[ETHERNET_SIZE + VLAN_SIZE..])?;
        let word5 = dl_type(ethertype::IPV4) | ip.tcp_flags;
        // 0x10 is CFI in the TCI's first byte: the tag is there.
        let tag = half(&ethernet[12..16]) | u32::from_le_bytes([0, 0, 0x10, 0]);
        let word4 = source | u64::from(tag) << 32;
        return Some(Line::from_words([w0, w1, w2, macs, word4, word5, ip.word6, ip.word7]));
    }
    None
}

/// The packet behind the Ethernet header, if it is ordinary. The checks are those of `Layers`.
#[inline(always)]
fn ipv4(packet: &[u8]) -> Option<Ipv4> {
    // With the smallest L4 header that counts. A packet without (an empty UDP datagram has one) is not ordinary.
    let header = packet.first_chunk::<{ IPV4_SIZE + UDP_SIZE }>()?;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
    let padding = packet.len().wrapping_sub(total);
    if header[0] & 0x0f != 5 || fragment != 0 || total < IPV4_SIZE + UDP_SIZE || padding > usize::from(u16::MAX) {
        return None;
    }
    let l4 = half(&header[20..24]);
    let (tp, tcp_flags) = match header[9] {
        ip_proto::UDP => (l4, 0),
        ip_proto::TCP => {
            let &[control, flags] = packet.get(IPV4_SIZE + 12..)?.first_chunk::<2>()?;
            let tcp_size = usize::from(control >> 4) * 4;
            if tcp_size < TCP_SIZE || total < IPV4_SIZE + tcp_size {
                return None;
            }
            (l4, u64::from(control & 0x0f) << 48 | u64::from(flags) << 56)
        }
        ip_proto::SCTP if total >= IPV4_SIZE + SCTP_SIZE => (l4, 0),
        // Type and code, a byte each, become numbers of two bytes.
        ip_proto::ICMP => (l4 << 8 & 0xff00 | (l4 & 0xff00) << 16, 0),
        _ => return None,
    };
    let word7 = u64::from(header[9]) | u64::from(header[1]) << 8 | u64::from(header[8]) << 16 | u64::from(tp) << 32;
    Some(Ipv4 { tcp_flags, word6: word(&header[12..20]), word7 })
}

/// The Ethernet type in its place in word 5.
const fn dl_type(ethertype: u16) -> u64 {
    (ethertype.swap_bytes() as u64) << 32
}

/// Eight bytes as a little-endian word.
#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("invariant: the callers' ranges are eight bytes"))
}

/// Four bytes as a little-endian number.
#[inline(always)]
fn half(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(*bytes.first_chunk().expect("invariant: the callers' ranges are four bytes"))
}

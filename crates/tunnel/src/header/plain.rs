//! Reading the commonest header.

use super::*;
use sluice_flow::{TunnelKey, tunnel_flags};
use sluice_packet::checksum;
use std::net::Ipv4Addr;

/// Bytes of a plain header, whose fields have fixed places.
pub const PLAIN_SIZE: usize = IP_AT + IPV4_SIZE + UDP_SIZE + VNI_HEADER_SIZE;

const L4_AT: usize = IP_AT + IPV4_SIZE;
const VNI_HEADER_AT: usize = L4_AT + UDP_SIZE;

/// Ethernet type, version and header length, of which the type of service, the fourth byte, is none.
const IPV4: u32 = u32::from_be_bytes([0x08, 0x00, 0x45, 0]);
const ANY_TOS: u32 = 0xffff_ff00;

/// What [`pop`] reads of a plain header: VXLAN or Geneve, without flags, options or extensions, over IPv4 without options
/// and UDP without a checksum. Of any other packet, good or bad, `None`.
#[inline(always)]
pub fn pop_plain(kind: TunnelKind, packet: &[u8]) -> Option<TunnelKey> {
    let header: &[u8; PLAIN_SIZE] = packet.first_chunk()?;
    let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let address = |at| Ipv4Addr::from_bits(word(at)).to_ipv6_mapped().to_bits();
    let flags = match kind {
        TunnelKind::Vxlan => VXLAN_VNI,
        TunnelKind::Geneve => u16::from_be_bytes(PROTO_ETHERNET).into(),
        _ => return None,
    };
    let (size, vni) = (usize::from(short(IP_AT + 2)), word(VNI_HEADER_AT + 4));
    // All checks at once: one branch, which is almost always taken.
    let is_plain = (word(ETHERTYPE_AT) & ANY_TOS == IPV4)
        & (header[IP_AT + 9] == PROTO_UDP)
        & (size >= PLAIN_SIZE - IP_AT)
        & (size <= packet.len() - IP_AT)
        & (usize::from(short(L4_AT + 4)) + IPV4_SIZE == size)
        & (short(L4_AT + 6) == 0)
        & (word(VNI_HEADER_AT) == flags)
        & (vni & 0xff == 0)
        & (checksum::finish(checksum::native_sum(&header[IP_AT..L4_AT])) == 0);
    is_plain.then(|| TunnelKey {
        id: (vni >> 8).into(),
        src: address(IP_AT + 12),
        dst: address(IP_AT + 16),
        flags: tunnel_flags::KEY,
        tos: header[IP_AT + 1],
        ttl: header[IP_AT + 8],
        ..TunnelKey::default()
    })
}

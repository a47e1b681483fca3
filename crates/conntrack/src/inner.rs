//! The packet inside an ICMP error: extracting its tuple, and translating it.
//!
//! It is usually truncated, and its checksums are not checked. [`sluice_packet::Layers`] is not used, since it needs
//! the whole packet.

use crate::conn_key::{addresses, ports, question};
use crate::tuple::Tuple;
use sluice_action::ct::NatTarget;
use sluice_packet::checksum;
use sluice_packet::headers::*;

/// The packet inside an error.
pub(crate) struct InnerPacket {
    /// The tuple as its sender sees it.
    pub tuple: Tuple,
    /// Where its L4 header begins.
    pub l4: usize,
}

/// The bytes of the L4 header that an IPv4 error has at least. Source: RFC 792.
const L4_IN_ERROR: usize = 8;

/// Reads the packet that begins `bytes`; `None` if its connection is unknown.
pub(crate) fn of(bytes: &[u8], v6: bool, zone: u16) -> Option<InnerPacket> {
    let (proto, l4) = if v6 { ipv6(bytes)? } else { ipv4(bytes)? };
    let mut tuple = addresses(bytes, v6, proto, zone)?;
    let rest = bytes.get(l4..)?;
    // An IPv6 error has room for the whole L4 header, so all of it must be there.
    let (tcp, udp) = if v6 { (TCP_SIZE, UDP_SIZE) } else { (L4_IN_ERROR, L4_IN_ERROR) };
    match proto {
        ip_proto::TCP if rest.len() >= tcp => ports(&mut tuple, rest)?,
        ip_proto::UDP if rest.len() >= udp => ports(&mut tuple, rest)?,
        ip_proto::TCP | ip_proto::UDP => return None,
        ip_proto::ICMP if !v6 => question(&mut tuple, rest)?,
        ip_proto::ICMPV6 if v6 => question(&mut tuple, rest)?,
        _ => {}
    }
    Some(InnerPacket { tuple, l4 })
}

fn ipv4(bytes: &[u8]) -> Option<(u8, usize)> {
    let header = bytes.first_chunk::<IPV4_SIZE>()?;
    let size = usize::from(header[0] & 0x0f) * 4;
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    (size >= IPV4_SIZE && size <= bytes.len() && !is_fragment).then_some((header[9], size))
}

/// Follows the extension headers. Each iteration advances by at least eight bytes.
fn ipv6(bytes: &[u8]) -> Option<(u8, usize)> {
    let (mut proto, mut at) = (bytes.first_chunk::<IPV6_SIZE>()?[6], IPV6_SIZE);
    loop {
        let size = |unit: usize, more: usize| Some((usize::from(*bytes.get(at + 1)?) + more) * unit);
        let size = match proto {
            ip_proto::HOP_BY_HOP | ip_proto::ROUTING | ip_proto::DESTINATION => size(8, 1)?,
            ip_proto::AH => size(4, 2)?,
            // A fragment header of zeros is skipped, as in an ordinary packet.
            ip_proto::FRAGMENT if be16(bytes, at + 2)? == 0 => 8,
            ip_proto::FRAGMENT => return None,
            _ => return Some((proto, at)),
        };
        if bytes.len().checked_sub(at)? < size.max(8) {
            return None;
        }
        (proto, at) = (bytes[at], at + size);
    }
}

/// Translates the packet inside: sets one address and both ports to those of `as_sent`, the packet's tuple as its
/// sender sent it, or as its receiver is to see it. Updates the checksums that are there.
pub(crate) fn translate(bytes: &mut [u8], as_sent: &Tuple, which: NatTarget) {
    let Some(inner) = of(bytes, as_sent.v6, as_sent.zone) else { return };
    let (addr, at) = match which {
        NatTarget::Src => (as_sent.src.addr, if as_sent.v6 { 8 } else { 12 }),
        NatTarget::Dst => (as_sent.dst.addr, if as_sent.v6 { 24 } else { 16 }),
    };
    let size = if as_sent.v6 { 16 } else { 4 };
    let sum = sum_of(inner.tuple.proto, inner.l4, as_sent.v6);
    if !as_sent.v6 {
        put(bytes, at, &addr[..size], [Some(CoveringSum { at: 10, is_udp: false }), sum]);
    } else {
        put(bytes, at, &addr[..size], [sum, None]);
    }
    if inner.tuple.has_ports() {
        put(bytes, inner.l4, &as_sent.src.port.to_be_bytes(), [sum, None]);
        put(bytes, inner.l4 + 2, &as_sent.dst.port.to_be_bytes(), [sum, None]);
    }
}

/// A checksum that covers a field.
#[derive(Clone, Copy)]
struct CoveringSum {
    at: usize,
    is_udp: bool,
}

fn sum_of(proto: u8, l4: usize, v6: bool) -> Option<CoveringSum> {
    match proto {
        ip_proto::TCP => Some(CoveringSum { at: l4 + 16, is_udp: false }),
        ip_proto::UDP => Some(CoveringSum { at: l4 + 6, is_udp: true }),
        ip_proto::ICMPV6 if v6 => Some(CoveringSum { at: l4 + 2, is_udp: false }),
        _ => None,
    }
}

fn put(bytes: &mut [u8], at: usize, new: &[u8], sums: [Option<CoveringSum>; 2]) {
    let mut old = [0; 16];
    let Some(field) = bytes.get_mut(at..at + new.len()) else { return };
    old[..new.len()].copy_from_slice(field);
    field.copy_from_slice(new);
    for sum in sums.into_iter().flatten() {
        let Some(field) = bytes.get_mut(sum.at..).and_then(|rest| rest.first_chunk_mut::<2>()) else { continue };
        let (before, change) = (u16::from_be_bytes(*field), checksum::change(&old[..new.len()], new));
        let apply = if sum.is_udp { checksum::apply_udp } else { checksum::apply };
        *field = apply(before, change).to_be_bytes();
    }
}

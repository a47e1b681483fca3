//! NAT: translating a packet and its key.

use crate::conn_key::ConnKey;
use crate::inner;
use crate::tuple::Tuple;
use sluice_action::ct::NatTarget;
use sluice_flow::PacketKey;
use sluice_flow::layout::{self, Span};
use sluice_packet::edit::{self, Field};
use sluice_packet::headers::{ICMP_SIZE, ip_proto};
use sluice_packet::{Layers, Packet, checksum};

/// Translates `packet` so that its receiver sees the tuple `as_seen`: changes the address that `target` names, and both
/// ports. For an ICMP error it changes the error's own address, and the packet inside, which goes the other way.
pub(crate) fn translate(
    packet: &mut Packet,
    key: &mut PacketKey,
    conn_key: &ConnKey,
    as_seen: &Tuple,
    target: NatTarget,
) {
    if conn_key.is_plain() {
        return translate_plain(packet, key, conn_key, as_seen, target);
    }
    outer_address(packet, key, as_seen, target);
    if conn_key.related {
        let bytes = packet.bytes_mut();
        let Some(error) = bytes.get_mut(conn_key.l4..conn_key.end) else { return };
        inner::translate(&mut error[ICMP_SIZE..], &as_seen.reversed(), target.flipped());
        renew_checksum(bytes, conn_key);
    } else if as_seen.has_ports() {
        ports(packet, key, as_seen);
    }
}

/// [`translate`] for a [plain](ConnKey::is_plain) packet.
///
/// One sum for all that changes: a field at a time, each after finding the headers again, costs several times that.
fn translate_plain(
    packet: &mut Packet,
    key: &mut PacketKey,
    &ConnKey { l3, l4, .. }: &ConnKey,
    as_seen: &Tuple,
    target: NatTarget,
) {
    let bytes = packet.bytes_mut();
    let (span, addr) = address_of(as_seen, target);
    let address = match (target, as_seen.v6) {
        (NatTarget::Src, false) => replace(bytes, l3 + 12, first::<4>(addr)),
        (NatTarget::Dst, false) => replace(bytes, l3 + 16, first::<4>(addr)),
        (NatTarget::Src, true) => replace(bytes, l3 + 8, addr),
        (NatTarget::Dst, true) => replace(bytes, l3 + 24, addr),
    };
    let (src, dst) = (as_seen.src.port.to_be_bytes(), as_seen.dst.port.to_be_bytes());
    let change = address + replace(bytes, l4, &[src[0], src[1], dst[0], dst[1]]);
    if !as_seen.v6 {
        put_checksum(bytes, l3 + 10, |old| checksum::apply(old, address));
    }
    match as_seen.proto {
        ip_proto::TCP => put_checksum(bytes, l4 + 16, |old| checksum::apply(old, change)),
        _ => put_checksum(bytes, l4 + 6, |old| checksum::apply_udp(old, change)),
    }
    key.set(span, &addr[..span.size]);
    key.set(layout::TP_SRC, &src);
    key.set(layout::TP_DST, &dst);
}

/// Replaces the bytes at `at`, and returns the change of a checksum's sum.
fn replace<const N: usize>(bytes: &mut [u8], at: usize, new: &[u8; N]) -> u64 {
    let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<N>()) else { return 0 };
    let old = std::mem::replace(field, *new);
    if old == *new { 0 } else { checksum::change(&old, new) }
}

fn put_checksum(bytes: &mut [u8], at: usize, new: impl Fn(u16) -> u16) {
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *field = new(u16::from_be_bytes(*field)).to_be_bytes();
    }
}

/// The first bytes of an address.
fn first<const N: usize>(addr: &[u8; 16]) -> &[u8; N] {
    addr.first_chunk().expect("invariant: an address has sixteen bytes")
}

/// The address that is translated, and where a key has it.
fn address_of(as_seen: &Tuple, target: NatTarget) -> (Span, &[u8; 16]) {
    match (target, as_seen.v6) {
        (NatTarget::Src, false) => (layout::NW_SRC, &as_seen.src.addr),
        (NatTarget::Dst, false) => (layout::NW_DST, &as_seen.dst.addr),
        (NatTarget::Src, true) => (layout::IPV6_SRC, &as_seen.src.addr),
        (NatTarget::Dst, true) => (layout::IPV6_DST, &as_seen.dst.addr),
    }
}

/// Sets a field. The packet has that header, so this does not fail.
fn set(packet: &mut Packet, field: Field, value: &[u8]) {
    let layers = Layers::of(packet.bytes());
    let done = layers.map(|layers| edit::set(packet.bytes_mut(), &layers, field, value, &[0xff; 16]));
    debug_assert_eq!(done, Some(Ok(())), "{field:?} of a packet whose connection is known");
}

fn outer_address(packet: &mut Packet, key: &mut PacketKey, as_seen: &Tuple, target: NatTarget) {
    let (span, addr) = address_of(as_seen, target);
    let field = match (target, as_seen.v6) {
        (NatTarget::Src, false) => Field::Ipv4Src,
        (NatTarget::Dst, false) => Field::Ipv4Dst,
        (NatTarget::Src, true) => Field::Ipv6Src,
        (NatTarget::Dst, true) => Field::Ipv6Dst,
    };
    set(packet, field, &addr[..span.size]);
    key.set(span, &addr[..span.size]);
}

fn ports(packet: &mut Packet, key: &mut PacketKey, as_seen: &Tuple) {
    let (src_field, dst_field) = match as_seen.proto {
        ip_proto::TCP => (Field::TcpSrc, Field::TcpDst),
        _ => (Field::UdpSrc, Field::UdpDst),
    };
    let (src, dst) = (as_seen.src.port.to_be_bytes(), as_seen.dst.port.to_be_bytes());
    set(packet, src_field, &src);
    set(packet, dst_field, &dst);
    key.set(layout::TP_SRC, &src);
    key.set(layout::TP_DST, &dst);
}

/// Recomputes an ICMP error's checksum, since many of the bytes that it covers have changed.
fn renew_checksum(bytes: &mut [u8], conn_key: &ConnKey) {
    let (l3, l4, end) = (conn_key.l3, conn_key.l4, conn_key.end);
    let Some(sum) = bytes.get_mut(l4 + 2..).and_then(|rest| rest.first_chunk_mut::<2>()) else { return };
    *sum = [0, 0];
    let covered = match conn_key.tuple.v6 {
        // The pseudo header: addresses, length, protocol.
        true => checksum::sum(&bytes[l3 + 8..l3 + 40]) + (end - l4) as u64 + u64::from(ip_proto::ICMPV6),
        false => 0,
    };
    let new = checksum::finish(covered + checksum::sum(&bytes[l4..end]));
    bytes[l4 + 2..l4 + 4].copy_from_slice(&new.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn_key;
    use crate::request::Checksums;
    use proptest::prelude::*;
    use sluice_testkit::frame::{FrameBuilder, ethernet};
    use sluice_testkit::pool::TestPool;

    fn frame(v6: bool, [src, dst]: [u8; 2], further: bool) -> FrameBuilder {
        match (v6, further) {
            (true, false) => ethernet().ipv6([src; 16], [dst; 16]),
            (true, true) => ethernet().ipv6([src; 16], [dst; 16]).routing(1, [7; 16]),
            (false, false) => ethernet().ipv4([src; 4], [dst; 4]),
            (false, true) => ethernet().vlan(5).ipv4([src; 4], [dst; 4]).ipv4_options(&[1; 4]),
        }
    }

    proptest! {
        /// At once as one field at a time, also behind further headers. Few values, so that fields often keep theirs; sums of zero
        /// and all ones are common.
        #[test]
        fn a_translation_at_once_is_that_of_its_fields(
            (v6, tcp, is_src, further) in any::<(bool, bool, bool, bool)>(),
            addresses in prop::array::uniform2(prop::sample::select(vec![0u8, 1, 10, 0xff])),
            new_address in prop::sample::select(vec![0u8, 1, 10, 0xff]),
            ports in prop::array::uniform4(prop::sample::select(vec![1u16, 80, 0xffff])),
            sums in prop::array::uniform2(prop_oneof![Just(0u16), Just(0xffff), any::<u16>()]),
        ) {
            let target = if is_src { NatTarget::Src } else { NatTarget::Dst };
            let builder = frame(v6, addresses, further);
            let [src, dst, new_src, new_dst] = ports;
            let builder = if tcp { builder.tcp(src, dst) } else { builder.udp(src, dst) };
            let mut bytes = builder.payload(b"payload").build();
            let conn_key = conn_key::read(&bytes, 0, Checksums::Good).expect("TCP or UDP");
            let ConnKey { l3, l4, .. } = conn_key;
            if !v6 {
                bytes[l3 + 10..l3 + 12].copy_from_slice(&sums[0].to_be_bytes());
            }
            let at = l4 + if tcp { 16 } else { 6 };
            bytes[at..at + 2].copy_from_slice(&sums[1].to_be_bytes());
            let mut as_seen = conn_key.tuple;
            let size = if v6 { 16 } else { 4 };
            let end = if is_src { &mut as_seen.src } else { &mut as_seen.dst };
            end.addr[..size].fill(new_address);
            (as_seen.src.port, as_seen.dst.port) = (new_src, new_dst);

            let mut pool = TestPool::new();
            let (mut at_once, mut one_by_one) = (pool.packet(&bytes), pool.packet(&bytes));
            let (mut key, mut twin_key) = (PacketKey::ZERO, PacketKey::ZERO);
            translate(&mut at_once, &mut key, &conn_key, &as_seen, target);
            outer_address(&mut one_by_one, &mut twin_key, &as_seen, target);
            super::ports(&mut one_by_one, &mut twin_key, &as_seen);
            prop_assert_eq!(pool.take_bytes(at_once), pool.take_bytes(one_by_one));
            prop_assert_eq!(key, twin_key);
        }
    }
}

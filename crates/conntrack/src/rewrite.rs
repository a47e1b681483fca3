//! NAT: translating a packet and its key.

use crate::conn_key::ConnKey;
use crate::inner;
use crate::tuple::Tuple;
use sluice_action::ct::NatTarget;
use sluice_flow::PacketKey;
use sluice_flow::layout;
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

/// Sets a field. The packet has that header, so this does not fail.
fn set(packet: &mut Packet, field: Field, value: &[u8]) {
    let layers = Layers::of(packet.bytes());
    let done = layers.map(|layers| edit::set(packet.bytes_mut(), &layers, field, value, &[0xff; 16]));
    debug_assert_eq!(done, Some(Ok(())), "{field:?} of a packet whose connection is known");
}

fn outer_address(packet: &mut Packet, key: &mut PacketKey, as_seen: &Tuple, target: NatTarget) {
    let v6 = as_seen.v6;
    let addr = match target {
        NatTarget::Src => &as_seen.src.addr,
        NatTarget::Dst => &as_seen.dst.addr,
    };
    let (field, span) = match (target, v6) {
        (NatTarget::Src, false) => (Field::Ipv4Src, layout::NW_SRC),
        (NatTarget::Dst, false) => (Field::Ipv4Dst, layout::NW_DST),
        (NatTarget::Src, true) => (Field::Ipv6Src, layout::IPV6_SRC),
        (NatTarget::Dst, true) => (Field::Ipv6Dst, layout::IPV6_DST),
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

//! The path of all packets: header by header, field by field.

use super::{METADATA_SIZE, Metadata, ParseError};
use crate::layout::{self, Span};
use crate::{Line, PacketKey};
use sluice_packet::headers::*;
use sluice_packet::{Ip, LABELS_MAX, Layers, Payload};

/// The general path of [`super::extract`]; never inlined, to keep the ordinary one small.
#[inline(never)]
pub(super) fn extract(bytes: &[u8], metadata: &Metadata, key: &mut PacketKey) -> Result<(), ParseError> {
    let layers = Layers::with_vlan_limit(bytes, metadata.vlan_limit).ok_or(ParseError::Runt)?;
    read(bytes, &layers, metadata, key);
    Ok(())
}

/// Writes the key of a packet whose headers are where `layers` says. Returns whether it has an L4 header that counts
/// for the connection (not neighbour discovery).
#[inline]
pub(super) fn read(bytes: &[u8], layers: &Layers, metadata: &Metadata, key: &mut PacketKey) -> bool {
    let mut has_l4 = false;
    key.lines[0] = Line::from_words(metadata.words);
    ethernet(bytes, layers, key);
    if let Some(ip) = &layers.ip {
        if ip.v6 {
            ipv6(&bytes[layers.l3..], ip, key)
        } else {
            ipv4(&bytes[layers.l3..], key)
        }
        if let Some(payload) = &ip.payload {
            set_byte(key, layout::NW_PROTO, payload.proto);
            set_byte(key, layout::NW_FRAG, payload.frag);
            if payload.frag & FRAG_LATER == 0 {
                has_l4 = l4(&bytes[payload.l4..ip.end], payload, key);
            }
        }
    } else if matches!(layers.ethertype, ethertype::ARP | ethertype::RARP) {
        arp(&bytes[layers.l3..], key);
    }
    has_l4
}

/// Keeps the connection's label and original tuple, as far as OVS does for the packet as it is now.
pub(super) fn keep_connection(before: &PacketKey, layers: &Layers, has_l4: bool, key: &mut PacketKey) {
    if before.number(layout::CT_STATE) == 0 {
        return;
    }
    keep(before, layout::CT_LABEL, key);
    // The tuple has the address family that the packet had when its connection was looked up.
    let is_v6 = before.number(layout::DL_TYPE) == u64::from(ethertype::IPV6);
    if before.number(layout::CT_NW_PROTO) == 0 || layers.ip.is_none_or(|ip| ip.v6 != is_v6) {
        return;
    }
    for span in [layout::CT_SRC, layout::CT_DST, layout::CT_NW_PROTO, layout::CT_IS_IPV6] {
        keep(before, span, key);
    }
    if has_l4 {
        keep(before, layout::CT_TP_SRC, key);
        keep(before, layout::CT_TP_DST, key);
    }
}

/// Keeps the tunnel the packet came by.
pub(super) fn keep_tunnel(before: &PacketKey, key: &mut PacketKey) {
    use layout::*;
    const IN_LINE: [Span; 10] = [
        TUN_ID,
        TUN_IPV6_SRC,
        TUN_IPV6_DST,
        TUN_FLAGS,
        TUN_TOS,
        TUN_TTL,
        TUN_GBP_ID,
        TUN_GBP_FLAGS,
        TUN_PAYLOAD,
        TUN_ERSPAN_IDX,
    ];
    const ELSEWHERE: [Span; 5] = [TUN_ERSPAN_VER, TUN_ERSPAN_DIR, TUN_ERSPAN_HWID, TUN_GTPU_FLAGS, TUN_GTPU_MSGTYPE];
    IN_LINE.into_iter().chain(ELSEWHERE).for_each(|span| keep(before, span, key));
    for line in (OPTIONS_LINE..PACKET_LINES).filter(|line| !before.line(*line).is_zero()) {
        *key.make_present(line) = *before.line(line);
    }
}

/// Copies a field that is not zero, so that no line is made present for nothing.
fn keep(before: &PacketKey, span: Span, key: &mut PacketKey) {
    if before.get(span).iter().any(|b| *b != 0) {
        key.set(span, before.get(span));
    }
}

/// Addresses, tags, Ethernet type and labels.
fn ethernet(bytes: &[u8], layers: &Layers, key: &mut PacketKey) {
    let line = &mut key.lines[0].0;
    line[METADATA_SIZE..METADATA_SIZE + 12].copy_from_slice(&bytes[..12]);
    // The two tags stand side by side in the key as in the packet, TPID and TCI each.
    for i in 0..layers.vlans {
        let to = layout::VLAN0_TPID.offset + i * VLAN_SIZE;
        let from = 12 + i * VLAN_SIZE;
        line[to..to + VLAN_SIZE].copy_from_slice(&bytes[from..from + VLAN_SIZE]);
        line[to + 2] |= 0x10; // CFI: the tag is there.
    }
    line[layout::DL_TYPE.range()].copy_from_slice(&layers.ethertype.to_be_bytes());
    for (i, span) in [layout::MPLS0, layout::MPLS1, layout::MPLS2].into_iter().enumerate().take(layers.labels) {
        let at = layers.l2_end + i * MPLS_SIZE;
        key.set(span, &bytes[at..at + MPLS_SIZE]);
    }
}

const _: () = assert!(layout::VLAN1_TPID.offset == layout::VLAN0_TPID.offset + VLAN_SIZE && LABELS_MAX == 3);

/// The fields of a sound IPv4 header.
fn ipv4(header: &[u8], key: &mut PacketKey) {
    let line = &mut key.lines[0].0;
    line[layout::NW_SRC.range()].copy_from_slice(&header[12..16]);
    line[layout::NW_DST.range()].copy_from_slice(&header[16..20]);
    line[layout::NW_TOS.offset] = header[1];
    line[layout::NW_TTL.offset] = header[8];
}

/// The fields of a sound IPv6 header. If its extension headers are broken, OVS keeps the addresses alone.
fn ipv6(header: &[u8], ip: &Ip, key: &mut PacketKey) {
    let line = &mut key.make_present(layout::IPV6_SRC.line()).0;
    line[..32].copy_from_slice(&header[8..40]);
    if ip.payload.is_some() {
        line[layout::IPV6_LABEL.offset % 64 + 1] = header[1] & 0x0f;
        line[layout::IPV6_LABEL.offset % 64 + 2..][..2].copy_from_slice(&header[2..4]);
        set_byte(key, layout::NW_TOS, header[0] << 4 | header[1] >> 4);
        set_byte(key, layout::NW_TTL, header[7]);
    }
}

const _: () = assert!(layout::IPV6_SRC.offset == 64 && layout::IPV6_DST.offset == layout::IPV6_SRC.offset + 16);

/// ARP and RARP of IPv4 over Ethernet.
fn arp(packet: &[u8], key: &mut PacketKey) {
    let Some(arp) = packet.first_chunk::<ARP_SIZE>() else { return };
    if arp[..6] != ARP_IPV4_OVER_ETHERNET {
        return;
    }
    // The opcode has two bytes, the key's field one.
    if arp[6] == 0 {
        set_byte(key, layout::NW_PROTO, arp[7]);
    }
    key.set(layout::NW_SRC, &arp[14..18]);
    key.set(layout::NW_DST, &arp[24..28]);
    key.set(layout::ARP_SHA, &arp[8..14]);
    key.set(layout::ARP_THA, &arp[18..24]);
}

/// The L4 header of a packet that is not a later fragment. `l4` ends where the IP packet does.
fn l4(l4: &[u8], payload: &Payload, key: &mut PacketKey) -> bool {
    let Some(&[a, b, c, d, ..]) = l4.first_chunk::<ICMP_SIZE>() else { return false };
    match payload.proto {
        ip_proto::TCP => {
            let Some(tcp) = l4.first_chunk::<TCP_SIZE>() else { return false };
            let size = usize::from(tcp[12] >> 4) * 4;
            if size < TCP_SIZE || size > l4.len() {
                return false;
            }
            key.set(layout::TCP_FLAGS, &[tcp[12] & 0x0f, tcp[13]]);
            set_ports(key, [a, b], [c, d]);
        }
        ip_proto::UDP => set_ports(key, [a, b], [c, d]),
        ip_proto::SCTP if l4.len() >= SCTP_SIZE => set_ports(key, [a, b], [c, d]),
        ip_proto::ICMP => set_ports(key, [0, a], [0, b]),
        ip_proto::IGMP => {
            set_ports(key, [0, a], [0, b]);
            key.set(layout::ND_RESERVED, &l4[4..8]);
        }
        ip_proto::ICMPV6 => {
            set_ports(key, [0, a], [0, b]);
            if matches!(a, nd::SOLICIT | nd::ADVERT) && b == 0 {
                neighbour_discovery(l4, key);
                return false;
            }
        }
        _ => return false,
    }
    true
}

/// Neighbour discovery: flags, target, and the link-layer address options.
fn neighbour_discovery(icmp: &[u8], key: &mut PacketKey) {
    key.set(layout::ND_RESERVED, &icmp[4..8]);
    let Some((target, mut options)) = icmp[8..].split_first_chunk::<16>() else { return };
    let mut addresses = [[0u8; 6]; 2];
    let mut first_type = 0;
    // An option says its length in units of eight bytes, at least one; the list ends at the first that does not fit.
    while let Some(&[kind, units, a, b, c, d, e, f]) = options.first_chunk::<8>() {
        let size = usize::from(units) * 8;
        if size == 0 || size > options.len() {
            break;
        }
        let which = match kind {
            nd::SOURCE_LINK_ADDRESS => Some(0),
            nd::TARGET_LINK_ADDRESS => Some(1),
            _ => None,
        };
        if let Some(which) = which.filter(|_| size == 8) {
            if addresses[which] != [0; 6] {
                // The same address twice: as OVS, neither target nor addresses count, but the type seen first does.
                key.set(layout::TCP_FLAGS, &[0, first_type]);
                return;
            }
            addresses[which] = [a, b, c, d, e, f];
            if first_type == 0 {
                first_type = kind;
            }
        }
        options = &options[size..];
    }
    key.set(layout::TCP_FLAGS, &[0, first_type]);
    key.set(layout::ND_TARGET, target);
    key.set(layout::ARP_SHA, &addresses[0]);
    key.set(layout::ARP_THA, &addresses[1]);
}

fn set_ports(key: &mut PacketKey, source: [u8; 2], destination: [u8; 2]) {
    let line = &mut key.lines[0].0;
    line[layout::TP_SRC.range()].copy_from_slice(&source);
    line[layout::TP_DST.range()].copy_from_slice(&destination);
}

/// Sets a field of one byte in line 0.
fn set_byte(key: &mut PacketKey, span: Span, value: u8) {
    key.lines[0].0[span.offset] = value;
}

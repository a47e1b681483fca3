//! The byte-by-byte parser of packet fields.
//!
//! Slow and plain, written from the RFCs and from what Open vSwitch does with malformed packets. It shares no code with
//! `sluice_packet::Layers` or `sluice_flow::extract`, which it judges.

use sluice_flow::{FlowKey, layout};
use sluice_packet::headers::ethertype;

/// A packet's fields. Fields that the packet lacks are zero or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the key's fields")]
pub struct Fields {
    pub dl_dst: [u8; 6],
    pub dl_src: [u8; 6],
    /// TPID and TCI of each tag that is read, as on the wire.
    pub vlans: Vec<(u16, u16)>,
    pub dl_type: u16,
    /// Label stack entries, at most three.
    pub mpls: Vec<u32>,
    pub nw_src: [u8; 4],
    pub nw_dst: [u8; 4],
    pub ipv6_src: [u8; 16],
    pub ipv6_dst: [u8; 16],
    pub ipv6_label: u32,
    pub nw_proto: u8,
    pub nw_tos: u8,
    pub nw_ttl: u8,
    pub is_fragment: bool,
    pub is_later_fragment: bool,
    pub tp_src: u16,
    pub tp_dst: u16,
    pub tcp_flags: u16,
    pub arp_sha: [u8; 6],
    pub arp_tha: [u8; 6],
    pub nd_target: [u8; 16],
    /// Neighbour discovery's reserved field, or the IGMP group.
    pub nd_reserved: u32,
}

/// Reads a packet's fields, of at most `vlan_limit` tags; `None` if it is shorter than an Ethernet header.
pub fn fields(packet: &[u8], vlan_limit: usize) -> Option<Fields> {
    let mut fields = Fields::default();
    let mut reader = Reader { left: packet.to_vec() };
    ethernet(&mut reader, vlan_limit, &mut fields)?;
    // The rest may end anywhere; fields are stored only when their header is complete.
    let _ = match fields.dl_type {
        ethertype::IPV4 => ipv4(&mut reader, &mut fields),
        ethertype::IPV6 => ipv6(&mut reader, &mut fields),
        ethertype::ARP | ethertype::RARP => arp(&mut reader, &mut fields),
        ethertype::MPLS | ethertype::MPLS_MULTICAST => mpls(&mut reader, &mut fields),
        _ => Some(()),
    };
    Some(fields)
}

/// The key of a packet received on a port, as tables see it.
pub fn key(packet: &[u8], in_port: u32, vlan_limit: usize) -> Option<FlowKey> {
    let fields = fields(packet, vlan_limit)?;
    let mut key = FlowKey::ZERO;
    key.set_number(layout::IN_PORT, u64::from(in_port));
    key.set(layout::DL_DST, &fields.dl_dst);
    key.set(layout::DL_SRC, &fields.dl_src);
    let tags = [(layout::VLAN0_TPID, layout::VLAN0_TCI), (layout::VLAN1_TPID, layout::VLAN1_TCI)];
    for ((tpid_span, tci_span), (tpid, tci)) in tags.into_iter().zip(&fields.vlans) {
        key.set_number(tpid_span, u64::from(*tpid));
        key.set_number(tci_span, u64::from(*tci | 0x1000));
    }
    for (span, lse) in [layout::MPLS0, layout::MPLS1, layout::MPLS2].into_iter().zip(&fields.mpls) {
        key.set_number(span, u64::from(*lse));
    }
    key.set_number(layout::DL_TYPE, u64::from(fields.dl_type));
    key.set(layout::NW_SRC, &fields.nw_src);
    key.set(layout::NW_DST, &fields.nw_dst);
    key.set(layout::IPV6_SRC, &fields.ipv6_src);
    key.set(layout::IPV6_DST, &fields.ipv6_dst);
    key.set_number(layout::IPV6_LABEL, u64::from(fields.ipv6_label));
    key.set_number(layout::NW_PROTO, u64::from(fields.nw_proto));
    key.set_number(layout::NW_TOS, u64::from(fields.nw_tos));
    key.set_number(layout::NW_TTL, u64::from(fields.nw_ttl));
    let frag = u64::from(fields.is_fragment) + 2 * u64::from(fields.is_later_fragment);
    key.set_number(layout::NW_FRAG, frag);
    key.set_number(layout::TP_SRC, u64::from(fields.tp_src));
    key.set_number(layout::TP_DST, u64::from(fields.tp_dst));
    key.set_number(layout::TCP_FLAGS, u64::from(fields.tcp_flags));
    key.set(layout::ARP_SHA, &fields.arp_sha);
    key.set(layout::ARP_THA, &fields.arp_tha);
    key.set(layout::ND_TARGET, &fields.nd_target);
    key.set_number(layout::ND_RESERVED, u64::from(fields.nd_reserved));
    Some(key)
}

/// The bytes not yet read.
#[derive(Clone)]
struct Reader {
    left: Vec<u8>,
}

impl Reader {
    fn u8(&mut self) -> Option<u8> {
        if self.left.is_empty() { None } else { Some(self.left.remove(0)) }
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from(self.u8()?) * 256 + u16::from(self.u8()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from(self.u16()?) * 65536 + u32::from(self.u16()?))
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut out = [0; N];
        for byte in &mut out {
            *byte = self.u8()?;
        }
        Some(out)
    }

    fn skip(&mut self, n: usize) -> Option<()> {
        for _ in 0..n {
            self.u8()?;
        }
        Some(())
    }

    fn len(&self) -> usize {
        self.left.len()
    }

    /// Drops everything behind the first `len` bytes.
    fn cut(&mut self, len: usize) {
        self.left.truncate(len);
    }
}

/// Addresses, up to `vlan_limit` tags, the Ethernet type or an 802.2 header.
fn ethernet(reader: &mut Reader, vlan_limit: usize, fields: &mut Fields) -> Option<()> {
    let (dst, src, mut word) = (reader.array()?, reader.array()?, reader.u16()?);
    (fields.dl_dst, fields.dl_src) = (dst, src);
    while (word == 0x8100 || word == 0x88a8) && fields.vlans.len() < vlan_limit {
        let mut ahead = reader.clone();
        // A truncated tag is no tag: its TPID is then the Ethernet type.
        let (Some(tci), Some(next)) = (ahead.u16(), ahead.u16()) else { break };
        fields.vlans.push((word, tci));
        word = next;
        *reader = ahead;
    }
    fields.dl_type = if word >= 0x600 { word } else { 0x05ff };
    if word < 0x600 {
        // It is a length. SNAP with organisation 0 is followed by an Ethernet type.
        let mut ahead = reader.clone();
        if ahead.array() == Some([0xaa, 0xaa, 0x03, 0, 0, 0])
            && let Some(ethertype) = ahead.u16()
        {
            *reader = ahead;
            if ethertype >= 0x600 {
                fields.dl_type = ethertype;
            }
        }
    }
    Some(())
}

/// Label stack entries up to the bottom of stack.
fn mpls(reader: &mut Reader, fields: &mut Fields) -> Option<()> {
    loop {
        let lse = reader.u32()?;
        if fields.mpls.len() < 3 {
            fields.mpls.push(lse);
        }
        if lse & 0x100 != 0 {
            return Some(());
        }
    }
}

/// ARP of IPv4 over Ethernet; anything else has no fields.
fn arp(reader: &mut Reader, fields: &mut Fields) -> Option<()> {
    let (hardware, protocol) = (reader.u16()?, reader.u16()?);
    let (hardware_size, protocol_size, op) = (reader.u8()?, reader.u8()?, reader.u16()?);
    let (sha, spa, tha, tpa) = (reader.array()?, reader.array()?, reader.array()?, reader.array()?);
    if (hardware, protocol, hardware_size, protocol_size) != (1, ethertype::IPV4, 6, 4) {
        return None;
    }
    (fields.arp_sha, fields.nw_src, fields.arp_tha, fields.nw_dst) = (sha, spa, tha, tpa);
    if op < 256 {
        fields.nw_proto = op as u8;
    }
    Some(())
}

/// IPv4. OVS requires consistent lengths, but not version 4.
fn ipv4(reader: &mut Reader, fields: &mut Fields) -> Option<()> {
    let size = reader.len();
    let (version_ihl, tos, total, _id, fragment) =
        (reader.u8()?, reader.u8()?, reader.u16()?, reader.u16()?, reader.u16()?);
    let (ttl, proto, _checksum, src, dst) =
        (reader.u8()?, reader.u8()?, reader.u16()?, reader.array()?, reader.array()?);
    let header_size = usize::from(version_ihl % 16) * 4;
    let total = usize::from(total);
    if header_size < 20 || size < header_size || total < header_size || size < total || size - total > 65535 {
        return None;
    }
    reader.skip(header_size - 20)?;
    reader.cut(total - header_size);
    (fields.nw_src, fields.nw_dst, fields.nw_tos, fields.nw_ttl, fields.nw_proto) = (src, dst, tos, ttl, proto);
    let (more, offset) = (fragment & 0x2000 != 0, fragment & 0x1fff);
    fields.is_fragment = more || offset != 0;
    fields.is_later_fragment = offset != 0;
    if fields.is_later_fragment { Some(()) } else { l4(reader, fields) }
}

/// IPv6 and its extension headers. If those are broken, only the addresses are known.
fn ipv6(reader: &mut Reader, fields: &mut Fields) -> Option<()> {
    let (first, size, next, hop_limit) = (reader.u32()?, reader.u16()?, reader.u8()?, reader.u8()?);
    let (src, dst) = (reader.array()?, reader.array()?);
    let size = usize::from(size);
    if size > reader.len() || reader.len() - size > 65535 {
        return None;
    }
    reader.cut(size);
    (fields.ipv6_src, fields.ipv6_dst) = (src, dst);

    let mut next = next;
    let (mut is_fragment, mut is_later) = (false, false);
    while [0, 43, 44, 51, 60].contains(&next) && !is_later {
        let header = next;
        if reader.len() < 8 {
            return None;
        }
        let (following, length) = (reader.u8()?, reader.u8()?);
        let size = match header {
            44 => 8,
            51 => (usize::from(length) + 2) * 4,
            _ => (usize::from(length) + 1) * 8,
        };
        if header == 44 {
            let offset_and_flags = reader.u16()?;
            reader.skip(4)?;
            is_fragment |= offset_and_flags != 0;
            is_later = offset_and_flags >= 8;
        } else {
            reader.skip(size - 2)?;
        }
        // A later fragment's protocol is, for OVS, the fragment header itself.
        next = if is_later { 44 } else { following };
    }
    fields.ipv6_label = first & 0xf_ffff;
    fields.nw_tos = (first >> 20) as u8;
    (fields.nw_ttl, fields.nw_proto) = (hop_limit, next);
    (fields.is_fragment, fields.is_later_fragment) = (is_fragment, is_later);
    if is_later { Some(()) } else { l4(reader, fields) }
}

/// The L4 header, if it is complete. As in OVS, protocols of IPv4 count in IPv6 and vice versa.
fn l4(reader: &mut Reader, fields: &mut Fields) -> Option<()> {
    let size = reader.len();
    let minimum = match fields.nw_proto {
        6 => 20,
        17 | 1 | 2 | 58 => 8,
        132 => 12,
        _ => return None,
    };
    if size < minimum {
        return None;
    }
    match fields.nw_proto {
        6 => {
            let (src, dst, _sequence, _ack, control) =
                (reader.u16()?, reader.u16()?, reader.u32()?, reader.u32()?, reader.u16()?);
            let header_size = usize::from(control / 4096) * 4;
            if header_size < 20 || header_size > size {
                return None;
            }
            (fields.tp_src, fields.tp_dst, fields.tcp_flags) = (src, dst, control % 4096);
        }
        17 | 132 => (fields.tp_src, fields.tp_dst) = (reader.u16()?, reader.u16()?),
        _ => {
            let (kind, code, _checksum, rest) = (reader.u8()?, reader.u8()?, reader.u16()?, reader.u32()?);
            (fields.tp_src, fields.tp_dst) = (kind.into(), code.into());
            if fields.nw_proto == 2 {
                fields.nd_reserved = rest;
            }
            if fields.nw_proto == 58 && (kind == 135 || kind == 136) && code == 0 {
                fields.nd_reserved = rest;
                return neighbour_discovery(reader, fields);
            }
        }
    }
    Some(())
}

/// The target and the link-layer addresses.
fn neighbour_discovery(reader: &mut Reader, fields: &mut Fields) -> Option<()> {
    let target = reader.array()?;
    let (mut source, mut destination) = ([0; 6], [0; 6]);
    let mut is_valid = true;
    while reader.len() >= 8 {
        let mut option = reader.clone();
        let (kind, units) = (option.u8()?, option.u8()?);
        let size = usize::from(units) * 8;
        if size == 0 || size > reader.len() {
            break;
        }
        if size == 8 && (kind == 1 || kind == 2) {
            let address = if kind == 1 { &mut source } else { &mut destination };
            if *address != [0; 6] {
                // The same option twice: OVS takes neither target nor addresses, but keeps the type.
                is_valid = false;
                break;
            }
            *address = option.array()?;
            if fields.tcp_flags == 0 {
                fields.tcp_flags = kind.into();
            }
        }
        reader.skip(size)?;
    }
    if is_valid {
        (fields.nd_target, fields.arp_sha, fields.arp_tha) = (target, source, destination);
    }
    Some(())
}

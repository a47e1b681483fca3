//! The tunnel fields of a key or a mask, as numbers.

use crate::key::LINE_SIZE;
use crate::layout::{self, Span};
use crate::{FlowKey, Line, PacketKey};

/// The bits of `tun_flags`. Source: Open vSwitch lib/packets.h, `FLOW_TNL_F_*`.
pub mod tunnel_flags {
    /// The packet is about the tunnel itself.
    pub const OAM: u16 = 1;
    /// The outer packet must not be fragmented.
    pub const DF: u16 = 2;
    /// The outer header has a checksum over the payload.
    pub const CSUM: u16 = 4;
    /// There is a key.
    pub const KEY: u16 = 8;
    /// The packet has options of Geneve. Only keys of the datapath have this bit: a packet without options is told from
    /// those with some without a look at the options' lines.
    pub const OPTIONS: u16 = 0x8000;
}

/// The tunnel that a packet came by or is to leave by, or a mask of its fields.
///
/// IPv4 addresses are IPv6 addresses that map them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of the spans")]
pub struct TunnelKey {
    pub id: u64,
    pub src: u128,
    pub dst: u128,
    pub flags: u16,
    pub tos: u8,
    pub ttl: u8,
    pub tp_dst: u16,
    pub gbp_id: u16,
    pub gbp_flags: u8,
    pub erspan_ver: u8,
    pub erspan_idx: u32,
    pub erspan_dir: u8,
    pub erspan_hwid: u8,
    pub gtpu_flags: u8,
    pub gtpu_msgtype: u8,
    /// The Ethernet type of a payload without an Ethernet header; 0: the payload is a frame.
    pub payload_type: u16,
}

impl TunnelKey {
    /// That of a datapath's key or mask. It does not know the UDP port.
    pub fn of_packet(key: &PacketKey) -> Self {
        let wide = |span: Span| key.get(span).iter().fold(0, |n, b| n << 8 | u128::from(*b));
        let is_bare = key.number(layout::TUN_PAYLOAD) == u64::from(layout::PAYLOAD_BARE);
        TunnelKey {
            id: key.number(layout::TUN_ID),
            src: wide(layout::TUN_IPV6_SRC),
            dst: wide(layout::TUN_IPV6_DST),
            flags: key.number(layout::TUN_FLAGS) as u16 & !tunnel_flags::OPTIONS,
            tos: key.number(layout::TUN_TOS) as u8,
            ttl: key.number(layout::TUN_TTL) as u8,
            tp_dst: 0,
            gbp_id: key.number(layout::TUN_GBP_ID) as u16,
            gbp_flags: key.number(layout::TUN_GBP_FLAGS) as u8,
            erspan_ver: key.number(layout::TUN_ERSPAN_VER) as u8,
            erspan_idx: key.number(layout::TUN_ERSPAN_IDX) as u32,
            erspan_dir: key.number(layout::TUN_ERSPAN_DIR) as u8,
            erspan_hwid: key.number(layout::TUN_ERSPAN_HWID) as u8,
            gtpu_flags: key.number(layout::TUN_GTPU_FLAGS) as u8,
            gtpu_msgtype: key.number(layout::TUN_GTPU_MSGTYPE) as u8,
            payload_type: if is_bare { key.number(layout::DL_TYPE) as u16 } else { 0 },
        }
    }

    /// Writes it to a key that has no tunnel yet. The UDP port is no part of it, and the type of a payload is that of the key.
    ///
    /// The line is made in registers and written at once: who reads it next reads whole vectors, which cannot be
    /// forwarded from writes of single fields.
    #[inline(always)]
    pub fn put(&self, key: &mut PacketKey) {
        let payload = if self.payload_type == 0 { 0 } else { layout::PAYLOAD_BARE };
        let mut words = [0; 8];
        add(&mut words, layout::TUN_ID, self.id);
        add_address(&mut words, layout::TUN_IPV6_SRC, self.src);
        add_address(&mut words, layout::TUN_IPV6_DST, self.dst);
        add(&mut words, layout::TUN_FLAGS, self.flags.into());
        add(&mut words, layout::TUN_TOS, self.tos.into());
        add(&mut words, layout::TUN_TTL, self.ttl.into());
        add(&mut words, layout::TUN_GBP_ID, self.gbp_id.into());
        add(&mut words, layout::TUN_GBP_FLAGS, self.gbp_flags.into());
        add(&mut words, layout::TUN_PAYLOAD, payload.into());
        add(&mut words, layout::TUN_ERSPAN_IDX, self.erspan_idx.into());
        let line = Line::from_words(words);
        // Labels of MPLS, which the packet may have, stand in this line too.
        let line = if key.has_line(TUNNEL_LINE) { line.or(&key.lines[TUNNEL_LINE]) } else { line };
        key.put_line(TUNNEL_LINE, line);
        if self.erspan_ver | self.erspan_dir | self.erspan_hwid | self.gtpu_flags | self.gtpu_msgtype != 0 {
            self.put_rare(key);
        }
    }

    /// Writes what only ERSPAN and GTP-U have. No line is made present for nothing.
    fn put_rare(&self, key: &mut PacketKey) {
        let rare = [
            (layout::TUN_ERSPAN_VER, self.erspan_ver),
            (layout::TUN_ERSPAN_DIR, self.erspan_dir),
            (layout::TUN_ERSPAN_HWID, self.erspan_hwid),
            (layout::TUN_GTPU_FLAGS, self.gtpu_flags),
            (layout::TUN_GTPU_MSGTYPE, self.gtpu_msgtype),
        ];
        rare.into_iter().filter(|(_, value)| *value != 0).for_each(|(span, value)| key.set(span, &[value]));
    }

    /// That of a table's key, whose packet type says what the tunnel carries.
    pub fn of_flow(key: &FlowKey) -> Self {
        let tp_dst = key.number(layout::TUN_TP_DST) as u16;
        let payload_type = key.bare_type().unwrap_or(0);
        TunnelKey { tp_dst, payload_type, ..Self::of_packet(&key.packet_part()) }
    }
}

/// The line that has what all kinds of tunnels have.
const TUNNEL_LINE: usize = layout::TUN_ID.line();

/// Adds a field, which stands in one word and is zero so far, to the words of its line.
#[inline(always)]
fn add(words: &mut [u64; 8], span: Span, value: u64) {
    let at = span.offset % LINE_SIZE;
    words[at / 8] |= value.swap_bytes() >> (8 * (8 - span.size)) << (8 * (at % 8));
}

/// The same of an address, which is two words.
#[inline(always)]
fn add_address(words: &mut [u64; 8], span: Span, address: u128) {
    let at = span.offset % LINE_SIZE / 8;
    (words[at], words[at + 1]) = (((address >> 64) as u64).swap_bytes(), (address as u64).swap_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_fields_of_the_key() {
        let mut key = FlowKey::ZERO;
        key.set(layout::TUN_IPV4_DST, &[1, 2, 3, 4]);
        [layout::TUN_ID, layout::TUN_TTL, layout::TUN_ERSPAN_IDX, layout::TUN_TP_DST]
            .into_iter()
            .zip(5..)
            .for_each(|(span, value)| key.set_number(span, value));
        let tunnel = TunnelKey::of_flow(&key);
        assert_eq!(tunnel.dst, 0xffff_0102_0304);
        assert_eq!((tunnel.id, tunnel.ttl, tunnel.erspan_idx, tunnel.tp_dst), (5, 6, 7, 8));
        for erspan_hwid in [0, 9] {
            let tunnel = TunnelKey { tp_dst: 0, erspan_hwid, gbp_id: 3, tos: 4, flags: 5, ..tunnel };
            let mut packet = PacketKey::ZERO;
            tunnel.put(&mut packet);
            assert_eq!(TunnelKey::of_packet(&packet), tunnel);
            assert_eq!(packet.number(layout::PRESENCE), if erspan_hwid == 0 { 8 } else { 12 });
        }
    }

    #[test]
    fn labels_of_mpls_in_the_same_line_stay() {
        let mut packet = PacketKey::ZERO;
        packet.set(layout::MPLS0, &[1, 2, 3, 4]);
        TunnelKey { ttl: 64, ..TunnelKey::default() }.put(&mut packet);
        assert_eq!((packet.get(layout::MPLS0), packet.number(layout::TUN_TTL)), (&[1, 2, 3, 4][..], 64));
    }

    #[test]
    fn a_payload_without_ethernet_has_the_type_of_the_key() {
        let bare = TunnelKey { payload_type: 0x0800, dst: 1, ..TunnelKey::default() };
        let mut packet = PacketKey::ZERO;
        packet.set(layout::DL_TYPE, &[8, 0]);
        bare.put(&mut packet);
        assert_eq!(TunnelKey::of_packet(&packet), bare);
        packet.set(layout::TUN_PAYLOAD, &[layout::PAYLOAD_WITH_ETHERNET]);
        assert_eq!(TunnelKey::of_packet(&packet), TunnelKey { payload_type: 0, ..bare });
    }
}

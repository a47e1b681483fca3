//! Packets and megaflows as the lines of a trace show them.

use crate::layout::{self, Span};
use crate::{FlowKey, Match};
use sluice_packet::headers::{ethertype, has_ports, ip_proto, nd};

/// Context that is shown only where it is not zero.
const CONTEXT: [Span; 9] = [
    layout::SKB_PRIORITY,
    layout::PKT_MARK,
    layout::CT_STATE,
    layout::CT_ZONE,
    layout::CT_MARK,
    layout::CT_LABEL,
    layout::RECIRC_ID,
    layout::DP_HASH,
    layout::METADATA,
];

/// What a tunnelled packet has.
const TUNNEL: [Span; 15] = [
    layout::TUN_IPV4_SRC,
    layout::TUN_IPV4_DST,
    layout::TUN_IPV6_SRC,
    layout::TUN_IPV6_DST,
    layout::TUN_FLAGS,
    layout::TUN_TOS,
    layout::TUN_TTL,
    layout::TUN_GBP_ID,
    layout::TUN_GBP_FLAGS,
    layout::TUN_ERSPAN_VER,
    layout::TUN_ERSPAN_IDX,
    layout::TUN_ERSPAN_DIR,
    layout::TUN_ERSPAN_HWID,
    layout::TUN_GTPU_FLAGS,
    layout::TUN_GTPU_MSGTYPE,
];

/// The tunnel flag that says there is a key.
const TUN_KEY: u64 = 8;

impl Match {
    /// A megaflow as the `Megaflow:` line of a trace shows it: always with its `recirc_id` and packet type.
    pub fn of_megaflow(mask: &FlowKey, key: &FlowKey) -> Match {
        let mut mask = mask.clone();
        mask.set_number(layout::RECIRC_ID, 0xffff_ffff);
        mask.set_number(layout::PACKET_TYPE, 0xffff_ffff);
        Match::new(mask, key)
    }

    /// A packet as the `Flow:` line of a trace shows it: every field of the headers it has, and what it has from its
    /// passage through the switch where that is not zero.
    pub fn of_packet(key: &FlowKey) -> Match {
        let mut mask = FlowKey::ZERO;
        let mut show = |span: Span| mask.get_mut(span).fill(0xff);
        CONTEXT.into_iter().filter(|span| !is_zero(key, *span)).for_each(&mut show);
        if key.number(layout::IN_PORT) != 0 {
            show(layout::IN_PORT);
        }
        (0..16).map(layout::reg).filter(|span| !is_zero(key, *span)).for_each(&mut show);
        let is_tunnelled = key.has_tunnel();
        if is_tunnelled {
            TUNNEL.into_iter().for_each(&mut show);
        }
        let has_key = key.number(layout::TUN_FLAGS) & TUN_KEY != 0;
        if if is_tunnelled { has_key } else { !is_zero(key, layout::TUN_ID) } {
            show(layout::TUN_ID);
        }
        let mut matches = Match { key: key.clone(), mask };
        matches.show_headers();
        matches.key = matches.key.and(&matches.mask);
        matches
    }

    fn show_headers(&mut self) {
        let key = self.key.clone();
        let packet_type = key.number(layout::PACKET_TYPE);
        let mut show = |span: Span| self.mask.get_mut(span).fill(0xff);
        show(layout::PACKET_TYPE);
        let dl_type = if packet_type == 0 {
            [layout::DL_DST, layout::DL_SRC, layout::DL_TYPE, layout::VLAN0_TCI].into_iter().for_each(&mut show);
            if !is_zero(&key, layout::VLAN0_TCI) {
                show(layout::VLAN1_TCI);
            }
            key.number(layout::DL_TYPE)
        } else {
            packet_type
        };
        let dl_type = dl_type as u16;
        match dl_type {
            ethertype::IPV4 => [layout::NW_SRC, layout::NW_DST].into_iter().for_each(show),
            ethertype::IPV6 => [layout::IPV6_SRC, layout::IPV6_DST, layout::IPV6_LABEL].into_iter().for_each(show),
            ethertype::ARP | ethertype::RARP => {
                let spans = [layout::NW_SRC, layout::NW_DST, layout::NW_PROTO, layout::ARP_SHA, layout::ARP_THA];
                return spans.into_iter().for_each(show);
            }
            ethertype::MPLS | ethertype::MPLS_MULTICAST => {
                for span in [layout::MPLS0, layout::MPLS1, layout::MPLS2] {
                    show(span);
                    if key.number(span) & 0x100 != 0 {
                        break;
                    }
                }
                return;
            }
            ethertype::NSH => {
                let spans = [
                    layout::NSH_FLAGS,
                    layout::NSH_TTL,
                    layout::NSH_MDTYPE,
                    layout::NSH_NP,
                    layout::NSH_PATH,
                    layout::NSH_CONTEXT,
                ];
                spans.into_iter().for_each(show);
            }
            _ => return,
        }
        self.show_ip(dl_type);
    }

    fn show_ip(&mut self, dl_type: u16) {
        let key = self.key.clone();
        let proto = key.number(layout::NW_PROTO) as u8;
        let mut show = |span: Span| self.mask.get_mut(span).fill(0xff);
        [layout::NW_TOS, layout::NW_TTL, layout::NW_PROTO].into_iter().for_each(&mut show);
        let later = key.number(layout::NW_FRAG) & 2 != 0;
        if !later && (has_ports(proto) || proto == ip_proto::IGMP) {
            show(layout::TP_SRC);
            show(layout::TP_DST);
            if proto == ip_proto::TCP {
                show(layout::TCP_FLAGS);
            }
            let is_nd = dl_type == ethertype::IPV6
                && proto == ip_proto::ICMPV6
                && [nd::SOLICIT, nd::ADVERT].map(u64::from).contains(&key.number(layout::TP_SRC));
            if is_nd && key.number(layout::TP_DST) == 0 {
                [layout::ND_TARGET, layout::ARP_SHA, layout::ARP_THA].into_iter().for_each(&mut show);
            }
        }
        self.mask.set_number(layout::NW_FRAG, 3);
        self.show_original_tuple(dl_type);
    }

    /// The connection's original tuple, if it has one.
    fn show_original_tuple(&mut self, dl_type: u16) {
        let has_tuple = self.satisfies(crate::field::Prereq::CtValid) && !is_zero(&self.key, layout::CT_NW_PROTO);
        if !has_tuple || !matches!(dl_type, ethertype::IPV4 | ethertype::IPV6) {
            return;
        }
        let spans = [
            layout::CT_SRC,
            layout::CT_DST,
            layout::CT_IS_IPV6,
            layout::CT_NW_PROTO,
            layout::CT_TP_SRC,
            layout::CT_TP_DST,
        ];
        spans.into_iter().for_each(|span| self.mask.get_mut(span).fill(0xff));
    }
}

fn is_zero(key: &FlowKey, span: Span) -> bool {
    key.get(span).iter().all(|b| *b == 0)
}

//! Keys under masks.

use super::DatapathPortNames;
use super::fields::{ARP_FIELDS, Fields, IPV4_FIELDS, IPV6_FIELDS, MPLS_FIELDS, ND_FIELDS, hex};
use super::tunnel;
use crate::PortNo;
use sluice_flow::geneve;
use sluice_flow::layout::{self as at, Span};
use sluice_flow::text::flags;
use sluice_flow::{PacketKey, TunnelKey};
use sluice_packet::headers::{ETHERTYPE_MIN, ethertype, ip_proto, nd};
use std::fmt::{self, Write as _};
use std::sync::LazyLock;

/// A megaflow: `key` under `mask`. Values show as `key` has them, so a packet's own key shows what the packet was;
/// `verbose` shows fields no bit of which matters, too.
pub fn show_flow<'a>(
    key: &'a PacketKey,
    mask: &'a PacketKey,
    verbose: bool,
    names: &'a DatapathPortNames,
) -> impl fmt::Display + 'a {
    let shown = if verbose { Shown::Everything } else { Shown::Matched };
    attributes(key, mask, (shown, Root::PacketType), names)
}

/// The same for a megaflow that was put by hand: its root is the Ethernet header, not the type of packets, as its text said.
pub fn show_put_flow<'a>(
    key: &'a PacketKey,
    mask: &'a PacketKey,
    verbose: bool,
    names: &'a DatapathPortNames,
) -> impl fmt::Display + 'a {
    let shown = if verbose { Shown::Everything } else { Shown::Matched };
    attributes(key, mask, (shown, Root::Ethernet), names)
}

/// A packet's key by itself, as OVS logs that of an upcall: every attribute that the packet has, without masks.
pub fn show_packet_key(key: &PacketKey) -> impl fmt::Display + '_ {
    static NO_NAMES: LazyLock<DatapathPortNames> = LazyLock::new(DatapathPortNames::default);
    attributes(key, &PacketKey::ONES, (Shown::WithoutMask, Root::PacketType), &NO_NAMES)
}

fn attributes<'a>(
    key: &'a PacketKey,
    mask: &'a PacketKey,
    (shown, root): (Shown, Root),
    names: &'a DatapathPortNames,
) -> impl fmt::Display + 'a {
    fmt::from_fn(move |f| {
        let mut text = String::new();
        let mut out = Attributes { text: &mut text, key, mask, shown };
        out.metadata(names);
        match root {
            Root::PacketType => {
                out.separate();
                match out.is_bare() {
                    true => drop(write!(out.text, "packet_type(ns=1,id={})", hex(out.dl_type().into()))),
                    false => out.text.push_str("packet_type(ns=0,id=0)"),
                }
            }
            // What has no type of packet says by this that it is a frame.
            Root::Ethernet if !out.wanted(&[at::DL_SRC, at::DL_DST]) => {
                out.separate();
                out.text.push_str("eth()");
            }
            Root::Ethernet => {}
        }
        out.link_layer();
        f.write_str(&text)
    })
}

/// Which attributes of a key are shown, and how.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// Those of which the mask has a bit.
    Matched,
    /// All that the packet has, with their masks.
    Everything,
    /// All that the packet has; there is no mask.
    WithoutMask,
}

/// What says of a key that it is that of a frame.
#[derive(Clone, Copy)]
enum Root {
    PacketType,
    Ethernet,
}

/// Text of attributes, each with what separates it from the one before.
pub(super) struct Attributes<'a> {
    pub text: &'a mut String,
    pub key: &'a PacketKey,
    pub mask: &'a PacketKey,
    pub shown: Shown,
}

impl Attributes<'_> {
    fn k(&self, span: Span) -> u64 {
        self.key.number(span)
    }

    fn m(&self, span: Span) -> u64 {
        self.mask.number(span)
    }

    fn dl_type(&self) -> u16 {
        self.k(at::DL_TYPE) as u16
    }

    /// Whether any of these fields has a bit in the mask, or everything is shown.
    fn wanted(&self, spans: &[Span]) -> bool {
        self.shown != Shown::Matched || spans.iter().any(|span| self.mask.get(*span).iter().any(|b| *b != 0))
    }

    /// Writes `name(…)` if one of the fields is wanted.
    pub fn attribute(&mut self, name: &str, spans: &[Span], body: impl FnOnce(&mut Fields)) {
        if !self.wanted(spans) {
            return;
        }
        if !self.text.is_empty() && !self.text.ends_with('(') {
            self.text.push(',');
        }
        let _ = write!(self.text, "{name}(");
        let mut fields = Fields::new(self.key, self.mask, self.shown != Shown::Matched);
        body(&mut fields);
        let _ = write!(self.text, "{})", fields.text);
    }

    fn metadata(&mut self, names: &DatapathPortNames) {
        // No rule matches it: its mask has bits only if that of every field has.
        let is_exact = self.mask.get(at::DP_HASH) == [0xff; 4] && self.mask.get(at::CT_LABEL) == [0xff; 16];
        match self.shown {
            _ if is_exact => self.text.push_str("skb_priority(0)"),
            Shown::Matched => {}
            _ => self.text.push_str("skb_priority(0/0)"),
        }
        self.tunnel();
        self.attribute("skb_mark", &[at::PKT_MARK], |f| f.bare_hex(at::PKT_MARK));
        let shown = self.shown;
        self.attribute("ct_state", &[at::CT_STATE], |f| match shown {
            Shown::WithoutMask => f.push(hex(f.k(at::CT_STATE))),
            // OVS has 32 bits for these eight, so the mask is never all there is.
            Shown::Everything => f.push(format_args!("{}/{}", hex(f.k(at::CT_STATE)), hex(f.m(at::CT_STATE)))),
            Shown::Matched => {
                f.push(flags::CT_STATE.show(f.k(at::CT_STATE).into(), f.m(at::CT_STATE).into(), u128::MAX));
            }
        });
        self.attribute("ct_zone", &[at::CT_ZONE], |f| f.bare_hex(at::CT_ZONE));
        self.attribute("ct_mark", &[at::CT_MARK], |f| f.bare_hex(at::CT_MARK));
        self.attribute("ct_label", &[at::CT_LABEL], |f| f.bare_wide_hex(at::CT_LABEL));
        self.original_tuple();
        self.attribute("recirc_id", &[at::RECIRC_ID], |f| f.bare_hex(at::RECIRC_ID));
        self.attribute("dp_hash", &[at::DP_HASH], |f| f.bare_hex(at::DP_HASH));
        let in_port = self.key.in_port();
        self.attribute("in_port", &[at::IN_PORT], |f| match f.m(at::IN_PORT) {
            0xffff_ffff => f.push(names.display(PortNo(in_port))),
            mask => f.push(format_args!("{in_port}/{}", hex(mask))),
        });
    }

    /// Whether it has no Ethernet header.
    fn is_bare(&self) -> bool {
        self.k(at::TUN_PAYLOAD) == u64::from(at::PAYLOAD_BARE)
    }

    /// The tunnel that it came by, if it did.
    fn tunnel(&mut self) {
        let (key, mask) = (TunnelKey::of_packet(self.key), TunnelKey::of_packet(self.mask));
        let is_there = key != TunnelKey::default() && (self.shown != Shown::Matched || mask != TunnelKey::default());
        if is_there {
            let mask = (self.shown != Shown::WithoutMask).then_some(&mask);
            self.separate();
            let options = self.options();
            let _ = write!(self.text, "tunnel({})", tunnel::show(&key, mask, options));
        }
    }

    /// The options of Geneve that it came with, if the mask has bits of them: it has the header of each then.
    fn options(&self) -> String {
        let (list, mask) = (self.key.options(), self.mask.options());
        match self.shown {
            Shown::WithoutMask => geneve::show(&list, None).to_string(),
            Shown::Matched if self.mask.line(at::OPTIONS_LINE).is_zero() => String::new(),
            _ => geneve::show(&list, Some(mask.all())).to_string(),
        }
    }

    /// The tuple a connection began with, if conntrack knows one.
    fn original_tuple(&mut self) {
        if self.k(at::CT_NW_PROTO) == 0 {
            return;
        }
        const FIELDS: [Span; 5] = [at::CT_SRC, at::CT_DST, at::CT_NW_PROTO, at::CT_TP_SRC, at::CT_TP_DST];
        match self.dl_type() {
            ethertype::IPV4 => self.attribute("ct_tuple4", &FIELDS, |f| {
                let first_four = |span: Span| Span { offset: span.offset, size: 4 };
                f.ipv4("src", first_four(at::CT_SRC));
                f.ipv4("dst", first_four(at::CT_DST));
                f.decimal("proto", at::CT_NW_PROTO);
                f.decimal("tp_src", at::CT_TP_SRC);
                f.decimal("tp_dst", at::CT_TP_DST);
            }),
            ethertype::IPV6 => self.attribute("ct_tuple6", &FIELDS, |f| {
                f.ipv6("src", at::CT_SRC);
                f.ipv6("dst", at::CT_DST);
                f.decimal("proto", at::CT_NW_PROTO);
                f.decimal("src_port", at::CT_TP_SRC);
                f.decimal("dst_port", at::CT_TP_DST);
            }),
            _ => {}
        }
    }

    fn link_layer(&mut self) {
        if !self.is_bare() {
            self.attribute("eth", &[at::DL_SRC, at::DL_DST], Fields::ethernet);
        }
        let tags = [(at::VLAN0_TPID, at::VLAN0_TCI), (at::VLAN1_TPID, at::VLAN1_TCI)];
        let dl_type = self.dl_type();
        let (mut open, mut is_cut) = (0, false);
        for (tpid, tci) in tags {
            // A tag cut off by the end of the frame leaves its type behind and nothing in it.
            is_cut = self.k(tci) == 0;
            // With a VLAN limit of 1 the second tag is not read, and no megaflow matches it. A key alone does not tell it
            // from a tag cut off, which is much rarer.
            let is_unread = open == 1 && (self.m(tci) == 0 || self.shown == Shown::WithoutMask);
            if is_cut && (is_unread || !ethertype::is_vlan(dl_type)) {
                is_cut = false;
                break;
            }
            let tpid = if is_cut { dl_type.into() } else { self.k(tpid) };
            self.separate();
            let _ = write!(self.text, "eth_type(0x{tpid:04x})");
            self.attribute("vlan", &[tci], |f| f.tci(f.k(tci), f.m(tci)));
            self.text.push_str(",encap(");
            open += 1;
            if is_cut {
                break;
            }
        }
        if !is_cut {
            self.network_layer(dl_type, open != 0);
        }
        (0..open).for_each(|_| self.text.push(')'));
    }

    fn separate(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with('(') {
            self.text.push(',');
        }
    }

    fn network_layer(&mut self, dl_type: u16, in_tag: bool) {
        if dl_type < ETHERTYPE_MIN {
            // OVS says "no Ethernet type" so, but not inside a tag.
            if !in_tag && self.m(at::DL_TYPE) != 0 {
                self.text.push_str(",eth_type(0/0xffff)");
            }
            return;
        }
        self.attribute("eth_type", &[at::DL_TYPE], |f| {
            let _ = write!(f.text, "0x{dl_type:04x}");
            match f.m(at::DL_TYPE) {
                0xffff => {}
                mask => f.push(format_args!("/0x{mask:04x}")),
            }
        });
        match dl_type {
            ethertype::IPV4 => self.attribute("ipv4", &IPV4_FIELDS, Fields::ipv4_header),
            ethertype::IPV6 => self.attribute("ipv6", &IPV6_FIELDS, Fields::ipv6_header),
            ethertype::ARP | ethertype::RARP => self.attribute("arp", &ARP_FIELDS, Fields::arp_header),
            ethertype::MPLS | ethertype::MPLS_MULTICAST => self.attribute("mpls", &MPLS_FIELDS, Fields::mpls_header),
            _ => {}
        }
        if matches!(dl_type, ethertype::IPV4 | ethertype::IPV6) && self.k(at::NW_FRAG) & 2 == 0 {
            self.transport_layer(dl_type);
        }
    }

    fn transport_layer(&mut self, dl_type: u16) {
        const PORTS: [Span; 2] = [at::TP_SRC, at::TP_DST];
        match (self.k(at::NW_PROTO) as u8, dl_type) {
            (ip_proto::TCP, _) => {
                self.attribute("tcp", &PORTS, Fields::ports);
                let said = self.k(at::TCP_FLAGS) != 0 || self.m(at::TCP_FLAGS) != 0;
                if said {
                    self.attribute("tcp_flags", &[at::TCP_FLAGS], |f| {
                        let (value, mask) = (f.k(at::TCP_FLAGS).into(), f.m(at::TCP_FLAGS).into());
                        f.push(flags::TCP.show(value, mask, flags::TCP.all()));
                    });
                }
            }
            (ip_proto::UDP, _) => self.attribute("udp", &PORTS, Fields::ports),
            (ip_proto::SCTP, _) => self.attribute("sctp", &PORTS, Fields::ports),
            (ip_proto::ICMP, ethertype::IPV4) => self.attribute("icmp", &PORTS, Fields::type_and_code),
            (ip_proto::ICMPV6, ethertype::IPV6) => {
                self.attribute("icmpv6", &PORTS, Fields::type_and_code);
                if [nd::SOLICIT, nd::ADVERT].map(u64::from).contains(&self.k(at::TP_SRC)) && self.k(at::TP_DST) == 0 {
                    self.neighbour_discovery();
                }
            }
            _ => {}
        }
    }

    /// OVS prints which bits of these fields are matched only if type and code are matched whole. The text of a
    /// megaflow does not have the reserved field and the option type.
    fn neighbour_discovery(&mut self) {
        let is_told = [at::TP_SRC, at::TP_DST].iter().all(|span| self.m(*span) & 0xff == 0xff);
        let mask = if is_told { *self.mask } else { PacketKey::default() };
        let mut out = Attributes { text: &mut *self.text, mask: &mask, ..*self };
        out.attribute("nd", &ND_FIELDS, Fields::neighbour);
    }
}

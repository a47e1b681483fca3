//! Keys under masks.

use super::DatapathPortNames;
use crate::PortNo;
use sluice_flow::PacketKey;
use sluice_flow::layout::{self as at, Span};
use std::fmt::{self, Formatter, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Ethernet types that decide what a key shows.
mod ethertype {
    pub const IPV4: u64 = 0x0800;
    pub const ARP: u64 = 0x0806;
    pub const RARP: u64 = 0x8035;
    pub const VLAN: u64 = 0x8100;
    pub const IPV6: u64 = 0x86dd;
    pub const MPLS: u64 = 0x8847;
    pub const MPLS_MULTICAST: u64 = 0x8848;
    pub const SERVICE_VLAN: u64 = 0x88a8;
    /// The first that is a type; below are lengths.
    pub const MIN: u64 = 0x0600;
}

/// A megaflow: `key` under `mask`. Values show as `key` has them, so a packet's own key shows what the packet was;
/// `verbose` shows fields no bit of which matters, too.
pub fn show_flow<'a>(
    key: &'a PacketKey,
    mask: &'a PacketKey,
    verbose: bool,
    names: &'a DatapathPortNames,
) -> impl fmt::Display + 'a {
    fmt::from_fn(move |f| {
        let mut text = String::new();
        let mut out = Attributes { text: &mut text, key, mask, verbose };
        out.metadata(names);
        out.link_layer();
        f.write_str(&text)
    })
}

/// Text of attributes, each with what separates it from the one before.
pub(super) struct Attributes<'a> {
    pub text: &'a mut String,
    pub key: &'a PacketKey,
    pub mask: &'a PacketKey,
    /// Shows what no bit of the mask asks for.
    pub verbose: bool,
}

impl Attributes<'_> {
    fn k(&self, span: Span) -> u64 {
        self.key.number(span)
    }

    fn m(&self, span: Span) -> u64 {
        self.mask.number(span)
    }

    /// Whether any of these fields has a bit in the mask, or everything is shown.
    fn wanted(&self, spans: &[Span]) -> bool {
        self.verbose || spans.iter().any(|span| self.mask.get(*span).iter().any(|b| *b != 0))
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
        let mut fields = Fields { text: String::new(), key: *self.key, mask: *self.mask, verbose: self.verbose };
        body(&mut fields);
        let _ = write!(self.text, "{})", fields.text);
    }

    fn metadata(&mut self, names: &DatapathPortNames) {
        if self.verbose {
            self.text.push_str("skb_priority(0/0)");
        }
        self.attribute("skb_mark", &[at::PKT_MARK], |f| f.bare_hex(at::PKT_MARK));
        let verbose = self.verbose;
        self.attribute("ct_state", &[at::CT_STATE], |f| match verbose {
            // OVS has 32 bits for these eight, so the mask is never all there is.
            true => f.push(format_args!("{}/{}", hex(f.k(at::CT_STATE)), hex(f.m(at::CT_STATE)))),
            false => {
                f.push(Flags { value: f.k(at::CT_STATE), mask: f.m(at::CT_STATE), all: u64::MAX, names: &CT_STATES })
            }
        });
        self.attribute("ct_zone", &[at::CT_ZONE], |f| f.bare_hex(at::CT_ZONE));
        self.attribute("ct_mark", &[at::CT_MARK], |f| f.bare_hex(at::CT_MARK));
        self.attribute("ct_label", &[at::CT_LABEL], |f| f.bare_wide_hex(at::CT_LABEL));
        self.original_tuple();
        self.attribute("recirc_id", &[at::RECIRC_ID], |f| f.bare_hex(at::RECIRC_ID));
        self.attribute("dp_hash", &[at::DP_HASH], |f| f.bare_hex(at::DP_HASH));
        self.attribute("in_port", &[at::IN_PORT], |f| match f.m(at::IN_PORT) {
            0xffff_ffff => f.push(names.display(PortNo(f.key.in_port()))),
            mask => f.push(format_args!("{}/{}", f.key.in_port(), hex(mask))),
        });
        if !self.text.is_empty() {
            self.text.push(',');
        }
        self.text.push_str("packet_type(ns=0,id=0)");
    }

    /// The tuple a connection began with, if conntrack knows one.
    fn original_tuple(&mut self) {
        if self.k(at::CT_NW_PROTO) == 0 {
            return;
        }
        const FIELDS: [Span; 5] = [at::CT_SRC, at::CT_DST, at::CT_NW_PROTO, at::CT_TP_SRC, at::CT_TP_DST];
        match self.k(at::DL_TYPE) {
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
        self.attribute("eth", &[at::DL_SRC, at::DL_DST], Fields::ethernet);
        let tags = [(at::VLAN0_TPID, at::VLAN0_TCI), (at::VLAN1_TPID, at::VLAN1_TCI)];
        let dl_type = self.k(at::DL_TYPE);
        let (mut open, mut is_cut) = (0, false);
        for (tpid, tci) in tags {
            // A tag cut off by the end of the frame leaves its type behind and nothing in it.
            is_cut = self.k(tci) == 0;
            if is_cut && !matches!(dl_type, ethertype::VLAN | ethertype::SERVICE_VLAN) {
                is_cut = false;
                break;
            }
            let tpid = if is_cut { dl_type } else { self.k(tpid) };
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

    fn network_layer(&mut self, dl_type: u64, in_tag: bool) {
        if dl_type < ethertype::MIN {
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

    fn transport_layer(&mut self, dl_type: u64) {
        const PORTS: [Span; 2] = [at::TP_SRC, at::TP_DST];
        match (self.k(at::NW_PROTO), dl_type) {
            (6, _) => {
                self.attribute("tcp", &PORTS, Fields::ports);
                let said = self.k(at::TCP_FLAGS) != 0 || self.m(at::TCP_FLAGS) != 0;
                if said {
                    self.attribute("tcp_flags", &[at::TCP_FLAGS], |f| {
                        let (value, mask) = (f.k(at::TCP_FLAGS), f.m(at::TCP_FLAGS) & 0xfff);
                        f.push(Flags { value, mask, all: 0xfff, names: &TCP_FLAGS });
                    });
                }
            }
            (17, _) => self.attribute("udp", &PORTS, Fields::ports),
            (132, _) => self.attribute("sctp", &PORTS, Fields::ports),
            (1, ethertype::IPV4) => self.attribute("icmp", &PORTS, Fields::type_and_code),
            (58, ethertype::IPV6) => {
                self.attribute("icmpv6", &PORTS, Fields::type_and_code);
                if matches!(self.k(at::TP_SRC), 135 | 136) && self.k(at::TP_DST) == 0 {
                    self.neighbour_discovery();
                }
            }
            _ => {}
        }
    }

    /// OVS says which bits of these are matched only where type and code are matched whole. It has no room for the
    /// reserved field and the option type in a megaflow's text.
    fn neighbour_discovery(&mut self) {
        let is_told = [at::TP_SRC, at::TP_DST].iter().all(|span| self.m(*span) & 0xff == 0xff);
        let mask = if is_told { *self.mask } else { PacketKey::default() };
        let mut out = Attributes { text: &mut *self.text, mask: &mask, ..*self };
        out.attribute("nd", &ND_FIELDS, Fields::neighbour);
    }
}

pub(super) const IPV4_FIELDS: [Span; 6] = [at::NW_SRC, at::NW_DST, at::NW_PROTO, at::NW_TOS, at::NW_TTL, at::NW_FRAG];
pub(super) const IPV6_FIELDS: [Span; 7] =
    [at::IPV6_SRC, at::IPV6_DST, at::IPV6_LABEL, at::NW_PROTO, at::NW_TOS, at::NW_TTL, at::NW_FRAG];
pub(super) const ARP_FIELDS: [Span; 5] = [at::NW_SRC, at::NW_DST, at::NW_PROTO, at::ARP_SHA, at::ARP_THA];
pub(super) const MPLS_FIELDS: [Span; 3] = [at::MPLS0, at::MPLS1, at::MPLS2];
pub(super) const ND_FIELDS: [Span; 3] = [at::ND_TARGET, at::ARP_SHA, at::ARP_THA];

/// The reserved word, and the type of the option, which stands where TCP's flags are.
pub(super) const ND_EXTENSIONS: [Span; 2] = [at::ND_RESERVED, at::TCP_FLAGS];

/// The fields of one attribute, with commas between.
pub(super) struct Fields {
    pub text: String,
    key: PacketKey,
    mask: PacketKey,
    verbose: bool,
}

impl Fields {
    fn k(&self, span: Span) -> u64 {
        self.key.number(span)
    }

    fn m(&self, span: Span) -> u64 {
        self.mask.number(span)
    }

    pub fn push(&mut self, what: impl fmt::Display) {
        let _ = write!(self.text, "{what}");
    }

    /// `name=value`, and `/mask` unless every bit matters; nothing if none does.
    fn field(&mut self, name: &str, span: Span, value: impl fmt::Display, mask: impl fmt::Display) {
        let bits = self.mask.get(span);
        if !self.verbose && bits.iter().all(|b| *b == 0) {
            return;
        }
        let comma = if self.text.is_empty() { "" } else { "," };
        let _ = write!(self.text, "{comma}{name}={value}");
        if !bits.iter().all(|b| *b == 0xff) {
            let _ = write!(self.text, "/{mask}");
        }
    }

    pub fn bare_hex(&mut self, span: Span) {
        let _ = write!(self.text, "{}", hex(self.k(span)));
        if !self.mask.get(span).iter().all(|b| *b == 0xff) {
            let _ = write!(self.text, "/{}", hex(self.m(span)));
        }
    }

    fn bare_wide_hex(&mut self, span: Span) {
        let number = |bytes: &[u8]| bytes.iter().fold(0u128, |n, b| n << 8 | u128::from(*b));
        let (value, mask) = (number(self.key.get(span)), number(self.mask.get(span)));
        let _ = write!(self.text, "{}", wide_hex(value));
        if mask != u128::MAX {
            let _ = write!(self.text, "/{}", wide_hex(mask));
        }
    }

    fn decimal(&mut self, name: &str, span: Span) {
        self.field(name, span, self.k(span), hex(self.m(span)));
    }

    pub fn hexadecimal(&mut self, name: &str, span: Span) {
        self.field(name, span, hex(self.k(span)), hex(self.m(span)));
    }

    /// A field of 16 bits in the key and 8 in the text.
    fn low_byte(&mut self, name: &str, span: Span) {
        self.decimal(name, Span { offset: span.offset + 1, size: 1 });
    }

    fn mac(&mut self, name: &str, span: Span) {
        self.field(name, span, mac(self.key.get(span)), mac(self.mask.get(span)));
    }

    fn ipv4(&mut self, name: &str, span: Span) {
        let address = |n: u64| Ipv4Addr::from(n as u32);
        self.field(name, span, address(self.k(span)), address(self.m(span)));
    }

    fn ipv6(&mut self, name: &str, span: Span) {
        self.field(name, span, ipv6(self.key.get(span)), ipv6(self.mask.get(span)));
    }

    pub fn ethernet(&mut self) {
        self.mac("src", at::DL_SRC);
        self.mac("dst", at::DL_DST);
    }

    /// Any bit of the mask means all of it.
    fn fragment(&mut self) {
        if self.m(at::NW_FRAG) == 0 {
            return;
        }
        let kind = match self.k(at::NW_FRAG) & 3 {
            0 => "no",
            1 => "first",
            _ => "later",
        };
        let comma = if self.text.is_empty() { "" } else { "," };
        let _ = write!(self.text, "{comma}frag={kind}");
    }

    pub fn ipv4_header(&mut self) {
        self.ipv4("src", at::NW_SRC);
        self.ipv4("dst", at::NW_DST);
        self.decimal("proto", at::NW_PROTO);
        self.hexadecimal("tos", at::NW_TOS);
        self.decimal("ttl", at::NW_TTL);
        self.fragment();
    }

    pub fn ipv6_header(&mut self) {
        self.ipv6("src", at::IPV6_SRC);
        self.ipv6("dst", at::IPV6_DST);
        self.label();
        self.decimal("proto", at::NW_PROTO);
        self.hexadecimal("tclass", at::NW_TOS);
        self.decimal("hlimit", at::NW_TTL);
        self.fragment();
    }

    /// The flow label: 20 bits are all there is.
    fn label(&mut self) {
        let (value, mask) = (self.k(at::IPV6_LABEL), self.m(at::IPV6_LABEL));
        if mask == 0 && !self.verbose {
            return;
        }
        let comma = if self.text.is_empty() { "" } else { "," };
        let _ = write!(self.text, "{comma}label={}", hex(value));
        if mask & 0xf_ffff != 0xf_ffff {
            let _ = write!(self.text, "/{}", hex(mask));
        }
    }

    pub fn arp_header(&mut self) {
        self.ipv4("sip", at::NW_SRC);
        self.ipv4("tip", at::NW_DST);
        // 16 bits in the packet, the low ones in the key: an exact mask shows as one.
        self.decimal("op", at::NW_PROTO);
        self.mac("sha", at::ARP_SHA);
        self.mac("tha", at::ARP_THA);
    }

    /// As many labels as there are down to the bottom of the stack, three at most.
    pub fn mpls_header(&mut self) {
        let exact = MPLS_FIELDS.iter().all(|span| self.k(*span) == 0 || self.m(*span) == 0xffff_ffff);
        for (i, span) in MPLS_FIELDS.into_iter().enumerate() {
            let bottom_above = i > 0 && self.k(MPLS_FIELDS[i - 1]) >> 8 & 1 != 0;
            if i > 0 && (bottom_above || self.k(span) == 0) {
                break;
            }
            let comma = if i == 0 { "" } else { "," };
            let (k, m) = (Lse(self.k(span)), Lse(self.m(span)));
            match exact {
                true => self.push(format_args!("{comma}{k}")),
                false => self.push(format_args!(
                    "{comma}label={}/0x{:x},tc={}/{:x},ttl={}/0x{:x},bos={}/{:x}",
                    k.label(),
                    m.label(),
                    k.tc(),
                    m.tc(),
                    k.ttl(),
                    m.ttl(),
                    k.bos(),
                    m.bos()
                )),
            }
        }
    }

    pub fn ports(&mut self) {
        self.decimal("src", at::TP_SRC);
        self.decimal("dst", at::TP_DST);
    }

    pub fn type_and_code(&mut self) {
        self.low_byte("type", at::TP_SRC);
        self.low_byte("code", at::TP_DST);
    }

    pub fn neighbour(&mut self) {
        self.ipv6("target", at::ND_TARGET);
        self.mac("sll", at::ARP_SHA);
        self.mac("tll", at::ARP_THA);
    }

    pub fn neighbour_extensions(&mut self) {
        // OVS prints this one whatever its mask.
        self.push(format!("nd_reserved={:#x}", self.k(at::ND_RESERVED)));
        self.decimal("nd_options_type", at::TCP_FLAGS);
    }

    /// A VLAN tag: its id and priority, and `cfi=0` where there is none.
    pub fn tci(&mut self, tci: u64, mask: u64) {
        let mut items = Vec::new();
        let parts = [("vid", tci & 0xfff, mask & 0xfff, 0xfff), ("pcp", tci >> 13, mask >> 13, 7)];
        for (name, value, mask, all) in parts {
            if self.verbose || value != 0 || mask != 0 {
                items.push(if mask == all { format!("{name}={value}") } else { format!("{name}={value}/0x{mask:x}") });
            }
        }
        if tci & 0x1000 == 0 {
            items.push("cfi=0".into());
        }
        self.push(items.join(","));
    }
}

/// An MPLS label stack entry.
#[derive(Clone, Copy)]
pub(super) struct Lse(pub u64);

impl Lse {
    fn label(self) -> u64 {
        self.0 >> 12
    }
    fn tc(self) -> u64 {
        self.0 >> 9 & 7
    }
    fn bos(self) -> u64 {
        self.0 >> 8 & 1
    }
    fn ttl(self) -> u64 {
        self.0 & 0xff
    }
}

impl fmt::Display for Lse {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "label={},tc={},ttl={},bos={}", self.label(), self.tc(), self.ttl(), self.bos())
    }
}

/// Names of bits, from bit 0.
const CT_STATES: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
const TCP_FLAGS: [&str; 12] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"];

/// Bits by name: `a|b` where all matter, `+a-b` where some do.
struct Flags {
    value: u64,
    mask: u64,
    /// All bits there are.
    all: u64,
    names: &'static [&'static str],
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let has = |bits: u64, i: usize| bits >> i & 1 != 0;
        if self.mask == self.all {
            let set: Vec<_> =
                self.names.iter().enumerate().filter(|(i, _)| has(self.value, *i)).map(|(_, n)| *n).collect();
            return if set.is_empty() { f.write_str("0") } else { f.write_str(&set.join("|")) };
        }
        if self.mask == 0 {
            return f.write_str("0/0");
        }
        let mut masked = self.names.iter().enumerate().filter(|(i, _)| has(self.mask, *i));
        masked.try_for_each(|(i, name)| write!(f, "{}{name}", if has(self.value, i) { '+' } else { '-' }))
    }
}

/// C's `%#x`: zero without the `0x`.
pub(super) fn hex(value: u64) -> impl fmt::Display {
    wide_hex(value.into())
}

pub(super) fn wide_hex(value: u128) -> impl fmt::Display {
    fmt::from_fn(move |f| if value == 0 { f.write_str("0") } else { write!(f, "{value:#x}") })
}

fn mac(bytes: &[u8]) -> impl fmt::Display + use<> {
    let bytes: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    bytes.join(":")
}

/// An IPv6 address as the C library writes it, which shows the last 32 bits of `::a.b.c.d` as an IPv4 address.
pub(super) fn ipv6(bytes: &[u8]) -> impl fmt::Display + use<> {
    let address = Ipv6Addr::from(bytes.iter().fold(0u128, |n, b| n << 8 | u128::from(*b)));
    fmt::from_fn(move |f| match address.segments() {
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => {
            write!(f, "::{}", Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
        }
        _ => write!(f, "{address}"),
    })
}

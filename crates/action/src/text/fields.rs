//! Values and masks of a key's fields, each in the notation of its field.

use sluice_flow::layout::{self as at, Span};
use sluice_flow::text::number::{Ip6, show_hex};
use sluice_flow::{Mac, PacketKey};
use std::fmt::{self, Formatter, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};

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
    /// None yet.
    pub fn new(key: &PacketKey, mask: &PacketKey, verbose: bool) -> Self {
        Fields { text: String::new(), key: *key, mask: *mask, verbose }
    }

    pub fn k(&self, span: Span) -> u64 {
        self.key.number(span)
    }

    pub fn m(&self, span: Span) -> u64 {
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

    pub fn bare_wide_hex(&mut self, span: Span) {
        let (value, mask) = (big_endian(self.key.get(span)), big_endian(self.mask.get(span)));
        let _ = write!(self.text, "{}", show_hex(value));
        if mask != u128::MAX {
            let _ = write!(self.text, "/{}", show_hex(mask));
        }
    }

    pub fn decimal(&mut self, name: &str, span: Span) {
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

    pub fn ipv4(&mut self, name: &str, span: Span) {
        let address = |n: u64| Ipv4Addr::from(n as u32);
        self.field(name, span, address(self.k(span)), address(self.m(span)));
    }

    pub fn ipv6(&mut self, name: &str, span: Span) {
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

/// A number in hexadecimal, zero as `0`.
pub(super) fn hex(value: u64) -> impl fmt::Display {
    show_hex(value.into())
}

fn mac(bytes: &[u8]) -> Mac {
    Mac::from_number(big_endian(bytes))
}

/// An IPv6 address as the C library writes it.
pub(super) fn ipv6(bytes: &[u8]) -> Ip6 {
    Ip6(Ipv6Addr::from(big_endian(bytes)))
}

fn big_endian(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |n, b| n << 8 | u128::from(*b))
}

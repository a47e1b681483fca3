//! Prerequisites: what a match must say before it may name a field.

use crate::ct_state;
use crate::field::{FIELDS, Field, FieldId, Prereq};
use crate::layout::{self, Span};
use crate::{FlowKey, Match};
use sluice_packet::headers::{ethertype, ip_proto, nd};

const CT_TRACKED: u64 = ct_state::TRACKED as u64;
const CT_INVALID: u64 = ct_state::INVALID as u64;
/// Bits of a connection's state that only a valid connection has: new, est, rel, rpl, snat, dnat.
const CT_VALID_BITS: u64 = !(CT_TRACKED | CT_INVALID) & 0xff;

impl Match {
    /// Whether the match fulfils a prerequisite.
    pub fn satisfies(&self, prereq: Prereq) -> bool {
        let exact = |span: Span| {
            let mask = (1u64 << (8 * span.size)) - 1;
            (self.mask.number(span) == mask).then(|| self.key.number(span))
        };
        let dl_type = self.dl_type();
        let ip_any = || matches!(dl_type, Some(ethertype::IPV4 | ethertype::IPV6));
        let proto =
            |p: u8| ip_any() && exact(layout::NW_PROTO) == Some(p.into()) && self.key.number(layout::NW_FRAG) & 2 == 0;
        let icmpv6 = || dl_type == Some(ethertype::IPV6) && exact(layout::NW_PROTO) == Some(ip_proto::ICMPV6.into());
        let nd =
            |kind: u8| icmpv6() && exact(layout::TP_SRC) == Some(kind.into()) && self.key.number(layout::TP_DST) == 0;
        match prereq {
            Prereq::None => true,
            Prereq::Ethernet => self.is_ethernet(),
            Prereq::Arp => matches!(dl_type, Some(ethertype::ARP | ethertype::RARP)),
            Prereq::VlanVid => self.key.number(layout::VLAN0_TCI) & 0x1000 != 0,
            Prereq::Ipv4 => dl_type == Some(ethertype::IPV4),
            Prereq::Ipv6 => dl_type == Some(ethertype::IPV6),
            Prereq::IpAny => ip_any(),
            Prereq::Nsh => dl_type == Some(ethertype::NSH),
            Prereq::Mpls => dl_type.is_some_and(ethertype::is_mpls),
            Prereq::Tcp => proto(ip_proto::TCP),
            Prereq::Udp => proto(ip_proto::UDP),
            Prereq::Sctp => proto(ip_proto::SCTP),
            Prereq::Icmpv4 => {
                dl_type == Some(ethertype::IPV4) && exact(layout::NW_PROTO) == Some(ip_proto::ICMP.into())
            }
            Prereq::Icmpv6 => icmpv6(),
            Prereq::Nd => nd(nd::SOLICIT) || nd(nd::ADVERT),
            Prereq::NdSolicit => nd(nd::SOLICIT),
            Prereq::NdAdvert => nd(nd::ADVERT),
            Prereq::CtValid => {
                let state = self.key.number(layout::CT_STATE);
                let not_invalid = self.mask.number(layout::CT_STATE) & CT_INVALID != 0 && state & CT_INVALID == 0;
                state & CT_VALID_BITS != 0 || state & CT_TRACKED != 0 && not_invalid
            }
        }
    }

    /// Whether a match on a field makes sense beside what else the match says. Fields that share their bits with one
    /// another may stand for each other, as in `udp,tp_src=53`, `icmp6,icmp_type=135` and `arp,nw_src=10.0.0.1`.
    pub fn allows(&self, field: &Field) -> bool {
        self.satisfies(field.prereq)
            || FIELDS.iter().any(|f| f.place.span == field.place.span && f.id != field.id && self.satisfies(f.prereq))
    }

    /// The Ethernet type that the match asks for, be it by the field or by the packet type.
    pub fn dl_type(&self) -> Option<u16> {
        let by_field =
            || (self.mask.number(layout::DL_TYPE) == 0xffff).then(|| self.key.number(layout::DL_TYPE) as u16);
        self.key.bare_type().or_else(by_field)
    }

    /// Whether the match looks at a field that has a prerequisite, which no packet has before its headers are read.
    pub fn asks_for_headers(&self) -> bool {
        FIELDS.iter().any(|field| field.prereq != Prereq::None && field.place.read(&self.mask) != 0)
    }

    /// Whether the match is about Ethernet frames, as it is unless it asks for another packet type.
    pub fn is_ethernet(&self) -> bool {
        self.key.number(layout::PACKET_TYPE) == 0
    }
}

impl Field {
    /// Whether a packet has this field, given its key.
    pub fn is_in(&self, key: &FlowKey) -> bool {
        Match { key: key.clone(), mask: FlowKey::ONES }.satisfies(self.prereq)
    }
}

impl Prereq {
    /// What to write into a match to fulfil it.
    pub fn remedy(self) -> &'static str {
        match self {
            Prereq::None => "nothing",
            Prereq::Ethernet => "an Ethernet packet",
            Prereq::Arp => "arp or rarp",
            Prereq::VlanVid => "a VLAN tag (dl_vlan or vlan_tci)",
            Prereq::Ipv4 => "ip",
            Prereq::Ipv6 => "ipv6",
            Prereq::IpAny => "ip or ipv6",
            Prereq::Nsh => "dl_type=0x894f",
            Prereq::CtValid => "a ct_state of a valid connection (ct_state=+trk+est, say)",
            Prereq::Mpls => "mpls or mplsm",
            Prereq::Tcp => "tcp or tcp6",
            Prereq::Udp => "udp or udp6",
            Prereq::Sctp => "sctp or sctp6",
            Prereq::Icmpv4 => "icmp",
            Prereq::Icmpv6 => "icmp6",
            Prereq::Nd => "icmp6,icmp_type=135 or icmp6,icmp_type=136",
            Prereq::NdSolicit => "icmp6,icmp_type=135",
            Prereq::NdAdvert => "icmp6,icmp_type=136",
        }
    }
}

/// Ethernet type and IP protocol of the words that stand for them: `tcp`, `arp` …
/// Source: `ovs-fields(7)`, "Shorthands".
pub(crate) const SHORTHANDS: [(&str, u16, u8); 17] = [
    ("ip", ethertype::IPV4, 0),
    ("ipv4", ethertype::IPV4, 0),
    ("ip4", ethertype::IPV4, 0),
    ("arp", ethertype::ARP, 0),
    ("icmp", ethertype::IPV4, ip_proto::ICMP),
    ("tcp", ethertype::IPV4, ip_proto::TCP),
    ("udp", ethertype::IPV4, ip_proto::UDP),
    ("sctp", ethertype::IPV4, ip_proto::SCTP),
    ("ipv6", ethertype::IPV6, 0),
    ("ip6", ethertype::IPV6, 0),
    ("icmp6", ethertype::IPV6, ip_proto::ICMPV6),
    ("tcp6", ethertype::IPV6, ip_proto::TCP),
    ("udp6", ethertype::IPV6, ip_proto::UDP),
    ("sctp6", ethertype::IPV6, ip_proto::SCTP),
    ("rarp", ethertype::RARP, 0),
    ("mpls", ethertype::MPLS, 0),
    ("mplsm", ethertype::MPLS_MULTICAST, 0),
];

/// The word for an Ethernet type and, if the match gives one, an IP protocol; and whether it says both.
pub(crate) fn shorthand(dl_type: u16, proto: Option<u8>) -> Option<(&'static str, bool)> {
    let word = |proto| SHORTHANDS.iter().find(|(_, t, p)| *t == dl_type && *p == proto).map(|(word, ..)| *word);
    match proto.filter(|p| *p != 0).and_then(word) {
        Some(name) => Some((name, true)),
        None => word(0).map(|name| (name, false)),
    }
}

impl Match {
    /// Adds what a word such as `tcp` stands for; `false` if the word is not a shorthand.
    pub(crate) fn set_shorthand(&mut self, word: &str) -> bool {
        let Some((_, dl_type, proto)) = SHORTHANDS.iter().find(|(name, ..)| *name == word) else {
            return false;
        };
        self.set(FieldId::EthType, u128::from(*dl_type));
        if *proto != 0 {
            self.set(FieldId::IpProto, u128::from(*proto));
        }
        true
    }
}

//! What a match must say before a field has a meaning.

use crate::ct_state;
use crate::field::{FIELDS, Field, FieldId, Prereq};
use crate::layout::{self, Span};
use crate::{FlowKey, Match};

const ETH_TYPE_IP: u64 = 0x0800;
const ETH_TYPE_ARP: u64 = 0x0806;
const ETH_TYPE_RARP: u64 = 0x8035;
const ETH_TYPE_IPV6: u64 = 0x86dd;
const ETH_TYPE_MPLS: u64 = 0x8847;
const ETH_TYPE_MPLS_MCAST: u64 = 0x8848;
const ETH_TYPE_NSH: u64 = 0x894f;

const PROTO_ICMP: u64 = 1;
const PROTO_TCP: u64 = 6;
const PROTO_UDP: u64 = 17;
const PROTO_ICMPV6: u64 = 58;
const PROTO_SCTP: u64 = 132;

const ND_SOLICIT: u64 = 135;
const ND_ADVERT: u64 = 136;

const CT_TRACKED: u64 = ct_state::TRACKED as u64;
const CT_INVALID: u64 = ct_state::INVALID as u64;
/// Bits of a connection's state that only a valid connection has: new, est, rel, rpl, snat, dnat.
const CT_VALID_BITS: u64 = !(CT_TRACKED | CT_INVALID) & 0xff;

impl Match {
    /// Whether the match says what a field's prerequisite wants.
    pub fn satisfies(&self, prereq: Prereq) -> bool {
        let exact = |span: Span| {
            let mask = (1u64 << (8 * span.size)) - 1;
            (self.mask.number(span) == mask).then(|| self.key.number(span))
        };
        let dl_type = self.dl_type();
        let ip_any = || matches!(dl_type, Some(ETH_TYPE_IP | ETH_TYPE_IPV6));
        let proto = |p| ip_any() && exact(layout::NW_PROTO) == Some(p) && self.key.number(layout::NW_FRAG) & 2 == 0;
        let icmpv6 = || dl_type == Some(ETH_TYPE_IPV6) && exact(layout::NW_PROTO) == Some(PROTO_ICMPV6);
        let nd = |kind| icmpv6() && exact(layout::TP_SRC) == Some(kind) && self.key.number(layout::TP_DST) == 0;
        match prereq {
            Prereq::None => true,
            Prereq::Ethernet => self.is_ethernet(),
            Prereq::Arp => matches!(dl_type, Some(ETH_TYPE_ARP | ETH_TYPE_RARP)),
            Prereq::VlanVid => self.key.number(layout::VLAN0_TCI) & 0x1000 != 0,
            Prereq::Ipv4 => dl_type == Some(ETH_TYPE_IP),
            Prereq::Ipv6 => dl_type == Some(ETH_TYPE_IPV6),
            Prereq::IpAny => ip_any(),
            Prereq::Nsh => dl_type == Some(ETH_TYPE_NSH),
            Prereq::Mpls => matches!(dl_type, Some(ETH_TYPE_MPLS | ETH_TYPE_MPLS_MCAST)),
            Prereq::Tcp => proto(PROTO_TCP),
            Prereq::Udp => proto(PROTO_UDP),
            Prereq::Sctp => proto(PROTO_SCTP),
            Prereq::Icmpv4 => dl_type == Some(ETH_TYPE_IP) && exact(layout::NW_PROTO) == Some(PROTO_ICMP),
            Prereq::Icmpv6 => icmpv6(),
            Prereq::Nd => nd(ND_SOLICIT) || nd(ND_ADVERT),
            Prereq::NdSolicit => nd(ND_SOLICIT),
            Prereq::NdAdvert => nd(ND_ADVERT),
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
    pub fn dl_type(&self) -> Option<u64> {
        let packet_type = self.key.number(layout::PACKET_TYPE);
        if packet_type >> 16 == 1 {
            return Some(packet_type & 0xffff);
        }
        (self.mask.number(layout::DL_TYPE) == 0xffff).then(|| self.key.number(layout::DL_TYPE))
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
        Match { key: *key, mask: FlowKey::ONES }.satisfies(self.prereq)
    }
}

impl Prereq {
    /// What to write into a match so that it is met.
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
pub(crate) const SHORTHANDS: [(&str, u64, u64); 17] = [
    ("ip", ETH_TYPE_IP, 0),
    ("ipv4", ETH_TYPE_IP, 0),
    ("ip4", ETH_TYPE_IP, 0),
    ("arp", ETH_TYPE_ARP, 0),
    ("icmp", ETH_TYPE_IP, PROTO_ICMP),
    ("tcp", ETH_TYPE_IP, PROTO_TCP),
    ("udp", ETH_TYPE_IP, PROTO_UDP),
    ("sctp", ETH_TYPE_IP, PROTO_SCTP),
    ("ipv6", ETH_TYPE_IPV6, 0),
    ("ip6", ETH_TYPE_IPV6, 0),
    ("icmp6", ETH_TYPE_IPV6, PROTO_ICMPV6),
    ("tcp6", ETH_TYPE_IPV6, PROTO_TCP),
    ("udp6", ETH_TYPE_IPV6, PROTO_UDP),
    ("sctp6", ETH_TYPE_IPV6, PROTO_SCTP),
    ("rarp", ETH_TYPE_RARP, 0),
    ("mpls", ETH_TYPE_MPLS, 0),
    ("mplsm", ETH_TYPE_MPLS_MCAST, 0),
];

/// The word for an Ethernet type and, if the match gives one, an IP protocol; and whether it says both.
pub(crate) fn shorthand(dl_type: u64, proto: Option<u64>) -> Option<(&'static str, bool)> {
    let word = |proto| SHORTHANDS.iter().find(|(_, t, p)| *t == dl_type && *p == proto).map(|(word, ..)| *word);
    match proto.filter(|p| *p != 0).and_then(word) {
        Some(name) => Some((name, true)),
        None => word(0).map(|name| (name, false)),
    }
}

impl Match {
    /// Adds what a word such as `tcp` stands for; `false` if it is none.
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

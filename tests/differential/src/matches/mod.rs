//! Random matches in `ovs-ofctl` syntax, with what they demand bit by bit, so that overlaps can be told.

mod masks;
mod metadata;
mod seldom;

use crate::actions::Version;
use crate::rng::Rng;
use crate::values::Values;
use masks::{address_mask, hex, ipv4_term, ipv6_mask, ipv6_term, mac_term, masked, port_mask};

/// What a match demands of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Term {
    field: &'static str,
    value: u128,
    mask: u128,
}

/// The network protocol a match or packet is about; decides which fields and actions are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Any,
    Arp,
    Rarp,
    /// Unicast or multicast labels.
    Mpls,
    Mplsm,
    Ip,
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Ipv6,
    Tcp6,
    Udp6,
    Sctp6,
    Icmp6,
    /// ICMPv6 with its type given as neighbour solicitation or advertisement.
    Nd(u8),
}

impl Protocol {
    pub fn is_ipv4(self) -> bool {
        matches!(self, Protocol::Ip | Protocol::Tcp | Protocol::Udp | Protocol::Sctp | Protocol::Icmp)
    }

    pub fn is_ipv6(self) -> bool {
        !self.is_ipv4() && !self.is_arp() && !self.is_mpls() && self != Protocol::Any
    }

    pub fn is_arp(self) -> bool {
        matches!(self, Protocol::Arp | Protocol::Rarp)
    }

    pub fn is_mpls(self) -> bool {
        matches!(self, Protocol::Mpls | Protocol::Mplsm)
    }

    /// The prefix of its port fields.
    pub fn ports(self) -> Option<&'static str> {
        match self {
            Protocol::Tcp | Protocol::Tcp6 => Some("tcp"),
            Protocol::Udp | Protocol::Udp6 => Some("udp"),
            Protocol::Sctp | Protocol::Sctp6 => Some("sctp"),
            _ => None,
        }
    }
}

/// A rule's match.
#[derive(Clone, Debug)]
pub struct Match {
    pub protocol: Protocol,
    /// Whether it demands a VLAN tag, or none.
    pub vlan: Option<bool>,
    terms: Vec<Term>,
    texts: Vec<String>,
}

impl Match {
    pub fn random(rng: &mut Rng, values: &Values, version: Version) -> Self {
        let protocols = [
            (Protocol::Any, 6),
            (Protocol::Arp, 3),
            (Protocol::Rarp, 1),
            (Protocol::Mpls, 3),
            (Protocol::Mplsm, 1),
            (Protocol::Ip, 8),
            (Protocol::Tcp, 5),
            (Protocol::Udp, 5),
            (Protocol::Sctp, 2),
            (Protocol::Icmp, 2),
            (Protocol::Ipv6, 3),
            (Protocol::Tcp6, 2),
            (Protocol::Udp6, 2),
            (Protocol::Sctp6, 1),
            (Protocol::Icmp6, 1),
            (Protocol::Nd(135), 1),
            (Protocol::Nd(136), 1),
        ];
        let weights = protocols.map(|(_, w)| w);
        let mut it = Match { protocol: protocols[rng.weighted(&weights)].0, vlan: None, terms: vec![], texts: vec![] };
        it.prerequisites();
        it.metadata(rng, values, version);
        it.ethernet(rng, values);
        match it.protocol {
            Protocol::Any => it.bare_type(rng),
            p if p.is_arp() => it.arp(rng, values),
            p if p.is_mpls() => it.mpls(rng, values),
            _ => it.ip(rng, values),
        }
        it.transport(rng, values);
        if rng.chance(6) {
            it.seldom(rng, values, version);
        }
        it
    }

    /// How many fields it looks at.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// The `ovs-ofctl` text, empty for a match of everything.
    pub fn text(&self) -> String {
        self.texts.join(",")
    }

    /// Whether some packet matches both.
    pub fn overlaps(&self, other: &Match) -> bool {
        !self
            .terms
            .iter()
            .any(|a| other.terms.iter().any(|b| a.field == b.field && (a.value ^ b.value) & a.mask & b.mask != 0))
    }

    fn demand(&mut self, field: &'static str, value: u128, mask: u128) {
        self.terms.push(Term { field, value: value & mask, mask });
    }

    fn add(&mut self, field: &'static str, value: u128, mask: u128, text: String) {
        self.demand(field, value, mask);
        self.texts.push(text);
    }

    fn prerequisites(&mut self) {
        let (word, dl_type, nw_proto) = match self.protocol {
            Protocol::Any => return,
            Protocol::Arp => ("arp", 0x806, None),
            Protocol::Rarp => ("rarp", 0x8035, None),
            Protocol::Mpls => ("mpls", 0x8847, None),
            Protocol::Mplsm => ("mplsm", 0x8848, None),
            Protocol::Ip => ("ip", 0x800, None),
            Protocol::Tcp => ("tcp", 0x800, Some(6)),
            Protocol::Udp => ("udp", 0x800, Some(17)),
            Protocol::Sctp => ("sctp", 0x800, Some(132)),
            Protocol::Icmp => ("icmp", 0x800, Some(1)),
            Protocol::Ipv6 => ("ipv6", 0x86dd, None),
            Protocol::Tcp6 => ("tcp6", 0x86dd, Some(6)),
            Protocol::Udp6 => ("udp6", 0x86dd, Some(17)),
            Protocol::Sctp6 => ("sctp6", 0x86dd, Some(132)),
            Protocol::Icmp6 | Protocol::Nd(_) => ("icmp6", 0x86dd, Some(58)),
        };
        self.add("dl_type", dl_type, 0xffff, word.into());
        if let Some(proto) = nw_proto {
            self.demand("nw_proto", proto, 0xff);
        }
        if let Protocol::Nd(kind) = self.protocol {
            self.add("icmp_type", kind.into(), 0xff, format!("icmp_type={kind}"));
            // OVS demands code 0 as well before it lets ND fields be matched.
            self.add("icmp_code", 0, 0xff, "icmp_code=0".into());
        }
    }

    fn ethernet(&mut self, rng: &mut Rng, values: &Values) {
        for field in ["dl_src", "dl_dst"] {
            if rng.chance(15) {
                let (value, mask) = masked(values.mac(rng).into(), rng, 48);
                self.add(field, value, mask, mac_term(field, value, mask));
            }
        }
        if rng.chance(25) {
            self.vlan(rng, values);
        }
    }

    fn vlan(&mut self, rng: &mut Rng, values: &Values) {
        const CFI: u128 = 0x1000;
        let vid = u128::from(values.vid(rng));
        let pcp = rng.below(8) as u128;
        self.vlan = Some(true);
        match rng.below(8) {
            0 => {
                self.vlan = Some(false);
                // OpenFlow 1.3 has no way to say more than this about the absence of a tag.
                self.add("vlan_tci", 0, 0x1fff, "vlan_tci=0x0000/0x1fff".into());
            }
            1 => self.add("vlan_tci", CFI, CFI, "vlan_tci=0x1000/0x1000".into()),
            2 => self.add("vlan_tci", vid | CFI, 0x1fff, format!("dl_vlan={vid}")),
            3 => self.add("vlan_tci", pcp << 13 | CFI, 0xf000, format!("dl_vlan_pcp={pcp}")),
            6 => self.add("vlan_tci", vid | CFI, 0x1fff, format!("vlan_vid={:#x}/0x1fff", vid | CFI)),
            7 => {
                self.add("vlan_tci", CFI, CFI, "vlan_vid=0x1000/0x1000".into());
                self.add("vlan_tci", pcp << 13, 0xe000, format!("vlan_pcp={pcp}"));
            }
            4 => {
                self.add("vlan_tci", vid | CFI, 0x1fff, format!("dl_vlan={vid}"));
                self.add("vlan_tci", pcp << 13, 0xe000, format!("dl_vlan_pcp={pcp}"));
            }
            _ => {
                let mask = CFI | rng.below(0x1000) as u128 | if rng.chance(30) { 0xe000 } else { 0 };
                let value = (vid | pcp << 13 | CFI) & mask;
                self.add("vlan_tci", value, mask, format!("vlan_tci={value:#06x}/{mask:#06x}"));
            }
        }
    }

    /// A match on an Ethernet type that no shorthand names.
    fn bare_type(&mut self, rng: &mut Rng) {
        if rng.chance(20) {
            let dl_type = *rng.pick(&[0x88cc_u128, 0x05ff, 0x9000]);
            self.add("dl_type", dl_type, 0xffff, format!("dl_type={dl_type:#06x}"));
        }
    }

    fn arp(&mut self, rng: &mut Rng, values: &Values) {
        if rng.chance(40) {
            let op = 1 + rng.below(2) as u128;
            self.add("arp_op", op, 0xffff, format!("arp_op={op}"));
        }
        for field in ["arp_spa", "arp_tpa"] {
            if rng.chance(30) {
                let (value, mask) = address_mask(values.ipv4(rng).into(), rng, 32);
                self.add(field, value, mask, ipv4_term(field, value, mask));
            }
        }
        for field in ["arp_sha", "arp_tha"] {
            if rng.chance(15) {
                let (value, mask) = masked(values.mac(rng).into(), rng, 48);
                self.add(field, value, mask, mac_term(field, value, mask));
            }
        }
    }

    fn mpls(&mut self, rng: &mut Rng, values: &Values) {
        let label = u128::from(*rng.pick(&values.labels));
        let small = rng.below(8) as u128;
        // A label, a traffic class, a bottom of the stack and a time to live are parts of one word.
        for (field, percent, value, shift, bits) in [
            ("mpls_label", 45, label, 12, 20),
            ("mpls_tc", 20, small, 9, 3),
            ("mpls_bos", 30, small & 1, 8, 1),
            ("mpls_ttl", 15, *rng.pick(&[0, 1, 2, 64]), 0, 8),
        ] {
            if rng.chance(percent) {
                self.add("mpls_lse", value << shift, ((1 << bits) - 1) << shift, format!("{field}={value}"));
            }
        }
    }

    fn ip(&mut self, rng: &mut Rng, values: &Values) {
        if self.protocol.is_ipv4() {
            for field in ["nw_src", "nw_dst"] {
                if rng.chance(40) {
                    let (value, mask) = address_mask(values.ipv4(rng).into(), rng, 32);
                    self.add(field, value, mask, ipv4_term(field, value, mask));
                }
            }
        } else {
            for field in ["ipv6_src", "ipv6_dst"] {
                if rng.chance(40) {
                    let (value, mask) = ipv6_mask(values.ipv6(rng), rng);
                    self.add(field, value, mask, ipv6_term(field, value, mask));
                }
            }
            if rng.chance(8) {
                let (value, mask) = masked((*rng.pick(&values.labels)).into(), rng, 20);
                self.add("ipv6_label", value, mask, hex("ipv6_label", value, mask, 20));
            }
        }
        if matches!(self.protocol, Protocol::Ip | Protocol::Ipv6) && rng.chance(15) {
            let proto = *rng.pick(&[1_u128, 6, 17, 47, 58, 89, 132]);
            self.add("nw_proto", proto, 0xff, format!("nw_proto={proto}"));
        }
        if rng.chance(8) {
            let dscp = *rng.pick(&[0_u128, 0xb8, 0x20]);
            let text = if rng.chance(30) { format!("ip_dscp={}", dscp >> 2) } else { format!("nw_tos={dscp}") };
            self.add("nw_tos", dscp, 0xfc, text);
        }
        if rng.chance(6) {
            let ecn = rng.below(4) as u128;
            self.add("nw_ecn", ecn, 3, format!("nw_ecn={ecn}"));
        }
        if rng.chance(8) {
            let ttl = *rng.pick(&[0_u128, 1, 2, 64]);
            self.add("nw_ttl", ttl, 0xff, format!("nw_ttl={ttl}"));
        }
        if rng.chance(10) {
            let kinds = [("no", 0, 3), ("yes", 1, 1), ("first", 1, 3), ("later", 3, 3), ("not_later", 0, 2)];
            let (name, value, mask) = *rng.pick(&kinds);
            self.add("nw_frag", value, mask, format!("nw_frag={name}"));
            if name == "later" {
                // Later fragments have no transport header to match or to edit.
                self.protocol = if self.protocol.is_ipv4() { Protocol::Ip } else { Protocol::Ipv6 };
            }
        }
    }

    fn transport(&mut self, rng: &mut Rng, values: &Values) {
        const FIELDS: [[&str; 2]; 3] = [["tcp_src", "tcp_dst"], ["udp_src", "udp_dst"], ["sctp_src", "sctp_dst"]];
        if let Some(prefix) = self.protocol.ports() {
            let names = FIELDS[["tcp", "udp", "sctp"].iter().position(|p| *p == prefix).expect("one of three")];
            for (field, name) in ["tp_src", "tp_dst"].into_iter().zip(names) {
                if rng.chance(40) {
                    let (value, mask) = port_mask(values.l4_port(rng), rng);
                    let name = if rng.chance(50) { name } else { field };
                    let text =
                        if mask == 0xffff { format!("{name}={value}") } else { format!("{name}={value:#x}/{mask:#x}") };
                    self.add(field, value, mask, text);
                }
            }
            if prefix == "tcp" && rng.chance(15) {
                let (value, mask) = *rng.pick(&[(2_u128, 0x12_u128), (0x10, 0x10), (0x12, 0xfff), (0, 7), (1, 1)]);
                self.add("tcp_flags", value, mask, format!("tcp_flags={value:#x}/{mask:#x}"));
            }
        }
        if matches!(self.protocol, Protocol::Icmp | Protocol::Icmp6) && rng.chance(60) {
            let kind = *rng.pick(&[0_u128, 3, 8, 128, 129, 135]);
            self.add("icmp_type", kind, 0xff, format!("icmp_type={kind}"));
            if rng.chance(40) {
                let code = rng.below(3) as u128;
                self.add("icmp_code", code, 0xff, format!("icmp_code={code}"));
            }
        }
        if let Protocol::Nd(kind) = self.protocol {
            if rng.chance(60) {
                let (value, mask) = ipv6_mask(values.ipv6(rng), rng);
                self.add("nd_target", value, mask, ipv6_term("nd_target", value, mask));
            }
            if rng.chance(50) {
                let field = if kind == 135 { "nd_sll" } else { "nd_tll" };
                let (value, mask) = masked(values.mac(rng).into(), rng, 48);
                self.add(field, value, mask, mac_term(field, value, mask));
            }
            if rng.chance(15) {
                let reserved = *rng.pick(&[0_u128, 0x6000_0000]);
                self.add("nd_reserved", reserved, u32::MAX.into(), format!("nd_reserved={reserved}"));
            }
            if rng.chance(15) {
                let option = *rng.pick(&[0_u128, 1, 2, 14]);
                self.add("nd_options_type", option, 0xff, format!("nd_options_type={option}"));
            }
        }
    }
}

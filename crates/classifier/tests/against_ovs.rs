//! Replays the answers of Debian's Open vSwitch 3.1 for random tables and flows: the same rule, the same mask.
//!
//! `data/generate.py` ran Open vSwitch and wrote `data/ovs-masks.txt`. Rule numbers, priorities and conjunctions are
//! decimal, other numbers hexadecimal. Its lines:
//!
//! ```text
//! case N                                              an empty table
//! add RULE priority=P FIELD=VALUE/MASK … conj=ID:CLAUSE/OF …
//! del RULE
//! trace FIELD=VALUE … -> RULE FIELD=MASK …            RULE is `none` if nothing matched
//! ```
//!
//! A megaflow's mask has no registers and no metadata, so those are not compared.

use sluice_classifier::{Classifier, Conjunction, RuleId};
use sluice_flow::layout::{self, Span};
use sluice_flow::{FlowKey, Match};
use std::collections::HashMap;

const RECORDED: &str = include_str!("data/ovs-masks.txt");

/// The fields of the recording, and whether a megaflow's mask has them.
const FIELDS: &[(&str, Span, bool)] = &[
    ("in_port", layout::IN_PORT, true),
    ("dl_src", layout::DL_SRC, true),
    ("dl_dst", layout::DL_DST, true),
    ("vlan_tci", layout::VLAN0_TCI, true),
    ("dl_type", layout::DL_TYPE, true),
    ("nw_src", layout::NW_SRC, true),
    ("nw_dst", layout::NW_DST, true),
    ("nw_proto", layout::NW_PROTO, true),
    ("nw_ttl", layout::NW_TTL, true),
    ("ipv6_src", layout::IPV6_SRC, true),
    ("ipv6_dst", layout::IPV6_DST, true),
    ("tcp_flags", layout::TCP_FLAGS, true),
    ("tp_src", layout::TP_SRC, true),
    ("tp_dst", layout::TP_DST, true),
    ("nw_tos", layout::NW_TOS, true),
    ("ipv6_label", layout::IPV6_LABEL, true),
    ("nd_target", layout::ND_TARGET, true),
    ("arp_sha", layout::ARP_SHA, true),
    ("arp_tha", layout::ARP_THA, true),
    ("pkt_mark", layout::PKT_MARK, true),
    ("ct_zone", layout::CT_ZONE, true),
    ("ct_mark", layout::CT_MARK, true),
    ("reg0", Span { offset: layout::REGS.offset, size: 4 }, false),
    ("metadata", layout::METADATA, false),
    ("conj_id", layout::CONJ_ID, false),
];

fn span(name: &str) -> Span {
    FIELDS.iter().find(|field| field.0 == name).unwrap_or_else(|| panic!("no field {name}")).1
}

/// Sets a field from hexadecimal digits.
fn set(key: &mut FlowKey, name: &str, digits: &str) {
    let value = u128::from_str_radix(digits, 16).expect("hexadecimal digits").to_be_bytes();
    key.set(span(name), &value[16 - span(name).size..]);
}

fn fields(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split_whitespace().filter_map(|word| word.split_once('='))
}

#[derive(Default)]
struct Table {
    classifier: Classifier<u32>,
    ids: HashMap<u32, RuleId>,
}

impl Table {
    fn add(&mut self, line: &str) {
        let (number, rest) = line.split_once(' ').expect("a rule's number");
        let mut matching = Match::ANY;
        let mut priority = 0;
        let mut conjunctions = Vec::new();
        for (name, value) in fields(rest) {
            let (value, mask) = value.split_once('/').unwrap_or((value, ""));
            match name {
                "priority" => priority = value.parse().expect("a priority"),
                "conj" => {
                    let (id, clause) = value.split_once(':').expect("ID:CLAUSE");
                    conjunctions.push(Conjunction {
                        id: id.parse().expect("an id"),
                        clause: clause.parse().expect("a clause"),
                        n_clauses: mask.parse().expect("how many clauses"),
                    });
                }
                _ => {
                    set(&mut matching.key, name, value);
                    set(&mut matching.mask, name, mask);
                }
            }
        }
        let number = number.parse().expect("a rule's number");
        let (id, displaced) = self.classifier.insert(&matching, priority, 1, &conjunctions, number);
        assert!(displaced.is_none(), "the recording has no two equal rules");
        self.ids.insert(number, id);
    }

    fn delete(&mut self, line: &str) {
        let number = line.parse().expect("a rule's number");
        assert_eq!(self.classifier.remove(self.ids[&number]), Some(number));
    }

    /// The difference from the recording, if there is one.
    fn trace(&self, line: &str) -> Option<String> {
        let (flow, answer) = line.split_once(" -> ").expect("an answer");
        let (winner, looked_at) = answer.split_once(' ').expect("a mask");
        let mut key = FlowKey::ZERO;
        fields(flow).for_each(|(name, value)| set(&mut key, name, value));
        let mut wanted = FlowKey::ZERO;
        fields(looked_at).for_each(|(name, mask)| set(&mut wanted, name, mask));
        // The bits that translation looks at before any table.
        let mut found = FlowKey::ZERO;
        found.set_number(layout::IN_PORT, u64::MAX);
        found.set_number(layout::DL_TYPE, u64::MAX);
        let rule = self.classifier.lookup(&key, 1, Some(&mut found));
        let rule = rule.map_or("none".to_string(), |rule| rule.payload().to_string());
        // And the bits that it removes or adds last: a tag's bits are matched only with the bit that says that there is
        // a tag.
        if key.number(layout::VLAN0_TCI) == 0 {
            found.set_number(layout::VLAN0_TCI, 0);
        } else if found.number(layout::VLAN0_TCI) != 0 {
            found.get_mut(layout::VLAN0_TCI)[0] |= 0x10;
        }
        // An ICMP type and code have eight bits.
        if key.number(layout::DL_TYPE) != 0x0806 && [1, 58].contains(&key.number(layout::NW_PROTO)) {
            [layout::TP_SRC, layout::TP_DST].iter().for_each(|&port| found.get_mut(port)[0] = 0);
        }
        let mut differences: Vec<String> = FIELDS
            .iter()
            .filter(|&&(_, span, compared)| compared && found.get(span) != wanted.get(span))
            .map(|&(name, span, _)| format!("{name}: {:02x?}, not {:02x?}", found.get(span), wanted.get(span)))
            .collect();
        if rule != winner {
            differences.push(format!("rule {rule}, not {winner}"));
        }
        (!differences.is_empty()).then(|| format!("trace {line}\n    {}", differences.join("; ")))
    }
}

#[test]
fn rules_and_masks_are_those_of_open_vswitch() {
    let mut table = Table::default();
    let mut traces = 0;
    let mut differences = Vec::new();
    for line in RECORDED.lines() {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "case" => table = Table::default(),
            "add" => table.add(rest),
            "del" => table.delete(rest),
            "trace" => {
                traces += 1;
                differences.extend(table.trace(rest));
            }
            _ => assert!(line.is_empty() || verb == "#", "what is this: {line}"),
        }
    }
    assert!(traces > 500, "the recording holds only {traces} traces");
    assert!(differences.is_empty(), "{} of {traces} differ:\n{}", differences.len(), differences.join("\n"));
}

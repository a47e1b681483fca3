//! Differences that are meant. `tests/known-differences.toml` names each with its reason; here is, by that name, what
//! exactly it covers. A difference that is none of these fails the run.

mod counters;
mod masks;
mod megaflows;
mod packets;

use crate::compare::Difference;
use anyhow::{Context, Result, ensure};
use counters::is_learned_anew;
use masks::{LEARNED_AT_ONCE, NARROWER, is_address_set_whole};
use megaflows::{is_discovery_added, is_protocol_added, is_second_tag, is_tag_cut_off, is_without_labels};
use packets::{
    are_copies_in_other_order, each_packet_pair, is_cut_arp, is_cut_before_tag, is_drop_eligible_bit,
    is_error_taken_for_tcp, is_inner_tag_of_zero, is_label_at_third_tag, is_type_in_place_of_length,
};
use packets::{is_later_fragment_data, is_lone_fragment_checksum, is_rerouted_checksum};
use serde::Deserialize;
use std::path::Path;

/// A difference that is meant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    pub name: String,
    pub reason: String,
}

/// Whether a difference is of a kind.
type Check = fn(&Difference) -> bool;

const CHECKS: &[(&str, Check)] = &[
    ("later-fragment-data", |d| each_packet_pair(d, is_later_fragment_data)),
    ("lone-ipv6-fragment-checksum", |d| each_packet_pair(d, is_lone_fragment_checksum)),
    ("slow-path", |d| d.kind == "actions" && d.peer == "userspace(pid=0,slow_path(action))"),
    ("protocol-decides", is_protocol_added),
    ("second-tag-counts", is_second_tag),
    ("neighbour-discovery-looked-at", is_discovery_added),
    ("arp-not-there", is_cut_arp),
    ("labels-cut-off", is_without_labels),
    ("labels-cut-off", |d| d.kind == "uncounted"),
    ("copies-take-turns", are_copies_in_other_order),
    ("routing-header-checksum", |d| each_packet_pair(d, is_rerouted_checksum)),
    ("type-in-place-of-length", |d| each_packet_pair(d, is_type_in_place_of_length)),
    ("label-at-third-tag", |d| each_packet_pair(d, is_label_at_third_tag)),
    ("error-taken-for-tcp", |d| each_packet_pair(d, is_error_taken_for_tcp)),
    ("symmetric-hash", is_address_set_whole),
    ("cut-before-tag", is_cut_before_tag),
    ("inner-tag-of-zero", is_inner_tag_of_zero),
    ("drop-eligible-bit", |d| each_packet_pair(d, is_drop_eligible_bit)),
    ("tag-cut-off", is_tag_cut_off),
    ("learned-anew", is_learned_anew),
    ("ovs-ends", |d| d.kind == "ended"),
    (WIDER, |d| d.kind == "wider"),
];

/// What is said of a table that differs only while Open vSwitch caches: see `compare_again`.
pub const WIDER: &str = "wider-megaflow";

impl Known {
    /// Reads the list, which must name what this program knows and nothing else.
    pub fn load(path: &Path) -> Result<Vec<Known>> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            #[serde(default)]
            difference: Vec<Known>,
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let file: File = toml::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
        let mut listed: Vec<&str> = file.difference.iter().map(|k| &k.name[..]).collect();
        let mut checked: Vec<&str> = CHECKS.iter().map(|(name, _)| *name).collect();
        checked.push(LEARNED_AT_ONCE);
        checked.extend(NARROWER.iter().map(|narrower| narrower.name));
        for names in [&mut listed, &mut checked] {
            names.sort_unstable();
            names.dedup();
        }
        ensure!(listed == checked, "{} lists {listed:?}, the program checks {checked:?}", path.display());
        Ok(file.difference)
    }

    pub fn covers(&self, difference: &Difference) -> bool {
        CHECKS.iter().any(|(name, check)| *name == self.name && check(difference))
            || masks::reasons(difference).contains(&&self.name[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::BESIDES;

    fn known(name: &str) -> Known {
        Known { name: name.into(), reason: String::new() }
    }

    fn difference(kind: &'static str, peer: &str, ours: &str) -> Difference {
        Difference::new(kind, "", peer, ours)
    }

    /// A later fragment of UDP, two bytes of its data at the place of the checksum given.
    fn fragment(sum: &str, rest: &str) -> String {
        format!("0200000000020200000000010800450000200000200a4011000000000000000000000102030405{sum}{rest}")
    }

    #[test]
    fn later_fragments_may_differ_where_a_checksum_would_be() {
        let it = known("later-fragment-data");
        // The checksum's place is byte 6 of what the fragment carries.
        let (a, b) = (fragment("06aaaa", "08"), fragment("06bbbb", "08"));
        assert!(it.covers(&difference("output", &a, &b)));
        assert!(it.covers(&difference("output", &format!("{a} ff"), &format!("{b} ff"))), "others are equal");
        assert!(!it.covers(&difference("output", &a, &fragment("06bbbb", "09"))), "other bytes");
        assert!(!it.covers(&difference("output", &a, &format!("{b} {b}"))), "more packets");
        assert!(!it.covers(&difference("output", &a, "")), "none");
        let whole = |text: String| text.replace("200a4011", "00004011");
        assert!(!it.covers(&difference("output", &whole(a), &whole(b))), "no fragment");
    }

    #[test]
    fn an_error_may_have_been_taken_for_tcp() {
        let it = known("error-taken-for-tcp");
        let ours = "02000000000102000000000286dd6000000000443a40fc000000000000000000000000000002fc0000000000000000000000000000c803009d7b000000006000000000140640fc0000000000000000000000000000c8fc00000000000000000000000000000200509c4291ebc6d0c08e3df45012ffffc3350000";
        let peer = ours.replace("c3350000", "c2710000").replace("9d7b", "9e3f");
        assert!(it.covers(&difference("output", &peer, ours)));
        assert!(it.covers(&difference("output", &peer.replace("0640fc00", "0640fb3b"), ours)), "the address inside");
        assert!(!it.covers(&difference("output", ours, &peer)), "ours is wrong");
        assert!(!it.covers(&difference("output", &peer.replace("00509c42", "00519c42"), ours)), "a port");
    }

    #[test]
    fn a_rule_that_is_learned_anew_may_count_less_there() {
        let it = known("learned-anew");
        let counter =
            |what: &str, peer: &str, ours: &str| Difference { what: what.into(), ..difference("counter", peer, ours) };
        let rule = "table=90 idle_timeout=100,hard_timeout=60,priority=126,reg0=0/0xff";
        assert!(it.covers(&counter(rule, "76 packets, 5321 bytes", "91 packets, 6390 bytes")));
        assert!(!it.covers(&counter(rule, "92 packets, 6391 bytes", "91 packets, 6390 bytes")), "more");
        assert!(!it.covers(&counter(&rule.replace("=60", "=200"), "76 packets, 5321 bytes", "91 packets, 6390 bytes")));
        assert!(!it.covers(&counter(&rule.replace("=90", "=3"), "76 packets, 5321 bytes", "91 packets, 6390 bytes")));
    }

    #[test]
    fn a_second_tag_may_make_another_megaflow() {
        let it = known("second-tag-counts");
        let (one, two) = (
            "eth_type(tag),vlan(vid=1),encap(eth_type(0x0806))",
            "eth_type(tag),vlan(vid=1),encap(eth_type(tag),encap(eth_type(0x0806)))",
        );
        let besides =
            |peer: &str, ours: &str| Difference { what: BESIDES.into(), ..difference("megaflow", peer, ours) };
        assert!(it.covers(&besides(one, two)));
        assert!(it.covers(&besides(two, one)));
        assert!(!it.covers(&difference("megaflow", one, two)), "OVS lacks the other");
        assert!(!it.covers(&besides(one, &two.replace("0x0806", "0x0800"))));
    }

    #[test]
    fn labels_may_stand_before_the_snap_header() {
        let it = known("type-in-place-of-length");
        let (macs, snap, rest) = ("aaebdde334bc942d2807679c", "aaaa03000000", "00000d40ffff");
        let ours = |labels: &str| format!("{macs}0026{snap}8848{labels}{rest}");
        let peer = |labels: &str| format!("{macs}8848{labels}{snap}88cc{rest}");
        for labels in ["", "00000c40", "00000c4000000b40"] {
            assert!(it.covers(&difference("output", &peer(labels), &ours(labels))), "{labels}");
        }
        assert!(!it.covers(&difference("output", &peer("00000c41"), &ours("00000c40"))), "another label");
        assert!(!it.covers(&difference("output", &peer("00000c40").replace("ffff", "fffe"), &ours("00000c40"))));
        assert!(!it.covers(&difference("output", &peer("00000c40").replacen("8848", "8847", 1), &ours("00000c40"))));
        let typed = |text: String| text.replace("0026", "9000");
        assert!(!it.covers(&difference("output", &typed(peer("")), &typed(ours("")))), "a frame with a type");
    }

    #[test]
    fn a_tag_may_come_behind_a_truncation() {
        let it = known("cut-before-tag");
        let (short, long) =
            ("96237613b13696237613b1368100000108004520", "96237613b13696237613b136810000010800452000247d8e");
        let trace = "NORMAL\nDatapath actions: push_vlan(vid=1,pcp=0),4,trunc(24),4";
        let sent = |peer: &str, ours: &str, trace: &str| Difference {
            trace: trace.into(),
            ..difference("output", peer, ours)
        };
        assert!(it.covers(&sent(long, short, trace)) && it.covers(&sent(short, long, trace)));
        assert!(!it.covers(&sent(long, short, "push_vlan(vid=1,pcp=0),trunc(24)")), "no flood");
        assert!(!it.covers(&sent(long, short, "NORMAL push_vlan(vid=1,pcp=0)")), "nothing cut off");
        assert!(!it.covers(&sent(&long.replace("45200024", "45210024"), short, trace)), "other bytes");
        assert!(!it.covers(&sent(&format!("{long}00"), short, trace)), "more than a tag");
    }

    #[test]
    fn an_inner_tag_may_stay_if_it_is_of_zero() {
        let it = known("inner-tag-of-zero");
        let packet = |inner: &str| format!("ffffffffffff3a0db29b988988a80e4c{inner}08004500");
        for inner in ["81000000", "88a80000"] {
            assert!(it.covers(&difference("output", &packet(""), &packet(inner))));
        }
        assert!(!it.covers(&difference("output", &packet(""), &packet("81000001"))), "of a VLAN");
        assert!(!it.covers(&difference("output", &packet("").replace("4500", "4501"), &packet("81000000"))));
        let (peer, ours) =
            ("p2[vid=3660,pcp=0],p3[vid=3660,pcp=0]", "p2[vid=0,pcp=0 vid=3660,pcp=0],p3[vid=3660,pcp=0]");
        let traced = |trace: &str| Difference { trace: trace.into(), ..difference("actions", peer, ours) };
        assert!(it.covers(&traced("NORMAL")));
        assert!(!it.covers(&traced("output:2")));
    }

    #[test]
    fn copies_may_change_places_and_nothing_else() {
        let it = known("copies-take-turns");
        assert!(it.covers(&difference("output", "aa bb", "bb aa")));
        assert!(!it.covers(&difference("output", "aa bb", "aa aa")));
        assert!(!it.covers(&difference("output", "aa bb", "aa")));
        assert!(!it.covers(&difference("megaflow", "aa bb", "bb aa")));
    }

    #[test]
    fn a_protocol_may_be_added_and_nothing_else() {
        let it = known("protocol-decides");
        let peer = "eth_type(0x0800),ipv4(dst=10.1.0.3,frag=no)";
        assert!(it.covers(&difference("megaflow", peer, "eth_type(0x0800),ipv4(dst=10.1.0.3,proto=6,frag=no)")));
        assert!(!it.covers(&difference("megaflow", peer, "eth_type(0x0800),ipv4(dst=10.1.0.3,proto=6,tos=0,frag=no)")));
        assert!(it.covers(&difference("megaflow", "arp(tip=10.1.0.3)", "arp(tip=10.1.0.3,op=2)")));
        assert!(!it.covers(&difference("megaflow", "", "eth_type(0x0800),ipv4(proto=6,frag=no)")));
        assert!(!it.covers(&difference("actions", peer, "eth_type(0x0800),ipv4(dst=10.1.0.3,proto=6,frag=no)")));
    }
}

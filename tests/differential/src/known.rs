//! Differences that are meant. `tests/known-differences.toml` names each with its reason; here is, by that name, what
//! exactly it covers. A difference that is none of these fails the run.

use crate::canonical::without_tags;
use crate::compare::{BESIDES, Difference};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::ops::Range;
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
    ("copies-take-turns", are_copies_in_other_order),
    ("routing-header-checksum", |d| each_packet_pair(d, is_rerouted_checksum)),
];

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
        listed.sort_unstable();
        checked.sort_unstable();
        ensure!(listed == checked, "{} lists {listed:?}, the program checks {checked:?}", path.display());
        Ok(file.difference)
    }

    pub fn covers(&self, difference: &Difference) -> bool {
        CHECKS.iter().any(|(name, check)| *name == self.name && check(difference))
    }
}

/// Whether an output differs, and every pair of packets that differ does so in the way that `check` tells.
fn each_packet_pair(difference: &Difference, check: fn(&[u8], &[u8]) -> bool) -> bool {
    let packets = |text: &str| text.split_whitespace().map(bytes).collect::<Vec<_>>();
    let (peer, ours) = (packets(&difference.peer), packets(&difference.ours));
    difference.kind == "output"
        && peer.len() == ours.len()
        && peer.iter().zip(&ours).all(|(p, o)| p == o || p.len() == o.len() && check(p, o))
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks_exact(2).map(|d| d[0] << 4 | d[1]).collect()
}

/// Ethernet type behind the tags, and where the packet of that type begins.
fn network(packet: &[u8]) -> Option<(u16, usize)> {
    let mut at = 12;
    loop {
        let ethertype = u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]);
        at += 2;
        match ethertype {
            0x8100 | 0x88a8 => at += 2,
            _ => return Some((ethertype, at)),
        }
    }
}

/// Whether two packets are equal outside these bytes.
fn differ_only_in(a: &[u8], b: &[u8], bytes: Range<usize>) -> bool {
    a.iter().zip(b).enumerate().all(|(i, (x, y))| x == y || bytes.contains(&i))
}

/// Where a transport checksum would be in what is at `l4`.
fn checksum(protocol: u8, l4: usize) -> Option<Range<usize>> {
    let at = match protocol {
        6 => l4 + 16,
        17 => l4 + 6,
        58 => l4 + 2,
        _ => return None,
    };
    Some(at..at + 2)
}

fn is_later_fragment_data(a: &[u8], b: &[u8]) -> bool {
    let Some((0x0800, l3)) = network(a) else { return false };
    let is_later = a.len() > l3 + 20 && u16::from_be_bytes([a[l3 + 6], a[l3 + 7]]) & 0x1fff != 0;
    let l4 = l3 + 4 * usize::from(a[l3] & 15);
    let edited = match a[l3 + 9] {
        // Type, code and checksum.
        1 => Some(l4..l4 + 4),
        protocol => checksum(protocol, l4),
    };
    is_later && edited.is_some_and(|bytes| differ_only_in(a, b, bytes))
}

/// An IPv6 packet's extension headers.
#[derive(Default)]
struct Extensions {
    /// There is a fragment header that says "the first and the last".
    is_lone_fragment: bool,
    /// There is a routing header with segments left.
    is_rerouted: bool,
    /// Where the transport checksum is.
    checksum: Option<Range<usize>>,
}

fn extensions(packet: &[u8]) -> Extensions {
    let mut out = Extensions::default();
    let Some((0x86dd, l3)) = network(packet) else { return out };
    let (mut next, mut at) = (packet.get(l3 + 6).copied(), l3 + 40);
    while let Some(kind @ (0 | 43 | 44 | 51 | 60)) = next {
        let Some(header) = packet.get(at..at + 8) else { return out };
        out.is_lone_fragment |= kind == 44 && header[2] == 0 && header[3] & 0xf9 == 0;
        out.is_rerouted |= kind == 43 && header[3] > 0;
        next = Some(header[0]);
        at += match kind {
            44 => 8,
            51 => 4 * (usize::from(header[1]) + 2),
            _ => 8 * (usize::from(header[1]) + 1),
        };
    }
    out.checksum = next.and_then(|protocol| checksum(protocol, at));
    out
}

fn is_lone_fragment_checksum(a: &[u8], b: &[u8]) -> bool {
    let Extensions { is_lone_fragment, checksum, .. } = extensions(a);
    is_lone_fragment && checksum.is_some_and(|bytes| differ_only_in(a, b, bytes))
}

fn is_rerouted_checksum(a: &[u8], b: &[u8]) -> bool {
    let Extensions { is_rerouted, checksum, .. } = extensions(a);
    is_rerouted && checksum.is_some_and(|bytes| differ_only_in(a, b, bytes))
}

/// Sluice's megaflow is Open vSwitch's with the IP protocol or ARP operation matched in addition.
fn is_protocol_added(difference: &Difference) -> bool {
    let Difference { kind: "megaflow", peer, ours, .. } = difference else { return false };
    let is_without = |field: &str| {
        let Some(at) = ours.find(field) else { return false };
        let end = ours[at..].find([',', ')']).map_or(ours.len(), |n| at + n);
        // With the comma behind it, or in front of it if it is the last.
        let (from, to) = if ours[end..].starts_with(',') { (at, end + 1) } else { (at - 1, end) };
        *peer == format!("{}{}", &ours[..from], &ours[to..])
    };
    !peer.is_empty() && (is_without("proto=") || is_without("op="))
}

/// Sluice's megaflow is Open vSwitch's with neighbour-discovery fields matched in addition.
fn is_discovery_added(difference: &Difference) -> bool {
    let Difference { kind: "megaflow", peer, ours, .. } = difference else { return false };
    let Some(at) = ours.find(",nd(") else { return false };
    let Some(end) = ours[at..].find(')').map(|n| at + n + 1) else { return false };
    *peer == format!("{}{}", &ours[..at], &ours[end..])
}

/// Open vSwitch sends ARP packets that have no whole header for Ethernet and IPv4, Sluice none of them.
fn is_cut_arp(difference: &Difference) -> bool {
    let is_cut = |packet: Vec<u8>| {
        let Some((0x0806, at)) = network(&packet) else { return false };
        packet.len() < at + 28 || packet[at..at + 6] != [0, 1, 8, 0, 6, 4]
    };
    difference.kind == "output"
        && difference.ours.is_empty()
        && difference.peer.split_whitespace().map(bytes).all(is_cut)
}

/// The same packets left because of one, in another order.
fn are_copies_in_other_order(difference: &Difference) -> bool {
    let sorted = |text: &str| {
        let mut packets: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        packets.sort();
        packets
    };
    difference.kind == "output" && sorted(&difference.peer) == sorted(&difference.ours)
}

/// Open vSwitch's text of a label that is not there, which lacks a parenthesis, against a label of zeroes.
fn is_without_labels(difference: &Difference) -> bool {
    let Difference { kind: "megaflow", peer, ours, .. } = difference else { return false };
    let shown = peer.replace("mpls((bad key length 0)", "mpls(label=0,tc=0,ttl=0,bos=0)");
    shown != *peer && shown.trim_end_matches(')') == ours.trim_end_matches(')')
}

/// Sluice has two megaflows that differ in the number of tags only, Open vSwitch has one of them.
fn is_second_tag(difference: &Difference) -> bool {
    let Difference { kind: "megaflow", what, peer, ours } = difference else { return false };
    what == BESIDES && without_tags(peer) == without_tags(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> Known {
        Known { name: name.into(), reason: String::new() }
    }

    fn difference(kind: &'static str, peer: &str, ours: &str) -> Difference {
        Difference { kind, what: String::new(), peer: peer.into(), ours: ours.into() }
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

//! Megaflows that differ and are meant to.

use crate::canonical::without_tags;
use crate::compare::{BESIDES, Difference};

/// Sluice's megaflow is Open vSwitch's with the IP protocol or ARP operation matched in addition.
pub fn is_protocol_added(difference: &Difference) -> bool {
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
pub fn is_discovery_added(difference: &Difference) -> bool {
    let Difference { kind: "megaflow", peer, ours, .. } = difference else { return false };
    let Some(at) = ours.find(",nd(") else { return false };
    let Some(end) = ours[at..].find(')').map(|n| at + n + 1) else { return false };
    *peer == format!("{}{}", &ours[..at], &ours[end..])
}

/// Open vSwitch's text of a label that is not there, which lacks a parenthesis, against a label of zeroes.
pub fn is_without_labels(difference: &Difference) -> bool {
    let Difference { kind: "megaflow", peer, ours, .. } = difference else { return false };
    let shown = peer.replace("mpls((bad key length 0)", "mpls(label=0,tc=0,ttl=0,bos=0)");
    shown != *peer && shown.trim_end_matches(')') == ours.trim_end_matches(')')
}

/// Sluice has two megaflows that differ in the number of tags only, Open vSwitch has one of them.
pub fn is_second_tag(difference: &Difference) -> bool {
    let Difference { kind: "megaflow", what, peer, ours, .. } = difference else { return false };
    what == BESIDES && without_tags(peer) == without_tags(ours)
}

/// Of a tag that the frame ends in all bits are zero, so it does not matter which of them a megaflow matches.
pub fn is_tag_cut_off(difference: &Difference) -> bool {
    let without_bits = |text: &str| {
        let (before, rest) = text.split_once("cfi=0)")?;
        let start = before.rfind("vlan(")?;
        Some(format!("{}vlan(cfi=0){rest}", &before[..start]))
    };
    difference.kind == "megaflow"
        && without_bits(&difference.ours).is_some_and(|ours| Some(ours) == without_bits(&difference.peer))
}

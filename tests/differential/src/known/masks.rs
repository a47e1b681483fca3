//! Megaflows that a trace shows to be narrower here: bits that decide, which Open vSwitch leaves open.
//! `docs/translation.md` has the situations one by one.

use crate::canonical::{number, split};
use crate::compare::Difference;
use std::collections::BTreeMap;

/// Fields that a megaflow here may match in addition.
pub struct Narrower {
    pub name: &'static str,
    /// The fields, as [`bits`] names them.
    fields: &'static [&'static str],
    /// What must stand in the trace for it, one of these.
    because: &'static [&'static str],
}

const TAGS: &[&str] = &["vlan_tci", "vlan_tci1"];

/// Every reason there is.
pub const NARROWER: &[Narrower] = &[
    Narrower { name: "protocol-decides", fields: &["nw_proto", "arp_op"], because: &[""] },
    Narrower { name: "neighbour-discovery-looked-at", fields: &["nd_target", "nd_sll", "nd_tll"], because: &["icmp6"] },
    Narrower { name: "tags-that-decide", fields: TAGS, because: &["vlan", "VLAN", "NORMAL"] },
    Narrower {
        name: "labels-set-whole",
        fields: &["mpls_label", "mpls_tc", "mpls_ttl", "mpls_bos", "mpls_lse1", "mpls_lse2"],
        because: &["_mpls", "mpls_label", "MPLS_LABEL"],
    },
    Narrower {
        name: "symmetric-hash",
        fields: &["dl_src", "dl_dst", "vlan_tci", "vlan_tci1"],
        because: &["symmetric_l3l4"],
    },
    Narrower {
        name: "port-out-of-range",
        fields: &["reg0", "reg1", "reg2", "metadata", "tun_id"],
        because: &["is out of range"],
    },
];

/// Open vSwitch searches a table in which the packet itself has just put a rule that does not count yet.
pub const LEARNED_AT_ONCE: &str = "learned-at-once";

/// The names of the reasons that together account for a difference of masks; none if they do not.
pub fn reasons(difference: &Difference) -> Vec<&'static str> {
    let Difference { kind: "mask", peer, ours, trace, .. } = difference else { return Vec::new() };
    let (peer, ours) = (bits(peer), bits(ours));
    let is_within = |(field, mask): (&String, &u128)| peer.get(field).is_some_and(|m| m & mask == *mask);
    if trace.contains("learn(") && ours.iter().all(is_within) {
        return vec![LEARNED_AT_ONCE];
    }
    let is_covered = |(field, mask): (&String, &u128)| ours.get(field).is_some_and(|m| m & mask == *mask);
    if !peer.iter().all(is_covered) {
        return Vec::new();
    }
    let mut added: Vec<&String> = ours.iter().filter(|(f, mask)| peer.get(*f) != Some(mask)).map(|(f, _)| f).collect();
    let mut names = Vec::new();
    for narrower in NARROWER.iter().filter(|n| n.because.iter().any(|text| trace.contains(text))) {
        let before = added.len();
        added.retain(|field| !narrower.fields.contains(&&field[..]));
        if added.len() < before {
            names.push(narrower.name);
        }
    }
    if added.is_empty() { names } else { Vec::new() }
}

/// Behind a hash that Sluice has taken over the Ethernet header, and Open vSwitch without matching it, a set action
/// sets all bits of an address, where Open vSwitch's sets those that had been looked at, to the same.
pub fn is_address_set_whole(difference: &Difference) -> bool {
    let Difference { kind: "actions", peer, ours, trace, .. } = difference else { return false };
    let (peer, ours) = (split(peer), split(ours));
    trace.contains("symmetric_l3l4")
        && peer.len() == ours.len()
        && peer
            .iter()
            .zip(&ours)
            .all(|(p, o)| p == o || addresses(p).zip(addresses(o)).is_some_and(|(p, o)| is_part(&p, &o)))
}

/// Value and mask of the addresses that an action sets, by name.
fn addresses(action: &str) -> Option<BTreeMap<&str, (u128, u128)>> {
    let fields = action.strip_prefix("set(eth(")?.strip_suffix("))")?;
    let field = |term| {
        let (name, value): (&str, &str) = str::split_once(term, '=')?;
        let (value, mask) = value.split_once('/').unwrap_or((value, "ff:ff:ff:ff:ff:ff"));
        Some((name, (number(value)?, number(mask)?)))
    };
    fields.split(',').map(field).collect()
}

/// Whether `whole` sets all that `part` sets, to the same.
fn is_part(part: &BTreeMap<&str, (u128, u128)>, whole: &BTreeMap<&str, (u128, u128)>) -> bool {
    part.len() == whole.len()
        && part.iter().all(|(name, (value, mask))| {
            whole.get(name).is_some_and(|(all, bits)| bits & mask == *mask && all & mask == *value)
        })
}

/// Which bits of which fields a megaflow matches, as `ofproto/trace` prints it.
fn bits(text: &str) -> BTreeMap<String, u128> {
    let mut out = BTreeMap::new();
    let mut add = |field: &str, mask: u128| *out.entry(field.to_owned()).or_insert(0) |= mask;
    for term in text.split(',') {
        let Some((field, value)) = term.split_once('=') else {
            // A word is a type, perhaps with a protocol.
            let (kind, protocol) = match term {
                "tcp" | "udp" | "sctp" | "icmp" => ("ip", true),
                "tcp6" | "udp6" | "sctp6" | "icmp6" => ("ipv6", true),
                other => (other, false),
            };
            add(kind, 1);
            if protocol {
                add("nw_proto", u128::MAX);
            }
            continue;
        };
        let mask = match value.split_once('/') {
            None => u128::MAX,
            Some((value, mask)) => mask_of(value, mask),
        };
        // A tag is one number, or its parts.
        match field {
            "dl_vlan" => add("vlan_tci", 0x1fff),
            "dl_vlan_pcp" => add("vlan_tci", 0xf000),
            "dl_vlan1" => add("vlan_tci1", 0x1fff),
            "dl_vlan_pcp1" => add("vlan_tci1", 0xf000),
            "vlan_tci" | "vlan_tci1" => add(field, mask & 0xffff),
            _ => add(field, mask),
        }
    }
    out
}

/// A mask, or a prefix length of an address.
fn mask_of(value: &str, mask: &str) -> u128 {
    match (value.contains(['.', ':']), mask.parse::<u32>()) {
        (true, Ok(length)) => {
            let width: u32 = if value.contains(':') { 128 } else { 32 };
            u128::MAX.checked_shl(width.saturating_sub(length)).unwrap_or(0)
        }
        _ => number(mask).unwrap_or(u128::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(peer: &str, ours: &str, trace: &str) -> Difference {
        Difference { trace: trace.into(), ..Difference::new("mask", "", peer, ours) }
    }

    #[test]
    fn an_address_may_be_set_whole_behind_a_symmetric_hash() {
        let covers = |ours: &str, trace: &str| {
            let peer = "p4[],set(eth(src=00:00:8a:dd:00:00/01:00:ff:ff:00:00)),p3[]";
            let it = Difference { kind: "actions", ..difference(peer, ours, trace) };
            is_address_set_whole(&it)
        };
        let hash = "bundle(symmetric_l3l4,2,hrw,ofport,members:3,4)";
        assert!(covers("p4[],set(eth(src=48:36:8a:dd:a5:6d)),p3[]", hash));
        assert!(!covers("p4[],set(eth(src=48:36:8a:dd:a5:6d)),p3[]", "output:3"), "no hash");
        assert!(!covers("p4[],set(eth(src=48:36:8a:de:a5:6d)),p3[]", hash), "another address");
        assert!(!covers("p4[],set(eth(dst=48:36:8a:dd:a5:6d)),p3[]", hash), "the other address");
        assert!(!covers("p4[],set(eth(src=48:36:8a:dd:a5:6d)),p2[]", hash), "another port");
    }

    #[test]
    fn only_the_fields_of_a_reason_may_be_added() {
        let names = |peer, ours, trace| reasons(&difference(peer, ours, trace));
        let wide = "recirc_id=0,eth,ip,in_port=1,nw_dst=10.0.0.0/8";
        let narrow = "recirc_id=0,eth,udp,in_port=1,nw_dst=10.0.0.0/8";
        assert_eq!(names(wide, narrow, ""), ["protocol-decides"]);
        assert!(names(narrow, wide, "").is_empty(), "wider");
        assert!(names(wide, "recirc_id=0,eth,udp,in_port=1,nw_dst=10.0.0.0/9", "").is_empty(), "more than that");
        let tags = "recirc_id=0,eth,ip,in_port=1,dl_vlan=5,nw_dst=10.0.0.0/8";
        assert_eq!(names(wide, tags, "pop_vlan"), ["tags-that-decide"]);
        assert!(names(wide, tags, "output:1").is_empty(), "no action touched a tag");
        assert_eq!(names("eth,vlan_tci=0x1000/0x1000", "eth,dl_vlan_pcp=3", "pop_vlan"), ["tags-that-decide"]);
        let both = "recirc_id=0,eth,udp,in_port=1,dl_vlan=5,nw_dst=10.0.0.0/8";
        assert_eq!(names(wide, both, "pop_vlan"), ["protocol-decides", "tags-that-decide"]);
    }
}

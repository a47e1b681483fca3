//! Megaflow and rule texts of both switches, brought to a comparable form.

use crate::canonical::{canonical, canonical_actions};
use std::collections::BTreeMap;

/// Megaflows: key and mask as text → actions.
pub type Megaflows = BTreeMap<String, String>;

/// Rules: table, priority and match as text → packets, bytes.
pub type Counters = BTreeMap<String, (u64, u64)>;

/// Reads `dpctl/dump-flows -m`: drops ids and counters, and names ports by number.
pub fn megaflows(text: &str) -> Megaflows {
    let mut flows = Vec::new();
    for line in text.lines().filter(|l| l.contains("recirc_id(")) {
        let key = line.split(", packets:").next().unwrap_or(line);
        let key = if key.starts_with("ufid:") { key.split_once(", ").map_or(key, |(_, rest)| rest) } else { key };
        let actions = line.split_once("actions:").map_or("", |(_, a)| a);
        let actions = actions.split(", dp-extra-info").next().unwrap_or(actions);
        flows.push((without_priority(&canonical(key)), canonical_actions(actions)));
    }
    name_recirculations(&mut flows);
    flows.into_iter().collect()
}

/// Packets and bytes of each megaflow of Open vSwitch whose key it cannot read itself: where a packet ends in front of
/// its first label, the key has no label. When such a megaflow goes, what later packets it carried is counted nowhere.
/// Source: OVS 3.1 `push_dp_ops`, `xlate_key`.
pub fn uncounted(text: &str) -> Vec<(u64, u64)> {
    let number = |line: &str, name: &str| line.split_once(name)?.1.split(',').next()?.parse().ok();
    let lost = text.lines().filter(|line| line.contains("mpls((bad key length 0)"));
    lost.filter_map(|line| number(line, " packets:").zip(number(line, " bytes:"))).collect()
}

/// Without the queue priority, which no packet here comes in with: see docs/translation.md.
fn without_priority(key: &str) -> String {
    let Some((before, rest)) = key.split_once("skb_priority(") else { return key.to_owned() };
    format!("{before}{}", rest.split_once("),").map_or("", |(_, rest)| rest))
}

/// A recirculation of a packet that came by some port.
type Recirculation = (String, String);

fn recirculation(key: &str, id: &str) -> Recirculation {
    (number_in(key, "in_port(").unwrap_or_default().to_owned(), id.to_owned())
}

/// Calls each recirculation by the megaflow that leads to it, as the numbers mean nothing: pass by pass, from those of
/// packets that have just come. Each port's have names of their own: where actions wrote the port, Open vSwitch has
/// another number for each, and Sluice one for all.
fn name_recirculations(flows: &mut [(String, String)]) {
    let mut names: BTreeMap<Recirculation, String> = BTreeMap::new();
    let beginning = |key: &str| Some("0".to_owned()).filter(|zero| number_in(key, "recirc_id(") == Some(zero));
    let name_of = |names: &BTreeMap<Recirculation, String>, key: &str| {
        let id = number_in(key, "recirc_id(")?;
        beginning(key).or_else(|| names.get(&recirculation(key, id)).cloned())
    };
    for _ in 0..PASSES {
        let mut news: BTreeMap<Recirculation, Vec<String>> = BTreeMap::new();
        for (key, actions) in &*flows {
            let Some(from) = name_of(&names, key) else { continue };
            let (mut rest, mut place) = (&actions[..], 0);
            while let Some(id) = number_in(rest, "recirc(") {
                rest = &rest[rest.find("recirc(").expect("number_in found it") + 7..];
                place += 1;
                let name = format!("{} {} {place}", renamed(key, "recirc_id(", &from), without_ids(actions));
                news.entry(recirculation(key, id)).or_default().push(name);
            }
        }
        for (id, mut places) in news {
            places.sort();
            names.entry(id).or_insert_with(|| places.join(";"));
        }
    }
    // Short names, the same on both sides for the same long ones.
    let short = |name: &String| format!("{:x}", name.bytes().fold(5381u64, |h, b| h.wrapping_mul(33) ^ u64::from(b)));
    for (key, actions) in flows {
        if let Some(name) = name_of(&names, key).filter(|name| name != "0") {
            *key = renamed(key, "recirc_id(", &short(&name));
        }
        *actions = without_ids(actions);
    }
}

/// Passes that a packet can take. Source: OVS, MAX_RECIRC_DEPTH.
const PASSES: usize = 8;

/// What stands behind `name` up to the parenthesis.
fn number_in<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = &text[text.find(name)? + name.len()..];
    rest.split([')', '/']).next()
}

fn renamed(text: &str, name: &str, to: &str) -> String {
    match number_in(text, name) {
        Some(id) => text.replacen(&format!("{name}{id}"), &format!("{name}{to}"), 1),
        None => text.to_owned(),
    }
}

fn without_ids(actions: &str) -> String {
    let mut parts = actions.split("recirc(");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| out + "recirc(" + part.find(')').map_or(part, |at| &part[at..]))
}

/// Reads `ovs-ofctl dump-flows`: what identifies a rule, and its counters.
pub fn counters(text: &str) -> Counters {
    let mut out = Counters::new();
    for line in text.lines().filter(|l| l.contains("n_packets=")) {
        let Some((head, _)) = line.split_once(" actions=") else { continue };
        let mut counts = (0, 0);
        let mut table = "table=0".to_owned();
        let mut rest = Vec::new();
        for part in head.split([',', ' ']).filter(|p| !p.is_empty()) {
            match part.split_once('=') {
                Some(("n_packets", n)) => counts.0 = n.parse().unwrap_or(u64::MAX),
                Some(("n_bytes", n)) => counts.1 = n.parse().unwrap_or(u64::MAX),
                Some(("cookie" | "duration" | "idle_age" | "hard_age", _)) => {}
                Some(("table" | "table_id", n)) => table = format!("table={n}"),
                // OpenFlow 1.0 does not tell.
                _ if part == "send_flow_rem" => {}
                _ => rest.push(part),
            }
        }
        out.insert(format!("{table} {}", rest.join(",")), counts);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_lose_what_may_differ() {
        let flows = megaflows(
            "flow-dump from the main thread:\n\
             ufid:1-2, recirc_id(0),in_port(p1),eth_type(0x0800), packets:2, bytes:1, used:0.1s, dp:ovs, actions:p3,p2, dp-extra-info:x\n",
        );
        assert_eq!(
            flows.into_iter().collect::<Vec<_>>(),
            [("recirc_id(0),in_port(p1),eth_type(0x0800)".into(), "p2,p3".into())]
        );
        let rules = counters(
            "NXST_FLOW reply (xid=0x4):\n cookie=0x0, duration=0.0s, table=3, n_packets=3, n_bytes=318, idle_age=0, priority=10,ip actions=drop\n",
        );
        assert_eq!(rules.into_iter().collect::<Vec<_>>(), [("table=3 priority=10,ip".into(), (3, 318))]);
    }
}

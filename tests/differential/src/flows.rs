//! Megaflow and rule texts of both switches, brought to a comparable form.

use crate::canonical::{canonical, canonical_actions};
use std::collections::BTreeMap;

/// Megaflows: key and mask as text → actions.
pub type Megaflows = BTreeMap<String, String>;

/// Rules: table, priority and match as text → packets, bytes.
pub type Counters = BTreeMap<String, (u64, u64)>;

/// Reads `dpctl/dump-flows -m`: drops ids and counters, and names ports by number.
pub fn megaflows(text: &str) -> Megaflows {
    let mut out = Megaflows::new();
    for line in text.lines().filter(|l| l.contains("recirc_id(")) {
        let key = line.split(", packets:").next().unwrap_or(line);
        let key = if key.starts_with("ufid:") { key.split_once(", ").map_or(key, |(_, rest)| rest) } else { key };
        let actions = line.split_once("actions:").map_or("", |(_, a)| a);
        let actions = actions.split(", dp-extra-info").next().unwrap_or(actions);
        out.insert(canonical(&key.replace("in_port(p", "in_port(")), canonical_actions(actions));
    }
    out
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
            [("recirc_id(0),in_port(1),eth_type(0x0800)".into(), "p2,p3".into())]
        );
        let rules = counters(
            "NXST_FLOW reply (xid=0x4):\n cookie=0x0, duration=0.0s, table=3, n_packets=3, n_bytes=318, idle_age=0, priority=10,ip actions=drop\n",
        );
        assert_eq!(rules.into_iter().collect::<Vec<_>>(), [("table=3 priority=10,ip".into(), (3, 318))]);
    }
}

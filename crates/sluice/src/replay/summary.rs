//! The summary of a replay, for people and for programs.

use super::{BRIDGE, Bench};
use crate::text::rules;
use anyhow::Result;
use serde_json::{Map, Value, json};
use sluice_fate::{Counter, DropReason, Snapshot};
use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod};
use std::fmt::Write as _;

/// The summary of a replay.
pub struct Summary {
    /// Packets received and sent, by port.
    ports: Vec<(String, u64, u64)>,
    totals: Snapshot,
    rules: Vec<RuleLine>,
    megaflows: usize,
}

/// A rule with its counters.
struct RuleLine {
    /// As `dump-flows` shows it.
    text: String,
    packets: u64,
    bytes: u64,
}

/// The counters of the conservation law, and what answered.
const SHOWN: &[Counter] = &[
    Counter::Received,
    Counter::Originated,
    Counter::Cloned,
    Counter::Sent,
    Counter::Delivered,
    Counter::Held,
    Counter::Released,
    Counter::Passes,
    Counter::EmcHits,
    Counter::SmcHits,
    Counter::MegaflowHits,
    Counter::Upcalls,
    Counter::UpcallsLost,
];

impl Summary {
    /// The summary of a replay that has ended.
    pub(super) fn of(bench: &Bench, now_ms: u64) -> Result<Summary> {
        let totals = bench.assembly.datapath().totals();
        totals.conserved()?;
        let ports = bench.inputs.iter().map(|input| {
            let (received, sent) = input.wire.counts();
            (input.port.label.clone(), received, sent)
        });
        let rules = bench.assembly.ofproto().rules(BRIDGE, &FlowMod::new(FlowCommand::Delete))?;
        let rules = rules.iter().map(|entry| {
            let line = rules::line(entry, now_ms);
            let stats = line.stats.unwrap_or_default();
            RuleLine { text: line.display(&PortNames::NONE).to_string(), packets: stats.packets, bytes: stats.bytes }
        });
        Ok(Summary {
            ports: ports.collect(),
            totals,
            rules: rules.collect(),
            megaflows: bench.assembly.datapath().store().len(),
        })
    }

    /// The drops that happened.
    fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|r| (*r, self.totals.dropped(*r))).filter(|(_, n)| *n != 0)
    }

    /// For people.
    pub fn text(&self) -> String {
        let by_port = |of: fn(&(String, u64, u64)) -> u64| {
            let all: u64 = self.ports.iter().map(of).sum();
            let each: Vec<_> = self.ports.iter().map(|port| format!("port {}: {}", port.0, of(port))).collect();
            format!("{all} ({})", each.join(", "))
        };
        let mut out = format!("in:      {}\nout:     {}\n", by_port(|p| p.1), by_port(|p| p.2));
        let _ = writeln!(out, "dropped: {}", self.totals.dropped_in_all());
        for (reason, n) in self.drops() {
            let _ = writeln!(out, "  {:<18} {n:>8}  {}", reason.name(), reason.explanation());
        }
        let _ = writeln!(out, "megaflows: {}\nrules:", self.megaflows);
        self.rules.iter().for_each(|rule| {
            let _ = writeln!(out, " {}", rule.text);
        });
        out
    }

    /// For programs.
    pub fn json(&self) -> String {
        let by_port = |of: fn(&(String, u64, u64)) -> u64| {
            self.ports.iter().map(|port| (port.0.clone(), of(port).into())).collect::<Map<String, Value>>()
        };
        let counters: Map<String, Value> =
            SHOWN.iter().map(|c| (c.name().to_owned(), self.totals[*c].into())).collect();
        let drops: Map<String, Value> = self.drops().map(|(reason, n)| (reason.name().to_owned(), n.into())).collect();
        let rules = self.rules.iter().map(|r| json!({"text": r.text, "packets": r.packets, "bytes": r.bytes}));
        let all = json!({
            "in": by_port(|p| p.1),
            "out": by_port(|p| p.2),
            "counters": counters,
            "dropped": drops,
            "megaflows": self.megaflows,
            "rules": rules.collect::<Vec<_>>(),
        });
        format!("{all:#}\n")
    }
}

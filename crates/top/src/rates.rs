//! What happened between two overviews, as numbers to show.

use crate::overview::{FlowRow, Overview, PmdRow, PortRow, Totals};
use std::time::Duration;

/// Two overviews, and the time between them.
#[derive(Clone, Copy)]
pub struct Rates<'a> {
    pub before: &'a Overview,
    pub now: &'a Overview,
    seconds: f64,
}

/// A port's rates, a second.
pub struct PortRates {
    pub rx_pps: f64,
    pub rx_bits: f64,
    pub tx_pps: f64,
    pub tx_bits: f64,
    pub dropped: f64,
}

impl<'a> Rates<'a> {
    /// Of two overviews, `passed` apart.
    pub fn new(before: &'a Overview, now: &'a Overview, passed: Duration) -> Rates<'a> {
        Rates { before, now, seconds: passed.as_secs_f64().max(1e-3) }
    }

    /// How much a counter grew; none if it was cleared.
    pub fn grown(&self, pick: fn(&Totals) -> u64) -> f64 {
        pick(&self.now.totals).saturating_sub(pick(&self.before.totals)) as f64
    }

    /// The same, a second.
    pub fn per_second(&self, pick: fn(&Totals) -> u64) -> f64 {
        self.grown(pick) / self.seconds
    }

    /// Cycles a packet received; 0 if there was none.
    pub fn cycles(&self) -> f64 {
        let received = self.grown(|t| t.received);
        if received == 0.0 { 0.0 } else { self.grown(|t| t.busy_cycles) / received }
    }

    /// Which share of the lookups each level answered, from 0 to 1.
    pub fn levels(&self) -> [(&'static str, f64); 5] {
        let distributor = self.grown(|t| t.distributor_hits);
        let answered = [
            ("EMC", self.grown(|t| t.emc_hits)),
            ("SMC", self.grown(|t| t.smc_hits)),
            ("distributor", distributor),
            // What the distributor finds is counted as a megaflow hit too.
            ("subtables", (self.grown(|t| t.megaflow_hits) - distributor).max(0.0)),
            ("upcalls", self.grown(|t| t.upcalls)),
        ];
        let passes = self.grown(|t| t.passes).max(1.0);
        answered.map(|(name, n)| (name, n / passes))
    }

    /// What a port did.
    pub fn port(&self, new: &PortRow) -> PortRates {
        let old = self.before.ports.iter().find(|old| old.name == new.name).cloned().unwrap_or_default();
        let rate = |new: u64, old: u64| new.saturating_sub(old) as f64 / self.seconds;
        PortRates {
            rx_pps: rate(new.rx_packets, old.rx_packets),
            rx_bits: 8.0 * rate(new.rx_bytes, old.rx_bytes),
            tx_pps: rate(new.tx_packets, old.tx_packets),
            tx_bits: 8.0 * rate(new.tx_bytes, old.tx_bytes),
            dropped: rate(new.dropped, old.dropped),
        }
    }

    /// Which share of a PMD's cycles was work, from 0 to 1.
    pub fn busy(&self, new: &PmdRow) -> f64 {
        let old = self.before.pmds.iter().find(|old| old.pmd == new.pmd).cloned().unwrap_or_default();
        let busy = new.busy_cycles.saturating_sub(old.busy_cycles) as f64;
        let all = busy + new.idle_cycles.saturating_sub(old.idle_cycles) as f64;
        if all == 0.0 { 0.0 } else { busy / all }
    }

    /// The flows that carried the most just now, of those that have carried the most at all: packets a second, text.
    pub fn flows(&self) -> Vec<(f64, &'a str)> {
        let rate = |flow: &FlowRow| {
            let old = self.before.busiest.iter().find(|old| identity(&old.text) == identity(&flow.text));
            flow.packets.saturating_sub(old.map_or(flow.packets, |old| old.packets)) as f64 / self.seconds
        };
        let mut flows: Vec<(f64, &str)> =
            self.now.busiest.iter().map(|flow| (rate(flow), flow.text.as_str())).collect();
        flows.sort_by(|a, b| b.0.total_cmp(&a.0));
        flows
    }
}

/// What a flow matches, without what it has counted.
fn identity(text: &str) -> &str {
    text.split(", packets:").next().unwrap_or(text)
}

/// A number with a unit that keeps it short.
pub fn scaled(x: f64) -> String {
    match x {
        x if x >= 1e9 => format!("{:.2}G", x / 1e9),
        x if x >= 1e6 => format!("{:.2}M", x / 1e6),
        x if x >= 1e4 => format!("{:.1}k", x / 1e3),
        x => format!("{x:.0}"),
    }
}

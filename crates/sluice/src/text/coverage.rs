//! `coverage/show` and `coverage/read-counter`: events counted, with their rates.
//!
//! The events are the PMDs' counters, drop reasons and bounds that were met. A drop reason that OVS counts too has
//! OVS's name.

use sluice_fate::{Counter, DropReason, Limit, Snapshot};
use sluice_vswitch::Switch;
use std::collections::VecDeque;
use std::fmt::Write as _;

/// Seconds between two samples. Source: OVS lib/coverage.h, COVERAGE_RUN_INTERVAL.
pub const SAMPLE_SECS: u64 = 5;

/// Samples in a minute.
const SAMPLES_IN_MINUTE: usize = 60 / SAMPLE_SECS as usize;

/// Minutes in an hour.
const MINUTES_IN_HOUR: usize = 60;

/// What happened lately, in samples and in minutes.
#[derive(Default)]
pub struct Coverage {
    /// Counts of the last samples, the newest last.
    samples: VecDeque<Vec<u64>>,
    /// Counts of the last minutes, the newest last.
    minutes: VecDeque<Vec<u64>>,
    /// Totals at the last sample.
    totals: Vec<u64>,
    /// Samples taken since the last whole minute.
    in_minute: usize,
}

/// The name of a drop reason among the events.
pub fn drop_name(reason: DropReason) -> String {
    match reason {
        DropReason::RxRunt => "datapath_drop_rx_invalid_packet".into(),
        DropReason::UpcallLost => "datapath_drop_upcall_error".into(),
        DropReason::RecircDepth => "datapath_drop_recirc_error".into(),
        DropReason::TxNoPort => "datapath_drop_invalid_port".into(),
        DropReason::TunnelPush => "datapath_drop_tunnel_push_error".into(),
        DropReason::TunnelPop => "datapath_drop_tunnel_pop_error".into(),
        DropReason::TunnelEcn => "drop_action_congestion".into(),
        DropReason::Meter => "datapath_drop_meter".into(),
        DropReason::Rules => "drop_action_of_pipeline".into(),
        DropReason::RecursionTooDeep => "drop_action_recursion_too_deep".into(),
        DropReason::TooManyResubmits => "drop_action_too_many_resubmit".into(),
        DropReason::StackTooDeep => "drop_action_stack_too_deep".into(),
        DropReason::TooManyMplsLabels => "drop_action_too_many_mpls_labels".into(),
        other => format!("drop_{}", other.name().replace('-', "_")),
    }
}

/// What is counted since the start.
#[derive(Default)]
pub struct Totals {
    /// By the workers.
    pub datapath: Snapshot,
    /// Packets that showed the address of a static MAC entry at another port.
    pub static_mac_moves: u64,
}

impl Totals {
    /// Those of a switch now.
    pub fn of(switch: &Switch) -> Self {
        Totals { datapath: switch.totals(), static_mac_moves: switch.ofproto().static_mac_moves() }
    }
}

/// Every event with its total: the counters that count events, then the drops, then the bounds that were met.
fn events(totals: &Totals) -> Vec<(String, u64)> {
    let Totals { datapath: totals, static_mac_moves } = totals;
    let is_event = |c: &Counter| !c.name().ends_with("-cycles");
    let counters = Counter::ALL.iter().copied().filter(is_event).map(|c| (c.name().replace('-', "_"), totals[c]));
    let drops = DropReason::ALL.iter().copied().map(|r| (drop_name(r), totals.dropped(r)));
    let limits = Limit::ALL.iter().map(|limit| (limit.name().replace('-', "_"), limit.count()));
    // OVS's test suite asks for the first one at the end of every test; batches here never grow.
    let others = [("dp_packet_batch_grow", 0), ("mac_learning_static_none_move", *static_mac_moves)];
    counters.chain(drops).chain(limits).chain(others.map(|(name, n)| (name.to_owned(), n))).collect()
}

impl Coverage {
    /// Takes a sample; called every [`SAMPLE_SECS`].
    pub fn sample(&mut self, totals: &Totals) {
        let now: Vec<u64> = events(totals).into_iter().map(|(_, n)| n).collect();
        if self.totals.is_empty() {
            self.totals = vec![0; now.len()];
        }
        let sample = now.iter().zip(&self.totals).map(|(now, before)| now.saturating_sub(*before)).collect();
        self.totals = now;
        push(&mut self.samples, sample, SAMPLES_IN_MINUTE);
        self.in_minute += 1;
        if self.in_minute == SAMPLES_IN_MINUTE {
            self.in_minute = 0;
            let minute = (0..self.totals.len()).map(|i| self.samples.iter().map(|s| s[i]).sum()).collect();
            push(&mut self.minutes, minute, MINUTES_IN_HOUR);
        }
    }

    /// `coverage/show`.
    pub fn show(&self, totals: &Totals) -> String {
        let events = events(totals);
        let hit: Vec<_> = events.iter().enumerate().filter(|(_, (_, n))| *n != 0).collect();
        let mut out = format!(
            "Event coverage, avg rate over last: {SAMPLE_SECS} seconds, last minute, last hour,  hash={:08x}:\n",
            fingerprint(hit.iter().map(|(_, (name, n))| (name.as_str(), *n)).collect())
        );
        for (i, (name, total)) in &hit {
            let sum = |ring: &VecDeque<Vec<u64>>| ring.iter().map(|s| s[*i]).sum::<u64>() as f64;
            let last = self.samples.back().map_or(0, |s| s[*i]) as f64 / SAMPLE_SECS as f64;
            let (minute, hour) = (sum(&self.samples) / 60.0, sum(&self.minutes) / 3600.0);
            let _ = writeln!(out, "{name:<24} {last:5.1}/sec {minute:9.3}/sec {hour:13.4}/sec   total: {total}");
        }
        let _ = writeln!(out, "{} events never hit", events.len() - hit.len());
        out
    }
}

/// `coverage/read-counter NAME`; `None` if there is no such event.
pub fn read_counter(totals: &Totals, name: &str) -> Option<u64> {
    events(totals).into_iter().find(|(event, _)| event == name).map(|(_, n)| n)
}

fn push(ring: &mut VecDeque<Vec<u64>>, item: Vec<u64>, len_max: usize) {
    if ring.len() == len_max {
        ring.pop_front();
    }
    ring.push_back(item);
}

/// A number that is the same for two switches that saw the same events in the same order of frequency.
fn fingerprint(mut hit: Vec<(&str, u64)>) -> u32 {
    hit.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    // FNV-1a, 32 bits. Source: draft-eastlake-fnv.
    hit.iter()
        .flat_map(|(name, _)| name.bytes().chain([0]))
        .fold(0x811c_9dc5, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_over_five_seconds_a_minute_and_an_hour() {
        let mut coverage = Coverage::default();
        let mut totals = Totals::default();
        for _ in 0..2 * SAMPLES_IN_MINUTE {
            totals.datapath[Counter::Received] += 50;
            coverage.sample(&totals);
        }
        totals.datapath.drop(DropReason::RxRunt, 10);
        coverage.sample(&totals);
        let text = coverage.show(&totals);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash="),
            "{text}"
        );
        assert_eq!(lines[1], "received                   0.0/sec     9.167/sec        0.3333/sec   total: 1200");
        assert_eq!(lines[2], "datapath_drop_rx_invalid_packet   2.0/sec     0.167/sec        0.0000/sec   total: 10");
        assert!(lines[3].ends_with(" events never hit"), "{text}");
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn counters_are_read_by_name() {
        let mut totals = Totals::default();
        totals.datapath[Counter::EmcHits] = 7;
        assert_eq!(read_counter(&totals, "emc_hits"), Some(7));
        assert_eq!(read_counter(&totals, "dp_packet_batch_grow"), Some(0));
        assert_eq!(read_counter(&totals, "nonsense"), None);
        let mut names: Vec<_> = events(&totals).into_iter().map(|(name, _)| name).collect();
        let n = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), n);
    }
}

//! Automatic load balance: whether receive queues are to be assigned to PMDs again, because one is overloaded and another
//! assignment would spread the load better. Source: Open vSwitch lib/dpif-netdev.c, `pmd_rebalance_dry_run`,
//! `dp_netdev_pmd_try_optimize`; `pmd-auto-lb` in `ovs-vswitchd.conf.db(5)`.

use crate::control::{Control, Worker};
use crate::load::{INTERVALS, RxqLoad};
use crate::rxq_assignment::{AssignMode, PmdPlace, PolledQueue, RxqAlgorithm};
use crate::{Datapath, numa};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const MINUTE_MS: u64 = 60_000;

/// When queues are assigned again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoLb {
    /// Whether they are at all.
    pub is_enabled: bool,
    /// Minutes between two looks.
    pub interval_min: u32,
    /// The load at which a PMD is overloaded, percent, if it has had it for a minute.
    pub load_threshold: u8,
    /// By how much the variance of the PMDs' loads has to become less, percent.
    pub improvement_threshold: u8,
}

impl Default for AutoLb {
    fn default() -> Self {
        AutoLb { is_enabled: false, interval_min: 1, load_threshold: 95, improvement_threshold: 25 }
    }
}

impl AutoLb {
    /// Minutes between two looks, at most. Source: Open vSwitch, `MAX_ALB_REBALANCE_INTERVAL`.
    pub const INTERVAL_MAX_MIN: u32 = 20_000;

    /// Logs what differs from the settings before; `None`: all of them.
    pub(crate) fn log_change(&self, before: Option<&AutoLb>) {
        let mut is_new = false;
        let mut note = |what: &str, value: u32, unit: &str, old: Option<u32>| {
            if old != Some(value) {
                is_new = true;
                tracing::info!(target: "dpif_netdev", "PMD auto load balance {what} set to {value}{unit}");
            }
        };
        note("interval", self.interval_min, " mins", before.map(|old| old.interval_min));
        let improvement = before.map(|old| old.improvement_threshold.into());
        note("improvement threshold", self.improvement_threshold.into(), "%", improvement);
        note("load threshold", self.load_threshold.into(), "%", before.map(|old| old.load_threshold.into()));
        if !is_new && before.is_some_and(|old| old.is_enabled == self.is_enabled) {
            return;
        }
        let AutoLb { interval_min, load_threshold, improvement_threshold, .. } = self;
        if self.is_enabled {
            tracing::info!(
                target: "dpif_netdev",
                "PMD auto load balance is enabled, interval {interval_min} mins, pmd load threshold {load_threshold}%, \
                 improvement threshold {improvement_threshold}%."
            );
        } else {
            tracing::info!(target: "dpif_netdev", "PMD auto load balance is disabled.");
        }
    }
}

/// What is known between two looks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AutoLbState {
    pub settings: AutoLb,
    /// When the last look was.
    looked_ms: Option<u64>,
    /// Nothing was assigned since the last look, which found whether a dry run makes sense.
    known: Option<bool>,
}

impl AutoLbState {
    /// Nothing is known yet.
    pub fn new(settings: AutoLb) -> Self {
        AutoLbState { settings, ..AutoLbState::default() }
    }

    /// Queues were assigned, or workers came or went.
    pub fn forget(&mut self) {
        self.known = None;
    }

    /// Whether it is time to look.
    fn is_due(&mut self, now_ms: u64) -> bool {
        if !self.settings.is_enabled {
            self.looked_ms = None;
            return false;
        }
        let is_due = self.looked_ms.is_some_and(|at| at + u64::from(self.settings.interval_min) * MINUTE_MS < now_ms);
        if is_due || self.looked_ms.is_none() {
            self.looked_ms = Some(now_ms);
        }
        is_due
    }
}

impl Datapath {
    /// Changes when queues are assigned again by themselves.
    pub fn set_auto_lb(&self, settings: AutoLb) {
        let mut control = self.control();
        let before = std::mem::replace(&mut control.auto_lb.settings, settings);
        settings.log_change(Some(&before));
    }

    /// Assigns queues again, if it is time to look and that would help. To be called about once a second.
    pub fn balance_load(&self, now_ms: u64) {
        let mut control = self.control();
        if !control.auto_lb.is_due(now_ms) {
            return;
        }
        let threshold = control.auto_lb.settings.load_threshold;
        if control.workers.iter().any(|worker| is_overloaded(worker, threshold))
            && control.makes_sense_to_try()
            && control.would_improve()
        {
            tracing::info!(
                target: "dpif_netdev", "PMD auto load balance dry run. Requesting datapath reconfigure."
            );
            control.reassign_to_all(Vec::new());
        }
    }
}

/// Whether a PMD has been busy enough in each of the intervals remembered.
fn is_overloaded(worker: &Worker, threshold: u8) -> bool {
    let (all, busy) = (worker.shared.cycles.intervals(), worker.shared.busy_cycles.intervals());
    let is_busy =
        |(all, busy): (&u64, &u64)| busy.saturating_mul(100).checked_div(*all).unwrap_or(0) >= threshold.into();
    worker.shared.core.is_some() && all.len() == INTERVALS && all.iter().zip(&busy).all(is_busy)
}

/// A queue that may be moved, and the PMD that polls it now.
struct Candidate {
    rxq: Arc<RxqLoad>,
    from: usize,
}

impl Control {
    /// Whether a PMD polls pinned queues only.
    fn is_isolated(&self, worker: &Worker) -> bool {
        let core = worker.shared.core;
        let is_pinned = |rxq: &Arc<RxqLoad>| rxq.placement.lock().core == core;
        self.rxq_assignment.isolates_pmds() && worker.shared.rxqs().iter().any(is_pinned)
    }

    /// Whether there can be a better assignment at all: two PMDs that take any queue, of which one has several.
    fn makes_sense_to_try(&mut self) -> bool {
        if let Some(known) = self.auto_lb.known {
            if !known {
                tracing::debug!(
                    target: "dpif_netdev",
                    "PMD auto load balance nothing to do, no configuration changes since last check."
                );
            }
            return known;
        }
        let makes_sense = self.has_choice();
        self.auto_lb.known = Some(makes_sense);
        makes_sense
    }

    fn has_choice(&self) -> bool {
        if self.rxq_assignment.algorithm == RxqAlgorithm::RoundRobin {
            tracing::debug!(
                target: "dpif_netdev",
                "PMD auto load balance nothing to do, pmd-rxq-assign=roundrobin assignment type configured."
            );
            return false;
        }
        let takes_any = |worker: &&Worker| worker.shared.core.is_some() && !self.is_isolated(worker);
        let queues: Vec<usize> =
            self.workers.iter().filter(takes_any).map(|worker| worker.shared.rxqs().len()).collect();
        let has_choice = queues.len() > 1 && queues.iter().any(|queues| *queues > 1);
        if !has_choice {
            tracing::debug!(
                target: "dpif_netdev",
                "PMD auto load balance nothing to do, not enough non-isolated PMDs or RxQs."
            );
        }
        has_choice
    }

    /// Whether another assignment would lower the variance of the loads by the improvement threshold.
    fn would_improve(&self) -> bool {
        tracing::debug!(target: "dpif_netdev", "PMD auto load balance performing dry run.");
        let mut pmds: Vec<(usize, usize)> =
            self.workers.iter().enumerate().filter_map(|(at, worker)| Some((worker.shared.core?, at))).collect();
        pmds.sort_unstable();
        let places: Vec<PmdPlace> =
            pmds.iter().map(|&(core, _)| PmdPlace { core, numa: numa::node_of(core) }).collect();
        let mut queues: Vec<Candidate> = Vec::new();
        for (from, (_, worker)) in pmds.iter().enumerate() {
            queues
                .extend(self.workers[*worker].shared.rxqs().iter().map(|rxq| Candidate { rxq: Arc::clone(rxq), from }));
        }
        queues.sort_by_key(|queue| (queue.rxq.port, queue.rxq.queue));
        let polled: Vec<PolledQueue<'_>> = queues
            .iter()
            .map(|Candidate { rxq, .. }| {
                let placement = *rxq.placement.lock();
                let cycles = rxq.load.sum();
                PolledQueue {
                    port: &rxq.port_name,
                    queue: rxq.queue,
                    numa: placement.numa,
                    core: placement.core,
                    cycles,
                }
            })
            .collect();
        let to = self.rxq_assignment.assign(&places, &polled, AssignMode::DryRun);
        let is_isolated: Vec<bool> = pmds.iter().map(|&(_, at)| self.is_isolated(&self.workers[at])).collect();
        let nodes: BTreeSet<u32> = places.iter().map(|place| place.numa).collect();
        let is_pinned = |queue: &PolledQueue<'_>| places.iter().any(|place| queue.core == Some(place.core));
        let crosses = |(queue, at): (&PolledQueue<'_>, &usize)| {
            !is_isolated[*at] && !is_pinned(queue) && places[*at].numa != queue.numa
        };
        if nodes.len() > 1 && polled.iter().zip(&to).any(crosses) {
            tracing::debug!(
                target: "dpif_netdev",
                "PMD auto load balance detected cross-numa polling with multiple numa nodes. Unable to accurately estimate."
            );
            return false;
        }
        let total: Vec<u64> = pmds.iter().map(|&(_, at)| self.workers[at].shared.cycles.sum()).collect();
        let from: Vec<usize> = queues.iter().map(|queue| queue.from).collect();
        let variances = |assigned: &[usize]| {
            let mut cycles = vec![0; pmds.len()];
            polled.iter().zip(assigned).for_each(|(queue, at)| cycles[*at] += queue.cycles);
            variance_by_node(&places, &is_isolated, &cycles, &total)
        };
        self.compare(&variances(&from), &variances(&to))
    }

    /// Compares the variances now with those estimated, by node.
    fn compare(&self, now: &BTreeMap<u32, u64>, estimated: &BTreeMap<u32, u64>) -> bool {
        let threshold = self.auto_lb.settings.improvement_threshold;
        let (mut improvement, mut is_met) = (0, false);
        for ((node, now), estimated) in now.iter().zip(estimated.values()) {
            if estimated < now {
                improvement = (now - estimated) * 100 / now;
            }
            tracing::debug!(
                target: "dpif_netdev",
                "Numa node {node}. Current variance {now} Estimated variance {estimated}. Variance improvement \
                 {improvement}%."
            );
            is_met |= improvement >= threshold.into();
        }
        let met = if is_met { "met" } else { "not met" };
        tracing::debug!(
            target: "dpif_netdev", "PMD load variance improvement threshold {threshold}% is {met}."
        );
        is_met
    }
}

/// The variance of the percentages of time for which PMDs are busy, by node; isolated ones are left out.
fn variance_by_node(places: &[PmdPlace], is_isolated: &[bool], cycles: &[u64], total: &[u64]) -> BTreeMap<u32, u64> {
    let mut percent: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (at, place) in places.iter().enumerate() {
        let of_node = percent.entry(place.numa).or_default();
        if !is_isolated[at] {
            of_node.push((cycles[at] * 100).checked_div(total[at]).unwrap_or(0));
        }
    }
    percent.into_iter().map(|(node, percent)| (node, variance(&percent))).collect()
}

fn variance(values: &[u64]) -> u64 {
    let n = values.len() as u64;
    let Some(mean) = values.iter().sum::<u64>().checked_div(n) else { return 0 };
    values.iter().map(|value| value.abs_diff(mean).pow(2)).sum::<u64>() / n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variances_are_those_of_each_node_without_isolated_pmds() {
        let place = |core, numa| PmdPlace { core, numa };
        let places = [place(0, 0), place(1, 0), place(2, 1), place(3, 0)];
        let variances = variance_by_node(&places, &[false, false, false, true], &[90, 10, 50, 70], &[100, 100, 0, 100]);
        assert_eq!(variances, BTreeMap::from([(0, 1600), (1, 0)]));
        assert_eq!([variance(&[]), variance(&[7]), variance(&[1, 2])], [0, 0, 0]);
    }

    #[test]
    fn looks_come_an_interval_apart() {
        let mut state = AutoLbState::default();
        assert!(!state.is_due(0));
        state.settings.is_enabled = true;
        assert_eq!(
            [10, 60_010, 60_011, 60_012, 200_000].map(|now| state.is_due(now)),
            [false, false, true, false, true]
        );
        state.settings.is_enabled = false;
        assert!(!state.is_due(300_000));
        state.settings.is_enabled = true;
        assert!(!state.is_due(400_000), "it begins anew");
    }
}

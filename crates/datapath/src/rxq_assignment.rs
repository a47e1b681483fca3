//! Which PMD polls which receive queue.
//!
//! Pinned queues go to their PMDs, which by default poll no other queue then. The others are spread by an algorithm over
//! the PMDs on the NUMA node of their port. If that node has no PMD for them, they go to the other nodes in turn.
//! Source: Open vSwitch, `pmd-rxq-assign` and `pmd-rxq-isolate` in `ovs-vswitchd.conf.db(5)`.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;

/// How queues are spread over the PMDs of a NUMA node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RxqAlgorithm {
    /// In turn, in the order of ports and queues.
    RoundRobin,
    /// The dearest queues first, back and forth over the PMDs, so that the PMD with the dearest queue of one round gets
    /// the cheapest of the next.
    #[default]
    Cycles,
    /// The dearest queues first, each to the PMD with the least load.
    Group,
}

/// How queues are assigned to PMDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RxqAssignment {
    /// How queues are spread that are not pinned.
    pub algorithm: RxqAlgorithm,
    /// Whether a PMD with a pinned queue polls pinned queues only. Other algorithms than `group` isolate in any case.
    pub isolates: bool,
}

/// Whether an assignment is carried out, or estimated only, as Open vSwitch's dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AssignMode {
    /// It is carried out, and logged as such.
    Apply,
    /// It is an estimate, logged for debugging only.
    DryRun,
}

/// Logs a step of an assignment, by whether it is carried out.
macro_rules! log_assignment {
    ($mode:expr, $level:ident, $($text:tt)+) => {
        match $mode {
            AssignMode::Apply => tracing::$level!(target: "dpif_netdev", $($text)+),
            AssignMode::DryRun => tracing::debug!(target: "dpif_netdev", $($text)+),
        }
    };
}

/// A PMD that queues can be assigned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PmdPlace {
    pub core: usize,
    pub numa: u32,
}

/// A queue that must be polled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolledQueue<'a> {
    /// The name of its port.
    pub port: &'a str,
    pub queue: usize,
    /// The node of its port.
    pub numa: u32,
    /// The core that it is pinned to.
    pub core: Option<usize>,
    /// What it took in the last minute.
    pub cycles: u64,
}

/// The PMDs of a node that take queues that are not pinned.
struct Node {
    numa: u32,
    /// Their places.
    pmds: Vec<usize>,
    /// How many queues they have been given in turn.
    given: usize,
}

/// What a PMD has been assigned.
#[derive(Clone, Copy, Default)]
struct Assigned {
    queues: usize,
    cycles: u64,
}

impl RxqAlgorithm {
    /// The values of `pmd-rxq-assign`.
    pub const ALL: [RxqAlgorithm; 3] = [RxqAlgorithm::RoundRobin, RxqAlgorithm::Cycles, RxqAlgorithm::Group];
}

impl Default for RxqAssignment {
    fn default() -> Self {
        RxqAssignment { algorithm: RxqAlgorithm::default(), isolates: true }
    }
}

impl Display for RxqAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            RxqAlgorithm::RoundRobin => "roundrobin",
            RxqAlgorithm::Cycles => "cycles",
            RxqAlgorithm::Group => "group",
        })
    }
}

impl FromStr for RxqAlgorithm {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        RxqAlgorithm::ALL.into_iter().find(|algorithm| algorithm.to_string() == text).ok_or(())
    }
}

impl RxqAssignment {
    /// Whether a PMD with a pinned queue polls pinned queues only.
    pub(crate) fn isolates_pmds(self) -> bool {
        self.isolates || self.algorithm != RxqAlgorithm::Group
    }

    /// Logs what differs from the assignment before, as Open vSwitch does.
    pub(crate) fn log_change(self, before: RxqAssignment) {
        let algorithm = self.algorithm;
        if algorithm != before.algorithm {
            tracing::info!(target: "dpif_netdev", "Rxq to PMD assignment mode changed to: '{algorithm}'.");
        }
        if !self.isolates && self.isolates_pmds() {
            tracing::warn!(
                target: "dpif_netdev", "pmd-rxq-isolate can only be set false when using pmd-rxq-assign=group"
            );
        }
        if self.isolates_pmds() != before.isolates_pmds() {
            let does = if self.isolates_pmds() { "isolates" } else { "does not isolate" };
            tracing::info!(target: "dpif_netdev", "pmd-rxq-affinity {does} PMD core");
        }
    }

    /// The place of the PMD for each queue, in the order of the queues; there is at least one PMD.
    pub(crate) fn assign(self, pmds: &[PmdPlace], queues: &[PolledQueue<'_>], mode: AssignMode) -> Vec<usize> {
        let mut pmd_of = vec![0; queues.len()];
        let mut assigned = vec![Assigned::default(); pmds.len()];
        let mut is_isolated = vec![false; pmds.len()];
        let mut spread = Vec::with_capacity(queues.len());
        for (i, queue) in queues.iter().enumerate() {
            let Some(at) = pinned(pmds, queue, mode) else {
                spread.push(i);
                continue;
            };
            pmd_of[i] = at;
            is_isolated[at] |= self.isolates_pmds();
            assigned[at].add(queue);
        }
        if !spread.is_empty() && mode == AssignMode::Apply {
            tracing::info!(
                target: "dpif_netdev",
                "Performing pmd to rx queue assignment using {} algorithm.", self.algorithm
            );
        }
        if self.algorithm != RxqAlgorithm::RoundRobin {
            spread.sort_by_key(|&i| std::cmp::Reverse(queues[i].cycles));
        }
        let mut nodes = Nodes::new(pmds, &is_isolated);
        for i in spread {
            let at = nodes.choose(self.algorithm, &queues[i], &assigned);
            log_choice(&pmds[at], &queues[i], is_isolated[at], mode);
            pmd_of[i] = at;
            assigned[at].add(&queues[i]);
        }
        pmd_of
    }
}

/// The place of the PMD that a queue is pinned to, if there is one.
fn pinned(pmds: &[PmdPlace], queue: &PolledQueue<'_>, mode: AssignMode) -> Option<usize> {
    let core = queue.core?;
    let PolledQueue { port, queue, .. } = queue;
    let Some(at) = pmds.iter().position(|pmd| pmd.core == core) else {
        log_assignment!(
            mode,
            warn,
            "Core {core:2} cannot be pinned with port '{port}' rx queue {queue}. Use pmd-cpu-mask to enable a pmd on core \
             {core}. An alternative core will be assigned."
        );
        return None;
    };
    let numa = pmds[at].numa;
    log_assignment!(mode, info, "Core {core:2} on numa node {numa} is pinned with port '{port}' rx queue {queue}.");
    Some(at)
}

fn log_choice(pmd: &PmdPlace, queue: &PolledQueue<'_>, is_isolated: bool, mode: AssignMode) {
    let PmdPlace { core, numa } = pmd;
    let PolledQueue { port, queue, numa: port_numa, cycles, .. } = queue;
    if is_isolated {
        log_assignment!(
            mode,
            warn,
            "No non-isolated pmd on any numa available for port '{port}' rx queue {queue}. An isolated one polls it."
        );
    } else if numa != port_numa {
        log_assignment!(
            mode,
            info,
            "There's no available (non-isolated) pmd thread on numa node {port_numa}. Port '{port}' rx queue {queue} \
             will be assigned to a pmd on numa node {numa}. This may lead to reduced performance."
        );
    }
    log_assignment!(
        mode,
        info,
        "Core {core:2} on numa node {numa} assigned port '{port}' rx queue {queue} (measured processing cycles {cycles})."
    );
}

impl Assigned {
    fn add(&mut self, queue: &PolledQueue<'_>) {
        self.queues += 1;
        self.cycles += queue.cycles;
    }
}

/// The nodes with PMDs that take queues that are not pinned.
struct Nodes {
    nodes: Vec<Node>,
    /// How many queues went to another node than their port's.
    crossed: usize,
}

impl Nodes {
    fn new(pmds: &[PmdPlace], is_isolated: &[bool]) -> Self {
        // A queue must be polled, if need be by a PMD that has pinned ones.
        let takes_any = is_isolated.iter().all(|isolated| *isolated);
        let mut by_numa: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (at, pmd) in pmds.iter().enumerate().filter(|(at, _)| takes_any || !is_isolated[*at]) {
            by_numa.entry(pmd.numa).or_default().push(at);
        }
        let nodes = by_numa.into_iter().map(|(numa, pmds)| Node { numa, pmds, given: 0 }).collect();
        Nodes { nodes, crossed: 0 }
    }

    /// The PMD for the next queue.
    fn choose(&mut self, algorithm: RxqAlgorithm, queue: &PolledQueue<'_>, assigned: &[Assigned]) -> usize {
        let own = self.nodes.iter().position(|node| node.numa == queue.numa);
        let at = own.unwrap_or_else(|| {
            self.crossed += 1;
            (self.crossed - 1) % self.nodes.len()
        });
        let Node { pmds, given, .. } = &mut self.nodes[at];
        let (round, turn) = (*given / pmds.len(), *given % pmds.len());
        *given += 1;
        match algorithm {
            RxqAlgorithm::RoundRobin => pmds[turn],
            RxqAlgorithm::Cycles if round % 2 == 0 => pmds[turn],
            RxqAlgorithm::Cycles => pmds[pmds.len() - 1 - turn],
            RxqAlgorithm::Group => {
                // Queues that took nothing are spread by their number.
                let load =
                    |at: &usize| if queue.cycles == 0 { assigned[*at].queues as u64 } else { assigned[*at].cycles };
                pmds.iter().copied().min_by_key(load).unwrap_or(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pmds(numas: &[u32]) -> Vec<PmdPlace> {
        numas.iter().enumerate().map(|(core, numa)| PmdPlace { core, numa: *numa }).collect()
    }

    fn queues(cycles: &[u64]) -> Vec<PolledQueue<'static>> {
        let queue =
            |(queue, cycles): (usize, &u64)| PolledQueue { port: "p", queue, numa: 0, core: None, cycles: *cycles };
        cycles.iter().enumerate().map(queue).collect()
    }

    fn of(algorithm: RxqAlgorithm) -> RxqAssignment {
        RxqAssignment { algorithm, isolates: true }
    }

    #[test]
    fn algorithms_spread_as_those_of_ovs() {
        let spread =
            |algorithm, cycles: &[u64]| of(algorithm).assign(&pmds(&[0, 0]), &queues(cycles), AssignMode::Apply);
        assert_eq!(spread(RxqAlgorithm::RoundRobin, &[10, 40, 20, 30]), [0, 1, 0, 1]);
        assert_eq!(spread(RxqAlgorithm::Cycles, &[10, 40, 20, 30]), [0, 0, 1, 1]);
        assert_eq!(spread(RxqAlgorithm::Cycles, &[0; 8]), [0, 1, 1, 0, 0, 1, 1, 0]);
        assert_eq!(spread(RxqAlgorithm::Group, &[10, 90, 20, 30]), [1, 0, 1, 1]);
        assert_eq!(spread(RxqAlgorithm::Group, &[0; 4]), [0, 1, 0, 1]);
    }

    #[test]
    fn queues_stay_on_the_node_of_their_port_if_it_has_a_pmd() {
        let assignment = of(RxqAlgorithm::Cycles);
        assert_eq!(assignment.assign(&pmds(&[1, 0]), &queues(&[0; 3]), AssignMode::Apply), [1, 1, 1]);
        assert_eq!(
            assignment.assign(&pmds(&[1, 2, 1, 2]), &queues(&[0; 4]), AssignMode::Apply),
            [0, 1, 2, 3],
            "other nodes in turn"
        );
    }

    #[test]
    fn a_pmd_with_a_pinned_queue_polls_no_other_unless_there_is_no_other() {
        let mut pinned = queues(&[0; 3]);
        pinned[0].core = Some(1);
        pinned[1].core = Some(77);
        assert_eq!(of(RxqAlgorithm::Cycles).assign(&pmds(&[0, 0]), &pinned, AssignMode::Apply), [1, 0, 0]);
        let shared = RxqAssignment { algorithm: RxqAlgorithm::Group, isolates: false };
        assert_eq!(shared.assign(&pmds(&[0, 0]), &pinned, AssignMode::Apply), [1, 0, 0]);
        pinned[1].core = Some(0);
        assert_eq!(of(RxqAlgorithm::Cycles).assign(&pmds(&[0, 0]), &pinned, AssignMode::Apply), [1, 0, 0]);
    }

    proptest! {
        #[test]
        fn every_queue_has_a_pmd_and_its_own_if_it_is_pinned(
            numas in prop::collection::vec(0..3u32, 1..5),
            wanted in prop::collection::vec((0..3u32, prop::option::of(0..6usize), 0..4u64), 0..12),
            algorithm in prop::sample::select(&RxqAlgorithm::ALL[..]),
            isolates: bool,
        ) {
            let pmds = pmds(&numas);
            let queues: Vec<_> = wanted.iter().enumerate()
                .map(|(queue, &(numa, core, cycles))| PolledQueue { port: "p", queue, numa, core, cycles }).collect();
            let pmd_of = RxqAssignment { algorithm, isolates }.assign(&pmds, &queues, AssignMode::Apply);
            prop_assert_eq!(pmd_of.len(), queues.len());
            let pinned: Vec<usize> = queues.iter().filter_map(|q| q.core.filter(|core| *core < pmds.len())).collect();
            for (queue, at) in queues.iter().zip(&pmd_of) {
                prop_assert!(*at < pmds.len());
                match queue.core.filter(|core| *core < pmds.len()) {
                    Some(core) => prop_assert_eq!(*at, core),
                    None if RxqAssignment { algorithm, isolates }.isolates_pmds()
                        && (0..pmds.len()).any(|core| !pinned.contains(&core)) => {
                        prop_assert!(!pinned.contains(at));
                    }
                    None => {}
                }
            }
        }
    }
}

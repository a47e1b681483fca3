//! What a datapath reports.

use crate::load::{INTERVAL_MS, INTERVALS};
use crate::stage_cycles::StageCycles;
use sluice_action::{FlowStats, PortNo};
use sluice_fate::Snapshot;
use sluice_flow_cache::{EmcUsage, FlowView};
use sluice_port::{PortInfo, PortStats};
use std::time::Duration;

/// One PMD, as the statistics show it.
#[derive(Clone, Debug)]
pub struct PmdReport {
    /// Its number, from 0.
    pub pmd: usize,
    /// The core it is pinned to; `None`: it is the main worker.
    pub core: Option<usize>,
    /// What it has counted since the statistics were cleared.
    pub counters: Snapshot,
    /// How long ago that was.
    pub measured: Duration,
    /// How full its exact match cache is.
    pub emc: EmcUsage,
    /// Subtables it has.
    pub subtables: usize,
    /// Megaflows it has in them.
    pub megaflows: usize,
    /// Cycles by stage since the start; zeros if they are not counted.
    pub stage_cycles: StageCycles,
    /// The receive queues it polls.
    pub rxqs: Vec<RxqReport>,
    /// Whether it polls pinned receive queues only.
    pub is_isolated: bool,
    /// Busy cycles of the measured time that no queue is charged for, as a percentage of all its cycles; `None` before
    /// the first interval has ended.
    pub overhead_percent: Option<u8>,
}

/// A receive queue, as `pmd-rxq-show` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RxqReport {
    /// Its port.
    pub port: PortNo,
    /// Its number at that port.
    pub queue: usize,
    /// Its share of the PMD's cycles in the measured time, percent; `None` before the first interval has ended.
    pub usage_percent: Option<u8>,
}

/// A port, as the statistics show it.
#[derive(Clone, Debug)]
pub struct PortReport {
    /// Its number.
    pub number: PortNo,
    /// What it is.
    pub info: PortInfo,
    /// What it has counted itself.
    pub stats: PortStats,
    /// What its type counts besides, by name.
    pub custom_stats: Vec<(String, u64)>,
    /// Whether its link is up.
    pub is_up: bool,
    /// The fates of the packets that it received, as of its PMDs' last publication: they and their copies were sent by
    /// some port, delivered or dropped, or are held.
    pub fates: Snapshot,
}

/// The interval in whose multiples `usage_percent` can be measured.
pub const USAGE_INTERVAL: Duration = Duration::from_millis(INTERVAL_MS);

/// The longest time over which `usage_percent` is measured, once that much has passed.
pub const USAGE_SPAN: Duration = Duration::from_millis(INTERVAL_MS * INTERVALS as u64);

/// A megaflow, as `dpctl/dump-flows` shows it.
#[derive(Clone, Debug)]
pub struct FlowReport {
    /// The megaflow.
    pub flow: FlowView,
    /// Its identity as a number.
    pub ufid: u128,
}

impl FlowReport {
    /// What PMD number `pmd` has carried; `None` if it has never had the megaflow.
    pub fn on_pmd(&self, pmd: usize) -> Option<FlowStats> {
        self.flow.per_pmd.get(pmd).copied().flatten()
    }
}

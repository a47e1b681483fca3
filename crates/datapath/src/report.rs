//! What a datapath tells about itself.

use crate::cache_memory::CacheMemory;
use crate::command::PmdCommand;
use crate::load::{INTERVALS, RxqLoad};
use crate::stage_cycles::{Stage, StageCycles};
use sluice_action::{FlowStats, PortNo};
use sluice_fate::{PmdStats, Snapshot};
use sluice_flow_cache::EmcUsage;
use sluice_port::{PortInfo, PortStats};
use sluice_sync::MessageQueue;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// One PMD, as the statistics show it.
#[derive(Clone, Debug)]
pub struct PmdReport {
    /// Its number, from 0.
    pub pmd: usize,
    /// The core it is pinned to.
    pub core: usize,
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
    /// The share of its cycles in the last minute that it was busy and no queue is charged for, percent; `None` before
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
    /// Its share of the PMD's cycles in the last minute, percent; `None` before the first interval has ended.
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
    /// Whether its link is up.
    pub is_up: bool,
    /// What became of the packets that it received, as of its PMDs' last publication: they and their copies were sent by
    /// some port, delivered, dropped or are held.
    pub fates: Snapshot,
}

/// A message for a controller.
#[derive(Clone, Debug)]
pub struct PacketIn {
    /// What the datapath knew of the packet: port, recirculation id, marks, headers.
    pub key: sluice_flow::PacketKey,
    /// The packet, cut to the length asked for.
    pub bytes: Vec<u8>,
    /// Its whole length.
    pub total_len: usize,
    /// OpenFlow reason.
    pub reason: u8,
    /// Which controller connection.
    pub controller_id: u16,
    /// Cookie of the rule that asked.
    pub cookie: u64,
    /// Recirculation id that names the state of the translation.
    pub recirc_id: u32,
    /// Whether the packet waits for the controller to let it go on.
    pub continuation: bool,
}

/// What a PMD and its control threads share.
pub(crate) struct PmdShared {
    pub pmd: usize,
    pub core: usize,
    pub stats: PmdStats,
    pub mailbox: MessageQueue<PmdCommand>,
    pub gauges: Gauges,
    /// Cycles of all its iterations, by interval.
    pub cycles: crate::load::Load,
    /// Cycles of those that received something.
    pub busy_cycles: crate::load::Load,
    pub cache_memory: Mutex<CacheMemory>,
    /// The queues it polls: changed by control threads only.
    rxqs: Mutex<Vec<Arc<RxqLoad>>>,
    pub stop: AtomicBool,
    /// Set when every queue it polls has nothing left to give.
    pub exhausted: AtomicBool,
}

/// Numbers that go up and down, as of the last iteration.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    pub emc_used: AtomicUsize,
    pub emc_entries: AtomicUsize,
    pub subtables: AtomicUsize,
    pub megaflows: AtomicUsize,
    /// Cycles by stage since the start.
    pub stage_cycles: [AtomicU64; Stage::ALL.len()],
}

impl PmdShared {
    pub fn new(pmd: usize, core: usize) -> Self {
        PmdShared {
            pmd,
            core,
            stats: PmdStats::default(),
            mailbox: MessageQueue::default(),
            gauges: Gauges::default(),
            cycles: crate::load::Load::default(),
            busy_cycles: crate::load::Load::default(),
            cache_memory: Mutex::default(),
            rxqs: Mutex::default(),
            stop: AtomicBool::new(false),
            exhausted: AtomicBool::new(false),
        }
    }

    pub fn rxqs(&self) -> MutexGuard<'_, Vec<Arc<RxqLoad>>> {
        self.rxqs.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The report, whose counters are those since `baseline`.
    pub fn report(&self, baseline: &Snapshot, measured: Duration) -> PmdReport {
        let all = self.cycles.sum();
        let percent = |cycles: u64| (all != 0).then(|| (cycles * 100 / all).min(100) as u8);
        let usage = |load: &RxqLoad| percent(load.load.sum());
        let rxqs = self.rxqs();
        let charged: u64 = rxqs.iter().map(|q| q.load.sum()).sum();
        let rxqs = rxqs.iter().map(|q| RxqReport { port: q.port, queue: q.queue, usage_percent: usage(q) });
        let gauge = |gauge: &AtomicUsize| gauge.load(Relaxed);
        PmdReport {
            pmd: self.pmd,
            core: self.core,
            counters: self.stats.snapshot().since(baseline),
            measured,
            emc: EmcUsage { used: gauge(&self.gauges.emc_used), entries: gauge(&self.gauges.emc_entries) },
            subtables: gauge(&self.gauges.subtables),
            megaflows: gauge(&self.gauges.megaflows),
            stage_cycles: std::array::from_fn(|stage| self.gauges.stage_cycles[stage].load(Relaxed)),
            rxqs: rxqs.collect(),
            overhead_percent: percent(self.busy_cycles.sum().saturating_sub(charged)),
        }
    }
}

/// The length of time that `usage_percent` looks back, once that much has passed.
pub const USAGE_SPAN: Duration = Duration::from_millis(crate::load::INTERVAL_MS * INTERVALS as u64);

/// A megaflow, as `dpctl/dump-flows` shows it.
#[derive(Clone, Debug)]
pub struct FlowReport {
    /// The megaflow.
    pub flow: sluice_flow_cache::FlowView,
    /// Its identity as a number.
    pub ufid: u128,
}

impl FlowReport {
    /// What PMD number `pmd` has carried; `None` if it has never had the megaflow.
    pub fn on_pmd(&self, pmd: usize) -> Option<FlowStats> {
        self.flow.per_pmd.get(pmd).copied().flatten()
    }
}

//! What a PMD and its control threads share.

use crate::cache_memory::CacheMemory;
use crate::command::PmdCommand;
use crate::load::{Load, RxqLoad};
use crate::report::{PmdReport, RxqReport};
use crate::stage_cycles::Stage;
use parking_lot::{Mutex, MutexGuard};
use sluice_fate::{PmdStats, Snapshot};
use sluice_flow_cache::EmcUsage;
use sluice_sync::MessageQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// What a PMD and its control threads share.
pub(crate) struct PmdShared {
    pub pmd: usize,
    pub core: usize,
    pub stats: PmdStats,
    pub mailbox: MessageQueue<PmdCommand>,
    pub gauges: Gauges,
    /// Cycles of all its iterations, by interval.
    pub cycles: Load,
    /// Cycles of those that received something.
    pub busy_cycles: Load,
    cache_memory: Mutex<CacheMemory>,
    /// The queues it polls: changed by control threads only.
    rxqs: Mutex<Vec<Arc<RxqLoad>>>,
    pub stop: AtomicBool,
    /// Set when no queue that it polls will ever give a packet again.
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
            cycles: Load::default(),
            busy_cycles: Load::default(),
            cache_memory: Mutex::default(),
            rxqs: Mutex::default(),
            stop: AtomicBool::new(false),
            exhausted: AtomicBool::new(false),
        }
    }

    pub fn rxqs(&self) -> MutexGuard<'_, Vec<Arc<RxqLoad>>> {
        self.rxqs.lock()
    }

    /// The memory of its caches.
    pub fn cache_memory(&self) -> MutexGuard<'_, CacheMemory> {
        self.cache_memory.lock()
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

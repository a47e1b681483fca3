//! What a PMD and its control threads share.

use crate::cache_memory::CacheMemory;
use crate::command::PmdCommand;
use crate::load::{Load, RxqLoad};
use crate::perf_metrics::PerfSlot;
use crate::progress::Progress;
use crate::report::{PmdReport, RxqReport};
use crate::stage_cycles::Stage;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::EventfdFlags;
use sluice_fate::{PmdStats, Snapshot};
use sluice_flow_cache::EmcUsage;
use sluice_sync::MessageQueue;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// What a PMD and its control threads share.
pub(crate) struct PmdShared {
    pub pmd: usize,
    /// `None`: it is the main worker, which is bound to no core.
    pub core: Option<usize>,
    pub stats: PmdStats,
    commands: MessageQueue<PmdCommand>,
    /// An eventfd on which its thread sleeps.
    wakeup: OwnedFd,
    pub gauges: Gauges,
    /// What it is doing.
    pub progress: Progress,
    /// Cycles of all its iterations, by interval.
    pub cycles: Load,
    /// Cycles of those that received something.
    pub busy_cycles: Load,
    /// What its iterations did, if that is kept.
    pub perf: PerfSlot,
    cache_memory: Mutex<CacheMemory>,
    /// The queues it polls: changed by control threads only.
    rxqs: Mutex<Vec<Arc<RxqLoad>>>,
    pub stop: AtomicBool,
    /// The longest sleep of an idle PMD in one iteration, microseconds; 0: it never sleeps.
    pub sleep_max_us: AtomicU32,
    /// Set when no queue that it polls will ever give a packet again.
    pub exhausted: AtomicBool,
}

// Each PMD writes its own of these in every iteration. Alone on their pairs of cache lines they cost no other PMD anything
// (docs/scaling.md).
const _: () = assert!(align_of::<PmdShared>() >= 128 && align_of::<RxqLoad>() >= 128);

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
    pub fn new(pmd: usize, core: Option<usize>, sleep_max_us: u32) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wakeup = rustix::event::eventfd(0, flags)?;
        Ok(PmdShared {
            pmd,
            core,
            wakeup,
            stats: PmdStats::default(),
            commands: MessageQueue::default(),
            gauges: Gauges::default(),
            progress: Progress::default(),
            cycles: Load::default(),
            busy_cycles: Load::default(),
            perf: PerfSlot::default(),
            cache_memory: Mutex::default(),
            rxqs: Mutex::default(),
            stop: AtomicBool::new(false),
            sleep_max_us: AtomicU32::new(sleep_max_us),
            exhausted: AtomicBool::new(false),
        })
    }

    /// Gives it a command, which it runs between two iterations.
    pub fn post(&self, command: PmdCommand) {
        self.commands.post(command);
        self.wake();
    }

    /// Whether there are commands.
    #[inline]
    pub fn has_commands(&self) -> bool {
        self.commands.has_messages()
    }

    /// Moves all commands to the end of `into`.
    pub fn take_commands(&self, into: &mut Vec<PmdCommand>) {
        self.commands.take(usize::MAX, into);
    }

    /// Asks its thread to end, without waiting for it.
    pub fn ask_to_stop(&self) {
        self.stop.store(true, Relaxed);
        self.wake();
    }

    /// Wakes its thread if that sleeps in poll(2).
    pub fn wake(&self) {
        // It fails only if its counter is at the maximum; then it is readable anyway.
        let _ = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
    }

    /// The descriptor that is readable after [`PmdShared::wake`].
    pub fn wakeup(&self) -> &OwnedFd {
        &self.wakeup
    }

    /// Makes it unreadable until the next [`PmdShared::wake`].
    pub fn clear_wakeup(&self) {
        let _ = rustix::io::read(&self.wakeup, &mut [0; 8]);
    }

    pub fn rxqs(&self) -> MutexGuard<'_, Vec<Arc<RxqLoad>>> {
        self.rxqs.lock()
    }

    /// The memory of its caches.
    pub fn cache_memory(&self) -> MutexGuard<'_, CacheMemory> {
        self.cache_memory.lock()
    }

    /// The report, whose counters are those since `baseline`, and whose usage is that of the last `intervals`.
    pub fn report(&self, baseline: &Snapshot, measured: Duration, intervals: usize) -> PmdReport {
        let all = self.cycles.sum_of_last(intervals);
        let percent = |cycles: u64| (all != 0).then(|| (cycles * 100 / all).min(100) as u8);
        let usage = |load: &RxqLoad| percent(load.load.sum_of_last(intervals));
        let rxqs = self.rxqs();
        let has_pinned_rxq = rxqs.iter().any(|rxq| self.core.is_some() && rxq.placement.lock().core == self.core);
        let charged: u64 = rxqs.iter().map(|q| q.load.sum_of_last(intervals)).sum();
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
            is_isolated: has_pinned_rxq,
            overhead_percent: percent(self.busy_cycles.sum_of_last(intervals).saturating_sub(charged)),
        }
    }
}

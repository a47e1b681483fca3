//! A PMD's loop: [`commands`], poll, walk, send, quiet point, publish.
//!
//! [`Pmd::run_once`] is one iteration, with the time as an argument: a thread calls it for ever; `replay` and tests
//! call it themselves.

mod commands;

use crate::batch::BatchMemory;
use crate::capture::Taps;
use crate::command::{PacketOut, PmdCommand};
use crate::config::Config;
use crate::context::Context;
use crate::load::INTERVAL_MS;
use crate::perf_metrics::{PerfMetrics, QueueMark};
use crate::pmd_shared::PmdShared;
use crate::progress::Activity;
use crate::rxq::Rxq;
use crate::rxq_scheduler::{Deficit, RxqScheduler};
use crate::stage_cycles::StageClock;
use crate::walk::Walk;
use sluice_fate::{Counter, Tally};
use sluice_flow_cache::{FlowDeleted, MegaflowTable, PmdSide};
use sluice_packet::{BATCH_MAX, Buffers, VlanLimit};
use sluice_simd::tsc;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;

/// Busy iterations between two publications of the counters. An idle iteration publishes at once.
const PUBLISH_EVERY: u32 = 32;

/// The most deleted megaflows that one iteration removes from the indexes. The others can wait: they are harmless.
const DELETED_AT_ONCE: usize = 64;

/// Iterations after which a queue that always has packets is not waited for.
const IDLE_WITHIN: usize = 1 << 12;

/// One PMD, or the main worker.
pub(crate) struct Pmd {
    pub shared: Arc<PmdShared>,
    table: Arc<MegaflowTable>,
    side: PmdSide,
    walk: Walk,
    rxqs: Vec<Rxq>,
    scheduler: RxqScheduler,
    buffers: Buffers,
    tally: Tally,
    vlan_limit: VlanLimit,
    clock: StageClock,
    batch: BatchMemory,
    taps: Option<Box<Taps>>,
    commands: Vec<PmdCommand>,
    packet_outs: VecDeque<PacketOut>,
    /// Threads that wait until all queues are found empty.
    quiescing: Vec<Sender<()>>,
    /// Memory of a step: empty between two.
    deleted: Vec<FlowDeleted>,
    interval_ends_ms: u64,
    iterations_to_publish: u32,
}

impl Pmd {
    pub fn new(
        shared: Arc<PmdShared>,
        table: Arc<MegaflowTable>,
        side: PmdSide,
        walk: Walk,
        taps: Option<Box<Taps>>,
        config: &Config,
    ) -> Self {
        let clock = StageClock::new(Arc::clone(&shared), config.profile);
        Pmd {
            shared,
            table,
            side,
            walk,
            rxqs: Vec::new(),
            scheduler: RxqScheduler::default(),
            buffers: Buffers::new(),
            tally: Tally::default(),
            vlan_limit: config.vlan_limit,
            clock,
            batch: BatchMemory::new(config.batch),
            taps,
            commands: Vec::new(),
            packet_outs: VecDeque::new(),
            quiescing: Vec::new(),
            deleted: Vec::new(),
            interval_ends_ms: 0,
            iterations_to_publish: 0,
        }
    }

    /// One iteration of the loop. Returns how many packets the fullest queue gave.
    #[inline]
    pub fn run_once(&mut self, now_ms: u64) -> usize {
        self.iterate::<false>(now_ms)
    }

    /// One iteration over the queues that may have packets, as [`QueueWait`] says.
    pub fn run_ready(&mut self, now_ms: u64) -> usize {
        self.iterate::<true>(now_ms)
    }

    /// Takes all packets that its queues have to their ends, unless they never end.
    pub fn run_until_idle(&mut self, now_ms: u64) {
        self.wake();
        let _ = (0..IDLE_WITHIN).find(|_| self.run_once(now_ms) == 0);
        self.answer_quiescing();
        self.publish();
    }

    #[inline(always)]
    fn iterate<const ONLY_READY: bool>(&mut self, now_ms: u64) -> usize {
        self.service_commands();
        self.read_notices();
        let began = self.clock.began;
        let shared = self.shared.perf.is_on().then(|| Arc::clone(&self.shared));
        let mut perf = shared.as_ref().and_then(|shared| shared.perf.iteration());
        let fullest = self.poll_all::<ONLY_READY>(now_ms, perf.as_deref_mut());
        self.shared.progress.enter(Activity::Idle);
        debug_assert_eq!(self.tally.conserved(), Ok(()), "in one iteration of PMD {}", self.shared.pmd);
        debug_assert!(self.rxqs.iter().all(|rxq| rxq.tally.conserved().is_ok()), "PMD {}, by queue", self.shared.pmd);
        // A busy iteration ends with the last read of the clock; what follows counts for the next one.
        if fullest == 0 {
            self.clock.began = tsc::now();
        }
        let cycles = self.clock.began.saturating_sub(began);
        let (iterations, spent) = match fullest {
            0 => (Counter::IdleIterations, Counter::IdleCycles),
            _ => (Counter::BusyIterations, Counter::BusyCycles),
        };
        self.tally[iterations] += 1;
        self.tally[spent] += cycles;
        self.shared.cycles.add(cycles);
        if let Some(perf) = &mut perf {
            perf.end_iteration(now_ms, cycles);
        }
        if fullest != 0 {
            self.shared.busy_cycles.add(cycles);
        }
        if now_ms >= self.interval_ends_ms {
            self.end_interval(now_ms);
        }
        if self.iterations_to_publish == 0 || fullest == 0 {
            self.publish();
            if !self.quiescing.is_empty() {
                self.answer_quiescing();
            }
        } else {
            self.iterations_to_publish -= 1;
        }
        fullest
    }

    /// Polls every queue, or those that may have packets, and takes the packets to their ends, under one guard.
    #[inline(always)]
    fn poll_all<const ONLY_READY: bool>(&mut self, now_ms: u64, mut perf: Option<&mut PerfMetrics>) -> usize {
        let Pmd { walk, table, side, buffers, tally, clock, rxqs, scheduler, batch, packet_outs, taps, .. } = self;
        let guard = side.reader.pin();
        let (flows, counters, vlan_limit) = (table.read(&guard), &side.counters, self.vlan_limit);
        let taps = taps.as_deref_mut();
        let mut context = Context { flows, table, counters, buffers, tally, now_ms, clock, taps, vlan_limit };
        let mut batch = batch.batch();
        if !packet_outs.is_empty() {
            walk.send_own(packet_outs, &mut batch, &mut context);
        }
        let is_sending = !packet_outs.is_empty();
        walk.release_expired(&mut batch, &mut context);
        // Those of the switch's own that wait; a queue's are with the queue.
        let mut fullest = 0;
        if !walk.executor.deferred.is_empty() {
            fullest = walk.retry_misses(&mut batch, &mut context);
            walk.executor.end_burst(&mut context);
        }
        scheduler.begin_round(rxqs.iter().map(|rxq| &rxq.deficit));
        let mut has_given = false;
        for late in [false, true] {
            if late && (has_given || !rxqs.iter().any(|rxq| scheduler.is_ahead(&rxq.deficit))) {
                break;
            }
            for rxq in rxqs.iter_mut().filter(|rxq| scheduler.is_ahead(&rxq.deficit) == late) {
                if ONLY_READY && !rxq.wait.is_ready() {
                    continue;
                }
                let mark = perf.is_some().then(|| QueueMark::of(&rxq.tally));
                let n = rxq.serve(walk, scheduler, &mut batch, &mut context);
                if let Some((perf, mark)) = perf.as_deref_mut().zip(mark) {
                    mark.note(rxq, perf);
                }
                if ONLY_READY {
                    rxq.wait = rxq.wait.after(n);
                }
                fullest = fullest.max(n);
                has_given |= n != 0;
            }
        }
        walk.executor.tx.end_iteration(fullest == BATCH_MAX, context.buffers, context.tally);
        walk.upcalls.end_iteration(|| !walk.executor.deferred.is_empty() || rxqs.iter().any(Rxq::has_deferred));
        walk.levels.maintain(&context);
        // Packets of the switch's own that are left are work, as received ones are.
        fullest.max(usize::from(is_sending))
    }

    /// Its queues.
    pub fn rxqs_mut(&mut self) -> &mut [Rxq] {
        &mut self.rxqs
    }

    /// Answers the threads that wait for the queues to be empty. If the queues stay full for too long, it answers, too.
    #[cold]
    fn answer_quiescing(&mut self) {
        self.quiescing.drain(..).for_each(|waiting| _ = waiting.send(()));
    }

    /// Counts cycles from now, after the PMD has slept or rested.
    pub fn wake(&mut self) {
        self.clock.began = tsc::now();
    }

    /// Forgets what each queue was charged: the next iteration polls all of them, in their order.
    pub fn reset_deficits(&mut self) {
        self.rxqs.iter_mut().for_each(|rxq| rxq.deficit = Deficit::default());
    }

    /// Counts cycles of sleep.
    pub fn count_sleep(&mut self, cycles: u64) {
        self.tally[Counter::SleepIterations] += 1;
        self.tally[Counter::SleepCycles] += cycles;
        self.clock.slept += cycles;
    }

    /// Whether it has no megaflow and no fragment, so that nothing ends without a packet or a command.
    pub fn holds_nothing(&self) -> bool {
        let no_flows = self.walk.levels.subtables().flows() == 0 && self.side.notices.is_empty();
        no_flows && !self.walk.holds_fragments()
    }

    /// Whether no queue will ever give a packet again.
    pub fn is_exhausted(&self) -> bool {
        self.rxqs.iter().all(Rxq::is_exhausted)
    }

    /// Whether a descriptor tells of packets on each queue that may still give some. False without such queues.
    pub fn can_be_woken(&self) -> bool {
        let tells = |rxq: &Rxq| rxq.queue.readiness().is_some();
        self.rxqs.iter().any(tells) && self.rxqs.iter().all(|rxq| tells(rxq) || rxq.queue.exhausted())
    }

    /// Whether there is a queue to poll.
    pub fn has_rxqs(&self) -> bool {
        !self.rxqs.is_empty()
    }

    /// Publishes the counters and gauges.
    pub fn publish(&mut self) {
        self.iterations_to_publish = PUBLISH_EVERY;
        self.walk.executor.tracking.conn_cache.sweep();
        self.walk.composer.sweep();
        self.rxqs.iter_mut().for_each(|rxq| rxq.publish(&mut self.tally));
        self.shared.stats.publish(&mut self.tally);
        let (emc, subtables) = (self.walk.levels.emc_usage(), self.walk.levels.subtables());
        let gauges = &self.shared.gauges;
        gauges.emc_used.store(emc.used, Relaxed);
        gauges.emc_entries.store(emc.entries, Relaxed);
        gauges.subtables.store(subtables.subtables(), Relaxed);
        gauges.stage_cycles.iter().zip(self.clock.cycles).for_each(|(shown, cycles)| shown.store(cycles, Relaxed));
        gauges.megaflows.store(subtables.flows(), Relaxed);
    }

    /// Returns cached buffers to their pools, before the PMD rests. Packets that wait for the tables are dropped.
    pub fn rest(&mut self) {
        self.rxqs.iter_mut().for_each(|rxq| rxq.drop_misses(&mut self.walk, &mut self.buffers));
        self.drop_own_misses();
        self.walk.upcalls.end_iteration(|| false);
        self.send_kept();
        self.buffers.flush();
        self.publish();
    }

    /// Sends the packets that transmit queues keep.
    fn send_kept(&mut self) {
        self.walk.executor.tx.end_iteration(false, &mut self.buffers, &mut self.tally);
    }

    #[inline]
    fn read_notices(&mut self) {
        if self.side.notices.has_messages() {
            self.forget_deleted();
        }
    }

    /// Takes some megaflows that were deleted out of the indexes.
    #[cold]
    fn forget_deleted(&mut self) {
        // The others stay where they count against their bound.
        self.side.notices.take(DELETED_AT_ONCE, &mut self.deleted);
        if !self.deleted.is_empty() {
            let began = tsc::now();
            let guard = self.side.reader.pin();
            self.walk.levels.forget(&self.deleted, self.table.read(&guard), &self.side.counters);
            let each = tsc::now().saturating_sub(began) / self.deleted.len() as u64;
            self.walk.upcalls.misses.note_removal(each);
            self.deleted.clear();
        }
    }

    /// Runs the commands of control threads.
    #[inline]
    pub fn service_commands(&mut self) {
        if self.shared.has_commands() {
            self.run_commands();
        }
    }

    /// Drops the switch's own packets that wait for the tables: their buffers may be of a port that goes.
    fn drop_own_misses(&mut self) {
        let mut own = std::mem::take(&mut self.walk.executor.deferred);
        self.walk.drop_misses(&mut own, &mut self.buffers, &mut self.tally);
    }

    #[cold]
    fn end_interval(&mut self, now_ms: u64) {
        if self.interval_ends_ms != 0 {
            self.shared.cycles.end_interval();
            self.shared.busy_cycles.end_interval();
            self.rxqs.iter().for_each(|rxq| rxq.load.load.end_interval());
        }
        self.interval_ends_ms = now_ms + INTERVAL_MS;
    }
}

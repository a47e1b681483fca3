//! A receive queue that is polled, with its tuner, its deficit, its miss bucket, and the fates of its packets.

use crate::batch::Batch;
use crate::context::Context;
use crate::deferred::DeferredUpcalls;
use crate::load::RxqLoad;
use crate::misses::MissBucket;
use crate::policing;
use crate::progress::Activity;
use crate::rxq_scheduler::{Deficit, RxqScheduler, Served};
use crate::stage_cycles::Stage;
use crate::tuner::{Mark, Tuner};
use crate::walk::Walk;
use sluice_fate::{Counter, DropReason, Tally};
use sluice_flow::Metadata;
use sluice_packet::{BATCH_MAX, Buffers, VlanLimit};
use sluice_policer::IngressPolicer;
use sluice_port::RxQueue;
use sluice_simd::tsc;
use std::sync::Arc;

/// A receive queue that is polled.
pub(crate) struct Rxq {
    pub queue: Box<dyn RxQueue>,
    pub load: Arc<RxqLoad>,
    port: Metadata,
    pub tuner: Tuner,
    pub deficit: Deficit,
    misses: MissBucket,
    /// Its packets that wait for the tables.
    deferred: Box<DeferredUpcalls>,
    /// What decides how much it may receive, if that is limited.
    pub policer: Option<Arc<IngressPolicer>>,
    /// What the main worker knows of it; a PMD polls it in any case.
    pub wait: QueueWait,
    /// The fates of its packets since the last publication.
    pub tally: Tally,
}

/// What the main worker knows of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueWait {
    /// It gave packets when it was last polled, or is new.
    Ready,
    /// poll(2) says that it has packets.
    Woken,
    /// It had none.
    Empty,
    /// It had none although poll(2) said so.
    Muted {
        /// When it is asked about again, milliseconds of the real clock.
        until_ms: u64,
    },
}

impl Rxq {
    pub fn new(queue: Box<dyn RxQueue>, load: Arc<RxqLoad>, tuner: Tuner, vlan_limit: VlanLimit) -> Self {
        let port = Metadata::of_port(load.port.0).with_vlan_limit(vlan_limit);
        let (deficit, misses, tally) = (Deficit::default(), MissBucket::default(), Tally::default());
        Rxq {
            queue,
            load,
            port,
            tuner,
            deficit,
            misses,
            deferred: Box::default(),
            policer: None,
            wait: QueueWait::Ready,
            tally,
        }
    }

    /// Sets how many VLAN tags of its packets are read from now on.
    pub fn set_vlan_limit(&mut self, vlan_limit: VlanLimit) {
        self.port = self.port.with_vlan_limit(vlan_limit);
    }

    /// Polls it and takes the packets to their ends, and lets those ask again that waited for the tables. Returns how
    /// many packets the fullest burst had.
    #[inline(always)]
    pub fn serve<'g>(
        &mut self,
        walk: &mut Walk,
        scheduler: &RxqScheduler,
        batch: &mut Batch<'_, 'g>,
        context: &mut Context<'_, 'g>,
    ) -> usize {
        walk.upcalls.misses.begin_quantum();
        let (mut fullest, mut waits) = (0, !self.deferred.is_empty());
        // How many may be received depends on whether the tables are still locked, which only asking tells.
        if waits && self.deferred.is_blocked() {
            fullest = self.retry_misses(walk, scheduler, batch, context);
            waits = false;
        }
        let room = self.deferred.room(batch.limit());
        if room != 0 {
            fullest = fullest.max(self.receive(room, walk, scheduler, batch, context));
        }
        if waits && !walk.upcalls.misses.quantum_is_used_up() {
            fullest = fullest.max(self.retry_misses(walk, scheduler, batch, context));
        }
        walk.upcalls.misses.end_quantum();
        fullest
    }

    /// Polls it for up to `room` packets and takes these to their ends, again while its quantum lasts. Returns how many
    /// packets the fullest burst had.
    #[inline(always)]
    fn receive<'g>(
        &mut self,
        room: usize,
        walk: &mut Walk,
        scheduler: &RxqScheduler,
        batch: &mut Batch<'_, 'g>,
        context: &mut Context<'_, 'g>,
    ) -> usize {
        let (mut fullest, mut quantum) = (0, scheduler.quantum(&self.deficit));
        batch.packets.limit(room);
        self.deferred.note_poll();
        loop {
            context.clock.progress().poll(self.load.port);
            context.clock.start();
            let received = self.tally[Counter::Received];
            self.queue.poll(batch.packets, context.buffers, &mut self.tally);
            if let Some(policer) = &self.policer {
                policing::receive(policer, batch.packets, context.buffers, &mut self.tally);
            }
            let n = batch.packets.len();
            debug_assert!(n <= room, "{n} packets of a poll for {room}");
            if n == 0 {
                if self.tally[Counter::Received] == received {
                    scheduler.note_empty(&mut self.deficit);
                } else {
                    self.charge_drops(scheduler, context);
                }
                return fullest;
            }
            context.clock.mark(Stage::Rx);
            walk.upcalls.misses.begin(&mut self.misses, context.clock.began, scheduler.is_contended(&self.deficit));
            let (full, asked) = (self.tally.dropped(DropReason::TxFull), self.tally[Counter::Upcalls]);
            let tells_cost = !self.tuner.is_trial();
            let cycles = self.process(walk, batch, context);
            walk.upcalls.misses.end(&mut self.misses);
            let asked = self.tally[Counter::Upcalls] != asked;
            scheduler.charge(&mut self.deficit, &Served { packets: n, cycles, asked, tells_cost });
            fullest = fullest.max(n);
            quantum = quantum.saturating_sub(cycles);
            // A full transmit ring ends the quantum: further bursts would be dropped, too. Other queues are polled meanwhile,
            // among them those of the guest that has to drain the ring.
            let finds_room = self.tally.dropped(DropReason::TxFull) == full;
            if quantum == 0 || n < BATCH_MAX || !finds_room || !self.deferred.is_empty() {
                return fullest;
            }
        }
    }

    /// Lets packets that wait for the tables ask again, and charges the queue for them. Returns how many did.
    #[cold]
    fn retry_misses<'g>(
        &mut self,
        walk: &mut Walk,
        scheduler: &RxqScheduler,
        batch: &mut Batch<'_, 'g>,
        context: &mut Context<'_, 'g>,
    ) -> usize {
        context.clock.progress().poll(self.load.port);
        context.clock.start();
        walk.upcalls.misses.begin(&mut self.misses, context.clock.began, scheduler.is_contended(&self.deficit));
        std::mem::swap(&mut self.deferred, &mut walk.executor.deferred);
        let mut context = context.counting_into(&mut self.tally);
        let n = walk.retry_misses(batch, &mut context);
        walk.executor.end_burst(&mut context);
        std::mem::swap(&mut self.deferred, &mut walk.executor.deferred);
        walk.upcalls.misses.end(&mut self.misses);
        let now = tsc::now();
        let cycles = now.saturating_sub(context.clock.began);
        self.load.load.add(cycles);
        context.clock.began = now;
        // These packets counted when they were received.
        scheduler.charge(&mut self.deficit, &Served { packets: n, cycles, asked: true, tells_cost: false });
        n
    }

    /// Whether packets of it wait for the tables.
    #[inline]
    pub fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Whether it will never give a packet again, and none of its packets waits.
    pub fn is_exhausted(&self) -> bool {
        self.queue.exhausted() && self.deferred.is_empty()
    }

    /// Drops its packets that wait for the tables, since it goes.
    pub fn drop_misses(&mut self, walk: &mut Walk, buffers: &mut Buffers) {
        walk.drop_misses(&mut self.deferred, buffers, &mut self.tally);
    }

    /// Charges a poll that gave nothing but packets which the port dropped: these cost cycles, too.
    #[cold]
    fn charge_drops(&mut self, scheduler: &RxqScheduler, context: &mut Context<'_, '_>) {
        let now = tsc::now();
        let cycles = now.saturating_sub(context.clock.began);
        scheduler.charge(&mut self.deficit, &Served { packets: 0, cycles, asked: true, tells_cost: false });
        self.load.load.add(cycles);
        context.clock.began = now;
    }

    /// Publishes the fates of its packets, and adds them to the PMD's counters.
    #[inline]
    pub fn publish(&mut self, pmd: &mut Tally) {
        // Without a packet received or released there is nothing to publish.
        if self.tally[Counter::Received] + self.tally[Counter::Released] != 0 {
            pmd.add(&self.tally);
            self.load.fates.publish(&mut self.tally);
        }
    }

    /// Takes the packets just received to their ends. Returns the cycles that this took, polling included.
    #[inline(always)]
    fn process<'g>(&mut self, walk: &mut Walk, batch: &mut Batch<'_, 'g>, context: &mut Context<'_, 'g>) -> u64 {
        std::mem::swap(&mut self.deferred, &mut walk.executor.deferred);
        let mut context = context.counting_into(&mut self.tally);
        let n = batch.packets.len();
        context.tally[Counter::Received] += n as u64;
        walk.levels.use_arm(self.tuner.arm());
        let before = Mark::of(context.tally);
        walk.process(&self.port, batch, &mut context);
        context.clock.progress().enter(Activity::Tx);
        walk.executor.end_burst(&mut context);
        context.clock.mark(Stage::Tx);
        std::mem::swap(&mut self.deferred, &mut walk.executor.deferred);
        let now = tsc::now();
        let cycles = now.saturating_sub(context.clock.began);
        self.load.load.add(cycles);
        let burst = before.sample(n, cycles, context.tally, &walk.levels);
        self.tuner.record(&burst, now, context.clock.slept);
        context.clock.began = now;
        cycles
    }
}

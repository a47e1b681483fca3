//! A receive queue that is polled: who chooses its caches, what it has cost, what its misses may, and what became of its
//! packets.

use crate::load::RxqLoad;
use crate::misses::MissBucket;
use crate::rxq_scheduler::{Deficit, RxqScheduler};
use crate::stage_cycles::Stage;
use crate::tuner::{Mark, Tuner};
use crate::walk::{Context, Walk};
use sluice_fate::{Counter, Tally};
use sluice_flow::Metadata;
use sluice_packet::{BATCH_MAX, PacketBatch};
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
    /// What became of its packets since that was last published.
    pub tally: Tally,
}

impl Rxq {
    pub fn new(queue: Box<dyn RxQueue>, load: Arc<RxqLoad>, tuner: Tuner) -> Self {
        let port = Metadata::of_port(load.port.0);
        let (deficit, misses, tally) = (Deficit::default(), MissBucket::default(), Tally::default());
        Rxq { queue, load, port, tuner, deficit, misses, tally }
    }

    /// Polls it, and takes what comes to its end; again while its quantum lasts. Returns how many packets the fullest burst
    /// had. `mark` is as in [`Rxq::process`].
    #[inline]
    pub fn serve<'g>(
        &mut self,
        walk: &mut Walk,
        (burst, part): (&mut PacketBatch, &mut PacketBatch),
        (scheduler, batch_max): (&RxqScheduler, usize),
        mark: &mut u64,
        context: &mut Context<'_, 'g>,
    ) -> usize {
        let (mut fullest, mut quantum) = (0, scheduler.quantum(&self.deficit));
        loop {
            context.clock.start();
            self.queue.poll(burst, context.buffers, &mut self.tally);
            let n = burst.len();
            if n == 0 {
                scheduler.note_empty(&mut self.deficit);
                return fullest;
            }
            context.clock.mark(Stage::Rx);
            walk.misses.begin(&mut self.misses, *mark, scheduler.is_contended(&self.deficit));
            let cycles = self.process(walk, (burst, part), batch_max, mark, context);
            walk.misses.end(&mut self.misses);
            scheduler.charge(&mut self.deficit, n, cycles);
            fullest = fullest.max(n);
            quantum = quantum.saturating_sub(cycles);
            if quantum == 0 || n < BATCH_MAX {
                return fullest;
            }
        }
    }

    /// Shows everybody what became of its packets, and adds it to what the PMD has counted.
    #[inline]
    pub fn publish(&mut self, pmd: &mut Tally) {
        // Nothing is counted without a packet received.
        if self.tally[Counter::Received] != 0 {
            pmd.add(&self.tally);
            self.load.fates.publish(&mut self.tally);
        }
    }

    /// Takes the packets just received to their ends; what that cost. `mark` is when their time began, and then when it
    /// ended.
    #[inline]
    fn process<'g>(
        &mut self,
        walk: &mut Walk,
        (burst, part): (&mut PacketBatch, &mut PacketBatch),
        batch_max: usize,
        mark: &mut u64,
        context: &mut Context<'_, 'g>,
    ) -> u64 {
        let mut context = context.counting_into(&mut self.tally);
        let n = burst.len();
        context.tally[Counter::Received] += n as u64;
        walk.levels.use_arm(self.tuner.arm());
        let before = Mark::of(context.tally);
        if n <= batch_max {
            walk.process(burst, &self.port, &mut context);
        } else {
            while !burst.is_empty() {
                let n = burst.len().min(batch_max);
                part.extend(burst.drain(..n));
                walk.process(part, &self.port, &mut context);
            }
        }
        walk.executor.end_burst(&mut context);
        context.clock.mark(Stage::Tx);
        let now = tsc::now();
        let cycles = now.saturating_sub(*mark);
        self.load.load.add(cycles);
        self.tuner.record(n, (before, context.tally), &walk.levels, cycles, now);
        *mark = now;
        cycles
    }
}

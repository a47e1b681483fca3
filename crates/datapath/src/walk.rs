//! The walk of a packet, one call a stage.
//!
//! ```text
//! rx ─► parse ─► lookup: EMC, SMC, distributor, subtables ─miss─► upcall ─► act ─► tx
//!                  ▲                                                    │
//!                  └────────────────── recirculate ◄────────────────────┘
//! ```

use crate::act;
use crate::compose::Composer;
use crate::execute::Executor;
use crate::lookup::Levels;
use crate::misses::Misses;
use crate::parse;
use crate::recirc::Origin;
use crate::stage_cycles::{Stage, StageClock};
use crate::upcall;
use sluice_action::Upcall;
use sluice_conntrack::CachedConn;
use sluice_fate::{Counter, Tally};
use sluice_flow::{Metadata, PacketKey};
use sluice_flow_cache::{FlowCounters, Megaflow, MegaflowTable};
use sluice_packet::{BATCH_MAX, BatchMask, Buffers, PacketBatch};
use sluice_sync::Slots;

/// What the stages of one PMD keep between batches.
pub(crate) struct Walk {
    pub levels: Levels,
    pub composer: Composer,
    pub upcall: Box<dyn Upcall>,
    pub executor: Executor,
    pub misses: Misses,
    keys: Box<[PacketKey; BATCH_MAX]>,
    /// Those of packets just received, but while packets recirculate.
    origins: [Origin; BATCH_MAX],
    /// The connections of packets that recirculate; none of packets just received.
    carried: [CachedConn; BATCH_MAX],
    /// The most packets that go through the stages together.
    batch_max: usize,
}

/// What every stage works with: the records under this iteration's guard, buffers, tallies, and the time.
pub(crate) struct Context<'a, 'g> {
    pub flows: Slots<'g, Megaflow>,
    pub table: &'a MegaflowTable,
    pub counters: &'a FlowCounters,
    pub buffers: &'a mut Buffers,
    pub tally: &'a mut Tally,
    pub now_ms: u64,
    pub clock: &'a mut StageClock,
}

impl<'g> Context<'_, 'g> {
    /// The same, but what is counted goes into `tally`.
    #[inline]
    pub fn counting_into<'b>(&'b mut self, tally: &'b mut Tally) -> Context<'b, 'g> {
        Context {
            flows: self.flows,
            table: self.table,
            counters: self.counters,
            buffers: self.buffers,
            tally,
            now_ms: self.now_ms,
            clock: self.clock,
        }
    }
}

impl Walk {
    pub fn new(
        (levels, composer): (Levels, Composer),
        upcall: Box<dyn Upcall>,
        executor: Executor,
        misses: Misses,
        batch_max: usize,
    ) -> Self {
        let (keys, origins) = (Box::new([PacketKey::ZERO; BATCH_MAX]), received());
        Walk { levels, composer, upcall, executor, misses, keys, origins, carried: Default::default(), batch_max }
    }

    /// Takes packets just received by a port to their ends. The batch is empty afterwards.
    #[inline]
    pub fn process<'g>(&mut self, batch: &mut PacketBatch, port: &Metadata, context: &mut Context<'_, 'g>) {
        parse::parse(batch, port, &mut self.keys, self.levels.isa(), context);
        context.clock.mark(Stage::Parse);
        if self.pass(batch, false, context) {
            // They all came to the same `ct`, and stay together as long as they do so.
            while self.pass(batch, true, context) {}
            self.forget_passes();
        }
        self.finish_passes(batch, context);
    }

    /// Lets packets that recirculate take their further passes, and sends what was held for them.
    #[inline]
    pub fn finish_passes<'g>(&mut self, batch: &mut PacketBatch, context: &mut Context<'_, 'g>) {
        if self.executor.recirc.is_empty() && !self.executor.tx.is_holding() {
            return;
        }
        while !self.executor.recirc.is_empty() {
            let Walk { executor, keys, origins, carried, .. } = self;
            executor.recirc.take(self.batch_max, batch, keys, origins, carried);
            while self.pass(batch, true, context) {}
        }
        self.executor.tx.release(context.buffers, context.tally);
        self.forget_passes();
    }

    /// Lets the next packets be such that were just received.
    fn forget_passes(&mut self) {
        self.origins = received();
        self.carried = Default::default();
    }

    /// One pass of a batch whose keys are known. True if all its packets are to take another, as they are.
    #[inline]
    fn pass<'g>(&mut self, batch: &mut PacketBatch, recirculated: bool, context: &mut Context<'_, 'g>) -> bool {
        let Walk { levels, composer, upcall, executor, misses, keys, origins, carried, .. } = self;
        let mut hits = [None; BATCH_MAX];
        let n = batch.len();
        let known = match recirculated {
            false => composer.look(keys, n, (context.flows, levels.isa()), &mut hits),
            true => {
                levels.note_rss(batch);
                BatchMask::NONE
            }
        };
        for counter in [Counter::MegaflowHits, Counter::ComposedHits] {
            context.tally[counter] += known.len() as u64;
        }
        let miss = levels.lookup(keys, (n, known, recirculated), &mut hits, context);
        if recirculated {
            composer.arrive(&mut executor.recorder, (n, keys, origins), &hits);
        } else {
            let is_tracking = executor.conntrack.connections() != 0;
            composer.depart(&mut executor.recorder, (n, keys, origins), (known, is_tracking), &hits);
        }
        let again = if miss.is_empty() {
            let found = act::Batch { keys, origins, carried, hits: &hits, answers: None, known, composer };
            act::act(executor, &mut **upcall, batch, found, context)
        } else {
            let answers = upcall::ask_tables(&mut **upcall, (levels, misses), (batch, keys), miss, &mut hits, context);
            context.clock.mark(Stage::Upcall);
            let found = act::Batch { keys, origins, carried, hits: &hits, answers: Some(&answers), known, composer };
            act::act(executor, &mut **upcall, batch, found, context)
        };
        context.clock.mark(Stage::Act);
        again
    }
}

/// Where packets just received stem from.
fn received() -> [Origin; BATCH_MAX] {
    std::array::from_fn(|i| Origin { arrival: i as u32, ..Origin::default() })
}

//! The walk of a packet, one call a stage.
//!
//! ```text
//! rx ─► parse ─► lookup: EMC, SMC, distributor, subtables ─miss─► upcall ─► act ─► tx
//!                  ▲                                                    │
//!                  └────────────────── recirculate ◄────────────────────┘
//! ```

use crate::act::act;
use crate::action_context::ActionContext;
use crate::batch::{Batch, Origin};
use crate::command::PacketOut;
use crate::compose::Composer;
use crate::context::Context;
use crate::deferred::DeferredUpcalls;
use crate::execute::Executor;
use crate::first_index::{FirstIndex, HashKind};
use crate::lookup::Levels;
use crate::parse::parse;
use crate::progress::Activity;
use crate::stage_cycles::Stage;
use crate::upcall::Upcalls;
use sluice_conntrack::{CachedConn, invalid};
use sluice_fate::{Counter, DropReason, Tally};
use sluice_flow::{Metadata, extract_again};
use sluice_packet::{BATCH_MAX, Buffers};
use std::collections::VecDeque;

/// Packets of the switch's own that are sent between two polls of the queues at most.
const OWN_AT_ONCE: usize = 32;

/// The stages of one PMD, with what they keep between batches.
pub(crate) struct Walk {
    pub levels: Levels,
    pub composer: Composer,
    pub upcalls: Upcalls,
    pub executor: Executor,
}

impl Walk {
    /// Takes packets just received by a port to their ends. The batch is empty afterwards.
    #[inline]
    pub fn process<'g>(&mut self, port: &Metadata, batch: &mut Batch<'_, 'g>, context: &mut Context<'_, 'g>) {
        let first = FirstIndex::of(&self.composer, &self.levels);
        parse(port, self.levels.isa(), first, batch, context);
        context.clock.mark(Stage::Parse);
        batch.begin_received();
        if self.pass(batch, context) {
            self.further_passes(batch, context);
            batch.forget_passes();
        }
        self.finish_passes(batch, context);
    }

    /// Lets the first packets that wait for the tables repeat the pass in which they missed, and those behind them whose
    /// megaflow they install. Returns how many. The caller ends the burst.
    #[cold]
    pub fn retry_misses<'g>(&mut self, batch: &mut Batch<'_, 'g>, context: &mut Context<'_, 'g>) -> usize {
        let mut all = 0;
        self.executor.deferred.begin_retry(batch);
        loop {
            let n = batch.packets.len();
            all += n;
            context.tally[Counter::Released] += n as u64;
            self.composer.end_recordings();
            if self.pass(batch, context) {
                self.further_passes(batch, context);
            }
            self.finish_passes(batch, context);
            batch.forget_passes();
            let may_ask = all < BATCH_MAX && !self.upcalls.misses.quantum_is_used_up();
            if !self.executor.deferred.move_next(may_ask, batch) {
                break;
            }
        }
        self.executor.deferred.end_retry();
        all
    }

    /// Drops the packets that wait for the tables.
    pub fn drop_misses(&mut self, deferred: &mut DeferredUpcalls, buffers: &mut Buffers, tally: &mut Tally) {
        deferred.drop_all(buffers, tally);
    }

    /// Lets packets that recirculate take their further passes, and sends what was held for them.
    #[inline]
    pub fn finish_passes<'g>(&mut self, batch: &mut Batch<'_, 'g>, context: &mut Context<'_, 'g>) {
        if self.executor.recirc.is_empty() && !self.executor.tx.is_holding() {
            return;
        }
        while !self.executor.recirc.is_empty() {
            self.executor.recirc.take(batch);
            if self.pass(batch, context) {
                self.further_passes(batch, context);
            }
        }
        self.executor.tx.release(context);
        batch.forget_passes();
    }

    /// Lets packets that came to the same `ct` take their passes together, as long as they do so.
    fn further_passes<'g>(&mut self, batch: &mut Batch<'_, 'g>, context: &mut Context<'_, 'g>) {
        batch.begin_recirculated();
        while self.pass(batch, context) {}
    }

    /// One pass of a batch whose keys are known. True if all its packets are to take another, as they are.
    #[inline]
    fn pass<'g>(&mut self, batch: &mut Batch<'_, 'g>, context: &mut Context<'_, 'g>) -> bool {
        context.clock.progress().enter(Activity::Lookup);
        self.composer.find(batch, context);
        context.clock.mark(Stage::Composed);
        self.levels.lookup(batch, context);
        self.composer.record(batch, &self.executor.tracking, context);
        if !batch.missed.is_empty() {
            context.clock.progress().enter(Activity::Upcall);
            self.upcalls.ask_tables(&mut self.levels, &mut self.executor.deferred, batch, context);
            context.clock.mark(Stage::Upcall);
        }
        if !batch.composed.is_empty() {
            self.composer.replay(batch, context);
            context.clock.mark(Stage::Composed);
        }
        context.clock.progress().enter(Activity::Act);
        batch.hash_kind = HashKind::Stale;
        let again = act(self.levels.isa(), &mut self.executor, &mut self.composer, batch, context);
        context.clock.mark(Stage::Act);
        again
    }

    /// Sends packets that the switch made itself, the first of them.
    #[cold]
    pub fn send_own<'g>(
        &mut self,
        packets: &mut VecDeque<PacketOut>,
        batch: &mut Batch<'_, 'g>,
        context: &mut Context<'_, 'g>,
    ) {
        for out in packets.drain(..packets.len().min(OWN_AT_ONCE)) {
            self.execute(out, context);
            self.finish_passes(batch, context);
            self.executor.end_burst(context);
        }
    }

    fn execute(&mut self, out: PacketOut, context: &mut Context<'_, '_>) {
        context.tally[Counter::Originated] += 1;
        let packet = match context.buffers.write(&out.pool, &out.bytes) {
            Ok(packet) => packet,
            Err(reason) => return context.tally.drop(reason, 1),
        };
        let mut key = out.known;
        if let Err(error) = extract_again(packet.bytes(), context.vlan_limit, &mut key) {
            return context.discard(packet, error.into());
        }
        let (origin, conn) = (Origin::default(), CachedConn::default());
        let action_context = ActionContext::new(packet, &mut key, origin, conn, DropReason::Rules);
        self.executor.execute(&out.actions, action_context, context);
    }

    /// Lets fragments whose datagram did not become complete in time go on as invalid. To be called between two
    /// batches.
    #[inline]
    pub fn release_expired<'g>(&mut self, batch: &mut Batch<'_, 'g>, context: &mut Context<'_, 'g>) {
        if self.executor.tracking.reassembly.held.is_due(context.now_ms) {
            self.release_fragments(batch, context);
        }
    }

    /// Whether fragments are held that will expire.
    pub fn holds_fragments(&self) -> bool {
        self.executor.tracking.reassembly.held.is_due(u64::MAX - 1)
    }

    #[cold]
    fn release_fragments<'g>(&mut self, batch: &mut Batch<'_, 'g>, context: &mut Context<'_, 'g>) {
        let mut expired = self.executor.tracking.reassembly.take_expired(context.now_ms);
        for mut fragment in expired.drain(..) {
            context.tally[Counter::Released] += 1;
            context.tally[Counter::ConntrackInvalid] += 1;
            fragment.onward.conn.forget();
            invalid(&mut fragment.key, fragment.onward.zone);
            self.executor.resume(fragment, 0, context);
            self.finish_passes(batch, context);
        }
        self.executor.end_burst(context);
        self.executor.tracking.reassembly.recycle(expired);
    }
}

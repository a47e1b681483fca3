//! Fragments that meet a `ct`: held until their packet is whole, tracked as one, and let go on each with its own actions.

use crate::action_context::ActionContext;
use crate::execute::Executor;
use crate::recirc::Origin;
use crate::track;
use crate::tx::discard;
use crate::walk::{Context, Walk};
use sluice_action::{Action, Actions, Ct, PortNo};
use sluice_conntrack::fragments::{Fragments, HeldFragment, OfferResult, distribute, is_fragment, reassemble};
use sluice_conntrack::{CachedConn, Checksums, CtInput, CtPacket, invalid};
use sluice_fate::{Counter, DropReason, Tally};
use sluice_mem::FramePool;
use sluice_packet::{Buffers, Packet, PacketBatch};
use sluice_simd::hash::splitmix64;
use std::sync::Arc;

/// Lists of actions that fragments have gone on with lately, at most.
const RESTS_MAX: usize = 8;

/// What a fragment goes on with when it is let go.
#[derive(Debug)]
pub(crate) struct Onward {
    /// The actions behind the `ct`.
    rest: Actions,
    zone: u16,
    depth: u8,
    carried: CachedConn,
    no_output: DropReason,
    cut: usize,
}

/// The fragments that all PMDs hold, and what one needs to deal with them.
#[derive(Debug)]
pub(crate) struct Reassembly {
    pub held: Arc<Fragments<Onward>>,
    /// For packets put together: of the longest there are.
    scratch: Arc<dyn FramePool>,
    /// Lists of actions behind a `ct`, so that fragments that do the same share them.
    rests: Vec<Actions>,
    /// Where the next new one goes.
    next_rest: usize,
    /// Those that are let go.
    released: Vec<HeldFragment<Onward>>,
}

impl Reassembly {
    pub fn new(held: Arc<Fragments<Onward>>, scratch: Arc<dyn FramePool>) -> Self {
        Reassembly { held, scratch, rests: Vec::new(), next_rest: 0, released: Vec::new() }
    }

    /// The rest of a list, to be kept. Copied once, as packets meet few lists with a `ct`.
    fn keep(&mut self, rest: &[Action]) -> Actions {
        if let Some(kept) = self.rests.iter().find(|kept| kept[..] == *rest) {
            return kept.clone();
        }
        let kept: Actions = rest.into();
        if self.rests.len() < RESTS_MAX {
            self.rests.push(kept.clone());
        } else {
            self.rests[self.next_rest] = kept.clone();
            self.next_rest = (self.next_rest + 1) % RESTS_MAX;
        }
        kept
    }

    /// Drops the fragments that came from a port, whose buffers are to go away with it.
    pub fn purge(&mut self, port: PortNo, buffers: &mut Buffers, tally: &mut Tally) {
        self.held.take_of_port(port.0, &mut self.released);
        for part in self.released.drain(..) {
            buffers.add_pool(&part.pool);
            tally[Counter::Released] += 1;
            discard(part.packet, DropReason::FragmentPurged, buffers, tally);
        }
    }
}

impl Executor {
    /// Lets a packet meet a `ct` with `rest` behind it, if it is a fragment: it is held, or goes on with all of its packet.
    /// Given back if it is no fragment, or one that can have no connection.
    pub(crate) fn gather<'k>(
        &mut self,
        ct: &Ct,
        rest: &[Action],
        mut action_context: ActionContext<'k>,
        context: &mut Context<'_, '_>,
    ) -> Option<ActionContext<'k>> {
        if action_context.renew_key().is_err() || !is_fragment(action_context.key) {
            return Some(action_context);
        }
        // As for copies: what only a pool's reserve is left of is for receiving.
        let pool = action_context.packet.frame.pool();
        let Some(pool) = context.buffers.pool(pool).filter(|_| !context.buffers.has_only_reserve(pool)).cloned() else {
            return Some(action_context);
        };
        let ActionContext { packet, key, origin, carried, no_output, cut, .. } = action_context;
        let rest = self.reassembly.keep(rest);
        let onward = Onward { rest, zone: ct.zone, depth: origin.depth, carried, no_output, cut };
        let mut part = Some(HeldFragment::new(packet, *key, pool, onward));
        let mut whole = std::mem::take(&mut self.reassembly.released);
        match self.reassembly.held.offer(&mut part, ct.zone, context.now_ms, &mut whole) {
            OfferResult::Held => context.tally[Counter::Held] += 1,
            OfferResult::Refused => {
                self.reassembly.released = whole;
                let HeldFragment { packet, .. } = part.expect("invariant: what is refused is not taken");
                return Some(ActionContext { packet, key, origin, carried, no_output, cut, is_dirty: false });
            }
            OfferResult::Complete => {
                context.tally[Counter::Released] += whole.len() as u64 - 1;
                self.track_whole(ct, &mut whole, context);
                whole.drain(..).for_each(|part| self.go_on(part, origin.arrival, context));
            }
        }
        self.reassembly.released = whole;
        None
    }

    /// Tracks the packet that the fragments make, and tells them what was found.
    fn track_whole(&mut self, ct: &Ct, parts: &mut [HeldFragment<Onward>], context: &mut Context<'_, '_>) {
        let entropy = splitmix64(&mut self.random);
        let frame = context.buffers.take(&self.reassembly.scratch);
        let Some(mut frame) = frame else { return parts.iter_mut().for_each(|part| invalid(&mut part.key, ct.zone)) };
        let mut told = false;
        if reassemble(parts, &mut frame) {
            let mut packet = Packet::new(frame);
            let (mut key, mut carried) = (parts[0].key, parts[0].onward.carried);
            key.set(sluice_flow::layout::NW_FRAG, &[0]);
            let moment = CtInput { now_ms: context.now_ms, entropy, checksums: Checksums::Unknown };
            let to_track = CtPacket { packet: &mut packet, key: &mut key, cached: &mut carried };
            let outcome = self.conntrack.execute(&mut self.recent, to_track, ct, &moment);
            track::count(outcome, context.tally);
            told = distribute(packet.bytes(), &key, parts);
            parts.iter_mut().for_each(|part| part.onward.carried = carried);
            frame = packet.frame;
        }
        if !told {
            parts.iter_mut().for_each(|part| invalid(&mut part.key, ct.zone));
        }
        context.buffers.give_frame(frame);
    }

    /// Lets a fragment take the actions behind its `ct`, as if it had come with the packet of that number.
    fn go_on(&mut self, mut part: HeldFragment<Onward>, arrival: u32, context: &mut Context<'_, '_>) {
        context.buffers.add_pool(&part.pool);
        let Onward { rest, depth, carried, no_output, cut, .. } = part.onward;
        let (origin, key) = (Origin { arrival, depth, ..Origin::default() }, &mut part.key);
        let action_context = ActionContext::new(part.packet, key, origin, carried, no_output);
        self.execute(&rest, ActionContext { cut, ..action_context }, context);
    }
}

impl Walk {
    /// Lets fragments whose rest has not come go on as invalid. To be called between two batches.
    #[inline]
    pub fn let_expired_go<'g>(&mut self, batch: &mut PacketBatch, context: &mut Context<'_, 'g>) {
        if self.executor.reassembly.held.is_due(context.now_ms) {
            self.let_go(batch, context);
        }
    }

    #[cold]
    fn let_go<'g>(&mut self, batch: &mut PacketBatch, context: &mut Context<'_, 'g>) {
        let mut expired = std::mem::take(&mut self.executor.reassembly.released);
        self.executor.reassembly.held.take_expired(context.now_ms, &mut expired);
        for mut part in expired.drain(..) {
            context.tally[Counter::Released] += 1;
            context.tally[Counter::ConntrackInvalid] += 1;
            part.onward.carried.forget();
            invalid(&mut part.key, part.onward.zone);
            self.executor.go_on(part, 0, context);
            self.finish_passes(batch, context);
        }
        self.executor.end_burst(context);
        self.executor.reassembly.released = expired;
    }
}

//! Connection tracking: the actions `ct` and `ct_clear`, on one packet or on a whole batch.

use crate::action_context::ActionContext;
use crate::batch::Batch;
use crate::context::Context;
use crate::execute::ActionsBehind;
use crate::reassembly::{Onward, Reassembly};
use arrayvec::ArrayVec;
use sluice_action::{Action, Ct, Header, MaskedField};
use sluice_conntrack::fragments::{HeldFragment, OfferResult, distribute, is_fragment, reassemble};
use sluice_conntrack::{
    Checksums, CommitError, ConnCache, Conntrack, CtInput, CtOutcome, CtPacket, LookupRef, clear, invalid,
};
use sluice_fate::{Counter, DropReason, Tally};
use sluice_flow::layout;
use sluice_flow_cache::Hits;
use sluice_packet::{BATCH_MAX, Packet};
use sluice_simd::Isa;
use sluice_simd::hash::splitmix64;
use std::sync::Arc;

/// What a PMD tracks connections with.
pub(crate) struct Tracking {
    pub conntrack: Arc<Conntrack>,
    /// Connections that this PMD met lately.
    pub conn_cache: ConnCache,
    pub reassembly: Reassembly,
    /// What checksums are computed by.
    pub isa: Isa,
    /// The state of its random numbers.
    pub random: u64,
}

/// What became of a packet that met a `ct`, if it was a fragment.
pub(crate) enum Gathered<'k> {
    /// It is no fragment, or one that can have no connection: it goes on alone.
    Alone(ActionContext<'k>),
    /// It is held until its datagram is complete.
    Held,
    /// Its datagram is complete and tracked: these fragments go on, it among them.
    Complete(Vec<HeldFragment<Onward>>),
}

impl Tracking {
    fn input(&mut self, now_ms: u64) -> CtInput {
        CtInput { now_ms, entropy: splitmix64(&mut self.random), checksums: Checksums::Unknown(self.isa) }
    }

    /// Finds the packet's connection, or makes it; writes its state into the key and translates the packet.
    pub fn track(
        &mut self,
        ct: &Ct,
        action_context: &mut ActionContext<'_>,
        context: &mut Context<'_, '_>,
    ) -> Result<(), DropReason> {
        let input = self.input(context.now_ms);
        action_context.renew_key(context.vlan_limit)?;
        let ActionContext { packet, key, conn, .. } = action_context;
        let packet = CtPacket { packet, key, cached: conn };
        count_outcome(self.conntrack.execute(&mut self.conn_cache, packet, ct, &input), context.tally);
        Ok(())
    }

    /// Tracks a whole batch in place, if every packet is to be tracked and recirculated and nothing else: packets and
    /// keys stay where they are for the next pass. Each step is done for all packets, so that memory answers meanwhile.
    /// Otherwise nothing is done, and it returns false.
    #[inline]
    pub fn track_batch(&mut self, batch: &mut Batch<'_, '_>, context: &mut Context<'_, '_>) -> bool {
        let n = batch.packets.len();
        // Fragments may have to wait.
        let has_fragment = batch.keys[..n].iter().any(is_fragment);
        if has_fragment {
            return false;
        }
        // As many as there are packets: an array of all that a batch may have would be the same work for a lone packet.
        let mut requests: ArrayVec<_, BATCH_MAX> = ArrayVec::new();
        for i in 0..n {
            let Some(request) = track_and_recirculate(&batch.hits, i) else { return false };
            requests.push(request);
        }
        let mut lookups = [LookupRef::NONE; BATCH_MAX];
        let packets = batch.packets.iter().zip(batch.keys.iter());
        for ((lookup, (packet, key)), (ct, _)) in lookups.iter_mut().zip(packets).zip(&requests) {
            *lookup = self.conntrack.extract(&self.conn_cache, packet, key, ct.zone, Checksums::Unknown(self.isa));
        }
        for lookup in &lookups[..n] {
            self.conntrack.prefetch(&self.conn_cache, lookup);
        }
        for (i, (packet, (ct, recirc_id))) in batch.packets.iter_mut().zip(&requests).enumerate() {
            let input = self.input(context.now_ms);
            let key = &mut batch.keys[i];
            let packet = CtPacket { packet, key, cached: &mut batch.conns[i] };
            let outcome = self.conntrack.execute_extracted(&mut self.conn_cache, &lookups[i], packet, ct, &input);
            count_outcome(outcome, context.tally);
            batch.keys[i].set(layout::RECIRC_ID, &recirc_id.to_be_bytes());
            batch.origins[i].depth += 1;
        }
        true
    }

    /// Holds a packet that meets a `ct` with `rest` behind it, if it is a fragment, until its datagram is complete.
    pub fn gather<'k>(
        &mut self,
        ct: &Ct,
        rest: ActionsBehind<'_>,
        mut action_context: ActionContext<'k>,
        context: &mut Context<'_, '_>,
    ) -> Gathered<'k> {
        if action_context.renew_key(context.vlan_limit).is_err() || !is_fragment(action_context.key) {
            return Gathered::Alone(action_context);
        }
        // Hold nothing once only the receive reserve is left.
        let pool = action_context.packet.frame.pool();
        let Some(pool) = context.buffers.pool(pool).filter(|_| !context.buffers.has_only_reserve(pool)).cloned() else {
            return Gathered::Alone(action_context);
        };
        let ActionContext { packet, key, origin, conn, no_output, cut, pushed_tags, .. } = action_context;
        let (ActionsBehind { list, from }, zone, depth) = (rest, ct.zone, origin.depth);
        let onward = Onward { list: list.clone(), from, zone, depth, conn, no_output, cut, pushed_tags };
        let mut fragment = Some(HeldFragment::new(packet, *key, pool, onward));
        let mut fragments = self.reassembly.memory();
        match self.reassembly.held.offer(&mut fragment, ct.zone, context.now_ms, &mut fragments) {
            OfferResult::Held => {
                context.tally[Counter::Held] += 1;
                self.reassembly.recycle(fragments);
                Gathered::Held
            }
            OfferResult::Refused => {
                self.reassembly.recycle(fragments);
                let HeldFragment { packet, .. } = fragment.expect("invariant: a refused fragment is not taken");
                Gathered::Alone(ActionContext {
                    packet,
                    key,
                    origin,
                    conn,
                    no_output,
                    cut,
                    pushed_tags,
                    is_dirty: false,
                })
            }
            OfferResult::Complete => {
                context.tally[Counter::Released] += fragments.len() as u64 - 1;
                self.track_datagram(ct, &mut fragments, context);
                Gathered::Complete(fragments)
            }
        }
    }

    /// Tracks the datagram that the fragments make, and writes the result into their keys.
    fn track_datagram(&mut self, ct: &Ct, fragments: &mut [HeldFragment<Onward>], context: &mut Context<'_, '_>) {
        let input = self.input(context.now_ms);
        let mut is_tracked = false;
        if let Some(mut frame) = context.buffers.take(self.reassembly.scratch()) {
            if reassemble(fragments, &mut frame) {
                let mut packet = Packet::new(frame);
                let (mut key, mut conn) = (fragments[0].key, fragments[0].onward.conn);
                key.set(layout::NW_FRAG, &[0]);
                let datagram = CtPacket { packet: &mut packet, key: &mut key, cached: &mut conn };
                count_outcome(self.conntrack.execute(&mut self.conn_cache, datagram, ct, &input), context.tally);
                is_tracked = distribute(packet.bytes(), &key, fragments);
                fragments.iter_mut().for_each(|fragment| fragment.onward.conn = conn);
                frame = packet.frame;
            }
            context.buffers.give_frame(frame);
        }
        if !is_tracked {
            fragments.iter_mut().for_each(|fragment| invalid(&mut fragment.key, ct.zone));
        }
    }
}

/// The `ct` of a packet's megaflow and the id to recirculate under, if these are all that the megaflow does.
fn track_and_recirculate<'g>(hits: &Hits<'g>, i: usize) -> Option<(&'g Ct, u32)> {
    match &hits[i]?.actions()[..] {
        [Action::Ct(ct), Action::Recirc(id)] => Some((ct, *id)),
        _ => None,
    }
}

/// Counts what became of a packet that was tracked.
pub(crate) fn count_outcome(outcome: CtOutcome, tally: &mut Tally) {
    let counter = match outcome {
        CtOutcome::Tracked => return,
        CtOutcome::Committed => Counter::ConntrackCommits,
        CtOutcome::Invalid => Counter::ConntrackInvalid,
        CtOutcome::NotCommitted(CommitError::ZoneLimit) => Counter::ConntrackZoneLimit,
        CtOutcome::NotCommitted(CommitError::TableFull) => Counter::ConntrackTableFull,
        CtOutcome::NotCommitted(CommitError::NatExhausted) => Counter::ConntrackNatExhausted,
    };
    tally[counter] += 1;
}

/// The action `ct_clear`: forgets the connection and its state.
pub(crate) fn forget(action_context: &mut ActionContext<'_>) {
    action_context.conn.forget();
    if action_context.key.get(layout::CT_STATE) != [0] {
        clear(action_context.key);
    }
}

/// Whether a set action changes what names a connection. Source: OVS lib/packets.c, pkt_metadata_init_conn().
pub(crate) fn renames(header: Header, fields: &[MaskedField]) -> bool {
    use layout::{IPV6_DST, IPV6_SRC, NW_DST, NW_SRC};
    match header {
        Header::Ipv4 | Header::Ipv6 => {
            fields.iter().any(|field| [NW_SRC, NW_DST, IPV6_SRC, IPV6_DST].contains(&field.span))
        }
        Header::Tcp | Header::Udp | Header::Sctp => true,
        _ => false,
    }
}

//! The actions `ct` and `ct_clear`, on one packet.

use crate::act::Batch;
use crate::action_context::ActionContext;
use crate::compose::PathRecorder;
use crate::execute::Executor;
use crate::walk::Context;
use sluice_action::{Action, Ct, Header, MaskedField};
use sluice_conntrack::fragments::is_fragment;
use sluice_conntrack::{Checksums, CommitError, ConnCache, Conntrack, CtInput, CtOutcome, CtPacket, LookupRef, clear};
use sluice_fate::{Counter, DropReason, Tally};
use sluice_flow::layout;
use sluice_flow_cache::Hits;
use sluice_packet::{BATCH_MAX, PacketBatch};
use sluice_simd::hash::splitmix64;

/// Finds the packet's connection, or makes it; writes its state into the key and translates the packet.
pub(crate) fn track(
    conntrack: &Conntrack,
    (recent, recorder): (&mut ConnCache, &mut PathRecorder),
    ct: &Ct,
    entropy: u64,
    action_context: &mut ActionContext<'_>,
    context: &mut Context<'_, '_>,
) -> Result<(), DropReason> {
    action_context.renew_key()?;
    let moment = CtInput { now_ms: context.now_ms, entropy, checksums: Checksums::Unknown };
    let ActionContext { packet, key, carried, origin, .. } = action_context;
    let to_track = CtPacket { packet, key, cached: carried };
    count(conntrack.execute(recent, to_track, ct, &moment), context.tally);
    if recorder.has(origin.recording) {
        recorder.track(origin.recording, conntrack.conn_ref(recent, packet, key, ct, context.now_ms));
    }
    Ok(())
}

/// The `ct` of a packet's megaflow and the id to recirculate under, if these are all that the megaflow does.
fn track_and_recirculate<'g>(hits: &Hits<'g>, i: usize) -> Option<(&'g Ct, u32)> {
    match &hits[i]?.actions()[..] {
        [Action::Ct(ct), Action::Recirc(id)] => Some((ct, *id)),
        _ => None,
    }
}

/// Tracks a whole batch in place: when every packet is to be tracked and to recirculate, and nothing else, packets and
/// keys stay where they are for the next pass. Each step is done for all packets, so that memory answers meanwhile.
/// False, and nothing is done, if the batch is not so.
#[inline]
pub(crate) fn track_batch(
    executor: &mut Executor,
    packets: &mut PacketBatch,
    batch: &mut Batch<'_, '_>,
    context: &mut Context<'_, '_>,
) -> bool {
    let n = packets.len();
    // Fragments may have to wait.
    let has_fragment = batch.keys[..n].iter().any(is_fragment);
    let is_deep = batch.origins[..n].iter().any(|origin| origin.depth >= executor.recirc.max);
    if is_deep || has_fragment || (0..n).any(|i| track_and_recirculate(batch.hits, i).is_none()) {
        return false;
    }
    let Executor { conntrack, recent, recorder, random, .. } = executor;
    let ways: [_; BATCH_MAX] = std::array::from_fn(|i| track_and_recirculate(batch.hits, i % n));
    let ways = ways.iter().flatten();
    let mut sought = [LookupRef::NONE; BATCH_MAX];
    for ((sought, packet), (ct, _)) in sought.iter_mut().zip(packets.iter()).zip(ways.clone()) {
        *sought = conntrack.extract(recent, packet, ct.zone, Checksums::Unknown);
    }
    sought[..n].iter().for_each(|sought| conntrack.prefetch(recent, sought));
    for (i, (packet, (ct, id))) in packets.iter_mut().zip(ways).enumerate() {
        let moment = CtInput { now_ms: context.now_ms, entropy: splitmix64(random), checksums: Checksums::Unknown };
        let key = &mut batch.keys[i];
        let to_track = CtPacket { packet, key, cached: &mut batch.carried[i] };
        count(conntrack.execute_extracted(recent, &sought[i], to_track, ct, &moment), context.tally);
        if recorder.has(batch.origins[i].recording) {
            recorder.track(batch.origins[i].recording, conntrack.conn_ref(recent, packet, key, ct, context.now_ms));
        }
        key.set(layout::RECIRC_ID, &id.to_be_bytes());
        batch.origins[i].depth += 1;
    }
    true
}

/// Counts what became of a packet.
pub(crate) fn count(outcome: CtOutcome, tally: &mut Tally) {
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

/// Forgets the connection and its state.
pub(crate) fn forget(action_context: &mut ActionContext<'_>) {
    action_context.carried.forget();
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

//! The act room: what becomes of each packet.
//!
//! What can be decided once a megaflow is: a first look over the batch groups its packets by megaflow, adds up what
//! they bring and finds out where they go. Then packets are acted on one by one, in order of arrival, so none
//! overtakes another, not even one of another flow.

use crate::execute::Executor;
use crate::recirc::Origin;
use crate::tx::{TxSlot, discard};
use crate::upcall::{Answer, Answers};
use crate::walk::Context;
use arrayvec::ArrayVec;
use sluice_action::{Action, Upcall};
use sluice_fate::DropReason;
use sluice_flow::{PacketKey, layout};
use sluice_flow_cache::{Hits, Megaflow, Verdict};
use sluice_packet::{BATCH_MAX, BatchMask, PacketBatch};
use sluice_simd::compare;

/// The packets of one megaflow in a batch.
struct Group<'g> {
    flow: &'g Megaflow,
    plan: Plan,
    packets: u32,
    bytes: u64,
    tcp_flags: u16,
}

/// What a megaflow's packets meet, decided once a batch.
#[derive(Clone, Copy)]
enum Plan {
    /// They all leave here.
    Send(TxSlot),
    /// They all end.
    Drop(DropReason),
    /// Each goes through the actions.
    Execute,
}

/// What a batch in the rooms consists of, besides its packets.
pub(crate) struct Batch<'a, 'g> {
    pub keys: &'a mut [PacketKey; BATCH_MAX],
    pub origins: &'a [Origin; BATCH_MAX],
    pub hits: &'a Hits<'g>,
    /// Packets that follow an answer of their own instead of a hit.
    pub answered: BatchMask,
    pub answers: Option<Answers>,
}

/// Acts on every packet of the batch, which is empty afterwards.
#[inline]
pub(crate) fn room<'g>(
    executor: &mut Executor,
    upcall: &mut dyn Upcall,
    packets: &mut PacketBatch,
    batch: Batch<'_, 'g>,
    context: &mut Context<'_, 'g>,
) {
    let (groups, group_of) = group(executor, packets, &batch, context);
    let is_simple = batch.answered.is_empty() && groups.iter().all(|group| !matches!(group.plan, Plan::Execute));
    if is_simple && !executor.tx.is_holding() {
        for (i, packet) in packets.drain(..).enumerate() {
            match groups[usize::from(group_of[i])].plan {
                Plan::Send(slot) => executor.tx.push(slot, packet, context.buffers, context.tally),
                Plan::Drop(reason) => discard(packet, reason, context.buffers, context.tally),
                Plan::Execute => unreachable!("is_simple says that there is none"),
            }
        }
    } else {
        act_in_full(executor, upcall, packets, batch, (&groups, &group_of), context);
    }
    for group in &groups {
        let Group { flow, packets, bytes, tcp_flags, .. } = *group;
        context.counters.add(flow.id(), u64::from(packets), bytes, tcp_flags, context.now_ms);
    }
}

type Groups<'g> = ArrayVec<Group<'g>, BATCH_MAX>;

/// Places of the little hash table that finds a packet's group; a power of two.
const PLACES: usize = 64;

/// Groups the hits by megaflow.
#[inline]
fn group<'g>(
    executor: &Executor,
    packets: &PacketBatch,
    batch: &Batch<'_, 'g>,
    context: &Context<'_, 'g>,
) -> (Groups<'g>, [u8; BATCH_MAX]) {
    let mut groups = Groups::new();
    let mut group_of = [0; BATCH_MAX];
    // By a megaflow's id, the group's number plus one. At most half full, so a search ends.
    let mut places = [0u8; PLACES];
    for (i, packet) in packets.iter().enumerate() {
        let Some(flow) = batch.hits[i].filter(|_| !batch.answered.contains(i)) else { continue };
        let mut place = flow.id().0 as usize % PLACES;
        let at = loop {
            match places[place] {
                0 => {
                    context.counters.prefetch(flow.id());
                    let plan = plan_of(flow, executor);
                    groups.push(Group { flow, plan, packets: 0, bytes: 0, tcp_flags: 0 });
                    places[place] = groups.len() as u8;
                    break groups.len() - 1;
                }
                at if std::ptr::eq(groups[usize::from(at) - 1].flow, flow) => break usize::from(at) - 1,
                _ => place = (place + 1) % PLACES,
            }
        };
        let group = &mut groups[at];
        group.packets += 1;
        group.bytes += packet.frame.len() as u64;
        group.tcp_flags |= tcp_flags(&batch.keys[i]);
        group_of[i] = at as u8;
    }
    (groups, group_of)
}

#[inline]
fn plan_of(flow: &Megaflow, executor: &Executor) -> Plan {
    match flow.verdict() {
        Verdict::Output(port) => executor.tx.slot(port).map_or(Plan::Drop(DropReason::TxNoPort), Plan::Send),
        Verdict::Drop(reason) => Plan::Drop(reason),
        Verdict::Actions => Plan::Execute,
    }
}

/// The TCP flags of a packet, none if it is not TCP.
#[inline(always)]
fn tcp_flags(key: &PacketKey) -> u16 {
    let words = compare::words(&key.lines[0].0);
    let flags = (words[layout::TCP_FLAGS.offset / 8] >> (layout::TCP_FLAGS.offset % 8 * 8)) as u16;
    let proto = (words[layout::NW_PROTO.offset / 8] >> (layout::NW_PROTO.offset % 8 * 8)) as u8;
    if proto == TCP { u16::from_be(flags) } else { 0 }
}

/// IP protocol number of TCP.
const TCP: u8 = 6;

/// Acts on a batch in which not every packet is just sent or dropped.
fn act_in_full<'g>(
    executor: &mut Executor,
    upcall: &mut dyn Upcall,
    packets: &mut PacketBatch,
    batch: Batch<'_, 'g>,
    (groups, group_of): (&Groups<'g>, &[u8; BATCH_MAX]),
    context: &mut Context<'_, 'g>,
) {
    let answer = |i: usize| batch.answers.as_ref().filter(|_| batch.answered.contains(i)).and_then(|all| all.of(i));
    let recirculates = |i: usize| match answer(i) {
        Some(Answer::Follow(followed)) => has_recirc(&followed.translation.actions),
        Some(Answer::Lost(_)) => false,
        None => batch.hits[i].is_some_and(|flow| has_recirc(&flow.translation().actions)),
    };
    if !executor.tx.is_holding() && (0..packets.len()).any(recirculates) {
        executor.tx.hold();
    }
    for (i, packet) in packets.drain(..).enumerate() {
        let (key, origin) = (&mut batch.keys[i], batch.origins[i]);
        match answer(i) {
            Some(Answer::Follow(followed)) => {
                let translation = &followed.translation;
                let (bytes, flags) = (packet.frame.len() as u64, tcp_flags(key));
                executor.run(&translation.actions, packet, key, (origin, translation.no_output), context);
                upcall.credit(&translation.trail, 1, bytes, flags, context.now_ms);
            }
            Some(Answer::Lost(reason)) => discard(packet, *reason, context.buffers, context.tally),
            None => match groups[usize::from(group_of[i])].plan {
                Plan::Send(slot) => {
                    executor.tx.push_in_order(origin.arrival, slot, packet, context.buffers, context.tally)
                }
                Plan::Drop(reason) => discard(packet, reason, context.buffers, context.tally),
                Plan::Execute => {
                    let translation = groups[usize::from(group_of[i])].flow.translation();
                    executor.run(&translation.actions, packet, key, (origin, translation.no_output), context);
                }
            },
        }
    }
}

/// Whether any of the actions, or of those inside them, looks the packet up again.
fn has_recirc(actions: &[Action]) -> bool {
    actions.iter().any(|action| match action {
        Action::Recirc(_) => true,
        Action::Clone(actions) | Action::Sample { actions, .. } => has_recirc(actions),
        Action::CheckPktLen { greater, less_or_equal, .. } => has_recirc(greater) || has_recirc(less_or_equal),
        _ => false,
    })
}

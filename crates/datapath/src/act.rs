//! The stage `act`: what becomes of each packet, one by one in order of arrival, so that none overtakes another, not even
//! one of another flow.
//!
//! What can be decided once a megaflow is decided when it is installed: its [`FlowVerdict`]. What is left for a batch is to
//! count its packets and to find the transmit queue, four additions and two loads a packet. Gathering the packets of
//! a megaflow first, to do this once a group, was tried and lost (2026-11-20, 20 megaflows, cycles a packet in this
//! stage): a search for the group with branches 40, without branches 26, this 8. With one megaflow they are equal.

use crate::action_context::ActionContext;
use crate::compose::{Composer, Replay};
use crate::execute::Executor;
use crate::recirc::Origin;
use crate::track;
use crate::tx::{TxSlot, discard};
use crate::upcall::{Answer, Answers};
use crate::walk::Context;
use sluice_action::{Action, Upcall};
use sluice_conntrack::CachedConn;
use sluice_fate::{Counter, DropReason};
use sluice_flow::{PacketKey, layout};
use sluice_flow_cache::{FlowVerdict, Hits, Megaflow};
use sluice_packet::{BATCH_MAX, BatchMask, Packet, PacketBatch};
use sluice_simd::compare;

/// What a packet meets. In one word, so that a batch of one plan is found by comparing words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan(u32);

/// A [`Plan`] spelled out.
enum Step {
    /// It leaves here.
    Send(TxSlot),
    /// It ends.
    Drop(DropReason),
    /// It takes another pass, its key as it is.
    Recirculate,
    /// It goes through the actions.
    Execute,
}

/// What a batch in the stages consists of, besides its packets.
pub(crate) struct Batch<'a, 'g> {
    pub keys: &'a mut [PacketKey; BATCH_MAX],
    pub origins: &'a mut [Origin; BATCH_MAX],
    pub carried: &'a mut [CachedConn; BATCH_MAX],
    pub hits: &'a Hits<'g>,
    /// The answers that packets without a hit follow.
    pub answers: Option<&'a Answers>,
    /// The packets whose way is known; their hit is its first megaflow.
    pub known: BatchMask,
    /// Who knows it.
    pub composer: &'a Composer,
}

/// Acts on every packet of the batch. False if it is empty afterwards; true if all its packets take another pass.
#[inline]
pub(crate) fn act<'g>(
    executor: &mut Executor,
    upcall: &mut dyn Upcall,
    packets: &mut PacketBatch,
    mut batch: Batch<'_, 'g>,
    context: &mut Context<'_, 'g>,
) -> bool {
    let mut plans = plan_and_count(executor, packets, &batch, context);
    let plans = &mut plans[..packets.len()];
    let tracked = if batch.known.is_empty() { 0 } else { replay_front(executor, packets, &mut batch, plans, context) };
    let plans = &*plans;
    let Some(first) = plans.first() else { return false };
    let differing = plans.iter().fold(0, |bits, plan| bits | plan.0 ^ first.0);
    let executes = plans.iter().fold(0, |most, plan| most.max(plan.0)) >= Plan::RECIRCULATE.0;
    if executes || executor.tx.is_holding() {
        let may_stay = differing == 0 && batch.answers.is_none() && batch.known.is_empty() && !executor.tx.is_holding();
        if may_stay && track::track_batch(executor, packets, &mut batch, context) {
            return true;
        }
        act_in_full(executor, upcall, packets, batch, (plans, tracked), context);
        return false;
    }
    if differing == 0
        && let Step::Send(slot) = first.step()
    {
        executor.tx.push_all(slot, packets, context.buffers, context.tally);
        return false;
    }
    for (packet, plan) in packets.drain(..).zip(plans) {
        match plan.step() {
            Step::Send(slot) => executor.tx.push(slot, packet, context.buffers, context.tally),
            Step::Drop(reason) => discard(packet, reason, context.buffers, context.tally),
            Step::Recirculate | Step::Execute => unreachable!("every packet of this batch ends here: checked above"),
        }
    }
    false
}

/// Counts each hit for its megaflow and finds out what the packet meets. Packets without a hit execute.
#[inline(always)]
fn plan_and_count(
    executor: &Executor,
    packets: &PacketBatch,
    batch: &Batch<'_, '_>,
    context: &Context<'_, '_>,
) -> [Plan; BATCH_MAX] {
    let mut plans = [Plan::EXECUTE; BATCH_MAX];
    for (i, packet) in packets.iter().enumerate() {
        let Some(flow) = batch.hits[i % BATCH_MAX] else { continue };
        let flags = tcp_flags(&batch.keys[i % BATCH_MAX]);
        context.counters.add(flow.id(), packet.frame.len() as u64, flags, context.now_ms);
        plans[i % BATCH_MAX] = Plan::of(flow, executor);
    }
    plans
}

impl Plan {
    /// Larger than any other plan.
    const EXECUTE: Plan = Plan(u32::MAX);
    /// Larger than any but that.
    const RECIRCULATE: Plan = Plan(u32::MAX - 1);
    /// Plans from here on, but for those two, drop: the number of the reason follows.
    const DROPS: u32 = 1 << 16;

    #[inline(always)]
    fn of(flow: &Megaflow, executor: &Executor) -> Plan {
        match flow.verdict() {
            FlowVerdict::Output(port) => match executor.tx.slot(port) {
                Some(slot) => Plan(u32::from(slot.0)),
                None => Plan(Plan::DROPS + DropReason::TxNoPort as u32),
            },
            FlowVerdict::Drop(reason) => Plan(Plan::DROPS + reason as u32),
            FlowVerdict::Actions => Plan::EXECUTE,
        }
    }

    #[inline(always)]
    fn step(self) -> Step {
        if self.0 < Plan::DROPS {
            Step::Send(TxSlot(self.0 as u16))
        } else if self == Plan::EXECUTE {
            Step::Execute
        } else if self == Plan::RECIRCULATE {
            Step::Recirculate
        } else {
            Step::Drop(DropReason::ALL[(self.0 - Plan::DROPS) as usize])
        }
    }
}

/// Lets the packets in front whose ways are known go them; how many those are. What they meet in the end is their plan.
#[inline]
fn replay_front(
    executor: &mut Executor,
    packets: &PacketBatch,
    batch: &mut Batch<'_, '_>,
    plans: &mut [Plan],
    context: &mut Context<'_, '_>,
) -> usize {
    let in_front = batch.known.0.trailing_ones() as usize;
    let mut alone = true;
    for (i, packet) in packets.iter().enumerate().take(in_front) {
        plans[i] = replay(executor, (i, packet, alone), batch, context);
        alone &= plans[i] != Plan::RECIRCULATE;
        if plans[i] == Plan::EXECUTE {
            // Who comes behind it is tracked behind it.
            return i;
        }
    }
    in_front
}

/// Lets packet `i` go the way that is known, and counts it for every megaflow but the first, which has counted it.
/// `alone`: no packet in front of it is still to be tracked, which it would overtake at its second `ct`.
#[inline]
fn replay(
    executor: &Executor,
    (i, packet, alone): (usize, &Packet, bool),
    batch: &mut Batch<'_, '_>,
    context: &mut Context<'_, '_>,
) -> Plan {
    let (key, carried) = (&mut batch.keys[i], &mut batch.carried[i]);
    let at = (context.flows, context.now_ms);
    let (plan, met) = match batch.composer.replay((i, alone), &executor.conntrack, (packet, key), carried, at) {
        Replay::NotReplayed => return Plan::EXECUTE,
        Replay::Completed(path, last) => (Plan::of(last, executor), path.hops()),
        Replay::Diverged(hops, outcome) => {
            track::count(outcome, context.tally);
            batch.origins[i].depth += hops.len() as u8 + 1;
            (Plan::RECIRCULATE, hops)
        }
    };
    let (bytes, flags) = (packet.frame.len() as u64, tcp_flags(&batch.keys[i]));
    met.iter().for_each(|hop| context.counters.add(hop.next(), bytes, flags, context.now_ms));
    for counter in [Counter::Passes, Counter::MegaflowHits, Counter::ComposedHits] {
        context.tally[counter] += met.len() as u64;
    }
    plan
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

/// Acts on a batch in which not every packet is just sent or dropped. So many packets in front have gone their ways.
fn act_in_full<'g>(
    executor: &mut Executor,
    upcall: &mut dyn Upcall,
    packets: &mut PacketBatch,
    mut batch: Batch<'_, 'g>,
    (plans, tracked): (&[Plan], usize),
    context: &mut Context<'_, 'g>,
) {
    let (answers, hits, known) = (batch.answers, batch.hits, batch.known);
    let answer = |i: usize| answers.filter(|_| hits[i].is_none()).and_then(|all| all.of(i));
    let recirculates = |i: usize| match answer(i) {
        Some(Answer::Follow(followed)) => followed.actions.iter().any(Action::recirculates),
        Some(Answer::Lost(_)) => false,
        None if i < tracked => plans[i] == Plan::RECIRCULATE,
        // Whose way is known seldom leaves it.
        None => !known.contains(i) && hits[i].is_some_and(|flow| flow.actions().iter().any(Action::recirculates)),
    };
    if !executor.tx.is_holding() && (0..packets.len()).any(recirculates) {
        executor.tx.hold();
    }
    for (i, packet) in packets.drain(..).enumerate() {
        let plan = match i >= tracked && known.contains(i) {
            true => replay(executor, (i, &packet, false), &mut batch, context),
            false => plans[i],
        };
        if known.contains(i) && plan.0 >= Plan::RECIRCULATE.0 && !executor.tx.is_holding() {
            executor.tx.hold();
        }
        let (key, origin) = (&mut batch.keys[i], batch.origins[i]);
        match answer(i) {
            Some(Answer::Follow(followed)) => {
                let (bytes, flags) = (packet.frame.len() as u64, tcp_flags(key));
                let carried = std::mem::take(&mut batch.carried[i]);
                let action_context = ActionContext::new(packet, key, origin, carried, followed.no_output);
                executor.execute(&followed.actions, action_context, context);
                upcall.credit(&followed.xcache, 1, bytes, flags, context.now_ms);
            }
            Some(Answer::Lost(reason)) => discard(packet, *reason, context.buffers, context.tally),
            None => match plan.step() {
                Step::Send(slot) => {
                    executor.tx.push_in_order(origin.arrival, slot, packet, context.buffers, context.tally)
                }
                Step::Drop(reason) => discard(packet, reason, context.buffers, context.tally),
                Step::Recirculate => {
                    executor.recirc.push(packet, *key, origin, std::mem::take(&mut batch.carried[i]));
                }
                Step::Execute => {
                    let flow = batch.hits[i].expect("invariant: a hit or an answer");
                    let carried = std::mem::take(&mut batch.carried[i]);
                    let action_context = ActionContext::new(packet, key, origin, carried, flow.no_output());
                    executor.execute(flow.actions(), action_context, context);
                }
            },
        }
    }
}

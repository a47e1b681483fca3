//! The stage `act`: what becomes of each packet, one by one in order of arrival, so that no packet overtakes another,
//! not even one of another flow.
//!
//! What can be decided once per megaflow is decided when the megaflow is installed: its [`FlowVerdict`]. What is left
//! for a batch is to count its packets and to find the transmit queue, four additions and two loads a packet. Gathering
//! the packets of a megaflow first, to do this once per group, was tried and lost (2026-11-20, 20 megaflows, cycles a
//! packet in this stage): a search for the group with branches 40, without branches 26, this 8. With one megaflow they
//! are equal.

use crate::action_context::ActionContext;
use crate::answers::{Answer, Followed};
use crate::batch::Batch;
use crate::capture::Cause;
use crate::compose::Composer;
use crate::context::{Context, tcp_flags};
use crate::deferred::DeferredUpcalls;
use crate::execute::Executor;
use crate::tx::{PortSlots, TxPorts, TxSlot};
use crate::{CaptureVerdict, CapturedFlow};
use sluice_action::{Action, PortNo};
use sluice_fate::{Counter, DropReason};
use sluice_flow_cache::{FlowVerdict, Megaflow};
use sluice_packet::{BATCH_MAX, Packet};
use sluice_simd::Isa;

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
    /// It goes through the actions of its megaflow or answer.
    Execute,
}

/// Acts on every packet of the batch. False if it is empty afterwards; true if all its packets take another pass.
#[inline]
pub(crate) fn act<'g>(
    isa: Isa,
    executor: &mut Executor,
    composer: &mut Composer,
    batch: &mut Batch<'_, 'g>,
    context: &mut Context<'_, 'g>,
) -> bool {
    let mut plans = [Plan::EXECUTE; BATCH_MAX];
    let union = plan_and_count(&executor.tx, batch, context, &mut plans);
    let plans = &plans[..batch.packets.len()];
    let Some(first) = plans.first() else { return false };
    if context.taps.is_some() {
        show_to_taps(batch, plans, context);
        if !executor.tx.is_holding() && plans.iter().all(|plan| plan.0 < Plan::RECIRCULATE.0) {
            act_one_by_one(executor, batch, plans, context);
            return false;
        }
    }
    if union.executes() || executor.tx.is_holding() {
        let may_stay = union.is_one_plan() && batch.has_hits_only() && !executor.tx.is_holding();
        if may_stay {
            if executor.track_in_place(batch, context) {
                return true;
            }
            if executor.pop_in_place(isa, batch, context) {
                if !batch.is_recirculated
                    && let Some(flow) = batch.hits[0]
                {
                    composer.remember_pop(flow);
                }
                return !batch.packets.is_empty();
            }
            if executor.send_by_tunnels(isa, batch, context) {
                return false;
            }
        }
        act_one_by_one(executor, batch, plans, context);
        return false;
    }
    if union.is_one_plan()
        && let Step::Send(slot) = first.step()
    {
        executor.tx.push_all(slot, batch.packets, context);
        return false;
    }
    for (packet, plan) in batch.packets.drain(..).zip(plans) {
        match plan.step() {
            Step::Send(slot) => executor.tx.push(slot, packet, context),
            Step::Drop(reason) => context.discard_untapped(packet, reason),
            Step::Recirculate | Step::Execute => unreachable!("every packet of this batch ends here: checked above"),
        }
    }
    false
}

/// What the plans of a batch have in common.
#[derive(Clone, Copy, Debug)]
struct PlanUnion {
    /// The bits that some plan has.
    any: u32,
    /// The bits that all plans have.
    all: u32,
}

impl PlanUnion {
    fn add(&mut self, plan: Plan) {
        self.any |= plan.0;
        self.all &= plan.0;
    }

    /// Whether all packets meet the same.
    fn is_one_plan(self) -> bool {
        self.any == self.all
    }

    /// Whether some packet executes or recirculates.
    fn executes(self) -> bool {
        self.any & Plan::EXECUTES != 0
    }
}

/// Counts each hit for its megaflow and finds out what the packet meets. Packets without a hit execute.
///
/// A function of its own, once a batch, so that what its loop needs stays in registers: inlined into the walk it is loaded
/// again from the stack for each packet, 45 instructions in place of 34.
#[inline(never)]
fn plan_and_count(
    tx: &TxPorts,
    batch: &Batch<'_, '_>,
    context: &Context<'_, '_>,
    plans: &mut [Plan; BATCH_MAX],
) -> PlanUnion {
    let (counters, ports) = (context.counters.at(context.now_ms), tx.ports());
    let mut union = PlanUnion { any: 0, all: u32::MAX };
    let looked_up = batch.packets.iter().zip(batch.keys.iter()).zip(&batch.hits);
    for (((packet, key), hit), plan) in looked_up.zip(plans.iter_mut()) {
        if let Some(flow) = hit {
            counters.add(flow.id(), packet.frame.len() as u64, tcp_flags(key));
            *plan = Plan::of(flow, ports);
        }
        union.add(*plan);
    }
    // The plan that such a packet had is still in the union: a batch with one is not sent or tracked as a whole anyway.
    for i in batch.diverged {
        plans[i] = Plan::RECIRCULATE;
        union.add(plans[i]);
    }
    union
}

const _: () = assert!(Plan::DROPS as usize + DropReason::COUNT < Plan::EXECUTES as usize);

impl Plan {
    /// Larger than any other plan.
    const EXECUTE: Plan = Plan(u32::MAX);
    /// Larger than any but that.
    const RECIRCULATE: Plan = Plan(u32::MAX - 1);
    /// Plans from here on, but for those two, drop: the number of the reason follows.
    const DROPS: u32 = 1 << 16;
    /// A bit that those two have, and no other plan.
    const EXECUTES: u32 = 1 << 31;

    #[inline(always)]
    fn of(flow: &Megaflow, ports: PortSlots<'_>) -> Plan {
        match flow.verdict() {
            FlowVerdict::Output(port) => match ports.slot(port) {
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

/// Shows captures the packets that have been looked up, with what they follow.
#[cold]
fn show_to_taps(batch: &Batch<'_, '_>, plans: &[Plan], context: &mut Context<'_, '_>) {
    let Some(taps) = &mut context.taps else { return };
    for (i, packet) in batch.packets.iter().enumerate() {
        let (mut flow, mut verdict) = (batch.hits[i].map(CapturedFlow::of), CaptureVerdict::Actions);
        if batch.missed.contains(i) && flow.is_none() {
            match batch.answers.of(i) {
                Answer::Follow(Followed { actions, xcache, no_output, .. }) => {
                    flow = Some(CapturedFlow { matched: None, actions: actions.clone(), xcache: xcache.clone() });
                    if actions.is_empty() || matches!(actions[..], [Action::Drop]) {
                        verdict = CaptureVerdict::Dropped(*no_output);
                    }
                }
                Answer::Lost(reason) => verdict = CaptureVerdict::Dropped(*reason),
                // It is shown when it has asked again.
                Answer::Deferred => continue,
            }
        }
        if let Step::Drop(reason) = plans[i].step() {
            verdict = CaptureVerdict::Dropped(reason);
        }
        let cause = Cause { in_port: PortNo(batch.keys[i].in_port()), flow };
        taps.looked_up(packet, &batch.keys[i], verdict, cause);
    }
}

/// Acts on a batch in which not every packet is just sent or dropped.
fn act_one_by_one<'g>(
    executor: &mut Executor,
    batch: &mut Batch<'_, 'g>,
    plans: &[Plan],
    context: &mut Context<'_, 'g>,
) {
    if !executor.tx.is_holding() && (0..plans.len()).any(|i| recirculates(batch, i)) {
        executor.tx.hold();
    }
    // From the end, so that the rest of the batch can be borrowed meanwhile.
    batch.packets.reverse();
    for (i, plan) in plans.iter().enumerate() {
        let packet = batch.packets.pop().expect("invariant: a plan for each packet");
        match plan.step() {
            Step::Send(slot) => executor.tx.push_in_order(batch.origins[i].arrival, slot, packet, context),
            Step::Drop(reason) => context.discard(packet, reason),
            Step::Recirculate => {
                let conn = std::mem::take(&mut batch.conns[i]);
                executor.recirc.push(packet, &batch.keys[i], batch.origins[i], conn);
            }
            Step::Execute => execute(executor, i, packet, batch, context),
        }
    }
    batch.answers.clear();
}

/// Executes the actions of packet `i`: those of its megaflow, or of its answer if it has none.
fn execute(
    executor: &mut Executor,
    i: usize,
    packet: Packet,
    batch: &mut Batch<'_, '_>,
    context: &mut Context<'_, '_>,
) {
    let (actions, no_output) = match batch.hits[i] {
        Some(flow) => (flow.actions(), flow.no_output()),
        None => match batch.answers.of(i) {
            Answer::Follow(followed) => (&followed.actions, followed.no_output),
            Answer::Lost(reason) => return context.discard(packet, *reason),
            Answer::Deferred => return defer(&mut executor.deferred, i, packet, batch, context),
        },
    };
    let conn = std::mem::take(&mut batch.conns[i]);
    let action_context = ActionContext::new(packet, &mut batch.keys[i], batch.origins[i], conn, no_output);
    executor.execute(actions, action_context, context);
}

/// Lets packet `i` wait until the tables are free, if it may. This pass of it counts when it is repeated.
#[cold]
fn defer(
    deferred: &mut DeferredUpcalls,
    i: usize,
    packet: Packet,
    batch: &mut Batch<'_, '_>,
    context: &mut Context<'_, '_>,
) {
    let conn = std::mem::take(&mut batch.conns[i]);
    match deferred.push(packet, batch.keys[i], batch.origins[i], conn) {
        Ok(()) => {
            context.tally[Counter::UpcallsDeferred] += 1;
            context.tally[Counter::Held] += 1;
            context.tally[Counter::Passes] -= 1;
        }
        Err(packet) => {
            context.tally[Counter::UpcallsLost] += 1;
            context.discard(packet, DropReason::UpcallLost);
        }
    }
}

/// Whether packet `i` is to take another pass.
fn recirculates(batch: &Batch<'_, '_>, i: usize) -> bool {
    if batch.missed.contains(i) {
        return match batch.answers.of(i) {
            Answer::Follow(followed) => followed.actions.iter().any(Action::recirculates),
            Answer::Lost(_) | Answer::Deferred => false,
        };
    }
    batch.diverged.contains(i) || batch.hits[i].is_some_and(|flow| flow.actions().iter().any(Action::recirculates))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Plans of few kinds, so that batches of one plan are common.
    fn plan() -> impl Strategy<Value = Plan> {
        let last = DropReason::COUNT as u32 - 1;
        prop_oneof![
            (0..3u32).prop_map(Plan),
            prop_oneof![Just(0), Just(last)].prop_map(|reason| Plan(Plan::DROPS + reason)),
            Just(Plan::RECIRCULATE),
            Just(Plan::EXECUTE),
        ]
    }

    proptest! {
        #[test]
        fn a_union_says_of_plans_what_they_say_one_by_one(
            plans in prop_oneof![prop::collection::vec(plan(), 1..5), (plan(), 1..33usize).prop_map(|(plan, n)| vec![plan; n])],
        ) {
            let mut union = PlanUnion { any: 0, all: u32::MAX };
            plans.iter().for_each(|plan| union.add(*plan));
            prop_assert_eq!(union.is_one_plan(), plans.iter().all(|plan| *plan == plans[0]));
            let executes = |plan: &Plan| matches!(plan.step(), Step::Recirculate | Step::Execute);
            prop_assert_eq!(union.executes(), plans.iter().any(executes));
        }
    }
}

//! The stage `upcall`: what no level knows is asked of the tables.
//!
//! Of packets of one megaflow in a batch, the first asks; the others follow the answer. The packet that asked is
//! credited through its translation, the others through the megaflow, as OVS does: a megaflow just installed has
//! carried nothing.

use crate::lookup::Levels;
use crate::misses::Misses;
use crate::walk::Context;
use arrayvec::ArrayVec;
use sluice_action::{Actions, Fate, FlowId, MegaflowMatch, Miss, Translation, Upcall, XcacheHandle};
use sluice_fate::{Counter, DropReason};
use sluice_flow::PacketKey;
use sluice_flow_cache::{Hits, Installed, Megaflow};
use sluice_governor::Decision;
use sluice_packet::{BATCH_MAX, BatchMask, PacketBatch};
use sluice_simd::tsc;

/// What the tables said about packets that no megaflow speaks for.
pub(crate) struct Answers {
    answers: ArrayVec<Answer, BATCH_MAX>,
    /// Which answer a packet follows.
    of: [u8; BATCH_MAX],
}

/// One answer.
pub(crate) enum Answer {
    /// Follow this translation.
    Follow(Followed),
    /// Drop.
    Lost(DropReason),
}

/// A translation, and for which packets it may be used again in this batch.
pub(crate) struct Followed {
    pub actions: Actions,
    pub no_output: DropReason,
    pub xcache: XcacheHandle,
    /// `None` if each packet has to ask for itself.
    shared: Option<Box<MegaflowMatch>>,
}

impl Answers {
    fn new() -> Self {
        Answers { answers: ArrayVec::new(), of: [0; BATCH_MAX] }
    }

    /// The answer for packet `i`, which has no hit.
    pub fn of(&self, i: usize) -> Option<&Answer> {
        self.answers.get(usize::from(self.of[i]))
    }

    fn push(&mut self, i: usize, answer: Answer) {
        self.of[i] = self.answers.len() as u8;
        self.answers.push(answer);
    }

    /// Lets packet `i` follow an answer that another one got, if there is one that fits.
    fn share(&mut self, i: usize, key: &PacketKey) -> bool {
        let fits = |answer: &Answer| match answer {
            Answer::Follow(followed) => followed.shared.as_ref().is_some_and(|matched| matched.contains(key)),
            Answer::Lost(_) => false,
        };
        let Some(at) = self.answers.iter().position(fits) else { return false };
        self.of[i] = at as u8;
        true
    }
}

/// Asks the tables about the packets of `miss`. Those that a new megaflow speaks for become hits; the others get answers
/// of their own.
#[cold]
pub(crate) fn ask_tables<'g>(
    upcall: &mut dyn Upcall,
    (levels, misses): (&mut Levels, &mut Misses),
    (batch, keys): (&PacketBatch, &[PacketKey; BATCH_MAX]),
    miss: BatchMask,
    hits: &mut Hits<'g>,
    context: &mut Context<'_, 'g>,
) -> Answers {
    let mut answers = Answers::new();
    let mut fresh: ArrayVec<&'g Megaflow, BATCH_MAX> = ArrayVec::new();
    for i in miss {
        let key = &keys[i];
        if let Some(flow) = fresh.iter().find(|flow| flow.contains(key)) {
            hits[i] = Some(flow);
            context.tally[Counter::MegaflowHits] += 1;
            continue;
        }
        if answers.share(i, key) {
            context.tally[Counter::Upcalls] += 1;
            continue;
        }
        if !misses.may_ask() {
            context.tally[Counter::UpcallsLost] += 1;
            answers.push(i, Answer::Lost(DropReason::MissBudget));
            continue;
        }
        let began = tsc::now();
        let fate = upcall.translate(&Miss { key, bytes: batch[i].bytes(), now_ms: context.now_ms });
        let translated = tsc::now();
        let mut installed = None;
        match fate {
            Fate::Translated(translation) => {
                context.tally[Counter::Upcalls] += 1;
                if translation.cacheable && is_due(misses, &translation, (i, miss), keys, context) {
                    installed = install(upcall, key, &translation, context);
                }
                if let Some(flow) = installed {
                    levels.insert(i, key, flow);
                    context.counters.set_indexed(flow.id());
                    fresh.push(flow);
                }
                let alone = installed.is_some() || !translation.cacheable;
                let shared = (!alone).then(|| Box::new(MegaflowMatch::new(translation.mask, key)));
                let Translation { actions, no_output, xcache, .. } = translation;
                answers.push(i, Answer::Follow(Followed { actions, no_output, xcache, shared }));
            }
            Fate::Failed(reason) => {
                context.tally[Counter::UpcallsLost] += 1;
                answers.push(i, Answer::Lost(reason));
            }
        }
        let ended = tsc::now();
        let translate = translated.saturating_sub(began);
        misses.charge(translate, if installed.is_some() { ended.saturating_sub(translated) } else { 0 });
        context.tally[Counter::UpcallCycles] += ended.saturating_sub(began);
    }
    answers
}

/// Whether the governor wants the flow of packet `i` installed.
fn is_due(
    misses: &mut Misses,
    translation: &Translation,
    (i, miss): (usize, BatchMask),
    keys: &[PacketKey; BATCH_MAX],
    context: &mut Context<'_, '_>,
) -> bool {
    let hash = || context.table.flow_hash(&keys[i], &translation.mask);
    let Some(installs) = misses.installs((hash, translation), keys, (i, miss), context.now_ms) else { return true };
    let counter = match installs.decision {
        Decision::Install => Counter::GovernedSetups,
        Decision::Shortcut => Counter::GovernedShortcuts,
        Decision::Count => Counter::GovernedPackets,
    };
    context.tally[counter] += installs.packets_if_counted();
    context.tally[Counter::GovernedFlows] += u64::from(installs.is_new);
    installs.decision.installs()
}

/// Installs a translation's megaflow, if it may be, and finds it.
fn install<'g>(
    upcall: &dyn Upcall,
    key: &PacketKey,
    translation: &Translation,
    context: &mut Context<'_, 'g>,
) -> Option<&'g Megaflow> {
    let is_current = |version| upcall.is_current(version);
    let renew = |old: &XcacheHandle, carried, is_kept| upcall.renew(old, &translation.xcache, carried, is_kept);
    let installed = context.table.install(key, translation, context.now_ms, is_current, renew);
    let FlowId(id) = match installed {
        Installed::New(id) | Installed::Existing(id) => id,
        Installed::OverQuota => {
            context.tally[Counter::QuotaRefused] += 1;
            return None;
        }
        Installed::Stale | Installed::Full => return None,
    };
    // It may have been removed again by now; then the packet just follows its translation.
    let flow = context.flows.get(id).filter(|flow| flow.contains(key))?;
    if matches!(installed, Installed::New(_)) {
        context.tally[Counter::MegaflowsInstalled] += 1;
        context.tally[Counter::QuotaNarrowed] += u64::from(flow.mask().whole != translation.mask);
    }
    Some(flow)
}

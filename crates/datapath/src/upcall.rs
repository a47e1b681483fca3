//! The upcall room: what no level knows is asked of the tables.
//!
//! Of packets of one megaflow in a batch, the first asks; the others follow the answer. The packet that asked is
//! credited through its translation, the others through the megaflow, as OVS does: a megaflow just installed has
//! carried nothing.

use crate::lookup::Levels;
use crate::walk::Context;
use arrayvec::ArrayVec;
use sluice_action::{Actions, Fate, FlowId, MegaflowMatch, Miss, Trail, Translation, Upcall};
use sluice_fate::{Counter, DropReason};
use sluice_flow::PacketKey;
use sluice_flow_cache::{Hits, Installed, Megaflow};
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
    pub trail: Trail,
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
pub(crate) fn room<'g>(
    upcall: &mut dyn Upcall,
    levels: &mut Levels,
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
        let began = tsc::now();
        let fate = upcall.translate(&Miss { key, bytes: batch[i].bytes(), now_ms: context.now_ms });
        match fate {
            Fate::Translated(translation) => {
                context.tally[Counter::Upcalls] += 1;
                let flow = install(upcall, key, &translation, context);
                if let Some(flow) = flow {
                    levels.insert(i, key, flow);
                    context.counters.set_indexed(flow.id());
                    fresh.push(flow);
                }
                let alone = flow.is_some() || !translation.cacheable;
                let shared = (!alone).then(|| Box::new(MegaflowMatch::new(translation.mask, key)));
                let Translation { actions, no_output, trail, .. } = translation;
                answers.push(i, Answer::Follow(Followed { actions, no_output, trail, shared }));
            }
            Fate::Failed(reason) => {
                context.tally[Counter::UpcallsLost] += 1;
                answers.push(i, Answer::Lost(reason));
            }
        }
        context.tally[Counter::UpcallCycles] += tsc::now().saturating_sub(began);
    }
    answers
}

/// Installs a translation's megaflow, if it may be, and finds it.
fn install<'g>(
    upcall: &dyn Upcall,
    key: &PacketKey,
    translation: &Translation,
    context: &Context<'_, 'g>,
) -> Option<&'g Megaflow> {
    if !translation.cacheable {
        return None;
    }
    let is_current = |version| upcall.is_current(version);
    let renew = |old: &Trail, carried, is_kept| upcall.renew(old, &translation.trail, carried, is_kept);
    let FlowId(id) = match context.table.install(key, translation, context.now_ms, is_current, renew) {
        Installed::New(id) | Installed::Existing(id) => id,
        Installed::Stale | Installed::Full => return None,
    };
    // It may have been removed again by now; then the packet just follows its translation.
    context.flows.get(id).filter(|flow| flow.contains(key))
}

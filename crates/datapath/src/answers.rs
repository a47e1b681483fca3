//! What the tables said about packets that have no megaflow.

use arrayvec::ArrayVec;
use sluice_action::{Actions, MegaflowMatch, XcacheHandle};
use sluice_fate::DropReason;
use sluice_flow::PacketKey;
use sluice_packet::BATCH_MAX;

/// The answers for the packets of a batch.
#[derive(Default)]
pub(crate) struct Answers {
    answers: ArrayVec<Answer, BATCH_MAX>,
    /// The answer that a packet follows.
    of: [u8; BATCH_MAX],
    /// Whether other packets may follow one of them. In a burst of new flows none, and then none is asked about.
    has_shared: bool,
}

/// One answer.
pub(crate) enum Answer {
    /// Execute these actions.
    Follow(Followed),
    /// Drop.
    Lost(DropReason),
    /// The tables could not be asked: ask again at a later poll.
    Deferred,
}

/// The actions of a translation, and for which packets of the batch they may be used again.
pub(crate) struct Followed {
    pub actions: Actions,
    pub no_output: DropReason,
    pub xcache: XcacheHandle,
    /// `None` if each packet has to ask for itself.
    pub shared: Option<Box<MegaflowMatch>>,
}

impl Answers {
    /// Forgets all answers.
    pub fn clear(&mut self) {
        self.answers.clear();
        self.has_shared = false;
    }

    /// The answer for packet `i`, which must have one.
    pub fn of(&self, i: usize) -> &Answer {
        &self.answers[usize::from(self.of[i])]
    }

    /// Notes the answer for packet `i`.
    pub fn push(&mut self, i: usize, answer: Answer) {
        self.of[i] = self.answers.len() as u8;
        self.has_shared |= matches!(&answer, Answer::Follow(followed) if followed.shared.is_some());
        self.answers.push(answer);
    }

    /// Lets packet `i` follow an answer that another packet got, if one fits its key.
    pub fn share(&mut self, i: usize, key: &PacketKey) -> bool {
        if !self.has_shared {
            return false;
        }
        let fits = |answer: &Answer| match answer {
            Answer::Follow(followed) => followed.shared.as_ref().is_some_and(|matched| matched.contains(key)),
            Answer::Lost(_) | Answer::Deferred => false,
        };
        let Some(at) = self.answers.iter().position(fits) else { return false };
        self.of[i] = at as u8;
        true
    }
}

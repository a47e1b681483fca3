//! The budget of work of one translation.
//!
//! The limits of Open vSwitch bound resubmits, depth and the bytes of actions, each by itself. They do not bound their
//! product: a rule of 8,000 actions that is resubmitted to 4,000 times, buckets that watch groups that watch groups,
//! action sets that grow with each resubmit. So everything whose amount the rules decide is a step, and all steps come
//! out of one budget: an action, a bucket that is run or whose liveness is asked for, a port of a flood, an action that
//! is saved or frozen. A translation that needs more fails: its packets are dropped by name.

use super::{Failure, Translator};
use sluice_fate::Limit;

/// Steps of one translation, at most. Some milliseconds of a PMD; a pipeline of 64 tables takes hundreds.
pub(crate) const MAX_STEPS: usize = 1 << 16;

impl Translator<'_> {
    /// Takes steps out of the budget. False if they are not there: then the translation has failed.
    pub(super) fn charge(&mut self, steps: usize) -> bool {
        self.steps = self.steps.saturating_add(steps);
        if self.steps <= MAX_STEPS {
            return true;
        }
        if self.failure.is_none() {
            self.error(|| format!("over {MAX_STEPS} steps of work"));
            self.fail(Failure::TooMuchWork);
            if self.side_effects {
                Limit::TranslationWork.hit();
            }
        }
        false
    }
}

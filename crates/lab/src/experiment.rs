//! What an experiment is.

use crate::cores::Bound;
use crate::lab::Lab;
use crate::loss::Loss;
use crate::record::{Findings, Point};

/// A question that measurements answer.
pub trait Experiment: Sync {
    /// What it is called on the command line.
    fn name(&self) -> &'static str;

    /// What it asks, one line.
    fn about(&self) -> &'static str;

    /// Why it cannot run here; `None` if it can.
    fn obstacle(&self) -> Option<String> {
        None
    }

    /// What it needs, in words for `sluice lab list`.
    fn needs(&self) -> &'static str {
        "two cores; no privileges"
    }

    /// Where its thread is kept meanwhile.
    fn bound(&self) -> Bound {
        Bound::ToLast
    }

    /// Runs it, as large as the lab asks for. When the lab is told to stop, it returns what it has.
    ///
    /// # Errors
    /// If it cannot run, or an answer is wrong.
    fn run(&self, lab: &mut Lab) -> anyhow::Result<Findings>;

    /// At which of its points Sluice loses.
    fn losses(&self, points: &[Point]) -> Vec<Loss>;
}

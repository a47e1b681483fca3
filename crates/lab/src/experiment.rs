//! What an experiment is, and all there are. A new one is a file in `experiments` and a line in [`EXPERIMENTS`].

use crate::cores::Bound;
use crate::experiments::{
    autopilot, caches, changes, cold, governor, peer, profile, recirc, rules, scale, storm, subtables,
};
use crate::lab::Lab;
use crate::losses::Loss;
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

/// All experiments, in the order of the report.
pub const EXPERIMENTS: &[&dyn Experiment] = &[
    &subtables::Subtables,
    &autopilot::Autopilot,
    &caches::Caches,
    &recirc::Recirc,
    &scale::Scale,
    &rules::Rules,
    &governor::Governor,
    &storm::STORM,
    &storm::SYN_FLOOD,
    &changes::Changes,
    &cold::Cold,
    &profile::Profile,
    &peer::Peer,
];

/// The experiment of that name.
pub fn named(name: &str) -> Option<&'static dyn Experiment> {
    EXPERIMENTS.iter().copied().find(|experiment| experiment.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = EXPERIMENTS.iter().map(|e| e.name()).collect();
        assert_eq!(names.len(), EXPERIMENTS.len());
        assert!(names.iter().all(|name| named(name).is_some()));
    }
}

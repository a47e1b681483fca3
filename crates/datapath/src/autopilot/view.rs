//! What an autopilot tells about itself.

use super::{Autopilot, Known, Phase};
use std::time::Duration;

/// What an autopilot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// The safe arm fills its cache, before all are compared.
    Warming,
    /// All arms are compared.
    Comparing,
    /// The safe arm fills its cache, which may make it the cheapest.
    Filling,
    /// The arm in charge is active.
    Cruising,
    /// One arm is compared with the one in charge.
    Trying,
}

/// Why the arm in charge is in charge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// Nothing has been measured yet.
    Start,
    /// There is no other.
    Forced,
    /// It was the cheapest of all, or near enough for a safe choice.
    Tournament,
    /// It was cheaper than the one before by this share, side by side.
    Trial(f64),
    /// The traffic changes too often to measure: the safe choice.
    Unsteady,
}

impl Autopilot {
    /// The arm in charge.
    pub fn in_charge(&self) -> usize {
        self.in_charge
    }

    /// What is known of an arm.
    pub fn known(&self, arm: usize) -> &Known {
        &self.arms[arm]
    }

    /// When an arm is due to be tried, TSC; `None` if it is in charge, or cannot be.
    pub fn next_trial(&self, arm: usize) -> Option<u64> {
        let may = self.recirculates || !self.arms[arm].for_recirculation;
        (may && arm != self.in_charge).then(|| self.arms[arm].next_trial)
    }

    pub fn doing(&self) -> Doing {
        match self.phase {
            Phase::Warm(_) => Doing::Warming,
            Phase::Fill(..) => Doing::Filling,
            Phase::Tournament(..) => Doing::Comparing,
            Phase::Cruise { .. } => Doing::Cruising,
            Phase::Trial(_) => Doing::Trying,
        }
    }

    pub fn why(&self) -> Why {
        self.why
    }

    /// Since when the arm in charge is, TSC.
    pub fn changed_at(&self) -> u64 {
        self.changed_at
    }

    /// How often another arm was put in charge.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// How often all arms were compared.
    pub fn tournaments(&self) -> u64 {
        self.tournaments
    }

    /// What trying arms has cost, as a share of all cycles.
    pub fn regret_share(&self) -> f64 {
        self.ledger.regret_share()
    }

    /// The time between two values of the TSC, none if they are the other way round.
    pub fn between(&self, from: u64, to: u64) -> Duration {
        Duration::from_micros(to.saturating_sub(from) * 1000 / self.ms)
    }
}

//! What an autopilot reports.

use super::doing::{Doing, Why};
use super::{Autopilot, Known, Phase, Rest};
use std::time::Duration;

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
        let may = !matches!(self.phase, Phase::Resting(_)) && (self.recirculates || !self.arms[arm].for_recirculation);
        (may && arm != self.in_charge).then(|| self.arms[arm].next_trial)
    }

    pub fn doing(&self) -> Doing {
        match self.phase {
            Phase::Warm(_) => Doing::Warming,
            Phase::Fill(..) => Doing::Filling,
            Phase::Tournament(..) => Doing::Comparing,
            Phase::Cruise { .. } => Doing::Cruising,
            Phase::Trial(_) => Doing::Trying,
            Phase::Resting(Rest::LowLoad) => Doing::LowLoad,
            Phase::Resting(Rest::OtherWork) => Doing::OtherWork { percent: self.other_work.percent() },
        }
    }

    pub fn why(&self) -> Why {
        self.why
    }

    /// When the arm in charge took over, TSC.
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

    /// The time between two values of the TSC; zero if `to` is earlier.
    pub fn between(&self, from: u64, to: u64) -> Duration {
        Duration::from_micros(to.saturating_sub(from) * 1000 / self.ms)
    }
}

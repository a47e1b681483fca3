//! The budget of trials, and what they have cost.

/// The part of a port's cycles that is saved for trials. The rest up to 1 % pays the first tournament, which comes
/// before anything can be saved.
const RATE: f64 = 0.0075;
/// The savings of this many milliseconds of traffic are kept, and no more.
const KEPT_MS: f64 = 2000.0;

/// The savings for one port's trials, in cycles.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    saved: f64,
    most: f64,
    cycles: f64,
    regret: f64,
}

impl Ledger {
    pub fn new(cycles_per_ms: f64) -> Self {
        let most = RATE * KEPT_MS * cycles_per_ms;
        Ledger { saved: most, most, cycles: 0.0, regret: 0.0 }
    }

    /// Notes cycles that packets took. Nothing is saved while another machine shares the core: no trial takes place then, and those
    /// that followed would take a large part of the time between.
    pub fn earn(&mut self, cycles: f64, was_shared: bool) {
        self.cycles += cycles;
        if !was_shared {
            self.saved = (self.saved + RATE * cycles).min(self.most);
        }
    }

    /// Notes the cost of a trial: cycles beyond those that the arm in charge would have taken.
    pub fn spend(&mut self, excess: f64) {
        let excess = excess.max(0.0);
        self.saved -= excess;
        self.regret += excess;
    }

    /// Whether the savings suffice for this cost.
    pub fn affords(&self, excess: f64) -> bool {
        self.saved >= excess
    }

    /// The cost of all trials, as a share of all cycles.
    pub fn regret_share(&self) -> f64 {
        if self.cycles == 0.0 { 0.0 } else { self.regret / self.cycles }
    }
}

//! What probing may cost, and what it has cost.

/// Cycles put by for probing, of each cycle that the port takes. The rest up to 1 % is for the first tournament, which
/// comes before anything could be put by.
const RATE: f64 = 0.0075;
/// Milliseconds of traffic whose savings are kept; what is saved beyond is forgotten.
const KEPT_MS: f64 = 2000.0;

/// The account of one port's probing, in cycles.
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

    /// Notes cycles that packets took.
    pub fn earn(&mut self, cycles: f64) {
        self.cycles += cycles;
        self.saved = (self.saved + RATE * cycles).min(self.most);
    }

    /// Notes what probing cost: cycles beyond what the arm in charge would have taken.
    pub fn spend(&mut self, excess: f64) {
        let excess = excess.max(0.0);
        self.saved -= excess;
        self.regret += excess;
    }

    /// Whether so much may be spent.
    pub fn affords(&self, excess: f64) -> bool {
        self.saved >= excess
    }

    /// What all probing has cost, as a share of all cycles.
    pub fn regret_share(&self) -> f64 {
        if self.cycles == 0.0 { 0.0 } else { self.regret / self.cycles }
    }
}

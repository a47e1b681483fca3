//! What bursts cost, and what is usual.

use arrayvec::ArrayVec;

/// The cost of one burst, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// How many bursts.
    pub bursts: u64,
    /// Their packets.
    pub packets: u64,
    /// TSC cycles from poll to tx, without upcalls.
    pub cycles: u64,
    /// Passes through the lookup.
    pub passes: u64,
    /// Passes that a cache in front of the subtables answered.
    pub cached: u64,
    /// Passes that no level answered: upcalls.
    pub upcalls: u64,
    /// Whether such a cache could hold more as soon as a control thread makes memory.
    pub awaits_memory: bool,
    /// Lines of such caches that are in use, at the end.
    pub cache_lines: usize,
    /// Cycles and packets of the bursts that something besides their packets lengthened: they are no part of the cost.
    pub aside_cycles: u64,
    pub aside_packets: u64,
}

impl Sample {
    /// Adds a chunk, or several.
    pub fn add(&mut self, other: &Sample) {
        self.add_burst(other);
        self.aside_cycles += other.aside_cycles;
        self.aside_packets += other.aside_packets;
    }

    /// Adds a burst: whether it is set aside is not known yet.
    #[inline]
    pub fn add_burst(&mut self, other: &Sample) {
        self.bursts += other.bursts;
        self.packets += other.packets;
        self.cycles += other.cycles;
        self.passes += other.passes;
        self.cached += other.cached;
        self.upcalls += other.upcalls;
        self.awaits_memory |= other.awaits_memory;
        self.cache_lines = other.cache_lines;
    }

    /// Cycles a packet, without the bursts that are set aside.
    pub fn cost(&self) -> f64 {
        (self.cycles - self.aside_cycles) as f64 / (self.packets - self.aside_packets).max(1) as f64
    }

    /// Cycles that the packets took beyond `cost` a packet, as if those set aside had cost what all others did.
    pub fn excess(&self, cost: f64) -> f64 {
        (self.cost() - cost) * self.packets as f64
    }

    /// Packets a burst.
    pub fn fullness(&self) -> f64 {
        self.packets as f64 / self.bursts.max(1) as f64
    }

    /// Share of the passes that a cache answered.
    pub fn cached_share(&self) -> f64 {
        self.cached as f64 / self.passes.max(1) as f64
    }

    /// Whether many flows are being set up: more than a quarter of the passes are of new flows.
    pub fn sets_up_flows(&self) -> bool {
        self.upcalls * 4 > self.passes
    }

    /// Whether packets recirculate: one in twenty or more.
    pub fn recirculates(&self) -> bool {
        self.passes > self.packets + self.packets / 20
    }
}

/// The median; NaN of no values.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted: ArrayVec<f64, 16> = values.iter().copied().take(16).collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n == 0 { f64::NAN } else { (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0 }
}

/// [`Usual`] remembers the cost of this many chunks.
const RECENT: usize = 8;

/// How the chunks of the arm in charge usually look.
#[derive(Clone, Debug, Default)]
pub(super) struct Usual {
    learnt: usize,
    recent: [f64; RECENT],
    cost: f64,
    /// Mean distance of a chunk's cost from `cost`, as a share of it.
    deviation: f64,
    cached_share: f64,
    fullness: f64,
}

/// Weight of one chunk in what is usual.
const WEIGHT: f64 = 1.0 / 32.0;
/// A cost is a surprise if it differs from the usual one by this share, and by this many deviations.
const COST_SURPRISE: f64 = 0.2;
const DEVIATIONS: f64 = 4.0;
/// The most that one chunk counts in the deviation.
const OUTLIER: f64 = 0.25;
/// A share of cached passes is a surprise if it differs from the usual one by this.
const SHARE_SURPRISE: f64 = 0.15;
/// Chunks whose bursts differ by more than this in size are not compared: fixed costs differ per packet.
pub(super) const COMPARABLE: f64 = 0.3;

/// A chunk compared with the usual ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Usual,
    /// The traffic has changed.
    Surprising,
    /// The traffic is as before, in larger or smaller bursts.
    OtherLoad,
}

impl Usual {
    pub fn is_known(&self) -> bool {
        self.learnt >= RECENT
    }

    /// Adds a chunk.
    pub fn learn(&mut self, chunk: &Sample) {
        self.recent[self.learnt % RECENT] = chunk.cost();
        self.learnt += 1;
        let weight = WEIGHT.max(1.0 / self.learnt as f64);
        self.cost += weight * (chunk.cost() - self.cost);
        self.deviation += weight * ((chunk.cost() / self.cost - 1.0).abs().min(OUTLIER) - self.deviation);
        if self.learnt == RECENT {
            // An interrupt among the first chunks must not stay in the mean.
            self.cost = self.cost();
            self.deviation =
                self.recent.map(|cost| (cost / self.cost - 1.0).abs().min(OUTLIER)).iter().sum::<f64>() / RECENT as f64;
        }
        self.cached_share += weight * (chunk.cached_share() - self.cached_share);
        self.fullness += weight * (chunk.fullness() - self.fullness);
    }

    /// Cycles a packet, lately.
    pub fn cost(&self) -> f64 {
        median(&self.recent[..self.learnt.min(RECENT)])
    }

    /// Share of cached passes, lately.
    pub fn cached_share(&self) -> f64 {
        self.cached_share
    }

    /// Mean distance of a chunk's cost from the usual one, as a share of it: smaller differences are noise.
    pub fn deviation(&self) -> f64 {
        self.deviation
    }

    pub fn look(&self, chunk: &Sample) -> Look {
        if (chunk.cached_share() - self.cached_share).abs() > SHARE_SURPRISE {
            Look::Surprising
        } else if !self.is_comparable(chunk) {
            Look::OtherLoad
        } else if (chunk.cost() / self.cost - 1.0).abs() > COST_SURPRISE.max(DEVIATIONS * self.deviation) {
            Look::Surprising
        } else {
            Look::Usual
        }
    }

    /// Whether a chunk's bursts are about as full as is usual.
    pub fn is_comparable(&self, chunk: &Sample) -> bool {
        (chunk.fullness() / self.fullness - 1.0).abs() <= COMPARABLE
    }
}

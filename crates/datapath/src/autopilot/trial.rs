//! A trial: one arm side by side with the one in charge.

use super::sample::{COMPARABLE, Sample, median};
use arrayvec::ArrayVec;

/// The least and the most chunks that warm the cache.
const WARMING: (usize, usize) = (12, 64);
/// The cache still fills if the share of cached passes was larger in the later half of the chunks: by this part of
/// itself, and by this many standard deviations.
const GAIN: f64 = 0.01;
const SIGNIFICANT: f64 = 2.5;
/// Chunks that are measured of each of the two arms.
const MEASURED: usize = 4;
/// Chunks of the arm in charge that are not measured, while its data returns to the processor's caches.
const RETURNING: usize = 2;
/// If the cost of the arm in charge differs by more than this before and after, the traffic changed during the trial.
const STEADY: f64 = 0.1;

/// A trial under way.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    /// The arm that is tried.
    pub arm: usize,
    before: f64,
    /// The arm has filled its cache just before, and stays active until it is measured, even if nothing is left for trials.
    pub is_filled: bool,
    tried: Sample,
    /// Shares of cached passes, chunk by chunk while the cache warms.
    shares: ArrayVec<f64, { WARMING.1 }>,
    /// Costs of the tried arm, and the bursts in which they were measured.
    costs: ArrayVec<f64, MEASURED>,
    measured: Sample,
    /// The arm in charge was active in between, so the next chunk is not measured.
    has_paused: bool,
    /// The arm was active long enough.
    is_over: bool,
    /// Costs of the arm in charge afterwards.
    after: ArrayVec<f64, MEASURED>,
    compared: Sample,
    returned: usize,
}

/// What a trial tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Nothing: the load changed.
    Unclear,
    /// The arm takes `cost` cycles a packet, which is cheaper by this share (dearer, if negative). The trial cost
    /// `excess` cycles. `early`: its cache was still filling.
    Cheaper { by: f64, cost: f64, excess: f64, early: bool },
}

impl Trial {
    /// Of an arm, while the arm in charge takes `before` cycles a packet.
    pub fn new(arm: usize, before: f64) -> Self {
        Trial {
            arm,
            before,
            is_filled: false,
            tried: Sample::default(),
            shares: ArrayVec::new(),
            costs: ArrayVec::new(),
            measured: Sample::default(),
            has_paused: false,
            is_over: false,
            after: ArrayVec::new(),
            compared: Sample::default(),
            returned: 0,
        }
    }

    /// The same of an arm that has just filled its cache.
    pub fn of_filled(arm: usize, before: f64) -> Self {
        Trial { is_filled: true, ..Trial::new(arm, before) }
    }

    /// Takes a chunk of the tried arm. It is the last if the arm is `hopeless`, or nothing is left for trials.
    pub fn push(&mut self, chunk: &Sample, hopeless: bool, is_broke: bool) {
        let end = hopeless || is_broke && !self.is_filled;
        self.tried.add(chunk);
        let has_paused = std::mem::take(&mut self.has_paused);
        if !end && (has_paused || self.costs.is_empty() && self.warms(chunk)) {
            return;
        }
        self.costs.push(chunk.cost());
        self.measured.add(chunk);
        self.is_over = end || self.costs.is_full();
    }

    /// Whether the arm was active long enough.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The arm in charge was active meanwhile.
    pub fn go_on(&mut self) {
        self.has_paused = true;
    }

    /// Whether the cache still fills.
    fn warms(&mut self, chunk: &Sample) -> bool {
        self.shares.push(chunk.cached_share());
        self.shares.len() < WARMING.0 || !self.shares.is_full() && self.still_fills()
    }

    /// Whether the share of cached passes was growing while it warmed.
    fn still_fills(&self) -> bool {
        let half = self.shares.len() / 2;
        let mean = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        let (old, new) = (mean(&self.shares[..half]), mean(&self.shares[self.shares.len() - half..]));
        let passes = self.tried.passes as f64 / 2.0;
        let by_chance = (2.0 * old * (1.0 - old) / passes).sqrt();
        new - old > (GAIN * old).max(SIGNIFICANT * by_chance)
    }

    /// Takes a chunk of the arm in charge, after the trial.
    pub fn compare(&mut self, chunk: &Sample) -> Option<Verdict> {
        self.returned += 1;
        if self.returned <= RETURNING {
            return None;
        }
        self.after.push(chunk.cost());
        self.compared.add(chunk);
        self.after.is_full().then(|| self.verdict())
    }

    /// Share of the passes that the tried arm's cache answered at the end.
    pub fn cached_share(&self) -> f64 {
        self.measured.cached_share()
    }

    fn verdict(&self) -> Verdict {
        let (after, cost) = (median(&self.after), median(&self.costs));
        let as_full = (self.measured.fullness() / self.compared.fullness() - 1.0).abs() <= COMPARABLE;
        if !as_full || (after / self.before - 1.0).abs() > STEADY {
            return Verdict::Unclear;
        }
        let other = (self.before + after) / 2.0;
        let excess = self.tried.excess(other).max(0.0);
        Verdict::Cheaper { by: 1.0 - cost / other, cost, excess, early: self.still_fills() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_after_a_pause_is_not_measured() {
        let chunk = |cycles| Sample { bursts: 8, packets: 256, cycles, passes: 256, ..Sample::default() };
        let mut trial = Trial::new(1, 100.0);
        (1..WARMING.0).for_each(|_| trial.push(&chunk(25_600), false, false));
        for _ in 0..MEASURED {
            assert!(!trial.is_over());
            trial.go_on();
            trial.push(&chunk(99_999), false, false);
            trial.push(&chunk(25_600), false, false);
        }
        assert!(trial.is_over());
        assert_eq!(trial.costs[..], [100.0; MEASURED]);
    }
}

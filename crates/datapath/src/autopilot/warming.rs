//! The safe arm's cache fills: how far it is, and what the arm will cost once it is full.
//!
//! A cache for a million flows takes a second to fill, and the choice cannot wait for that. What can be said early is how
//! the cost falls as more is cached, and so what it comes to in the end.

use super::sample::Sample;
use arrayvec::ArrayVec;

/// Chunks that are remembered.
const MOST: usize = 128;
/// The cache still fills if the share of cached passes has grown by so much from the third to the last quarter.
const GAIN: f64 = 0.01;

/// The chunks of a safe arm whose cache fills.
#[derive(Clone, Debug)]
pub(super) struct Warming {
    /// When it began, TSC.
    pub since: u64,
    /// Packets since then.
    pub packets: u64,
    /// Share of cached passes and cycles a packet, chunk by chunk; if there are more, the last ones.
    chunks: ArrayVec<(f64, f64), MOST>,
}

impl Warming {
    pub fn new(since: u64) -> Self {
        Warming { since, packets: 0, chunks: ArrayVec::new() }
    }

    pub fn push(&mut self, chunk: &Sample) {
        self.packets += chunk.packets;
        if self.chunks.is_full() {
            self.chunks.remove(0);
        }
        self.chunks.push((chunk.cached_share(), chunk.cost()));
    }

    /// Whether more is cached from chunk to chunk.
    fn still_fills(&self) -> bool {
        let quarter = self.chunks.len() / 4;
        let mean = |chunks: &[(f64, f64)]| chunks.iter().map(|c| c.0).sum::<f64>() / chunks.len() as f64;
        let (_, latter) = self.chunks.split_at(self.chunks.len() - 2 * quarter);
        let (third, last) = latter.split_at(quarter);
        quarter != 0 && mean(last) > mean(third) + GAIN * mean(third).max(GAIN)
    }

    /// Cycles a packet once everything is cached: where the line through costs over shares comes to. `None` if the
    /// cache is as full as it gets.
    pub fn promise(&self) -> Option<f64> {
        if !self.still_fills() {
            return None;
        }
        let n = self.chunks.len() as f64;
        let mean = |value: fn(&(f64, f64)) -> f64| self.chunks.iter().map(value).sum::<f64>() / n;
        let (share, cost) = (mean(|c| c.0), mean(|c| c.1));
        let spread = self.chunks.iter().map(|c| (c.0 - share) * (c.0 - share)).sum::<f64>();
        let slope = self.chunks.iter().map(|c| (c.0 - share) * (c.1 - cost)).sum::<f64>() / spread;
        let promise = cost + slope * (1.0 - share);
        // A line through noise may come to nothing at all.
        (slope < 0.0 && promise > 0.0).then_some(promise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warming(shares: impl Iterator<Item = f64>, cost: impl Fn(f64) -> f64) -> Warming {
        let mut warming = Warming::new(0);
        for share in shares {
            let (packets, cycles) = (10_000, (cost(share) * 1e4) as u64);
            let cached = (share * 1e4) as u64;
            warming.push(&Sample { bursts: 400, packets, cycles, passes: packets, cached });
        }
        warming
    }

    #[test]
    fn a_cache_that_fills_promises_what_it_costs_full() {
        let filling = warming((0..80).map(|n| f64::from(n) * 0.004), |share| 300.0 - 200.0 * share);
        assert!((filling.promise().unwrap() - 100.0).abs() < 2.0);
    }

    #[test]
    fn a_cache_that_is_full_promises_nothing_more() {
        let full = warming((0..80).map(|n| f64::from(n).min(10.0) * 0.1), |share| 300.0 - 200.0 * share);
        assert_eq!(full.promise(), None);
        let useless = warming((0..80).map(|_| 0.01), |_| 300.0);
        assert_eq!(useless.promise(), None);
        let dearer = warming((0..80).map(|n| f64::from(n) * 0.004), |share| 100.0 + 10.0 * share);
        assert_eq!(dearer.promise(), None);
        assert_eq!(warming(std::iter::empty(), |_| 1.0).promise(), None);
    }
}

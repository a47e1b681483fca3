//! Latency of packets: a histogram with an error below 1/32, and its percentiles.

use serde::{Deserialize, Serialize};

/// Counts of times, nanoseconds.
///
/// Shape:  below 64 one bin a nanosecond, above 32 bins for each doubling.
/// Errors: a percentile is at most 1/32 above the true one, never below.
/// Source: the idea of HdrHistogram (Tene).
#[derive(Clone, Debug)]
pub struct Histogram {
    bins: Vec<u64>,
    count: u64,
    max: u64,
}

/// Bits of a value that its bin keeps.
const KEPT: u32 = 5;
/// Bins for 64-bit values.
const BINS: usize = ((64 - KEPT as usize) << KEPT) + (1 << KEPT);

/// Latency percentiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Half, nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1000.
    pub p99_9_ns: u64,
    /// All.
    pub max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { bins: vec![0; BINS], count: 0, max: 0 }
    }
}

fn bin(value: u64) -> usize {
    let shift = (64 - value.leading_zeros()).saturating_sub(KEPT + 1);
    ((shift as usize) << KEPT) + (value >> shift) as usize
}

/// The largest value of a bin.
fn upper(bin: usize) -> u64 {
    let shift = (bin >> KEPT).saturating_sub(1);
    let kept = (bin - (shift << KEPT)) as u64;
    (kept << shift) | ((1 << shift) - 1)
}

impl Histogram {
    /// Counts a time.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.bins[bin(ns)] += 1;
        self.count += 1;
        self.max = self.max.max(ns);
    }

    /// The time that this share of the packets did not exceed.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bin, n) in self.bins.iter().enumerate() {
            seen += n;
            if seen >= rank {
                return upper(bin).min(self.max);
            }
        }
        self.max
    }

    /// The percentiles; `None` if there are no packets.
    pub fn latency(&self) -> Option<Latency> {
        (self.count != 0).then(|| Latency {
            p50_ns: self.quantile(0.5),
            p99_ns: self.quantile(0.99),
            p99_9_ns: self.quantile(0.999),
            max_ns: self.max,
        })
    }

    /// Start, end and count of each bin, from the first to the last that is not empty.
    pub fn bins(&self) -> Vec<(u64, u64, u64)> {
        let used: Vec<usize> = (0..BINS).filter(|bin| self.bins[*bin] != 0).collect();
        let (Some(first), Some(last)) = (used.first(), used.last()) else { return Vec::new() };
        let lower = |bin: usize| if bin == 0 { 0 } else { upper(bin - 1) + 1 };
        (*first..=*last).map(|bin| (lower(bin), upper(bin), self.bins[bin])).collect()
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Histogram) {
        self.bins.iter_mut().zip(&other.bins).for_each(|(sum, n)| *sum += n);
        self.count += other.count;
        self.max = self.max.max(other.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compared with a sorted list.
        #[test]
        fn quantiles_are_those_of_a_sorted_list(mut values in prop::collection::vec(prop_oneof![0u64..100, any::<u64>(), (0u32..64).prop_map(|s| 1 << s)], 1..200),
                                                share in prop_oneof![Just(0.5), Just(0.99), Just(0.999), 0.0f64..1.0]) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|v| histogram.record(*v));
            values.sort_unstable();
            let rank = ((values.len() as f64 * share).ceil() as usize).max(1);
            let (got, want) = (histogram.quantile(share), values[rank - 1]);
            prop_assert!(got >= want && got - want <= want / 32, "{} for {}", got, want);
            prop_assert_eq!(histogram.latency().unwrap().max_ns, *values.last().unwrap());
            prop_assert_eq!(histogram.bins().iter().map(|(_, _, n)| n).sum::<u64>(), values.len() as u64);
        }
    }

    #[test]
    fn bins_follow_each_other() {
        for value in [0, 1, 31, 32, 63, 64, 65, 127, 128, 1000, u64::MAX] {
            let at = bin(value);
            assert!(value <= upper(at) && (at == 0 || value > upper(at - 1)), "{value} in {at}");
        }
        assert_eq!(Histogram::default().latency(), None);
    }
}

//! What several measurements of one thing come to.

use serde::{Deserialize, Serialize};

/// How often the interval of a median has to hold it.
const CERTAINTY: f64 = 0.95;

/// Median and range of repeated measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stat {
    /// The middle one; of an even number, the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// In the order they were made.
    pub samples: Vec<f64>,
}

impl Stat {
    /// Of at least one sample; `None` of none, or if one is not a number.
    pub fn of(samples: Vec<f64>) -> Option<Stat> {
        if samples.is_empty() || samples.iter().any(|s| s.is_nan()) {
            return None;
        }
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
        Some(Stat { median, min: sorted[0], max: sorted[n - 1], samples })
    }

    /// The smallest and the largest that the true median may be: the order statistics which it lies between in 95 of 100 cases,
    /// whatever the distribution; of fewer than nine samples the range. Source: Conover, Practical Nonparametric Statistics, 3.2.
    pub fn interval(&self) -> (f64, f64) {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        // The probability that at most `left_out` of n samples are above the median, and as many below, out of 2^n.
        let (mut left_out, mut outside, mut ways) = (0, 2.0, 1.0);
        while left_out + 1 < n.div_ceil(2) {
            ways *= (n - left_out) as f64 / (left_out + 1) as f64;
            outside += 2.0 * ways;
            if outside > (1.0 - CERTAINTY) * 2f64.powi(n as i32) {
                break;
            }
            left_out += 1;
        }
        (sorted[left_out], sorted[n - 1 - left_out])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_the_median_leaves_out_what_it_may() {
        for (n, left_out) in [(1, 0), (2, 0), (5, 0), (7, 0), (8, 0), (9, 1), (11, 1), (12, 2), (13, 2), (25, 7)] {
            let stat = Stat::of((0..n).map(f64::from).collect()).unwrap();
            assert_eq!(stat.interval(), (f64::from(left_out), f64::from(n - 1 - left_out)), "{n} samples");
        }
    }

    #[test]
    fn the_interval_holds_the_median() {
        // Of a skewed distribution, whose median is 1/4.
        let mut random = 1;
        let mut sample = || (sluice_simd::hash::splitmix64(&mut random) as f64 / 2f64.powi(64)).powi(2);
        for n in [6, 7, 9, 13] {
            let holds = |_: &u32| {
                let (low, high) = Stat::of((0..n).map(|_| sample()).collect()).unwrap().interval();
                (low..=high).contains(&0.25)
            };
            let held = (0..20_000).filter(holds).count();
            assert!(held > 18_950, "{held} of 20000 with {n} samples");
        }
    }

    #[test]
    fn the_middle_and_the_ends() {
        let stat = Stat::of(vec![3.0, 1.0, 10.0]).unwrap();
        assert_eq!((stat.median, stat.min, stat.max), (3.0, 1.0, 10.0));
        assert_eq!(Stat::of(vec![4.0, 1.0]).unwrap().median, 2.5);
        assert_eq!(stat.samples, [3.0, 1.0, 10.0]);
        assert_eq!(Stat::of(vec![]), None);
        assert_eq!(Stat::of(vec![f64::NAN]), None);
    }
}

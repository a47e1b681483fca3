//! What several measurements of one thing come to.

use serde::{Deserialize, Serialize};

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
}

#[cfg(test)]
mod tests {
    use super::*;

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

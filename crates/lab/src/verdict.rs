//! Whether a measurement reaches a fixed number, or is too noisy to tell.

use crate::record::Point;
use crate::stat::Stat;
use std::fmt::{self, Display};

/// The most that two measurements of one thing may differ by (half the distance between the largest and the smallest
/// ratio) where a few percent decide. Beyond it nothing is decided: noise neither helps nor harms.
pub const MARGIN: f64 = 0.03;

/// What a measurement says about an aim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is reached.
    Yes,
    /// It is missed.
    No,
    /// The same setting measured twice differs by more than the margin. Such a point counts as neither.
    Undecided,
}

impl Verdict {
    /// Whether `reached` is at least `wanted`, where the same setting measured twice differs by `spread`.
    pub fn of(reached: f64, wanted: f64, spread: f64) -> Verdict {
        match (spread > MARGIN, reached >= wanted) {
            (true, _) => Verdict::Undecided,
            (false, true) => Verdict::Yes,
            (false, false) => Verdict::No,
        }
    }
}

impl Verdict {
    /// Whether what was reached at a point is at least `wanted`.
    pub fn at(point: &Point, reached: f64, wanted: f64) -> Verdict {
        Verdict::of(reached, wanted, spread(point.same_twice.as_ref()))
    }
}

/// Half the distance between the largest and the smallest ratio of one setting measured twice, and the 1 that it should be; 0
/// if it was not measured twice. So a single ratio says something, too.
pub fn spread(same_twice: Option<&Stat>) -> f64 {
    same_twice.map_or(0.0, |twice| (twice.max.max(1.0) - twice.min.min(1.0)) / 2.0)
}

/// How many of the verdicts say what, in words.
pub fn counted(verdicts: impl Iterator<Item = Verdict>) -> String {
    let mut counts = [0; 3];
    verdicts.for_each(|verdict| counts[verdict as usize] += 1);
    let [yes, no, undecided] = counts;
    format!("{yes} points pass, {no} do not, {undecided} are undecided (spread over {MARGIN}).")
}

impl Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Yes => "yes",
            Verdict::No => "no",
            Verdict::Undecided => "undecided",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_ratio_has_a_spread() {
        let spread = |ratios: &[f64]| spread(Stat::of(ratios.to_vec()).as_ref());
        assert!((spread(&[0.98, 1.04]) - 0.03).abs() < 1e-9);
        assert!((spread(&[0.7]) - 0.15).abs() < 1e-9, "one measurement that differs by a third decides nothing");
        assert_eq!(spread(&[]), 0.0);
    }

    #[test]
    fn noise_buys_nothing() {
        assert_eq!(Verdict::of(0.97, 0.97, 0.03), Verdict::Yes);
        assert_eq!(Verdict::of(0.969, 0.97, 0.03), Verdict::No, "the criterion does not move with the spread");
        assert_eq!(Verdict::of(0.969, 0.97, 0.031), Verdict::Undecided);
        assert_eq!(Verdict::of(1.5, 0.97, 0.031), Verdict::Undecided, "nor does it pass");
        let all = [Verdict::Yes, Verdict::Undecided, Verdict::No, Verdict::Yes];
        assert_eq!(counted(all.into_iter()), "2 points pass, 1 do not, 1 are undecided (spread over 0.03).");
    }
}

//! Whether a core runs as fast as it did.
//!
//! A host can slow a core of a virtual machine down without telling anybody: each time another core touches memory that
//! the machine did not have so far, for example, all its cores may have to leave the guest for a moment. Seen were
//! milliseconds in which multiplications of numbers in registers took ten to twenty-five times as long, while no clock of the
//! guest's kernel knew of lost time.

use sluice_simd::tsc;
use std::hint::black_box;

/// Multiplications of a look, each of which waits for the one before: some microseconds.
const STEPS: u64 = 1000;
/// How often a look repeats them: an interrupt makes one of them longer, a slow core all.
const LOOKS: usize = 3;
/// A core is slow if a look takes more than this many times the shortest one.
const SLOWED: u64 = 3;

/// How fast the caller's core has been.
#[derive(Debug)]
pub struct CoreSpeed {
    /// Cycles of the time-stamp counter.
    shortest: u64,
}

impl CoreSpeed {
    /// Looks at the caller's core for the first time.
    pub fn now() -> Self {
        CoreSpeed { shortest: look() }
    }

    /// Whether it is slow now.
    pub fn is_slow(&mut self) -> bool {
        self.compare(look())
    }

    fn compare(&mut self, cycles: u64) -> bool {
        self.shortest = self.shortest.min(cycles);
        cycles > SLOWED * self.shortest
    }
}

/// The cycles that the multiplications take at best.
fn look() -> u64 {
    let one = |_| {
        let began = tsc::now();
        let last = (0..STEPS).fold(began, |x, step| black_box(x).wrapping_mul(step | 1));
        black_box(last);
        tsc::now().saturating_sub(began)
    };
    (0..LOOKS).map(one).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_slow_beside_its_best() {
        let mut speed = CoreSpeed { shortest: 3000 };
        assert_eq!(
            [8000, 9001, 2000, 6000, 6001].map(|cycles| speed.compare(cycles)),
            [false, true, false, false, true]
        );
        assert!(look() > STEPS, "each step waits for the one before");
    }
}

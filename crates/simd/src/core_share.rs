//! Whether the caller has its core for itself.
//!
//! A core has two hardware threads, and a host gives one of them to a virtual machine and the other to somebody else. While that
//! one computes, work that is bound by throughput takes up to twice as long, and no clock of the guest's kernel tells. Seen were
//! spells of 0.1 to 30 ms, between 2 and 70 % of the time. What is measured in one says little of the code.

use crate::tsc;
use std::hint::black_box;

/// Steps of a look, each of six rotations that do not wait for each other: about a third of a microsecond.
const STEPS: u64 = 256;

/// A core is shared if a look takes more than this many hundredths of the shortest one. Looks at a core that is not shared
/// differ by 5, most of those at one that is by 30 and more.
const SHARED: u64 = 115;

/// Cycles after which the shortest look is forgotten, a second or two. A core that has become slower, or is always shared, then
/// sets the measure itself.
const PERIOD: u64 = 4_000_000_000;

/// Looks at the caller's core.
#[derive(Clone, Copy, Debug)]
pub struct CoreShare {
    /// The shortest look of the period under way and of the one before, cycles.
    shortest: u64,
    before: u64,
    period_began: u64,
}

impl Default for CoreShare {
    fn default() -> Self {
        Self::new()
    }
}

impl CoreShare {
    /// Without a look so far.
    pub const fn new() -> Self {
        CoreShare { shortest: u64::MAX, before: u64::MAX, period_began: 0 }
    }

    /// Whether another hardware thread computes on the caller's core now.
    pub fn is_shared(&mut self) -> bool {
        let began = tsc::now();
        self.compare(began, look(began))
    }

    /// Compares a look with those before it.
    fn compare(&mut self, now: u64, cycles: u64) -> bool {
        if now.saturating_sub(self.period_began) > PERIOD {
            *self = CoreShare { shortest: u64::MAX, before: self.shortest, period_began: now };
        }
        self.shortest = self.shortest.min(cycles);
        cycles.saturating_mul(100) > self.shortest.min(self.before).saturating_mul(SHARED)
    }
}

/// Cycles that the rotations take: bound by how many the core starts at a time.
fn look(began: u64) -> u64 {
    let [mut a, mut b, mut c, mut d, mut e, mut f]: [u64; 6] = std::array::from_fn(|n| began + n as u64);
    for step in 0..STEPS {
        a = a.rotate_left(7) ^ step;
        b = b.rotate_left(9) ^ step;
        c = c.rotate_left(11) ^ step;
        d = d.rotate_left(13) ^ step;
        e = e.rotate_left(17) ^ step;
        f = f.rotate_left(19) ^ step;
    }
    black_box([a, b, c, d, e, f]);
    tsc::now().saturating_sub(began)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_takes_longer_tells_until_all_do() {
        let mut share = CoreShare::new();
        let told = [1000, 1150, 1151, 900, 1036].map(|cycles| share.compare(1, cycles));
        assert_eq!(told, [false, false, true, false, true]);
        assert!(share.compare(PERIOD + 2, 1500) && share.compare(2 * PERIOD, 1500), "beside the period before");
        assert!(!share.compare(2 * PERIOD + 3, 1500) && share.compare(2 * PERIOD + 4, 2000), "it has become slower");
    }

    #[test]
    fn a_look_takes_more_than_a_cycle_a_step() {
        assert!(look(tsc::now()) > STEPS);
    }
}

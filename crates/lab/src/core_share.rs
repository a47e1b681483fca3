//! Whether the caller has its core for itself.
//!
//! A host gives a virtual machine one of a core's two hardware threads, and somebody else the other. While that one
//! computes, work that is bound by throughput takes up to twice as long, and no clock of the guest's kernel tells. Seen were
//! spells of 0.1 to 30 ms, between 5 and 70 % of the time. What is measured in one says little of the switch.
//!
//! So experiments look at the core before and after each slice of a measurement, and leave out what it was shared in. Whether a
//! slice counts depends on the looks alone, never on what the slice took.

use sluice_simd::tsc;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Steps of a look, each of six rotations that do not wait for each other: about a third of a microsecond.
const STEPS: u64 = 256;

/// A core is shared if a look takes more than this many hundredths of the shortest one. Looks at a core that is not shared
/// differ by 5, those at one that is by 30 and more.
const SHARED: u64 = 115;

/// What reports say about it.
pub const NOTE: &str = "Slices before or after which another machine computed on the same core, told by the time that \
    independent rotations take, are left out, whatever they took themselves; all count where hardly any was without.";

/// Cycles of the shortest look so far.
static SHORTEST: AtomicU64 = AtomicU64::new(u64::MAX);

/// Whether another hardware thread computes on the caller's core now.
pub fn is_shared() -> bool {
    let cycles = look();
    let shortest = SHORTEST.load(Relaxed);
    if cycles < shortest {
        SHORTEST.fetch_min(cycles, Relaxed);
    }
    is_longer(cycles, shortest.min(cycles))
}

fn is_longer(cycles: u64, shortest: u64) -> bool {
    cycles * 100 > shortest * SHARED
}

/// Cycles that the rotations take: bound by how many the core starts at a time.
fn look() -> u64 {
    let began = tsc::now();
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

/// What slices of a measurement took: those for which the core was not shared, and the others.
#[derive(Debug)]
pub struct Slices<T> {
    alone: Vec<T>,
    shared: Vec<T>,
}

impl<T> Default for Slices<T> {
    fn default() -> Self {
        Slices { alone: Vec::new(), shared: Vec::new() }
    }
}

impl<T: Clone> Slices<T> {
    /// Slices at least in a measurement, so that its median is one even when the host takes a nap.
    pub const MIN: usize = 25;

    /// Runs one.
    pub fn run(&mut self, slice: impl FnOnce() -> T) {
        let was_shared = is_shared();
        let took = slice();
        self.note(took, was_shared || is_shared());
    }

    fn note(&mut self, took: T, was_shared: bool) {
        if was_shared { self.shared.push(took) } else { self.alone.push(took) }
    }

    /// Adds those of another measurement.
    pub fn add(&mut self, other: Self) {
        self.alone.extend(other.alone);
        self.shared.extend(other.shared);
    }

    /// Whether there are enough of those that count.
    pub fn are_enough(&self) -> bool {
        self.alone.len() >= Self::MIN
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.alone.len() + self.shared.len()
    }

    /// Those that count: all, if the core was hardly ever the caller's alone.
    pub fn counting(&self) -> Vec<T> {
        let others = if self.are_enough() { &[][..] } else { &self.shared };
        self.alone.iter().chain(others).cloned().collect()
    }

    /// The share of slices with a shared core, percent.
    pub fn shared_percent(&self) -> f64 {
        100.0 * self.shared.len() as f64 / self.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_a_shared_core_count_only_without_others() {
        let mut slices = Slices::default();
        (0..24).for_each(|_| slices.note(1, false));
        (0..76).for_each(|_| slices.note(2, true));
        assert!(!slices.are_enough());
        assert_eq!((slices.counting().len(), slices.shared_percent()), (100, 76.0), "all of too few");
        slices.note(1, false);
        assert_eq!(slices.counting(), [1; 25]);
        let mut run = Slices::default();
        (0..5).for_each(|n| run.run(|| n));
        slices.add(run);
        assert_eq!(slices.len(), 106);
    }

    #[test]
    fn a_look_that_takes_longer_tells() {
        assert!(!is_longer(1150, 1000) && is_longer(1151, 1000));
        assert!(look() > STEPS, "six rotations take more than a cycle");
    }
}

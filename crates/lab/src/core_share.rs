//! Measuring while the caller has its core for itself.
//!
//! Experiments look at the core before and after each slice of a measurement, and leave out what it was shared in. Whether a
//! slice counts depends on the looks alone, never on what the slice took.

use parking_lot::Mutex;
use sluice_simd::core_share::CoreShare;

/// What reports say about it.
pub const NOTE: &str = "Slices before or after which another machine computed on the same core, told by the time that \
    independent rotations take, are left out, whatever they took themselves; all count where hardly any was without.";

/// Of all measurements: one alone may be too short to know a core that is not shared.
static LOOKS: Mutex<CoreShare> = Mutex::new(CoreShare::new());

/// Whether another hardware thread computes on the caller's core now.
pub fn is_shared() -> bool {
    LOOKS.lock().is_shared()
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
}

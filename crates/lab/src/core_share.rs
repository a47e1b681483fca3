//! Measuring while the caller has its core for itself.
//!
//! Experiments look at the core before and after each slice of a measurement, and leave out what it was shared in. Whether a
//! slice counts depends on the looks alone, never on what the slice took.

use parking_lot::Mutex;
use sluice_simd::core_share::CoreShare;
use std::time::{Duration, Instant};

/// What reports say about it.
pub const NOTE: &str = "Slices before or after which another machine computed on the same core, told by the time that \
    independent rotations take, are left out, whatever they took themselves; all count where hardly any was without.";

/// Of all measurements: one alone may be too short to know a core that is not shared.
static LOOKS: Mutex<CoreShare> = Mutex::new(CoreShare::new());

/// A measurement may wait this many times its span for slices that count. What it does not need is left to others.
const PATIENCE: u32 = 8;
/// The longest that one waits.
const PATIENCE_MAX: Duration = Duration::from_secs(20);

/// What measurements have not needed.
static PATIENCE_LEFT: Mutex<Duration> = Mutex::new(Duration::ZERO);

/// The time of a measurement: its span, and longer while it has not had the core for itself.
///
/// Another machine may have the core for seconds, and then leave it for minutes. So a measurement may wait longer than its
/// own patience, as long as all of them together do not.
#[derive(Debug)]
pub struct Lasting<'a> {
    began: Instant,
    span: Duration,
    patience: Duration,
    /// Where patience comes from, and what is not needed goes.
    left: &'a Mutex<Duration>,
}

impl<'a> Lasting<'a> {
    /// Of a measurement that begins now.
    pub fn new(span: Duration) -> Lasting<'static> {
        Lasting::among(&PATIENCE_LEFT, span)
    }

    fn among(left: &'a Mutex<Duration>, span: Duration) -> Self {
        let patience = std::mem::take(&mut *left.lock()) + span * PATIENCE;
        Lasting { began: Instant::now(), span, patience, left }
    }

    /// Whether the measurement goes on.
    pub fn lasts<T>(&self, slices: &Slices<T>) -> bool {
        self.lasts_after(self.began.elapsed(), slices)
    }

    fn lasts_after<T>(&self, elapsed: Duration, slices: &Slices<T>) -> bool {
        let is_too_short = elapsed < self.span || slices.len() < Slices::<T>::MIN;
        is_too_short || !slices.are_enough() && self.waits_after(elapsed)
    }

    fn waits_after(&self, elapsed: Duration) -> bool {
        elapsed < self.span + self.patience.min(PATIENCE_MAX)
    }
}

impl Drop for Lasting<'_> {
    fn drop(&mut self) {
        let waited = self.began.elapsed().saturating_sub(self.span);
        *self.left.lock() += self.patience.saturating_sub(waited);
    }
}

/// Runs pieces of work until those for which the core was not shared have taken `span` together, or there is no patience left.
/// What looks at the core itself and waits while it is shared, as the autopilot does, has had that time then.
pub fn run_alone(span: Duration, mut piece: impl FnMut()) {
    let timed = || {
        let began = Instant::now();
        piece();
        began.elapsed()
    };
    alone(&Lasting::new(span), is_shared, timed);
}

/// The same with pieces that tell how long they took.
fn alone(time: &Lasting<'_>, mut is_shared: impl FnMut() -> bool, mut piece: impl FnMut() -> Duration) {
    let mut had = Duration::ZERO;
    let mut was_shared = is_shared();
    while had < time.span && time.waits_after(time.began.elapsed()) {
        let took = piece();
        if !std::mem::replace(&mut was_shared, is_shared()) && !was_shared {
            had += took;
        }
    }
}

/// Whether another hardware thread computes on the caller's core now.
pub fn is_shared() -> bool {
    LOOKS.lock().is_shared()
}

/// What slices of a measurement took: those for which the core was not shared, and the others.
#[derive(Clone, Debug)]
pub struct Slices<T> {
    alone: Vec<T>,
    shared: Vec<T>,
    enough: usize,
}

impl<T> Slices<T> {
    /// Slices in any measurement.
    const MIN: usize = 25;

    /// Slices whose median is wanted: enough that it is one even when the host takes a nap.
    pub fn of_median() -> Self {
        Slices { alone: Vec::new(), shared: Vec::new(), enough: Self::MIN }
    }

    /// Slices whose mean is wanted, in which a nap counts.
    pub fn of_mean() -> Self {
        Slices { enough: 250, ..Slices::of_median() }
    }

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

    /// Whether there are enough of those that count, or hardly any of the others.
    pub fn are_enough(&self) -> bool {
        self.alone.len() >= self.enough || 4 * self.shared.len() <= self.len()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.alone.len() + self.shared.len()
    }

    /// Those that count: all, if the core was hardly ever the caller's alone.
    pub fn counting(&self) -> Vec<T>
    where
        T: Clone,
    {
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
    fn a_measurement_waits_for_slices_that_count_and_leaves_the_patience_it_does_not_need() {
        let s = Duration::from_secs;
        let (mut few, mut enough) = (Slices::of_median(), Slices::of_median());
        (0..25).for_each(|_| few.note((), true));
        (0..25).for_each(|_| enough.note((), false));
        let left = Mutex::new(Duration::ZERO);
        let time = Lasting::among(&left, s(1));
        let lasts = |elapsed| [&few, &enough, &Slices::of_median()].map(|slices| time.lasts_after(elapsed, slices));
        assert_eq!(lasts(Duration::ZERO), [true; 3], "its span has not passed");
        assert_eq!(lasts(s(1)), [true, false, true], "no slice counts, or there is none");
        assert_eq!(lasts(s(9)), [false, false, true], "it has no patience left");
        drop(time);
        let (second, third) = (Lasting::among(&left, s(2)), Lasting::among(&left, s(1)));
        assert!(second.lasts_after(s(20), &few) && !third.lasts_after(s(9), &few), "the second has the first's");
        assert!(!second.lasts_after(s(22), &few), "none waits so long");
    }

    #[test]
    fn a_switch_that_waits_for_its_core_has_it_for_the_whole_span() {
        let ms = Duration::from_millis;
        let (mut looks, mut pieces) = (0, 0);
        let is_shared = || {
            looks += 1;
            looks % 4 < 2
        };
        let piece = || {
            pieces += 1;
            ms(1)
        };
        alone(&Lasting::among(&Mutex::new(ms(60_000)), ms(4)), is_shared, piece);
        assert_eq!(pieces, 14, "those that end with looks 3, 7, 11 and 15 count");
        let no_patience = Mutex::default();
        let impatient = Lasting::among(&no_patience, ms(1));
        alone(&impatient, || true, || ms(1));
        assert!(impatient.began.elapsed() >= ms(9));
    }

    #[test]
    fn slices_of_a_shared_core_count_only_without_others() {
        let mut slices = Slices::of_median();
        (0..24).for_each(|_| slices.note(1, false));
        (0..76).for_each(|_| slices.note(2, true));
        assert!(!slices.are_enough());
        assert_eq!((slices.counting().len(), slices.shared_percent()), (100, 76.0), "all of too few");
        slices.note(1, false);
        assert_eq!(slices.counting(), [1; 25]);
        let mut mean = Slices::of_mean();
        (0..100).for_each(|n| mean.note(n, n < 26));
        assert_eq!(mean.counting().len(), 100, "too few for a mean");
        mean.note(100, false);
        (0..4).for_each(|_| mean.note(100, false));
        assert_eq!(mean.counting().len(), 79, "but hardly any other");
        let mut run = Slices::of_median();
        (0..5).for_each(|n| run.run(|| n));
        slices.add(run);
        assert_eq!(slices.len(), 106);
    }
}

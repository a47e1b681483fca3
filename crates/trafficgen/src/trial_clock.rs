//! The clock by which packets of a trial in the process arrive. It can stand still.
//!
//! A trial may lose two packets in a hundred thousand. Another machine's work on the PMD's core makes it lose more. So a caller
//! that can tell such moments stops the clock: no packet arrives, the switch takes those that wait, and the trial goes on
//! afterwards. The PMD's thread asks, because its core matters.

use parking_lot::Mutex;
use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Asked by the thread that polls the first port: whether time is to stand still now.
pub type Pauses = Box<dyn FnMut() -> bool + Send>;

/// How often it is asked while the clock runs, nanoseconds: often enough that a full ring is a hundred times as long, at 15
/// million packets a second.
const ASK_EVERY_NS: u64 = 20_000;

/// For how long the clock stands still in a trial at most, in lengths of it.
pub(crate) const PAUSED_MAX: u32 = 8;

/// The clock. One thread polls the first port, any may read it.
pub(crate) struct TrialClock {
    origin: Instant,
    pauses: Option<Mutex<Asked>>,
    /// Nanoseconds for which it has stood still.
    paused_ns: AtomicU64,
    /// What it shows while it stands still; `RUNS` while it runs.
    stands_at_ns: AtomicU64,
    /// Nanoseconds for which it may stand still yet.
    left_ns: AtomicU64,
}

const RUNS: u64 = u64::MAX;

struct Asked {
    pauses: Pauses,
    /// When it was last asked, nanoseconds of a clock that never stands still.
    at_ns: u64,
}

impl TrialClock {
    pub fn new(pauses: Option<Pauses>) -> Self {
        TrialClock {
            origin: Instant::now(),
            pauses: pauses.map(|pauses| Mutex::new(Asked { pauses, at_ns: 0 })),
            paused_ns: AtomicU64::new(0),
            stands_at_ns: AtomicU64::new(RUNS),
            left_ns: AtomicU64::new(0),
        }
    }

    /// Nanoseconds, less those for which it stood still.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.shown(|| self.elapsed_ns())
    }

    /// How long it has stood still since it was made, nanoseconds.
    pub fn paused_ns(&self) -> u64 {
        let elapsed_ns = self.elapsed_ns();
        elapsed_ns.saturating_sub(self.shown(|| elapsed_ns))
    }

    /// Begins a trial, in which it may stand still for so long.
    pub fn begin(&self, paused_max_ns: u64) {
        self.left_ns.store(paused_max_ns, Relaxed);
    }

    /// Asks whether to stand still, if it is time to. Called at each poll of the first port.
    #[inline]
    pub fn ask(&self) {
        if let Some(asked) = &self.pauses {
            self.ask_at(&mut asked.lock(), self.elapsed_ns());
        }
    }

    fn elapsed_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    fn shown(&self, elapsed_ns: impl FnOnce() -> u64) -> u64 {
        match self.stands_at_ns.load(Relaxed) {
            // The clock may stand still and run again after another thread has read the time.
            RUNS => elapsed_ns().saturating_sub(self.paused_ns.load(Relaxed)),
            stands_at_ns => stands_at_ns,
        }
    }

    fn ask_at(&self, asked: &mut Asked, elapsed_ns: u64) {
        let stands_at_ns = self.stands_at_ns.load(Relaxed);
        if stands_at_ns == RUNS && elapsed_ns - asked.at_ns < ASK_EVERY_NS {
            return;
        }
        let passed = elapsed_ns - asked.at_ns;
        asked.at_ns = elapsed_ns;
        let mut left = self.left_ns.load(Relaxed);
        if stands_at_ns != RUNS {
            left = left.saturating_sub(passed);
            self.left_ns.store(left, Relaxed);
        }
        match (stands_at_ns != RUNS, left != 0 && (asked.pauses)()) {
            (false, true) => self.stands_at_ns.store(elapsed_ns - self.paused_ns.load(Relaxed), Relaxed),
            (true, false) => {
                self.paused_ns.store(elapsed_ns - stands_at_ns, Relaxed);
                self.stands_at_ns.store(RUNS, Relaxed);
            }
            _ => {}
        }
    }
}

impl Debug for TrialClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrialClock").field("now_ns", &self.now_ns()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    proptest! {
        /// It never goes back, stands still from question to question as told, and for no longer than it may.
        #[test]
        fn it_stands_still_while_told(steps in prop::collection::vec((1u64..100_000, any::<bool>()), 1..80), max in 0u64..2_000_000) {
            let told = Arc::new(AtomicBool::new(false));
            let pauses = Arc::clone(&told);
            let clock = TrialClock::new(Some(Box::new(move || pauses.load(Relaxed))));
            clock.begin(max);
            let mut asked = Asked { pauses: Box::new(move || false), at_ns: 0 };
            std::mem::swap(&mut asked, &mut clock.pauses.as_ref().unwrap().lock());
            let (mut elapsed, mut last, mut expected, mut stands, mut left) = (0, 0, 0, false, max);
            let mut at = 0;
            for (step, tell) in steps {
                told.store(tell, Relaxed);
                elapsed += step;
                if stands {
                    left = u64::saturating_sub(left, step);
                } else {
                    expected += step;
                }
                if stands || elapsed - at >= ASK_EVERY_NS {
                    at = elapsed;
                    stands = tell && left != 0;
                }
                clock.ask_at(&mut asked, elapsed);
                let now = clock.shown(|| elapsed);
                prop_assert!(now >= last);
                prop_assert_eq!(now, expected);
                last = now;
            }
        }
    }
}

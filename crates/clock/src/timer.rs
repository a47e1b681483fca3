//! Threads that sleep until a time of the clock.

use crate::{is_stopped, is_virtual, now_ms};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest sleep that [`Timer::set`] asks for. A stopped clock would allow an endless one.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// The deadline of a timer that waits for no time.
const NEVER: u64 = u64::MAX;

/// Every timer of the process.
static TIMERS: Mutex<Vec<Arc<Deadline>>> = Mutex::new(Vec::new());

/// Says that a timer has been set anew or is gone.
static SERVED: Condvar = Condvar::new();

/// The next time at which a thread has something to do.
///
/// The thread computes it after its work, tells it by [`Timer::set`], sleeps for the time that this returns at most,
/// and looks at the clock again. A warp past that time calls the timer's waker.
pub struct Timer(Arc<Deadline>);

struct Deadline {
    at_ms: AtomicU64,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Deadline {
    fn is_due(&self, now_ms: u64) -> bool {
        self.at_ms.load(Ordering::SeqCst) <= now_ms
    }
}

impl Timer {
    /// A timer that is not set. `wake` ends the sleep of its thread, also of a thread that is about to sleep.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Timer {
        let deadline = Arc::new(Deadline { at_ms: AtomicU64::new(NEVER), wake: Box::new(wake) });
        TIMERS.lock().push(Arc::clone(&deadline));
        Timer(deadline)
    }

    /// The work that was due is done, and the next is due at `at_ms`; `None` if it waits for no time. Returns how long
    /// its thread may sleep.
    pub fn set(&self, at_ms: Option<u64>) -> Duration {
        let at_ms = at_ms.unwrap_or(NEVER);
        self.0.at_ms.store(at_ms, Ordering::SeqCst);
        if is_virtual() {
            let _timers = TIMERS.lock();
            SERVED.notify_all();
        }
        // The time is read after the deadline is known: a warp in between finds the deadline, or is seen here.
        let left_ms = at_ms.saturating_sub(now_ms());
        if left_ms > 0 && is_stopped() { SLEEP_MAX } else { Duration::from_millis(left_ms).min(SLEEP_MAX) }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let mut timers = TIMERS.lock();
        timers.retain(|timer| !Arc::ptr_eq(timer, &self.0));
        SERVED.notify_all();
    }
}

/// Calls the wakers of timers that are due at `now_ms`.
pub(crate) fn wake_due(now_ms: u64) {
    // A waker may take its thread's lock, under which that thread sets its timer: no lock is held at the calls.
    let due: Vec<_> = TIMERS.lock().iter().filter(|timer| timer.is_due(now_ms)).map(Arc::clone).collect();
    due.iter().for_each(|timer| (timer.wake)());
}

/// Waits until no timer is due any more, at most for `patience` (real time); whether none is.
pub fn wait_for_due_timers(patience: Duration) -> bool {
    let until = Instant::now() + patience;
    let mut timers = TIMERS.lock();
    loop {
        let now_ms = now_ms();
        if !timers.iter().any(|timer| timer.is_due(now_ms)) {
            return true;
        }
        if SERVED.wait_until(&mut timers, until).timed_out() {
            return false;
        }
    }
}

//! The clock of everything that control code times.
//!
//! It is the machine's monotonic clock until a test stops it ([`stop`]) or moves it on ([`warp`]). Every timeout in
//! control code is measured with [`now_ms`], so a stopped clock stops all of them, and a warp makes all of them due that
//! lie within it. A thread that sleeps until a time of this clock has a [`Timer`]: or, if
//! it sleeps in poll(2), a [`PollTimer`]: a warp wakes it, and [`wait_for_due_timers`] returns when every timer that was due has been served.
//!
//! The clock is one for the process, as in Open vSwitch: the real one is too.
#![forbid(unsafe_code)]

pub mod heartbeat;
mod poll_timer;
mod timer;

pub use poll_timer::PollTimer;
pub use timer::{Timer, wait_for_due_timers};

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether the clock has ever been stopped or warped. It is all that a reader of the real clock looks at besides.
static IS_VIRTUAL: AtomicBool = AtomicBool::new(false);

/// The time at which the clock was stopped; 0 while it runs.
static STOPPED_AT_MS: AtomicU64 = AtomicU64::new(0);

/// The sum of all warps.
static WARPED_MS: AtomicU64 = AtomicU64::new(0);

/// Milliseconds since the machine started, a few milliseconds coarse, plus warps.
#[inline]
pub fn now_ms() -> u64 {
    if is_virtual() { virtual_ms() } else { real_ms() }
}

/// Stops the clock for good: from now on it moves by warps only.
pub fn stop() {
    // Of two that stop it, the first one's time holds.
    let _ = STOPPED_AT_MS.compare_exchange(0, real_ms().max(1), Ordering::AcqRel, Ordering::Acquire);
    IS_VIRTUAL.store(true, Ordering::Release);
}

/// Moves the clock on and wakes the threads whose timers are due.
pub fn warp(ms: u64) {
    WARPED_MS.fetch_add(ms, Ordering::AcqRel);
    IS_VIRTUAL.store(true, Ordering::Release);
    timer::wake_due(now_ms());
}

/// Whether the clock moves by warps only.
pub fn is_stopped() -> bool {
    STOPPED_AT_MS.load(Ordering::Acquire) != 0
}

/// Whether the clock has ever been stopped or warped.
#[inline]
fn is_virtual() -> bool {
    IS_VIRTUAL.load(Ordering::Acquire)
}

/// Milliseconds since the machine started, a few milliseconds coarse: for pauses that tests must not stop.
#[inline]
pub fn real_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

#[cold]
fn virtual_ms() -> u64 {
    let base = match STOPPED_AT_MS.load(Ordering::Acquire) {
        0 => real_ms(),
        stopped => stopped,
    };
    base + WARPED_MS.load(Ordering::Acquire)
}

//! A main loop that sleeps until a descriptor is ready, a deadline has come or another thread wakes it.
//!
//! Other threads can wait for it: [`MainLoop::wait_for_turn`] returns when a whole turn that began after the call is
//! done, so that whatever was there to do at the time of the call has been done; the wait has a bound
//! ([`TURN_WITHIN`]). Deadlines are times of the control
//! clock ([`sluice_clock`]): a warp of that clock wakes the loop.

use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use sluice_clock::Timer;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest sleep while the control clock is stopped: what happens without a timer is seen all the same.
const SLEEP_MAX_STOPPED: Duration = Duration::from_millis(50);

/// How far the control clock may be behind. Source: Linux, `CLOCK_MONOTONIC_COARSE` at 250 Hz.
const CLOCK_COARSENESS: Duration = Duration::from_millis(4);

/// A sleep that is so long ends behind its deadline by the clock's coarseness: else it would end before it as often as not,
/// and a second sleep would follow.
const SLEEP_LONG: Duration = Duration::from_millis(100);

/// How long another thread waits for a turn. A turn takes milliseconds; the bound is met by a loop that stands still.
pub const TURN_WITHIN: Duration = Duration::from_secs(30);

/// A main loop's turns and its end.
pub struct MainLoop {
    state: Mutex<LoopState>,
    /// Notified when a turn is done, when the end is asked for and when the loop is over.
    changed: Condvar,
    /// An eventfd; written to wake the loop.
    wake: Arc<OwnedFd>,
    /// The loop's deadline.
    timer: Timer,
}

#[derive(Debug, Default)]
struct LoopState {
    /// Turns that have begun.
    begun: u64,
    /// Turns that are done.
    done: u64,
    /// Why the end was asked for, if it was.
    end: Option<String>,
    /// The loop takes no more turns.
    is_over: bool,
}

/// A turn under way; dropping it ends the turn.
#[must_use = "the turn ends when this is dropped"]
pub struct Turn<'a>(&'a MainLoop);

/// Wakes a loop that may be gone.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the loop's present or next sleep.
    pub fn wake(&self) {
        write_one(&self.0);
    }
}

/// The loop's life; dropping it releases all that wait for a turn.
#[must_use = "the loop is over when this is dropped"]
pub struct Running<'a>(&'a MainLoop);

impl MainLoop {
    /// A loop that has not taken a turn.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let to_wake = Arc::clone(&wake);
        let timer = Timer::new(move || write_one(&to_wake));
        Ok(MainLoop { state: Mutex::default(), changed: Condvar::new(), wake, timer })
    }

    /// Marks the loop's life: keep what this returns until the last turn is done.
    pub fn running(&self) -> Running<'_> {
        Running(self)
    }

    /// Begins a turn.
    pub fn turn(&self) -> Turn<'_> {
        self.state.lock().begun += 1;
        Turn(self)
    }

    /// Ends the loop's present or next sleep.
    pub fn wake(&self) {
        write_one(&self.wake);
    }

    /// What wakes the loop, to be kept elsewhere.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.wake))
    }

    /// Returns when the loop has done one whole turn that began after the call, is over, or has not done one within
    /// [`TURN_WITHIN`]. Must not be called from the loop.
    pub fn wait_for_turn(&self) {
        self.wait_for_turn_until(Instant::now() + TURN_WITHIN);
    }

    fn wait_for_turn_until(&self, deadline: Instant) {
        let mut state = self.state.lock();
        let wanted = state.begun + 1;
        while state.done < wanted && !state.is_over {
            self.wake();
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                tracing::warn!(target: "poll_loop", rate_limit = 1, "waited {TURN_WITHIN:?} for a turn of the main loop");
                return;
            }
        }
    }

    /// Asks for the end. The first reason counts.
    pub fn end(&self, why: &str) {
        self.state.lock().end.get_or_insert_with(|| why.to_owned());
        self.changed.notify_all();
        self.wake();
    }

    /// Returns when the end is asked for, with the reason; `None` if it was not within `span`.
    pub fn wait_for_end(&self, span: Duration) -> Option<String> {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| state.end.is_none(), span);
        state.end.clone()
    }

    /// Whether the loop takes no more turns.
    pub fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// Why the end was asked for, if it was.
    pub fn why_end(&self) -> Option<String> {
        self.state.lock().end.clone()
    }

    /// Sleeps until one of `descriptors` is ready, the control clock shows `deadline_ms` or somebody wakes the loop; it
    /// never sleeps once the end was asked for. `None`: without a deadline.
    pub fn sleep<'fd>(&'fd self, descriptors: impl IntoIterator<Item = PollFd<'fd>>, deadline_ms: Option<u64>) {
        let wake = PollFd::new(&self.wake, PollFlags::IN);
        let mut polled: Vec<PollFd<'_>> = std::iter::once(wake).chain(descriptors).collect();
        let allowed = self.timer.set(deadline_ms);
        let allowed = if allowed >= SLEEP_LONG { allowed + CLOCK_COARSENESS } else { allowed };
        let timeout = if sluice_clock::is_stopped() { allowed.min(SLEEP_MAX_STOPPED) } else { allowed };
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::warn!(target: "poll_loop", "poll: {error}");
                // The loop must not spin on an error that stays.
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        // Empties the counter; there is nothing to read if nobody woke the loop.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        if self.state.lock().end.is_some() {
            self.wake();
        }
    }
}

fn write_one(eventfd: &OwnedFd) {
    // A counter that is full has woken the loop already.
    let _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.done = state.begun;
        self.0.changed.notify_all();
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A minute from now.
    fn late() -> Option<u64> {
        Some(sluice_clock::now_ms() + 60_000)
    }

    #[test]
    fn a_turn_that_is_waited_for_begins_after_the_call() {
        let main_loop = MainLoop::new().unwrap();
        let (asked, seen) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _running = main_loop.running();
                while main_loop.why_end().is_none() {
                    let turn = main_loop.turn();
                    let at_start = asked.load(Ordering::SeqCst);
                    std::thread::yield_now();
                    seen.store(at_start, Ordering::SeqCst);
                    drop(turn);
                    main_loop.sleep([], late());
                }
            });
            for i in 1..=1000 {
                asked.store(i, Ordering::SeqCst);
                main_loop.wait_for_turn();
                assert_eq!(seen.load(Ordering::SeqCst), i);
            }
            main_loop.end("the test is over");
        });
        main_loop.wait_for_turn();
    }

    #[test]
    fn the_first_reason_of_the_end_counts_and_ends_every_sleep() {
        let main_loop = MainLoop::new().unwrap();
        main_loop.end("first");
        main_loop.end("second");
        let began = Instant::now();
        (0..3).for_each(|_| main_loop.sleep([], late()));
        assert!(began.elapsed() < Duration::from_secs(30));
        assert_eq!(main_loop.why_end().as_deref(), Some("first"));
    }

    #[test]
    fn a_loop_that_stands_still_is_not_waited_for_without_end() {
        let main_loop = MainLoop::new().unwrap();
        let _stands_still = main_loop.turn();
        main_loop.wait_for_turn_until(Instant::now() + Duration::from_millis(20));
        assert_eq!(main_loop.wait_for_end(Duration::from_millis(1)), None);
        std::thread::scope(|scope| {
            scope.spawn(|| main_loop.end("while it stands still"));
            assert_eq!(main_loop.wait_for_end(Duration::from_secs(30)).as_deref(), Some("while it stands still"));
        });
    }

    #[test]
    fn a_descriptor_or_a_deadline_ends_a_sleep() {
        let main_loop = MainLoop::new().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        drop(writer);
        let began = Instant::now();
        main_loop.sleep([PollFd::new(&reader, PollFlags::IN)], late());
        assert!(began.elapsed() < Duration::from_secs(30));
        main_loop.sleep([], Some(sluice_clock::now_ms()));
    }
}

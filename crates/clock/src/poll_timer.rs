//! Threads that sleep in poll(2) until a time of the clock.

use crate::Timer;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A [`Timer`] that is a descriptor for poll(2): a warp past its time makes it readable.
pub struct PollTimer {
    timer: Timer,
    event: Arc<OwnedFd>,
}

impl PollTimer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// If the system is out of descriptors.
    pub fn new() -> rustix::io::Result<PollTimer> {
        let event = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let waker = Arc::clone(&event);
        let timer = Timer::new(move || {
            // A full counter is readable already.
            let _ = rustix::io::write(&waker, &1u64.to_ne_bytes());
        });
        Ok(PollTimer { timer, event })
    }

    /// As [`Timer::set`]; the descriptor is not readable any more.
    pub fn set(&self, at_ms: Option<u64>) -> Duration {
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        self.timer.set(at_ms)
    }
}

impl AsFd for PollTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

//! Asks threads to end: a flag, and a descriptor to wait on.

use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Asks the threads of a listener or a controller to end.
pub struct EndSignal {
    is_given: AtomicBool,
    /// Readable once it is given.
    event: OwnedFd,
}

impl EndSignal {
    /// One that is not given yet.
    ///
    /// # Errors
    /// If the system is out of descriptors.
    pub fn new() -> rustix::io::Result<Self> {
        Ok(EndSignal { is_given: false.into(), event: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)? })
    }

    /// Asks the threads to end.
    pub fn give(&self) {
        self.is_given.store(true, SeqCst);
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Whether the threads are to end.
    pub fn is_given(&self) -> bool {
        self.is_given.load(SeqCst)
    }
}

impl AsFd for EndSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

//! Notifying the guest.

use rustix::fs::{FileType, OFlags};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The eventfd by which a guest is notified of used buffers. The frontend made it, and has it still.
#[derive(Debug)]
pub struct Call {
    eventfd: File,
    /// Set when the frontend let it block.
    is_forbidden: AtomicBool,
}

impl Call {
    /// Makes the descriptor one that does not block.
    ///
    /// # Errors
    /// If it is no eventfd: a write to a pipe, a socket or a file may wait for others.
    pub fn new(eventfd: File) -> io::Result<Self> {
        // Anonymous inodes have no type. Those that can be written but are no eventfd refuse what is written.
        if FileType::from_raw_mode(rustix::fs::fstat(&eventfd)?.st_mode) != FileType::Unknown {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = rustix::fs::fcntl_getfl(&eventfd)?;
        rustix::fs::fcntl_setfl(&eventfd, flags | OFlags::NONBLOCK)?;
        Ok(Call { eventfd, is_forbidden: AtomicBool::new(false) })
    }

    /// Adds one to its counter. A counter that is full has not been read yet, so the guest will wake anyway.
    pub fn notify(&self) {
        if !self.is_forbidden.load(Relaxed) {
            let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
        }
    }

    /// Ends all use of a descriptor that may block, also a write that waits. Returns whether that happened.
    ///
    /// The frontend shares the descriptor's flags, so it can change them back at any time. A control thread asks this
    /// once a second.
    pub fn forbid_if_blocking(&self) -> bool {
        let Ok(flags) = rustix::fs::fcntl_getfl(&self.eventfd) else { return false };
        if flags.contains(OFlags::NONBLOCK) || self.is_forbidden.swap(true, Relaxed) {
            return false;
        }
        let _ = rustix::fs::fcntl_setfl(&self.eventfd, flags | OFlags::NONBLOCK);
        let _ = rustix::io::read(&self.eventfd, &mut [0; 8]);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    fn blocking_eventfd() -> File {
        File::from(eventfd(0, EventfdFlags::empty()).unwrap())
    }

    #[test]
    fn only_an_eventfd_is_accepted() {
        let (_reader, writer) = std::io::pipe().unwrap();
        assert!(Call::new(File::from(OwnedFd::from(writer))).is_err());
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert!(Call::new(File::from(OwnedFd::from(ours))).is_err());
        assert!(Call::new(tempfile::tempfile().unwrap()).is_err());
        assert!(Call::new(blocking_eventfd()).is_ok());
    }

    #[test]
    fn a_full_counter_does_not_block() {
        let theirs = blocking_eventfd();
        rustix::io::write(&theirs, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let call = Call::new(theirs.try_clone().unwrap()).unwrap();
        call.notify();
        assert!(!call.forbid_if_blocking());
    }

    #[test]
    fn a_write_that_waits_is_ended() {
        let theirs = blocking_eventfd();
        let call = Call::new(theirs.try_clone().unwrap()).unwrap();
        rustix::fs::fcntl_setfl(&theirs, OFlags::empty()).unwrap();
        rustix::io::write(&theirs, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| call.notify());
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(!waits.is_finished());
            assert!(call.forbid_if_blocking());
        });
        // And none is begun, whatever the frontend does.
        rustix::fs::fcntl_setfl(&theirs, OFlags::empty()).unwrap();
        rustix::io::write(&theirs, &(u64::MAX - 2).to_ne_bytes()).unwrap();
        call.notify();
    }
}

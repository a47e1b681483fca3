//! Snooping: who connects to `<rundir>/<bridge>.snoop` hears what the switch and a controller say to each other.

use crate::connection::{End, GREETING_MAX};
use crate::hub::Hub;
use crate::stream::Stream;
use crate::switch::Switch;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use sluice_openflow::message::connection::Role;
use sluice_openflow::{Peer, Session};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Instant;

/// Bytes that wait for a snooper at most; what does not fit is lost to it.
const WAITING_MAX: usize = 1 << 20;

/// Snoopers of a controller at most. Source: Open vSwitch, `rconn.c`.
const SNOOPERS_MAX: usize = 8;

/// What is said on the connections to a controller, one after the other, and who hears it.
#[derive(Default)]
pub struct Wire {
    taps: Mutex<Vec<Arc<Tap>>>,
    tapped: AtomicUsize,
    preference: AtomicU8,
}

/// Where what was said waits for one snooper: whole messages.
pub struct Tap {
    waiting: Mutex<Vec<u8>>,
    wake: OwnedFd,
}

impl Wire {
    /// Whether anybody listens.
    pub fn is_tapped(&self) -> bool {
        self.tapped.load(SeqCst) != 0
    }

    /// Which controller is snooped if there are several: the primary one, else one that may change the switch.
    pub fn preference(&self) -> u8 {
        self.preference.load(Relaxed)
    }

    /// Notes the role of the controller, nothing if it is not there.
    pub fn set_role(&self, role: Option<Role>) {
        let preference = match role {
            Some(Role::Primary) => 3,
            Some(Role::Equal) => 2,
            Some(Role::Secondary) => 1,
            _ => 0,
        };
        self.preference.store(preference, Relaxed);
    }

    /// Passes on what was said.
    pub fn pass_on(&self, messages: &[u8]) {
        for tap in self.taps.lock().iter() {
            let mut waiting = tap.waiting.lock();
            if waiting.len() + messages.len() <= WAITING_MAX {
                waiting.extend(messages);
                // Full: it rings already.
                let _ = rustix::io::write(&tap.wake, &1u64.to_ne_bytes());
            }
        }
    }

    fn tap(&self) -> Option<Arc<Tap>> {
        let mut taps = self.taps.lock();
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).ok()?;
        let tap = Arc::new(Tap { waiting: Mutex::default(), wake });
        (taps.len() < SNOOPERS_MAX).then(|| taps.push(Arc::clone(&tap)))?;
        self.tapped.store(taps.len(), SeqCst);
        Some(tap)
    }

    fn untap(&self, tap: &Arc<Tap>) {
        let mut taps = self.taps.lock();
        taps.retain(|other| !Arc::ptr_eq(other, tap));
        self.tapped.store(taps.len(), SeqCst);
    }
}

impl Tap {
    fn take(&self) -> Vec<u8> {
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        std::mem::take(&mut *self.waiting.lock())
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Serves a snooper until it goes; why it did.
pub fn serve(stream: Stream, hub: &Arc<Hub>, _: &Arc<Switch>) -> End {
    let Some(wire) = hub.wire_to_snoop() else { return "there is no controller to snoop" };
    let Some(tap) = wire.tap() else { return "too many snoop on this controller" };
    let session = Session::new(Peer::Client);
    let why = Snooper { stream, session, tap: &tap, hub, began: Instant::now() }.run();
    wire.untap(&tap);
    why
}

/// A snooper's connection.
struct Snooper<'a> {
    stream: Stream,
    /// For the greeting; its output carries what is heard.
    session: Session,
    tap: &'a Tap,
    hub: &'a Hub,
    began: Instant,
}

impl Snooper<'_> {
    fn run(&mut self) -> End {
        loop {
            if self.hub.is_ending() {
                return "the bridge has ended";
            }
            let is_greeted = self.session.version().is_some();
            if !is_greeted && self.began.elapsed() > GREETING_MAX {
                return "no hello has come";
            }
            if is_greeted && self.session.output().is_empty() {
                let heard = self.tap.take();
                self.session.output().extend(heard);
            }
            let done = self.write().and_then(|()| self.wait()).and_then(|()| self.read());
            if let Err(why) = done {
                return why;
            }
        }
    }

    fn write(&mut self) -> Result<(), End> {
        if !self.session.output().is_empty() {
            let written = self.stream.write(self.session.output()).map_err(|_| "the connection broke")?;
            self.session.output().drain(..written.unwrap_or(0));
        }
        match self.session.is_closed() && self.session.output().is_empty() {
            true => Err("its messages were wrong"),
            false => Ok(()),
        }
    }

    /// Waits for something to happen, a second at most.
    fn wait(&mut self) -> Result<(), End> {
        let (mut stream, mut tap) = (PollFlags::IN, PollFlags::empty());
        if !self.session.output().is_empty() {
            stream |= PollFlags::OUT;
        } else if self.session.version().is_some() {
            tap |= PollFlags::IN;
        }
        let mut fds = [
            PollFd::new(&self.stream, stream),
            PollFd::from_borrowed_fd(self.hub.end_fd(), PollFlags::IN),
            PollFd::new(self.tap, tap),
        ];
        match poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(_) => Err("it could not be waited for"),
        }
    }

    /// Reads the greeting; what else it may say is no concern of anybody's.
    fn read(&mut self) -> Result<(), End> {
        let mut buffer = [0; 4096];
        let room = self.session.room().min(buffer.len());
        match self.stream.read(&mut buffer[..room]) {
            Ok(None) => Ok(()),
            Ok(Some(0)) => Err("the peer has gone"),
            Ok(Some(n)) => {
                if self.session.version().is_none() {
                    self.session.push(&buffer[..n]);
                    self.session.next_event();
                }
                Ok(())
            }
            Err(_) => Err("the connection broke"),
        }
    }
}

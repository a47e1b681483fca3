//! Snooping: clients of `<bridge>.snoop` get a copy of all messages between the switch and a controller.

use crate::close_reason::CloseReason;
use crate::connection::HELLO_TIMEOUT_MS;
use crate::end_signal::EndSignal;
use crate::serve_context::ServeContext;
use crate::stream::Stream;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use sluice_clock::heartbeat::Heartbeat;
use sluice_clock::now_ms;
use sluice_fate::Limit;
use sluice_openflow::message::connection::Role;
use sluice_openflow::{Peer, Session, Version};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// Bytes that wait for a snooper at most. Messages that do not fit are lost to it.
pub(crate) const WAITING_MAX: usize = 1 << 20;

/// Snoopers of a controller at most. Source: Open vSwitch, `rconn.c`.
pub(crate) const SNOOPERS_MAX: usize = 8;

/// The messages of a controller's connections, which follow one another, and the snoopers that get copies.
#[derive(Default)]
pub struct ControllerTraffic {
    queues: Mutex<Vec<Arc<SnoopQueue>>>,
    /// The number of queues.
    snoopers: AtomicUsize,
    preference: AtomicU8,
}

/// The messages that wait for one snooper: whole ones.
pub struct SnoopQueue {
    waiting: Mutex<Vec<u8>>,
    wake: OwnedFd,
}

impl ControllerTraffic {
    /// Whether there are snoopers.
    pub fn is_snooped(&self) -> bool {
        self.snoopers.load(SeqCst) != 0
    }

    /// How many snoopers there are.
    pub fn snoopers(&self) -> usize {
        self.snoopers.load(SeqCst)
    }

    /// Bytes that wait for the snooper with most.
    pub fn waiting_bytes(&self) -> usize {
        self.queues.lock().iter().map(|queue| queue.waiting.lock().len()).max().unwrap_or_default()
    }

    /// A bridge's controller with the highest preference is snooped: the primary one, else one that may change the switch.
    pub fn preference(&self) -> u8 {
        self.preference.load(Relaxed)
    }

    /// Notes the role of the controller; `None` if it is not connected.
    pub fn set_role(&self, role: Option<Role>) {
        let preference = match role {
            Some(Role::Primary) => 3,
            Some(Role::Equal) => 2,
            Some(Role::Secondary) => 1,
            _ => 0,
        };
        self.preference.store(preference, Relaxed);
    }

    /// Copies messages to all snoopers.
    pub fn copy(&self, messages: &[u8]) {
        for queue in self.queues.lock().iter() {
            let mut waiting = queue.waiting.lock();
            if waiting.len() + messages.len() > WAITING_MAX {
                Limit::SnoopedBytes.hit();
                continue;
            }
            waiting.extend(messages);
            // A full counter is readable already.
            let _ = rustix::io::write(&queue.wake, &1u64.to_ne_bytes());
        }
    }

    fn attach(&self) -> Option<Arc<SnoopQueue>> {
        let mut queues = self.queues.lock();
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).ok()?;
        let queue = Arc::new(SnoopQueue { waiting: Mutex::default(), wake });
        (queues.len() < SNOOPERS_MAX).then(|| queues.push(Arc::clone(&queue)))?;
        self.snoopers.store(queues.len(), SeqCst);
        Some(queue)
    }

    fn detach(&self, queue: &Arc<SnoopQueue>) {
        let mut queues = self.queues.lock();
        queues.retain(|other| !Arc::ptr_eq(other, queue));
        self.snoopers.store(queues.len(), SeqCst);
    }
}

impl SnoopQueue {
    fn take(&self) -> Vec<u8> {
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        std::mem::take(&mut *self.waiting.lock())
    }
}

impl AsFd for SnoopQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Serves a snooper until its connection ends.
pub fn serve(stream: Stream, context: &ServeContext) -> CloseReason {
    let Some(controller) = context.conn_mgr.controller_to_snoop() else { return CloseReason::NothingToSnoop };
    let Some(queue) = controller.traffic.attach() else {
        Limit::Snoopers.hit();
        return CloseReason::TooManySnoopers;
    };
    let session = Session::new(Peer::Client, Version::all());
    let reason = Snooper { stream, session, queue: &queue, end: &context.end, began_ms: now_ms() }.run();
    controller.traffic.detach(&queue);
    reason
}

/// A snooper's connection.
struct Snooper<'a> {
    stream: Stream,
    /// For the greeting. Its output also carries the copies.
    session: Session,
    queue: &'a SnoopQueue,
    end: &'a EndSignal,
    began_ms: u64,
}

impl Snooper<'_> {
    fn run(&mut self) -> CloseReason {
        let heartbeat = Heartbeat::of("openflow-conn");
        loop {
            if self.end.is_given() {
                return CloseReason::BridgeEnded;
            }
            let is_greeted = self.session.version().is_some();
            if !is_greeted && now_ms() - self.began_ms > HELLO_TIMEOUT_MS {
                return CloseReason::NoHello;
            }
            if is_greeted && self.session.output().is_empty() {
                let copies = self.queue.take();
                self.session.output().extend(copies);
            }
            let busy = heartbeat.begin("copies for a snooper");
            let written = self.write();
            drop(busy);
            let done = written.and_then(|()| self.wait()).and_then(|()| self.read());
            if let Err(reason) = done {
                return reason;
            }
        }
    }

    fn write(&mut self) -> Result<(), CloseReason> {
        if !self.session.output().is_empty() {
            let written = self.stream.write(self.session.output()).map_err(|_| CloseReason::Broken)?;
            self.session.output().drain(..written.unwrap_or(0));
        }
        match self.session.is_closed() && self.session.output().is_empty() {
            true => Err(CloseReason::BadMessages),
            false => Ok(()),
        }
    }

    /// Waits until the snooper reads or has sent something, or there are copies; a second at most.
    fn wait(&mut self) -> Result<(), CloseReason> {
        let (mut stream, mut queue) = (PollFlags::IN, PollFlags::empty());
        if !self.session.output().is_empty() {
            stream |= PollFlags::OUT;
        } else if self.session.version().is_some() {
            queue |= PollFlags::IN;
        }
        let mut fds =
            [PollFd::new(&self.stream, stream), PollFd::new(self.end, PollFlags::IN), PollFd::new(self.queue, queue)];
        match poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(_) => Err(CloseReason::PollFailed),
        }
    }

    /// Reads the greeting. Later messages of a snooper are ignored.
    fn read(&mut self) -> Result<(), CloseReason> {
        let mut buffer = [0; 4096];
        let free = self.session.free_space().min(buffer.len());
        match self.stream.read(&mut buffer[..free]) {
            Ok(None) => Ok(()),
            Ok(Some(0)) => Err(CloseReason::PeerClosed),
            Ok(Some(n)) => {
                if self.session.version().is_none() {
                    self.session.push(&buffer[..n]);
                    self.session.next_event();
                }
                Ok(())
            }
            Err(_) => Err(CloseReason::Broken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snooper_that_does_not_read_loses_messages_and_a_ninth_is_refused() {
        let traffic = ControllerTraffic::default();
        let snoopers: Vec<_> = (0..SNOOPERS_MAX).map(|_| traffic.attach().unwrap()).collect();
        assert!(traffic.attach().is_none());
        let before = Limit::SnoopedBytes.count();
        (0..3).for_each(|_| traffic.copy(&[7; WAITING_MAX / 2]));
        assert_eq!(Limit::SnoopedBytes.count() - before, SNOOPERS_MAX as u64);
        assert_eq!(snoopers[0].take().len(), WAITING_MAX);
        traffic.copy(&[7; 8]);
        assert_eq!((snoopers[0].take().len(), snoopers[1].take().len()), (8, WAITING_MAX));
        traffic.detach(&snoopers[0]);
        assert!(traffic.attach().is_some(), "the place of one that has gone is free");
    }
}

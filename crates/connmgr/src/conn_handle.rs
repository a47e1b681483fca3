//! A connection as the rest of its bridge sees it: a bounded queue of asynchronous messages, flow monitors, and its role.

use crate::async_msg::AsyncMsg;
use crate::conn_origin::ConnOrigin;
use crate::flow_monitor::FlowMonitors;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};
use sluice_fate::Limit;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// Asynchronous messages that wait for a connection at most.
pub const QUEUE_MAX: usize = 1024;

/// A connection as the rest of its bridge sees it.
pub struct ConnHandle {
    queue: Mutex<VecDeque<AsyncMsg>>,
    /// Whether the queue holds messages: spares the connection the lock when it holds none.
    is_queued: AtomicBool,
    /// Readable while the queue holds messages.
    wake: OwnedFd,
    number: u64,
    origin: ConnOrigin,
    monitors: Mutex<FlowMonitors>,
    /// Packets in the queue, and how many there may be.
    packet_ins: AtomicUsize,
    packet_ins_max: usize,
    lost: AtomicU64,
    is_primary: AtomicBool,
}

impl ConnHandle {
    /// A connection's handle.
    ///
    /// # Errors
    /// If the system is out of descriptors.
    pub fn new(number: u64, origin: ConnOrigin, packet_ins_max: usize) -> rustix::io::Result<Self> {
        Ok(ConnHandle {
            queue: Mutex::default(),
            is_queued: false.into(),
            wake: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            number,
            origin,
            monitors: Mutex::default(),
            packet_ins: 0.into(),
            packet_ins_max,
            lost: 0.into(),
            is_primary: false.into(),
        })
    }

    /// The connection's number, unique in its bridge for all time.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Where the connection comes from.
    pub fn origin(&self) -> ConnOrigin {
        self.origin
    }

    /// The connection's flow monitors.
    pub fn monitors(&self) -> MutexGuard<'_, FlowMonitors> {
        self.monitors.lock()
    }

    /// Queues a message. It never waits: a full queue loses the message, which is counted.
    pub fn post(&self, msg: AsyncMsg) {
        let mut queue = self.queue.lock();
        // A lost demotion would leave two primary controllers, and there are few. Flow updates have a limit of their own.
        let is_full = match msg {
            AsyncMsg::Demoted(_) | AsyncMsg::FlowUpdates(_) => false,
            AsyncMsg::PacketIn(_) => queue.len() >= QUEUE_MAX || self.packet_ins.load(Relaxed) >= self.packet_ins_max,
            _ => queue.len() >= QUEUE_MAX,
        };
        if is_full {
            self.lost.fetch_add(1, Relaxed);
            Limit::AsyncMessages.hit();
            return;
        }
        self.packet_ins.fetch_add(usize::from(matches!(msg, AsyncMsg::PacketIn(_))), Relaxed);
        queue.push_back(msg);
        drop(queue);
        // A full counter is readable already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        // Last, because `take` makes the counter unreadable after it has cleared this.
        self.is_queued.store(true, SeqCst);
    }

    /// Takes all messages.
    pub fn take(&self) -> VecDeque<AsyncMsg> {
        if !self.is_queued.swap(false, SeqCst) {
            return VecDeque::new();
        }
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        let mut queue = self.queue.lock();
        self.packet_ins.store(0, Relaxed);
        std::mem::take(&mut *queue)
    }

    /// Messages that were lost because the queue was full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Notes whether the connection's controller is the primary one; whether it was.
    pub fn set_primary(&self, is_primary: bool) -> bool {
        self.is_primary.swap(is_primary, SeqCst)
    }
}

impl AsFd for ConnHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

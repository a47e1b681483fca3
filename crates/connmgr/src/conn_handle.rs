//! A connection as the rest of its bridge sees it: a bounded queue of asynchronous messages, flow monitors, and its role.

use crate::async_msg::AsyncMsg;
use crate::conn_origin::ConnOrigin;
use crate::flow_monitor::FlowMonitors;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};
use sluice_fate::Limit;
use sluice_flow::OfPort;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// Asynchronous messages that wait for a connection at most.
pub const QUEUE_MAX: usize = 1024;

/// A connection as the rest of its bridge sees it.
pub struct ConnHandle {
    queue: Mutex<AsyncQueue>,
    /// Whether the queue holds messages: spares the connection the lock when it holds none.
    is_queued: AtomicBool,
    /// Readable while the queue holds messages.
    wake: OwnedFd,
    number: u64,
    origin: ConnOrigin,
    monitors: Mutex<FlowMonitors>,
    /// How many packets there may be in the queue.
    packet_ins_max: usize,
    lost: AtomicU64,
    /// Open bundles, as the connection's thread has noted them.
    bundles: AtomicUsize,
    is_primary: AtomicBool,
}

/// What waits for a connection.
#[derive(Default)]
struct AsyncQueue {
    messages: VecDeque<AsyncMsg>,
    /// The packets among them, by port.
    by_port: BTreeMap<OfPort, usize>,
}

impl AsyncQueue {
    fn packet_ins(&self) -> usize {
        self.by_port.values().sum()
    }

    fn push(&mut self, msg: AsyncMsg) {
        if let AsyncMsg::PacketIn(packet) = &msg {
            *self.by_port.entry(packet.in_port()).or_default() += 1;
        }
        self.messages.push_back(msg);
    }

    /// Removes the last packet of the port that has most, if it has more than the port of `msg` would have with it, so
    /// that a port that floods loses its own. Other messages are not those of a port: they find room so, too.
    fn make_room(&mut self, msg: &AsyncMsg) -> bool {
        let own = match msg {
            AsyncMsg::PacketIn(packet) => self.by_port.get(&packet.in_port()).copied().unwrap_or(0) + 1,
            _ => 0,
        };
        let Some((&port, _)) = self.by_port.iter().max_by_key(|(_, n)| **n).filter(|(_, n)| **n > own) else {
            return false;
        };
        let is_it = |msg: &AsyncMsg| matches!(msg, AsyncMsg::PacketIn(packet) if packet.in_port() == port);
        let Some(at) = self.messages.iter().rposition(is_it) else { return false };
        self.messages.remove(at);
        match self.by_port.get_mut(&port) {
            Some(n) if *n > 1 => *n -= 1,
            _ => drop(self.by_port.remove(&port)),
        }
        true
    }
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
            packet_ins_max,
            lost: 0.into(),
            bundles: 0.into(),
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
        let is_full = match &msg {
            AsyncMsg::Demoted(_) | AsyncMsg::FlowUpdates(_) => false,
            AsyncMsg::PacketIn(_) => queue.messages.len() >= QUEUE_MAX || queue.packet_ins() >= self.packet_ins_max,
            _ => queue.messages.len() >= QUEUE_MAX,
        };
        if is_full {
            self.lost.fetch_add(1, Relaxed);
            Limit::AsyncMessages.hit();
            if !queue.make_room(&msg) {
                return;
            }
        }
        queue.push(msg);
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
        std::mem::take(&mut *queue).messages
    }

    /// Messages that were lost because the queue was full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// How many messages wait.
    pub fn waiting(&self) -> usize {
        self.queue.lock().messages.len()
    }

    /// Notes how many bundles are open.
    pub fn note_bundles(&self, open: usize) {
        if self.bundles.load(Relaxed) != open {
            self.bundles.store(open, Relaxed);
        }
    }

    /// How many bundles are open.
    pub fn bundles(&self) -> usize {
        self.bundles.load(Relaxed)
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

//! One connection.

use crate::limits::Admission;
use crate::states::{ConnState, CtUpdate, SETTLED};
use crate::timeouts::{Timeout, ZoneTimeouts};
use crate::tuple::Tuple;
use parking_lot::Mutex;
use sluice_action::ct::{Helper, Masked, NatTarget};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A connection. Its constant part is read without a lock. The rest is behind locks that are contended only when both
/// directions have a packet at the same moment.
///
/// Shape: expiry, state and its lock are in the first cache line. A packet that is replayed touches nothing else, unless it
/// has a mark, a label, IPv6 addresses or NAT.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Connection {
    /// When it expires, milliseconds. Packets may store it without the lock.
    expires_ms: AtomicU64,
    timeouts: Arc<ZoneTimeouts>,
    /// It has been removed from the table, by the thread that set this.
    is_removed: AtomicBool,
    /// Packets no longer change its state.
    is_settled: AtomicBool,
    /// It may have a mark or a label.
    is_marked: AtomicBool,
    /// It has a parent.
    pub is_related: bool,
    state: Mutex<ConnState>,
    /// The first packet's tuple, before NAT.
    pub original: Tuple,
    /// The tuple of packets the other way, before their NAT is undone.
    pub reply: Tuple,
    /// For a data connection that a helper announced: the control connection's original tuple.
    pub parent: Option<Box<Tuple>>,
    /// The address that NAT changes in the original direction.
    pub nat: Option<NatTarget>,
    pub helper: Option<Helper>,
    pub admission: Admission,
    marks: Mutex<Marks>,
    /// By how much a helper has lengthened one direction's data.
    skew: Mutex<Skew>,
}

const _: () = assert!(std::mem::offset_of!(Connection, state) + size_of::<Mutex<ConnState>>() <= 64);

/// Mark and label.
#[derive(Clone, Copy, Debug)]
struct Marks {
    mark: u32,
    label: u128,
}

/// TCP sequence numbers of one direction are this many bytes ahead.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Skew {
    pub bytes: i32,
    /// Which direction.
    pub in_reply: bool,
}

/// The initial values of a connection.
pub(crate) struct NewConnection {
    pub original: Tuple,
    pub reply: Tuple,
    pub parent: Option<Box<Tuple>>,
    pub nat: Option<NatTarget>,
    pub helper: Option<Helper>,
    pub admission: Admission,
    pub timeouts: Arc<ZoneTimeouts>,
    pub mark: u32,
    pub label: u128,
    pub state: ConnState,
    pub timeout: Timeout,
}

impl Connection {
    pub fn new(from: NewConnection, now_ms: u64) -> Self {
        let expires_ms = now_ms + from.timeouts.ms(from.timeout);
        Connection {
            original: from.original,
            reply: from.reply,
            is_related: from.parent.is_some(),
            parent: from.parent,
            nat: from.nat,
            helper: from.helper,
            admission: from.admission,
            timeouts: from.timeouts,
            expires_ms: AtomicU64::new(expires_ms),
            is_removed: AtomicBool::new(false),
            is_settled: AtomicBool::new(false),
            is_marked: AtomicBool::new(from.mark != 0 || from.label != 0),
            state: Mutex::new(from.state),
            marks: Mutex::new(Marks { mark: from.mark, label: from.label }),
            skew: Mutex::default(),
        }
    }

    /// Its state at this moment.
    pub fn state(&self) -> ConnState {
        *self.state.lock()
    }

    /// By how much a helper has lengthened one direction's data.
    pub fn skew(&self) -> Skew {
        *self.skew.lock()
    }

    /// Says by how much a helper has lengthened one direction's data.
    pub fn set_skew(&self, skew: Skew) {
        *self.skew.lock() = skew;
    }

    /// Moves state and expiry on for a packet.
    #[inline]
    pub fn update(&self, l4: &[u8], reply: bool, check_seq: bool, now_ms: u64) -> CtUpdate {
        let mut state = self.state.lock();
        let step = state.update(l4, reply, check_seq);
        if let CtUpdate::Valid(Some(timeout)) | CtUpdate::ValidNew(timeout) = step {
            self.prolong(timeout, now_ms);
        }
        if state.settled().is_some() && !self.is_settled.load(Ordering::Relaxed) {
            self.is_settled.store(true, Ordering::Relaxed);
        }
        step
    }

    /// The same without the lock, for a settled connection. `None`, and nothing is done, for others.
    #[inline]
    pub fn update_settled(&self, now_ms: u64) -> Option<CtUpdate> {
        // A settled connection stays settled, and the flag publishes no other data, so no ordering is needed.
        let timeout = self.is_settled.load(Ordering::Relaxed).then_some(SETTLED)?;
        self.prolong(timeout, now_ms);
        Some(CtUpdate::Valid(Some(timeout)))
    }

    /// Mark and label. Takes the lock only if there may be any.
    #[inline]
    pub fn marks(&self) -> (u32, u128) {
        if !self.is_marked.load(Ordering::Acquire) {
            return (0, 0);
        }
        let Marks { mark, label } = *self.marks.lock();
        (mark, label)
    }

    /// Changes mark and label as requested, and returns them.
    pub fn set_marks(&self, mark: Option<Masked<u32>>, label: Option<Masked<u128>>) -> (u32, u128) {
        let mut marks = self.marks.lock();
        // Under the lock: who sees it waits for what follows.
        self.is_marked.store(true, Ordering::Release);
        if let Some(Masked { value, mask }) = mark {
            marks.mark = value | marks.mark & !mask;
        }
        if let Some(Masked { value, mask }) = label {
            marks.label = value | marks.label & !mask;
        }
        (marks.mark, marks.label)
    }

    /// Sets its expiry to the timeout from now.
    #[inline]
    pub fn prolong(&self, timeout: Timeout, now_ms: u64) {
        let expires_ms = now_ms + self.timeouts.ms(timeout);
        // The packets of a millisecond change nothing, and then the line stays as the caches have it.
        if self.expires_ms() != expires_ms {
            self.expires_ms.store(expires_ms, Ordering::Relaxed);
        }
    }

    /// The direction of packets with that tuple: `Some(true)` for replies, `None` if the tuple belongs to another
    /// connection.
    #[inline]
    pub fn direction(&self, tuple: &Tuple) -> Option<bool> {
        if self.original == *tuple {
            Some(false)
        } else if self.reply == *tuple {
            Some(true)
        } else {
            None
        }
    }

    /// The tuple of its packets, or of its replies, as their receiver sees it.
    #[inline]
    pub fn translated(&self, reply: bool) -> Tuple {
        if reply { self.original.reversed() } else { self.reply.reversed() }
    }

    #[inline]
    pub fn expires_ms(&self) -> u64 {
        self.expires_ms.load(Ordering::Relaxed)
    }

    /// Whether it is over: expired or removed.
    #[inline]
    pub fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.expires_ms() || self.is_removed()
    }

    /// Makes it expire now; the next sweep removes it.
    pub fn end(&self) {
        self.expires_ms.store(0, Ordering::Relaxed);
    }

    #[inline]
    pub fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    /// Claims its removal. Returns false if another thread has claimed it.
    pub fn claim_removal(&self) -> bool {
        !self.is_removed.swap(true, Ordering::AcqRel)
    }
}

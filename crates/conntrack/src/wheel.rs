//! When to look at a connection next.
//!
//! A ring of buckets, one about a second wide, a part of each shard. A connection is put into the bucket of its end, or
//! into that half a minute ahead if its end is later. When a bucket is due, each connection in it is asked whether it
//! has ended; if not it moves on. So a packet only ever stores the connection's end; a connection whose end moves
//! nearer (TCP that closes) is found half a minute late at most, and costs memory until then, but is not found by
//! lookups; and a connection is looked at once in half a minute, not at every sweep.

use crate::connection::Connection;
use std::collections::VecDeque;
use std::sync::Arc;

/// Width of a bucket: 2^10 ms.
const TICK_BITS: u32 = 10;
/// Buckets.
const BUCKETS: u64 = 64;
/// How far ahead a connection is put at most, in buckets.
const AHEAD_MAX: u64 = 30;

const _: () = assert!(AHEAD_MAX < BUCKETS, "a connection must not come round before its time");

/// The ring of one shard.
#[derive(Debug)]
pub(crate) struct Wheel {
    buckets: Box<[VecDeque<Arc<Connection>>]>,
    /// The first bucket not yet done.
    next: u64,
}

impl Wheel {
    pub fn new() -> Self {
        Wheel { buckets: (0..BUCKETS).map(|_| VecDeque::new()).collect(), next: 0 }
    }

    /// Files a connection under its end.
    pub fn file(&mut self, connection: Arc<Connection>, now_ms: u64) {
        let now = now_ms >> TICK_BITS;
        let first = self.next.max(now);
        let end = connection.expires_ms() >> TICK_BITS;
        // Never in the bucket that is being done, or a sweep that is late would meet it again and again.
        let tick = end.clamp(first, first + AHEAD_MAX).min(self.next + BUCKETS - 1);
        self.buckets[(tick % BUCKETS) as usize].push_back(connection);
    }

    /// A connection that is to be looked at now; `None` if there is none. To be filed again if it lives on.
    pub fn due(&mut self, now_ms: u64) -> Option<Arc<Connection>> {
        let now = now_ms >> TICK_BITS;
        // After a long pause, once round is enough: every bucket is due.
        self.next = self.next.max(now.saturating_sub(BUCKETS));
        while self.next < now {
            let bucket = &mut self.buckets[(self.next % BUCKETS) as usize];
            if let Some(connection) = bucket.pop_front() {
                return Some(connection);
            }
            if bucket.capacity() > 64 {
                bucket.shrink_to(64);
            }
            self.next += 1;
        }
        None
    }
}

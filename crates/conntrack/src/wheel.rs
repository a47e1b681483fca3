//! When to examine a connection for expiry.
//!
//! Each shard has a ring of buckets, each about one second wide. A connection is put into the bucket of its expiry
//! time, but at most half a minute ahead. When a bucket is due, each of its connections is removed if it has expired,
//! or moved on if not. So a packet only stores the connection's expiry, and a connection is examined once in half a
//! minute instead of at every sweep. A connection whose expiry moves nearer (TCP that closes) may be examined half a
//! minute late; until then it takes memory, but lookups do not find it.

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
    /// The first bucket that is not finished.
    next: u64,
}

impl Wheel {
    pub fn new() -> Self {
        Wheel { buckets: (0..BUCKETS).map(|_| VecDeque::new()).collect(), next: 0 }
    }

    /// Puts a connection into the bucket of its expiry.
    pub fn file(&mut self, connection: Arc<Connection>, now_ms: u64) {
        let now = now_ms >> TICK_BITS;
        let first = self.next.max(now);
        let end = connection.expires_ms() >> TICK_BITS;
        // Never the bucket in progress, or a late sweep would examine the connection again and again.
        let tick = end.clamp(first, first + AHEAD_MAX).min(self.next + BUCKETS - 1);
        self.buckets[(tick % BUCKETS) as usize].push_back(connection);
    }

    /// The next connection to be examined now, which the caller files again if it lives on; `None` if there is none.
    pub fn due(&mut self, now_ms: u64) -> Option<Arc<Connection>> {
        let now = now_ms >> TICK_BITS;
        // After a long pause every bucket is due, and one round is enough.
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

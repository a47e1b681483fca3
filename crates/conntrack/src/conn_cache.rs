//! A PMD's cache of recently used connections, which needs no lock of the table.
//!
//! Shape:  buckets of four hashes and connections, a cache line each; owned by one PMD.
//! Cost:   a hit reads the bucket and the connection; no lock, no reference count.
//! Errors: an entry is a hint. It is valid if its connection is not over and has the packet's tuple; no two live
//!         connections share a tuple. A connection that was removed from the table stays in memory until its entry is
//!         replaced or swept.

use crate::connection::Connection;
use crate::tuple::Tuple;
use std::sync::Arc;

/// Entries in a bucket.
const WAYS: usize = 4;

#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Bucket([Option<CachedEntry>; WAYS]);

#[derive(Clone, Debug)]
struct CachedEntry {
    /// The low half of the tuple's hash.
    tag: u32,
    connection: Arc<Connection>,
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// A PMD's cache of recently used connections.
#[derive(Debug)]
pub struct ConnCache {
    buckets: Box<[Bucket]>,
    /// The next bucket to sweep.
    sweep: usize,
}

impl ConnCache {
    /// A cache for about `connections` connections, rounded up to a power of two.
    pub fn new(connections: usize) -> Self {
        let buckets = (connections / WAYS).next_power_of_two();
        ConnCache { buckets: vec![Bucket::default(); buckets].into(), sweep: 0 }
    }

    /// The bucket of a hash: its upper half, since the tag is the lower.
    #[inline]
    fn at(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.buckets.len() - 1)
    }

    /// Prefetches the bucket of a hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        sluice_simd::prefetch::read(&self.buckets[self.at(hash)]);
    }

    /// Prefetches the connections with the hash's tag.
    #[inline]
    pub(crate) fn prefetch_connection(&self, hash: u64) {
        let bucket = &self.buckets[self.at(hash)];
        for entry in bucket.0.iter().flatten().filter(|entry| entry.tag == hash as u32) {
            let first = Arc::as_ptr(&entry.connection).cast::<[u8; 64]>();
            (0..size_of::<Connection>().div_ceil(64))
                .for_each(|line| sluice_simd::prefetch::read(first.wrapping_add(line)));
        }
    }

    /// The live connection of a tuple, and whether the tuple is in the reply direction.
    #[inline]
    pub(crate) fn find(&self, hash: u64, tuple: &Tuple, now_ms: u64) -> Option<(&Arc<Connection>, bool)> {
        let bucket = &self.buckets[self.at(hash)];
        let fitting = bucket.0.iter().flatten().filter(|entry| entry.tag == hash as u32);
        let mut live = fitting.filter(|entry| !entry.connection.is_over(now_ms));
        live.find_map(|entry| Some((&entry.connection, entry.connection.direction(tuple)?)))
    }

    /// Inserts a connection under the hash of one of its tuples. Replaces an entry that is over, or else a random one.
    pub(crate) fn insert(&mut self, hash: u64, connection: &Arc<Connection>, now_ms: u64) {
        let at = self.at(hash);
        let bucket = &mut self.buckets[at].0;
        let is_free = |entry: &Option<CachedEntry>| entry.as_ref().is_none_or(|e| e.connection.is_over(now_ms));
        let way = bucket.iter().position(is_free).unwrap_or((hash >> 30) as usize % WAYS);
        bucket[way] = Some(CachedEntry { tag: hash as u32, connection: connection.clone() });
    }

    /// Drops the entries of removed connections in one bucket, the next one at each call.
    pub fn sweep(&mut self) {
        for entry in &mut self.buckets[self.sweep].0 {
            entry.take_if(|entry| entry.connection.is_removed());
        }
        self.sweep = (self.sweep + 1) & (self.buckets.len() - 1);
    }
}

//! The connections by tuple.
//!
//! Shape:  2^k shards, each a hash table and a [`Wheel`] behind one lock. An entry is a hash and a connection. A tuple
//!         and its reverse have the same hash, so a connection without NAT has one entry; one with NAT has two, under
//!         its original and its reply tuple, mostly in different shards.
//! Cost:   a lookup locks one shard for one probe and one comparison. Inserting or removing a connection locks one or
//!         two shards, in the order of their numbers.
//! Errors: a tuple that is in use is refused (see [`TupleInUse`]).

use crate::connection::Connection;
use crate::tuple::Tuple;
use crate::wheel::Wheel;
use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};
use sluice_simd::HashKey;
use std::sync::Arc;

/// Connections examined under one hold of a shard's lock during a sweep, so that packets wait little.
const SWEEP_AT_ONCE: usize = 64;

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Connections examined.
    pub examined: usize,
    /// Expired connections that were removed.
    pub removed: usize,
    /// Whether all due connections were examined; otherwise the budget was used up.
    pub is_complete: bool,
}

/// Why a connection could not be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TupleInUse {
    /// A connection has the original tuple.
    Original,
    /// A connection has the reply tuple.
    Reply,
}

#[derive(Debug)]
struct TupleEntry {
    hash: u64,
    connection: Arc<Connection>,
}

#[derive(Debug)]
struct ShardInner {
    entries: HashTable<TupleEntry>,
    wheel: Wheel,
}

/// A shard; two cache lines, since the prefetcher fetches lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(Mutex<ShardInner>);

/// All connections.
#[derive(Debug)]
pub(crate) struct ConnTable {
    shards: Box<[Shard]>,
    key: HashKey,
    /// The shard with which the next sweep begins.
    sweep_next: Mutex<usize>,
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, ShardInner> {
        self.0.lock()
    }
}

impl ShardInner {
    fn find(&self, hash: u64, tuple: &Tuple, now_ms: u64) -> Option<(&Arc<Connection>, bool)> {
        let mut reply = false;
        let is_it = |entry: &TupleEntry| {
            // Two live connections never share a tuple, so the first match is the only one.
            entry.hash == hash
                && !entry.connection.is_over(now_ms)
                && entry.connection.direction(tuple).inspect(|direction| reply = *direction).is_some()
        };
        let entry = self.entries.find(hash, is_it)?;
        Some((&entry.connection, reply))
    }

    fn insert(&mut self, hash: u64, connection: Arc<Connection>) {
        self.entries.insert_unique(hash, TupleEntry { hash, connection }, |entry| entry.hash);
    }

    fn remove(&mut self, hash: u64, connection: &Arc<Connection>) {
        let is_it = |entry: &TupleEntry| Arc::ptr_eq(&entry.connection, connection);
        if let Ok(entry) = self.entries.find_entry(hash, is_it) {
            entry.remove();
        }
    }
}

impl ConnTable {
    pub fn new(shards: usize, key: HashKey) -> Self {
        let shard = || Shard(Mutex::new(ShardInner { entries: HashTable::new(), wheel: Wheel::new() }));
        let shards = (0..shards.next_power_of_two()).map(|_| shard()).collect();
        ConnTable { shards, key, sweep_next: Mutex::new(0) }
    }

    pub fn key(&self) -> &HashKey {
        &self.key
    }

    /// The shard of a hash: its middle bits, since the hash table uses both ends.
    fn shard(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.shards.len() - 1)
    }

    /// The live connection of a tuple, and whether the tuple is in the reply direction.
    pub fn find(&self, tuple: &Tuple, now_ms: u64) -> Option<(Arc<Connection>, bool)> {
        let hash = tuple.hash(&self.key);
        let shard = self.shards[self.shard(hash)].lock();
        shard.find(hash, tuple, now_ms).map(|(connection, reply)| (connection.clone(), reply))
    }

    /// Whether no live connection has that tuple.
    pub fn is_free(&self, tuple: &Tuple, now_ms: u64) -> bool {
        let hash = tuple.hash(&self.key);
        self.shards[self.shard(hash)].lock().find(hash, tuple, now_ms).is_none()
    }

    /// Inserts a connection if both its tuples are free.
    pub fn insert(&self, connection: &Arc<Connection>, now_ms: u64) -> Result<(), TupleInUse> {
        let (original, reply) = (connection.original.hash(&self.key), connection.reply.hash(&self.key));
        let mut shards = self.lock_both(original, reply);
        if shards.of(0).find(original, &connection.original, now_ms).is_some() {
            return Err(TupleInUse::Original);
        }
        if shards.of(1).find(reply, &connection.reply, now_ms).is_some() {
            return Err(TupleInUse::Reply);
        }
        shards.of(0).insert(original, connection.clone());
        shards.of(0).wheel.file(connection.clone(), now_ms);
        if reply != original {
            shards.of(1).insert(reply, connection.clone());
        }
        Ok(())
    }

    /// Removes a connection. Returns false if another thread has removed it.
    pub fn remove(&self, connection: &Arc<Connection>) -> bool {
        if !connection.claim_removal() {
            return false;
        }
        let (original, reply) = (connection.original.hash(&self.key), connection.reply.hash(&self.key));
        let mut shards = self.lock_both(original, reply);
        shards.of(0).remove(original, connection);
        if reply != original {
            shards.of(1).remove(reply, connection);
        }
        true
    }

    /// Locks the shards of two hashes, the lower number first.
    fn lock_both(&self, a: u64, b: u64) -> LockedShards<'_> {
        let (a, b) = (self.shard(a), self.shard(b));
        let first = self.shards[a.min(b)].lock();
        let second = (a != b).then(|| self.shards[a.max(b)].lock());
        LockedShards { first, second, is_swapped: a > b }
    }

    /// Removes expired connections, examining about `budget` of those that are due. Calls `gone` for each one removed.
    pub fn sweep(&self, now_ms: u64, budget: usize, mut gone: impl FnMut(&Arc<Connection>)) -> Swept {
        let mut next = self.sweep_next.lock();
        let mut swept = Swept::default();
        for _ in 0..self.shards.len() {
            loop {
                if swept.examined >= budget {
                    return swept;
                }
                let (examined, ended) = self.sweep_some(&self.shards[*next], now_ms);
                swept.examined += examined;
                for connection in ended.iter().filter(|connection| self.remove(connection)) {
                    swept.removed += 1;
                    gone(connection);
                }
                if examined == 0 {
                    break;
                }
            }
            *next = (*next + 1) % self.shards.len();
        }
        Swept { is_complete: true, ..swept }
    }

    /// Examines some connections that are due. Returns how many, and the expired ones.
    fn sweep_some(&self, shard: &Shard, now_ms: u64) -> (usize, Vec<Arc<Connection>>) {
        let mut shard = shard.lock();
        let (mut examined, mut ended) = (0, Vec::new());
        while examined < SWEEP_AT_ONCE
            && let Some(connection) = shard.wheel.due(now_ms)
        {
            examined += 1;
            if connection.is_removed() {
                continue;
            } else if connection.is_over(now_ms) {
                ended.push(connection);
            } else {
                shard.wheel.file(connection, now_ms);
            }
        }
        (examined, ended)
    }

    /// The number of live connections in each shard, counted by original tuple.
    pub fn count_by_shard(&self, now_ms: u64) -> Vec<usize> {
        let count = |shard: &Shard| {
            let shard = shard.lock();
            let of_original = |entry: &&TupleEntry| entry.hash == entry.connection.original.hash(&self.key);
            shard.entries.iter().filter(|entry| !entry.connection.is_over(now_ms)).filter(of_original).count()
        };
        self.shards.iter().map(count).collect()
    }

    /// Calls `each` for every connection that `keep` accepts, one shard at a time and without holding a lock.
    pub fn for_each(&self, keep: impl Fn(&Connection) -> bool, mut each: impl FnMut(&Arc<Connection>)) {
        (0..self.shards.len()).for_each(|shard| self.of_shard(shard, &keep).iter().for_each(&mut each));
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The connections of a shard that `keep` accepts.
    pub fn of_shard(&self, shard: usize, keep: impl Fn(&Connection) -> bool) -> Vec<Arc<Connection>> {
        let shard = self.shards[shard].lock();
        let of_original = |entry: &&TupleEntry| entry.hash == entry.connection.original.hash(&self.key);
        let kept = shard.entries.iter().filter(|entry| keep(&entry.connection));
        kept.filter(of_original).map(|entry| entry.connection.clone()).collect()
    }
}

/// One shard or two, locked.
struct LockedShards<'a> {
    first: MutexGuard<'a, ShardInner>,
    second: Option<MutexGuard<'a, ShardInner>>,
    is_swapped: bool,
}

impl LockedShards<'_> {
    /// The shard of the first or second hash.
    fn of(&mut self, i: usize) -> &mut ShardInner {
        match &mut self.second {
            Some(second) if (i == 1) != self.is_swapped => second,
            _ => &mut self.first,
        }
    }
}

//! The entries, by addresses and ports.
//!
//! Shape:  buckets of two entries, a cache line each, in segments that are allocated at the first insertion. A hash
//!         has one bucket. When flows evict each other the buckets become twice as many, a few at a time: each is split into
//!         itself and one that far behind it, so no entry is lost and no step is long. Source: Litwin: Linear hashing, VLDB '80.
//! Errors: an entry is a hint; see the module's head.

use super::path::{Endpoints, HOPS_MAX};
use crate::batch::PathHint;
use arrayvec::ArrayVec;
use sluice_conntrack::ConnRef;
use sluice_simd::{cache_size, prefetch};

/// Entries in a bucket.
const WAYS: usize = 2;
/// Buckets in a segment: 256 KiB.
const SEGMENT: usize = 1 << SEGMENT_BITS;
const SEGMENT_BITS: u32 = 12;
/// Buckets in use at first.
const FIRST: usize = 256;
/// Buckets at most: four million entries, in 128 MiB, for two million connections.
const BUCKETS_MAX: usize = 1 << 21;
/// Buckets that are split at a time.
const SPLIT_AT_ONCE: usize = 8;
/// The number of buckets in use doubles when one live entry per this many buckets was evicted.
const LOST_OF_BUCKETS: usize = 8;
/// Of the flows that find their bucket full, one in this many evicts another.
const FULL_TRIES: u32 = 8;

#[derive(Debug, Default)]
#[repr(C, align(32))]
struct Entry {
    addresses: u64,
    ports: u32,
    /// 0: there is no entry.
    path: u32,
    first: Option<ConnRef>,
    further: Option<Box<ArrayVec<ConnRef, HOPS_MAX>>>,
}

const _: () = assert!(size_of::<[Entry; WAYS]>() == 64);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([Entry; WAYS]);

/// One PMD's entries.
#[derive(Debug, Default)]
pub(super) struct EntryTable {
    segments: Vec<Option<Box<[Bucket]>>>,
    /// Buckets in use.
    len: usize,
    /// Buckets that there will be: a power of two, at most twice as many as were in use when it grew.
    wanted: usize,
    /// Live entries evicted since the table last grew.
    lost: usize,
    /// Flows that found their bucket full.
    full: u32,
    sweep_next: usize,
}

impl EntryTable {
    /// Whether nothing has ever been inserted.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    #[inline(always)]
    fn bucket(&self, at: usize) -> Option<&Bucket> {
        Some(&self.segments.get(at >> SEGMENT_BITS)?.as_ref()?[at % SEGMENT])
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        // The lower half is split up to where the buckets in use end; behind that, a bucket still has both parts.
        let at = hash as usize & self.wanted.wrapping_sub(1);
        if at < self.len { at } else { at & (self.wanted / 2).wrapping_sub(1) }
    }

    /// Whether more buckets are in use than the second-level cache holds beside packets.
    #[inline]
    pub fn exceeds_l2(&self) -> bool {
        self.len * size_of::<Bucket>() >= cache_size::l2_share()
    }

    /// Prefetches the bucket of a hash.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        if let Some(bucket) = self.bucket(self.home(hash)) {
            prefetch::read(bucket);
        }
    }

    /// The entry of addresses and ports, with its path, and the connection of its first hop.
    #[inline(always)]
    pub fn find(&self, hash: u64, endpoints: Endpoints) -> Option<(PathHint, Option<&ConnRef>)> {
        let at = self.home(hash);
        let entries = &self.bucket(at)?.0;
        let is_it =
            |entry: &Entry| entry.addresses == endpoints.addresses && entry.ports == endpoints.ports && entry.path != 0;
        let way = entries.iter().position(is_it)?;
        let hint = PathHint { bucket: at as u32, way: way as u32, path: entries[way].path };
        Some((hint, entries[way].first.as_ref()))
    }

    #[inline(always)]
    fn entry(&self, hint: PathHint) -> Option<&Entry> {
        Some(&self.bucket(hint.bucket as usize)?.0[hint.way as usize % WAYS])
    }

    /// The connection of an entry's first hop.
    #[inline(always)]
    pub fn first_conn(&self, hint: PathHint) -> Option<&ConnRef> {
        self.entry(hint)?.first.as_ref()
    }

    /// The connections of an entry, one a hop.
    #[inline(always)]
    pub fn conns(&self, hint: PathHint) -> impl Iterator<Item = &ConnRef> + Clone {
        let entry = self.entry(hint);
        let further = entry.and_then(|entry| entry.further.as_deref()).map_or(&[][..], |further| further);
        entry.and_then(|entry| entry.first.as_ref()).into_iter().chain(further)
    }

    /// Whether an entry of that hash would be inserted: always if there is a free way, else now and then.
    pub fn has_room(&mut self, hash: u64) -> bool {
        let Some(bucket) = self.bucket(self.home(hash)) else { return true };
        if bucket.0.iter().any(|entry| entry.path == 0) {
            return true;
        }
        self.full = self.full.wrapping_add(1);
        self.full.is_multiple_of(FULL_TRIES)
    }

    /// Inserts an entry: over the one of the same addresses and ports, into a free way, or over another entry.
    pub fn insert(&mut self, hash: u64, endpoints: Endpoints, path: u32, conns: ArrayVec<ConnRef, HOPS_MAX>) {
        if self.segments.is_empty() {
            self.segments.push(None);
            (self.len, self.wanted) = (FIRST, FIRST);
        }
        if self.lost > self.len / LOST_OF_BUCKETS && self.len == self.wanted && self.len < BUCKETS_MAX {
            self.wanted *= 2;
            self.lost = 0;
        }
        let (at, turn) = (self.home(hash), self.lost);
        let entries = &mut segment_of(&mut self.segments, at)[at % SEGMENT].0;
        let same =
            entries.iter().position(|entry| entry.addresses == endpoints.addresses && entry.ports == endpoints.ports);
        let free = || entries.iter().position(|entry| entry.path == 0);
        let way = same.or_else(free).unwrap_or_else(|| {
            self.lost += 1;
            turn % WAYS
        });
        let mut conns = conns.into_iter();
        let first = conns.next();
        let further = (conns.len() != 0).then(|| Box::new(conns.collect()));
        let Endpoints { addresses, ports } = endpoints;
        entries[way] = Entry { addresses, ports, path, first, further };
    }

    /// Splits a few buckets if the table is growing. `hash_of` tells the hash of an entry from its path and endpoints; of some
    /// it cannot, and they are cleared.
    pub fn split_some(&mut self, hash_of: impl Fn(u32, Endpoints) -> Option<u64>) {
        for _ in 0..SPLIT_AT_ONCE.min(self.wanted - self.len) {
            self.split_one(&hash_of);
        }
    }

    fn split_one(&mut self, hash_of: impl Fn(u32, Endpoints) -> Option<u64>) {
        let (from, to) = (self.len - self.wanted / 2, self.len);
        self.len += 1;
        if self.segments.len() <= to >> SEGMENT_BITS {
            self.segments.push(None);
        }
        for way in 0..WAYS {
            let Some(Some(segment)) = self.segments.get_mut(from >> SEGMENT_BITS) else { return };
            let entry = &mut segment[from % SEGMENT].0[way];
            if entry.path == 0 {
                continue;
            }
            let hash = hash_of(entry.path, Endpoints { addresses: entry.addresses, ports: entry.ports });
            let home = hash.map(|hash| self.home(hash));
            if home == Some(from) {
                continue;
            }
            let Some(Some(segment)) = self.segments.get_mut(from >> SEGMENT_BITS) else { return };
            let entry = std::mem::take(&mut segment[from % SEGMENT].0[way]);
            if home == Some(to) {
                segment_of(&mut self.segments, to)[to % SEGMENT].0[way] = entry;
            }
        }
    }

    /// Clears the entries of one bucket if their connections have been removed from the conntrack table.
    pub fn sweep(&mut self) {
        let at = if self.sweep_next < self.len { self.sweep_next } else { 0 };
        self.sweep_next = at + 1;
        let Some(Some(segment)) = self.segments.get_mut(at >> SEGMENT_BITS) else { return };
        for entry in &mut segment[at % SEGMENT].0 {
            let mut conns = entry.first.iter().chain(entry.further.iter().flat_map(|further| further.iter()));
            if conns.any(ConnRef::is_removed) {
                *entry = Entry::default();
            }
        }
    }
}

/// The segment of a bucket, which is allocated if it is not there.
fn segment_of(segments: &mut [Option<Box<[Bucket]>>], at: usize) -> &mut [Bucket] {
    segments[at >> SEGMENT_BITS].get_or_insert_with(|| std::iter::repeat_with(Bucket::default).take(SEGMENT).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_simd::hash::splitmix64;

    /// The hash of a flow by its number.
    fn hash(flow: u64) -> u64 {
        let mut seed = flow;
        splitmix64(&mut seed)
    }

    fn endpoints(flow: u64) -> Endpoints {
        Endpoints { addresses: flow, ports: flow as u32 }
    }

    fn has(table: &EntryTable, flow: u64) -> bool {
        table.find(hash(flow), endpoints(flow)).is_some_and(|(hint, _)| hint.path == 1 + flow as u32)
    }

    /// Flows come again and again, as many as need the table to grow ten times. An entry that was there before some buckets
    /// were split is there afterwards.
    #[test]
    fn no_entry_is_lost_when_it_grows() {
        const FLOWS: u64 = 300_000;
        let mut table = EntryTable::default();
        let (mut found, mut splits) = (0, 0);
        for n in 0..8 * FLOWS {
            let flow = n % FLOWS;
            found = if flow == 0 { 0 } else { found } + u64::from(has(&table, flow));
            if !has(&table, flow) && table.has_room(hash(flow)) {
                table.insert(hash(flow), endpoints(flow), 1 + flow as u32, ArrayVec::new());
            }
            if n % 32 == 0 && table.len != table.wanted {
                let near: Vec<u64> = (flow.saturating_sub(500)..=flow).filter(|flow| has(&table, *flow)).collect();
                table.split_some(|path, endpoints| {
                    assert_eq!(endpoints, super::tests::endpoints(u64::from(path) - 1));
                    Some(hash(endpoints.addresses))
                });
                assert!(near.iter().all(|flow| has(&table, *flow)), "of {} buckets", table.len);
                splits += 1;
            }
        }
        assert!(splits > 1000 && table.len >= 1 << 17, "{splits} steps, {} buckets", table.len);
        assert!(found > FLOWS * 4 / 5, "{found}");
    }

    #[test]
    fn an_entry_whose_hash_is_not_known_is_cleared() {
        let mut table = EntryTable::default();
        (0..500).for_each(|flow| table.insert(hash(flow), endpoints(flow), 1 + flow as u32, ArrayVec::new()));
        if table.wanted == table.len {
            table.wanted *= 2;
        }
        while table.len != table.wanted {
            table.split_some(|path, endpoints| path.is_multiple_of(2).then(|| hash(endpoints.addresses)));
        }
        let left: Vec<u64> = (0..500).filter(|flow| has(&table, *flow)).collect();
        assert!(left.len() > 100 && left.iter().all(|flow| !flow.is_multiple_of(2)), "{left:?}");
    }
}

//! The entries, by addresses and ports.
//!
//! Shape:  buckets of two entries, a cache line each, in segments that are allocated at the first insertion. A hash
//!         has one bucket; the number of low bits that count grows when flows evict each other.
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
/// Buckets at most: a million entries, in 32 MiB.
const BUCKETS_MAX: usize = 1 << 19;
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
    /// Buckets in use less one.
    mask: usize,
    /// Live entries evicted since the number of buckets last grew.
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
        hash as usize & self.mask
    }

    /// Whether more buckets are in use than the second-level cache holds beside packets.
    #[inline]
    pub fn exceeds_l2(&self) -> bool {
        (self.mask + 1) * size_of::<Bucket>() >= cache_size::l2_share()
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

    /// Prefetches the connections of an entry's further hops.
    #[inline(always)]
    pub fn prefetch_conns(&self, hint: PathHint) {
        if let Some(further) = self.entry(hint).and_then(|entry| entry.further.as_deref()) {
            further.iter().for_each(ConnRef::prefetch);
        }
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
            self.segments.resize_with(1, || None);
            self.mask = FIRST - 1;
        }
        if self.lost > (self.mask + 1) / LOST_OF_BUCKETS && self.mask + 1 < BUCKETS_MAX {
            self.mask = self.mask * 2 + 1;
            self.lost = 0;
            self.segments.resize_with((self.mask >> SEGMENT_BITS) + 1, || None);
        }
        let (at, turn) = (self.home(hash), self.lost);
        let segment = self.segments[at >> SEGMENT_BITS]
            .get_or_insert_with(|| std::iter::repeat_with(Bucket::default).take(SEGMENT).collect());
        let entries = &mut segment[at % SEGMENT].0;
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

    /// Clears the entries of one bucket if their connections have been removed from the conntrack table.
    pub fn sweep(&mut self) {
        let at = self.sweep_next & self.mask;
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

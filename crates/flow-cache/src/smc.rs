//! The signature match cache (SMC): many flows in little memory, in front of the subtables.
//!
//! An entry is 16 bits of the hash and a megaflow's id, ten to a cache line: 6.4 bytes a flow, where the EMC needs 16.
//! In OVS a bucket has four entries, the first with the same signature is taken, and a flow has a 16-bit index; here an
//! id has 32 bits, and all entries with the same signature are tried. As in the EMC the megaflow itself is verified, so
//! an entry of a dead or changed megaflow costs a compare and needs no sweep.

use crate::fill::Fill;
use crate::{CACHE_ENTRIES_MAX, Hits, LookupBatch, LookupStage, Megaflow};
use sluice_action::FlowId;
use sluice_mem::{ArrayMemory, HugeArray};
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::{VectorOps, cache_size, prefetch, signature};
use std::sync::Arc;
use zerocopy::FromZeros;

/// Entries of a bucket.
const WAYS: usize = 10;
const WAY_BITS: u16 = (1 << WAYS) - 1;

/// What a megaflow's record and counters take of the cache, bytes.
const RECORD: usize = 256;

/// Buckets that are resident when it is turned on: 8 MiB, for a million flows.
const READY: usize = 1 << 17;

/// Where the ids begin. An id is two halves, the low one first.
const IDS: usize = 12;

/// One cache line: ten signatures, 0 for an empty way; two halves unused; ten ids.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C, align(64))]
struct SmcBucket([u16; 32]);

const _: () = assert!(size_of::<SmcBucket>() == 64);

/// One PMD's signature match cache.
///
/// Shape:  2^k buckets of ten ways, of which as many are used as the flows need ([`Fill`]). The hash's low bits select
///         the bucket, its high 16 are the signature.
/// Errors: none. A full bucket overwrites its ways in turn.
/// Memory: none while it is off; 8 MiB at first, and more when flows need it and it has been made resident
///         ([`Smc::memory`]).
#[derive(Debug)]
pub struct Smc {
    buckets: HugeArray<SmcBucket>,
    entries: usize,
    /// Buckets that are resident when it is turned on.
    ready: usize,
    fill: Fill,
    /// The lowest and the highest id inserted since it was turned on: there are no more megaflows than ids between them. Of
    /// PMDs that install by turns each has a part of these ids.
    lowest: u32,
    highest: u32,
}

impl SmcBucket {
    /// Bit `i` is set if way `i` has that signature.
    fn matching(&self, wanted: u16) -> u16 {
        signature::matching(self.first_half(), wanted) & WAY_BITS
    }

    /// [`SmcBucket::matching`] inside a lookup.
    #[inline(always)]
    fn matching_with<V: VectorOps>(&self, ops: V, wanted: u16) -> u16 {
        ops.signatures(self.first_half(), wanted) & WAY_BITS
    }

    /// The signatures, and six halves more.
    #[inline(always)]
    fn first_half(&self) -> &[u16; 16] {
        self.0.first_chunk().expect("invariant: a bucket has 32 halves")
    }

    #[inline(always)]
    fn id(&self, way: usize) -> u32 {
        u32::from(self.0[IDS + 2 * way]) | u32::from(self.0[IDS + 2 * way + 1]) << 16
    }

    fn set(&mut self, way: usize, signature: u16, id: u32) {
        self.0[way] = signature;
        self.0[IDS + 2 * way] = id as u16;
        self.0[IDS + 2 * way + 1] = (id >> 16) as u16;
    }
}

/// The signature of a hash, never the empty way's 0.
#[inline(always)]
fn signature_of(hash: u64) -> u16 {
    ((hash >> 48) as u16).max(1)
}

/// The first way in a bit set; any way if the set is empty.
#[inline(always)]
fn first_way(bits: u16) -> usize {
    (bits.trailing_zeros() as usize).min(WAYS - 1)
}

/// The ways in a bit set.
#[inline(always)]
fn ways(mut bits: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let way = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (way < WAYS).then_some(way)
    })
}

impl Smc {
    /// A cache that is off, for `entries` flows or more once it is on.
    pub fn new(entries: usize) -> Self {
        Smc {
            buckets: HugeArray::default(),
            entries: entries.clamp(1, CACHE_ENTRIES_MAX),
            ready: READY,
            fill: Fill::new(0),
            lowest: u32::MAX,
            highest: 0,
        }
    }

    /// Turns it on, empty, or off.
    pub fn set_on(&mut self, on: bool) {
        if on != self.is_on() {
            let buckets = if on { self.entries.div_ceil(WAYS).next_power_of_two() } else { 0 };
            self.buckets = HugeArray::new(buckets, self.ready);
            self.fill = Fill::new(buckets.min(self.ready));
            (self.lowest, self.highest) = (u32::MAX, 0);
        }
    }

    /// Its memory, for a thread that may wait; `None` while it is off.
    pub fn memory(&self) -> Option<Arc<ArrayMemory>> {
        self.buckets.memory()
    }

    /// Lines in use: more each time it grows.
    #[inline]
    pub fn lines_in_use(&self) -> usize {
        self.fill.mask().wrapping_add(1)
    }

    /// Whether flows replace each other until more memory is resident.
    #[inline]
    pub fn awaits_memory(&self) -> bool {
        self.fill.is_short_of(self.buckets.len())
    }

    /// Whether it is on.
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.buckets.is_empty()
    }

    /// Inserts the megaflow for a key's hash. Does nothing while the cache is off.
    #[inline]
    pub fn insert(&mut self, hash: u64, id: FlowId) {
        if let Some(lines) = self.fill.grow() {
            self.use_more(lines);
        }
        (self.lowest, self.highest) = (self.lowest.min(id.0), self.highest.max(id.0));
        let at = self.at(hash);
        let Some(bucket) = self.buckets.get_mut(at) else { return };
        let signature = signature_of(hash);
        // The newest entry of a signature comes first, where lookups look first. The older ones may be stale, from
        // before a rule changed. In a full bucket the newest replaces the first.
        let same = bucket.matching(signature);
        let free = bucket.matching(0);
        let (first, first_free) = (same.trailing_zeros() as usize, free.trailing_zeros() as usize);
        let way = match ways(same).find(|way| bucket.id(*way) == id.0) {
            Some(known) => {
                bucket.set(known, signature, bucket.id(first));
                first
            }
            None if same == 0 && free == 0 => self.fill.count_lost() % WAYS,
            None if first < first_free => {
                if free != 0 {
                    bucket.set(first_free, signature, bucket.id(first));
                }
                first
            }
            None => first_free,
        };
        bucket.set(way, signature, id.0);
    }

    /// Whether its buckets are prefetched while packets are still read: they are more than the second-level cache holds,
    /// whose latency the processor hides by itself.
    #[inline]
    pub fn exceeds_l2(&self) -> bool {
        (self.fill.mask() + 1) * size_of::<SmcBucket>() >= cache_size::l2_share()
    }

    /// Prefetches what a lookup of these hashes reads first.
    #[inline(always)]
    pub fn prefetch(&self, hashes: &[u64]) {
        let (buckets, mask) = (&self.buckets[..], self.fill.mask());
        for hash in hashes {
            // There is none while it is off.
            if let Some(bucket) = buckets.get(*hash as usize & mask) {
                prefetch::read(bucket);
            }
        }
    }

    #[inline(always)]
    fn at(&self, hash: u64) -> usize {
        hash as usize & self.fill.mask()
    }

    /// Uses the resident lines, and requests `lines`.
    #[cold]
    fn use_more(&mut self, lines: usize) {
        let ready = self.buckets.ready().max(1);
        self.fill.set_lines(1 << ready.ilog2());
        self.buckets.ask_for(lines);
    }
}

impl LookupStage for Smc {
    #[inline(always)]
    fn lookup<'g, V: VectorOps>(
        &mut self,
        ops: V,
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
    ) -> BatchMask {
        if !self.is_on() {
            return miss;
        }
        self.fill.count_asked(miss.len());
        // What the loops read stays in registers: through `self` it would be loaded again after each hit.
        let LookupBatch { keys, hashes, flows, .. } = *batch;
        let (buckets, mask) = (&self.buckets[..], self.fill.mask());
        if !batch.is_prefetched {
            self.fetch_buckets(hashes, miss);
        }
        if self.fetches_records() {
            return self.lookup_ahead(ops, batch, miss, hits);
        }
        let mut found = 0;
        for i in miss {
            let bucket = &buckets[hashes[i] as usize & mask];
            let same = bucket.matching_with(ops, signature_of(hashes[i]));
            if same == 0 {
                continue;
            }
            // The first way is nearly always right: otherwise two flows have one signature in one bucket.
            if let Some(flow) = flows.get(bucket.id(first_way(same)))
                && flow.contains_with(ops, &keys[i])
            {
                hits[i] = Some(flow);
                found |= 1 << i;
            } else if let Some(flow) = other_way(bucket, same, batch, i) {
                hits[i] = Some(flow);
                found |= 1 << i;
            }
        }
        BatchMask(miss.0 & !found)
    }
}

impl Smc {
    /// The lookup with many megaflows: signatures of all packets, then their records, which are prefetched meanwhile with
    /// their counters. With few megaflows it gains nothing: 13 instructions more a packet hide as many cycles of latency.
    #[inline(always)]
    pub(crate) fn lookup_ahead<'g, V: VectorOps>(
        &self,
        ops: V,
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
    ) -> BatchMask {
        let LookupBatch { keys, hashes, flows, .. } = *batch;
        let (buckets, mask) = (&self.buckets[..], self.fill.mask());
        let mut ids = [0; BATCH_MAX];
        let named = self.name_records::<V, true>(ops, batch, miss, &mut ids);
        let mut found = 0;
        for i in named {
            if let Some(flow) = flows.get(ids[i])
                && flow.contains_with(ops, &keys[i])
            {
                hits[i] = Some(flow);
                found |= 1 << i;
                continue;
            }
            let bucket = &buckets[hashes[i] as usize & mask];
            let same = bucket.matching(signature_of(hashes[i]));
            if let Some(flow) = other_way(bucket, same, batch, i) {
                hits[i] = Some(flow);
                found |= 1 << i;
            }
        }
        BatchMask(miss.0 & !found)
    }
}

impl Smc {
    /// Writes the ids that the first matching signatures of the packets of `miss` name, and returns the packets that have
    /// one. Prefetches the records and counters if `AHEAD`.
    #[inline(always)]
    fn name_records<V: VectorOps, const AHEAD: bool>(
        &self,
        ops: V,
        batch: &LookupBatch<'_, '_>,
        miss: BatchMask,
        ids: &mut [u32; BATCH_MAX],
    ) -> BatchMask {
        let LookupBatch { hashes, flows, counters, .. } = *batch;
        let (buckets, mask) = (&self.buckets[..], self.fill.mask());
        let mut named = BatchMask::NONE;
        for i in miss {
            let bucket = &buckets[hashes[i] as usize & mask];
            let same = bucket.matching_with(ops, signature_of(hashes[i]));
            // Without a match some record is fetched needlessly; a branch could not be predicted.
            ids[i] = bucket.id(first_way(same));
            if AHEAD {
                flows.prefetch(ids[i]);
                counters.prefetch(FlowId(ids[i]));
            }
            named.0 |= u32::from(same != 0) << i;
        }
        named
    }

    /// A lookup that ends before any record is compared, for measurements: writes the ids to compare with, and returns
    /// the packets that have one.
    #[inline(always)]
    pub fn probe<V: VectorOps>(
        &self,
        ops: V,
        batch: &LookupBatch<'_, '_>,
        miss: BatchMask,
        ids: &mut [u32; BATCH_MAX],
    ) -> BatchMask {
        if !self.is_on() {
            return BatchMask::NONE;
        }
        self.fetch_buckets(batch.hashes, miss);
        if self.fetches_records() {
            return self.name_records::<V, true>(ops, batch, miss, ids);
        }
        self.name_records::<V, false>(ops, batch, miss, ids)
    }

    /// Prefetches the buckets of the packets of `miss`, if they are many.
    #[inline(always)]
    fn fetch_buckets(&self, hashes: &[u64; BATCH_MAX], miss: BatchMask) {
        let (buckets, mask) = (&self.buckets[..], self.fill.mask());
        if self.exceeds_l2() {
            miss.into_iter().for_each(|i| prefetch::read(&buckets[hashes[i] as usize & mask]));
        }
    }

    /// Whether records are prefetched too.
    #[inline(always)]
    fn fetches_records(&self) -> bool {
        self.exceeds_l2() && self.highest.saturating_sub(self.lowest) as usize * RECORD >= cache_size::l2_share() / 2
    }
}

/// Looks up packet `i` in the ways of its signature other than the first.
#[cold]
fn other_way<'g>(bucket: &SmcBucket, same: u16, batch: &LookupBatch<'_, 'g>, i: usize) -> Option<&'g Megaflow> {
    let others = ways(same & same.wrapping_sub(1));
    others.filter_map(|way| batch.flows.get(bucket.id(way))).find(|flow| flow.contains(&batch.keys[i]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids_of(smc: &Smc, hash: u64) -> Vec<u32> {
        let bucket = &smc.buckets[smc.at(hash)];
        ways(bucket.matching(signature_of(hash))).map(|way| bucket.id(way)).collect()
    }

    proptest! {
        /// What was noted last is there, whatever collides, and nothing is there that was not noted under that
        /// signature. Few buckets, few signatures and ids of both halves: full buckets and duplicates are common.
        #[test]
        fn the_last_noted_is_there(
            steps in prop::collection::vec((0..40u64, 0..3u64, 0..6u32, 0..3u32), 1..200),
            entries in 1..40usize,
        ) {
            let mut smc = Smc::new(entries);
            smc.set_on(true);
            let mut noted = std::collections::HashSet::new();
            for (signature, low, id, high) in steps {
                let (hash, id) = (signature << 48 | signature << 32 | low, id | high << 16);
                smc.insert(hash, FlowId(id));
                noted.insert((signature.max(1), id));
                let have = ids_of(&smc, hash);
                prop_assert_eq!(have[0], id, "the newest is where a lookup looks first");
                prop_assert!(have.iter().all(|id| noted.contains(&(signature.max(1), *id))));
            }
        }
    }

    /// Looks flows up as the hierarchy does, noting those that are not there; how many were not.
    fn batch(smc: &mut Smc, flows: u64) -> usize {
        let mut missed = 0;
        for mut flow in 0..flows {
            let hash = sluice_simd::hash::splitmix64(&mut flow);
            smc.fill.count_asked(1);
            if !ids_of(smc, hash).contains(&(hash as u32)) {
                missed += 1;
                smc.insert(hash, FlowId(hash as u32));
            }
        }
        missed
    }

    #[test]
    fn as_much_is_in_use_as_flows_need() {
        for (flows, least, most) in
            [(100, 512, 512), (3000, 512, 1024), (20_000, 2048, 8192), (200_000, 1 << 14, 1 << 14)]
        {
            let mut smc = Smc::new(160_000);
            smc.set_on(true);
            for _ in 0..100 {
                batch(&mut smc, flows);
            }
            let lines = smc.fill.mask() + 1;
            assert!((least..=most).contains(&lines), "{flows} flows: {lines} lines in use");
            let missed = batch(&mut smc, flows) as u64;
            assert!(missed * 50 < flows || lines == smc.buckets.len(), "{flows} flows, {lines} lines: {missed} missed");
        }
    }

    #[test]
    fn it_grows_into_the_memory_that_was_made() {
        let mut smc = Smc::new(160_000);
        smc.ready = 1024;
        smc.set_on(true);
        let memory = smc.memory().unwrap();
        let mut steps = Vec::new();
        for _ in 0..8 {
            (0..20).for_each(|_| _ = batch(&mut smc, 60_000));
            steps.push(smc.fill.mask() + 1);
            memory.grow();
        }
        assert_eq!(steps[..2], [1024, 1 << 14], "once there is memory, several doublings at once for so many");
        assert!(steps[7] == 1 << 14 && steps[7] <= smc.buckets.ready(), "{steps:?}");
        assert!(batch(&mut smc, 60_000) < 1200, "{steps:?}");
    }

    #[test]
    fn ten_flows_of_one_signature_are_all_there() {
        let mut smc = Smc::new(10);
        smc.insert(7, FlowId(1));
        assert!(!smc.is_on(), "an insertion does not turn it on");
        smc.set_on(true);
        let ids: Vec<u32> = (0..10).map(|i| 1 << 31 | i << 16 | 7).collect();
        ids.iter().for_each(|id| smc.insert(7, FlowId(*id)));
        assert_eq!(ids_of(&smc, 7)[0], ids[9], "the newest is first");
        assert!(ids.iter().all(|id| ids_of(&smc, 7).contains(id)));
        smc.set_on(false);
        assert!(smc.memory().is_none());
    }
}

//! The exact match cache (EMC): from a packet's whole key to its megaflow.
//!
//! An entry is a 32-bit tag and a megaflow's id; the megaflow itself is verified. So the cache is small (the default
//! size fits several times into the second-level cache), an entry of a dead or changed megaflow is harmless, and
//! lookups need no sweep. A slow sweep runs only to keep the count of used entries correct.

use crate::bucket::{Bucket, slots, tag};
use crate::{CACHE_ENTRIES_MAX, Hits, LookupBatch, LookupStage, Megaflow};
use sluice_action::FlowId;
use sluice_mem::{ArrayMemory, HugeArray};
use sluice_packet::BatchMask;
use sluice_simd::lanes::LANES;
use sluice_simd::{VectorOps, cache_size, hash, prefetch};
use sluice_sync::Slots;
use std::sync::Arc;

/// Buckets that one call of [`Emc::sweep`] clears: few, since megaflows may die all the time.
const SWEEP_BUCKETS: usize = 2;

/// Buckets that are resident from the start: 8 MiB, more than the default size needs.
const READY: usize = 1 << 17;

/// One bit for each slot.
const SLOTS: u32 = (1 << LANES) - 1;

/// The increment with which every candidate is inserted.
const ALWAYS: u64 = 1 << 32;

/// One PMD's exact match cache.
///
/// Shape:  2^k buckets of 8 slots; a bucket is one cache line. There are twice as many slots as entries, so that
///         entries find a free slot: 8000 flows in 8192 entries miss in 0.9 % of the packets, and in 13 % with half the
///         slots. The hash's low k bits select the bucket, its high 32 bits are the tag.
/// Errors: none. A full bucket overwrites a random entry of its own, and so does every bucket when all entries are in
///         use.
/// Counts: `used` is exactly the number of entries in use. An entry whose megaflow is dead stays in use until it is
///         overwritten or swept, at most `buckets / 2` calls of `sweep` after `forget`.
/// Memory: none if it has no entries.
#[derive(Debug)]
pub struct Emc {
    buckets: HugeArray<Bucket>,
    /// The most entries that may be in use.
    entries: usize,
    used: usize,
    /// Increment per candidate: 2³² / inverse probability.
    step: u64,
    /// The sum of increments, and the sum at which the next candidate is inserted. Ports with different probabilities
    /// may alternate: each contributes its own increments.
    progress: u64,
    due: u64,
    random: u64,
    /// The next bucket to sweep, and how many are left to sweep.
    sweep_at: usize,
    sweep_left: usize,
}

/// How full the cache is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmcUsage {
    /// Entries in use.
    pub used: usize,
    /// Entries in all.
    pub entries: usize,
}

impl EmcUsage {
    /// Share in use, percent.
    pub fn percent(&self) -> f64 {
        if self.entries == 0 { 0.0 } else { 100.0 * self.used as f64 / self.entries as f64 }
    }
}

impl Emc {
    /// An empty cache of `entries` entries, which inserts one in `insert_inv_prob` candidates. With 0 entries it is
    /// off. `seed` is for the choice of what to overwrite.
    pub fn new(entries: usize, insert_inv_prob: u32, seed: u64) -> Self {
        let entries = entries.min(CACHE_ENTRIES_MAX);
        let buckets = if entries == 0 { 0 } else { (entries * 2).div_ceil(LANES).next_power_of_two() };
        let mut emc = Emc {
            buckets: HugeArray::new(buckets, READY),
            entries,
            used: 0,
            step: ALWAYS,
            progress: 0,
            due: 0,
            random: seed,
            sweep_at: 0,
            sweep_left: 0,
        };
        emc.set_insert_inv_prob(insert_inv_prob);
        emc.draw_due();
        emc
    }

    /// Sets the insertion probability to one in `n`, at least 1. Cheap enough to call for every batch.
    #[inline]
    pub fn set_insert_inv_prob(&mut self, n: u32) {
        self.step = ALWAYS / u64::from(n.max(1));
    }

    /// Whether it is on.
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.buckets.is_empty()
    }

    /// Its memory; `None` if it is off.
    pub fn memory(&self) -> Option<Arc<ArrayMemory>> {
        self.buckets.memory()
    }

    /// How full it is.
    pub fn usage(&self) -> EmcUsage {
        EmcUsage { used: self.used, entries: self.entries }
    }

    /// How many entries are in use, counted one by one.
    #[cfg(test)]
    pub(crate) fn count_used(&self) -> usize {
        self.buckets.iter().map(|bucket| LANES - bucket.matching(0).count_ones() as usize).sum()
    }

    /// Offers a flow that another level found; one in `n` is inserted. Does nothing while the cache is off.
    #[inline]
    pub fn offer(&mut self, hash: u64, id: FlowId) {
        if self.step == ALWAYS {
            return self.insert(hash, id);
        }
        self.progress += self.step;
        if self.progress >= self.due {
            self.insert(hash, id);
            self.draw_due();
        }
    }

    /// Draws when the next insertion happens: uniformly distributed up to twice the mean.
    fn draw_due(&mut self) {
        self.progress = 0;
        self.due = hash::splitmix64(&mut self.random) % (2 * ALWAYS);
    }

    /// Inserts an entry, regardless of the probability.
    fn insert(&mut self, hash: u64, id: FlowId) {
        let tag = tag((hash >> 32) as u32);
        let at = self.at(hash);
        let Some(bucket) = self.buckets.get_mut(at) else { return };
        let same = bucket.matching(tag);
        let free = bucket.matching(0);
        let slot = if same != 0 {
            same.trailing_zeros() as usize
        } else if free != 0 && self.used < self.entries {
            self.used += 1;
            free.trailing_zeros() as usize
        } else {
            let taken = !free & SLOTS;
            // All entries are in use elsewhere, and this bucket has none to overwrite.
            if taken == 0 {
                return;
            }
            // The first used slot from a random one on. Counting up to a random slot takes unpredictable branches: with
            // 1 M flows and every candidate inserted, 289 cycles a packet instead of 243 (2026-11-20).
            let from = hash::splitmix64(&mut self.random) as usize % LANES;
            let turned = (taken >> from | taken << (LANES - from)) & SLOTS;
            (from + turned.trailing_zeros() as usize) % LANES
        };
        bucket.tags[slot] = tag;
        bucket.ids[slot] = id.0;
    }

    /// Says that megaflows were deleted: their entries are to be swept.
    pub fn forget(&mut self) {
        self.sweep_left = if self.used == 0 { 0 } else { self.buckets.len() };
    }

    /// Clears the entries of dead megaflows in a few buckets, while a sweep is under way. Called once a loop iteration.
    #[inline]
    pub fn sweep(&mut self, flows: Slots<'_, Megaflow>) {
        if self.sweep_left != 0 {
            self.sweep_some(flows);
        }
    }

    #[cold]
    fn sweep_some(&mut self, flows: Slots<'_, Megaflow>) {
        let n = self.sweep_left.min(SWEEP_BUCKETS);
        for _ in 0..n {
            let bucket = &mut self.buckets[self.sweep_at];
            for slot in 0..LANES {
                if bucket.tags[slot] != 0 && flows.get(bucket.ids[slot]).is_none() {
                    bucket.tags[slot] = 0;
                    self.used -= 1;
                }
            }
            self.sweep_at = (self.sweep_at + 1) & (self.buckets.len() - 1);
        }
        self.sweep_left -= n;
    }

    /// Whether its buckets are prefetched while packets are still read: they are more than the second-level cache holds.
    /// The processor hides that cache's latency by itself: with 8000 flows prefetching cost 1 cycle of 67 a packet and
    /// gained nothing (2026-11-20).
    #[inline]
    pub fn exceeds_l2(&self) -> bool {
        size_of_val(&self.buckets[..]) >= cache_size::l2_share()
    }

    /// Prefetches what a lookup of these hashes reads first.
    #[inline(always)]
    pub fn prefetch(&self, hashes: &[u64]) {
        for hash in hashes {
            // There is none while it is off.
            if let Some(bucket) = self.buckets.get(self.at(*hash)) {
                prefetch::read(bucket);
            }
        }
    }

    #[inline(always)]
    fn at(&self, hash: u64) -> usize {
        hash as usize & self.buckets.len().wrapping_sub(1)
    }
}

impl LookupStage for Emc {
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
        if !batch.is_prefetched && self.exceeds_l2() {
            miss.into_iter().for_each(|i| prefetch::read(&self.buckets[self.at(batch.hashes[i])]));
        }
        // What the loop reads stays in registers: through `self` it would be loaded again after each hit.
        let LookupBatch { keys, hashes, flows, .. } = *batch;
        let buckets = &self.buckets[..];
        let mask = buckets.len() - 1;
        let mut found = 0;
        for i in miss {
            let (hash, key) = (hashes[i], &keys[i]);
            let bucket = &buckets[hash as usize & mask];
            let same_tag = bucket.matching_with(ops, tag((hash >> 32) as u32));
            if same_tag == 0 {
                continue;
            }
            let slot = same_tag.trailing_zeros() as usize % LANES;
            // The first slot is nearly always right: otherwise two flows have one tag in one bucket.
            if let Some(flow) = flows.get(bucket.ids[slot])
                && flow.contains_with(ops, key)
            {
                hits[i] = Some(flow);
                found |= 1 << i;
            } else if let Some(flow) = other_slot(bucket, same_tag, batch, i) {
                hits[i] = Some(flow);
                found |= 1 << i;
            }
        }
        BatchMask(miss.0 & !found)
    }
}

/// Looks up packet `i` in the slots of its tag other than the first.
#[cold]
fn other_slot<'g>(bucket: &Bucket, same_tag: u32, batch: &LookupBatch<'_, 'g>, i: usize) -> Option<&'g Megaflow> {
    let others = slots(same_tag & same_tag.wrapping_sub(1));
    others.filter_map(|slot| batch.flows.get(bucket.ids[slot])).find(|flow| flow.contains(&batch.keys[i]))
}

#[cfg(test)]
mod eviction;

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 100,000 candidates of a port that inserts one in 50 are taken, when ports take turns.
    fn taken(turns: &[(u32, usize)]) -> usize {
        let mut emc = Emc::new(1 << 20, 1, 7);
        let (mut offered, mut taken) = (0u64, 0);
        while offered < 100_000 {
            for &(inv_prob, candidates) in turns {
                emc.set_insert_inv_prob(inv_prob);
                let before = emc.usage().used;
                for _ in 0..candidates {
                    offered += u64::from(inv_prob == 50);
                    // No two flows meet.
                    let hash = emc.random.rotate_left(17) ^ hash::splitmix64(&mut emc.random);
                    emc.offer(hash, FlowId(1));
                }
                taken += if inv_prob == 50 { emc.usage().used - before } else { 0 };
            }
        }
        taken
    }

    #[test]
    fn one_insertion_in_n_is_taken_whatever_the_order_of_flows() {
        for turns in [&[(50, 32)][..], &[(50, 32), (1, 32)], &[(50, 1), (100, 9)]] {
            let taken = taken(turns);
            assert!((1800..2200).contains(&taken), "{taken} of 100000 with {turns:?}");
        }
    }
}

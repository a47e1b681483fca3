//! The exact match cache (EMC): a packet's whole key → megaflow.
//!
//! An entry is a 32-bit tag and a megaflow's id; what is verified is the megaflow itself. So the cache is small (the
//! default fits the second-level cache many times over), an entry of a dead or changed megaflow is harmless, and
//! deleting megaflows needs no sweep for the sake of lookups. A slow one runs for the sake of the count.

use crate::bucket::{Bucket, slots, tag};
use crate::{Hits, LookupBatch, LookupStage, Megaflow};
use sluice_action::FlowId;
use sluice_mem::{ArrayMemory, HugeArray};
use sluice_packet::BatchMask;
use sluice_simd::lanes::LANES;
use sluice_simd::{VectorOps, hash, prefetch};
use sluice_sync::Slots;
use std::sync::Arc;

/// Buckets that one call of [`Emc::sweep`] looks through: few, for megaflows may die all the time.
const SWEEP_BUCKETS: usize = 2;

/// Buckets from which lookups prefetch. Below, they are in the second-level cache, whose latency the processor hides by
/// itself: asking first cost 1 cycle a packet of 67 and gained none at 8000 flows (2026-11-20).
const PREFETCH_FROM: usize = 1 << 14;

/// Buckets that are resident from the start: 8 MiB. A larger cache is one that somebody has asked for.
const READY: usize = 1 << 17;

/// One bit a slot.
const SLOTS: u32 = (1 << LANES) - 1;

/// The step at which every candidate is inserted.
const ALSLOTS: u64 = 1 << 32;

/// One PMD's exact match cache.
///
/// Shape:  2^k buckets of 8 slots; a bucket is one cache line. There are twice as many slots as entries, so that the
///         entries find room: of 8000 flows in 8192 entries 0.9 % of the packets miss, 13 % with half the slots.
///         The hash's low k bits pick the bucket, its high 32 bits are the tag.
/// Errors: none. A full bucket overwrites a random entry of its own, as does every bucket when all entries are in use.
/// Counts: `used` is exactly the number of entries in use. An entry whose megaflow is dead stays in use until it is
///         overwritten or swept, which is within `buckets / 2` calls of `sweep` after `forget`.
/// Memory: none without entries.
#[derive(Debug)]
pub struct Emc {
    buckets: HugeArray<Bucket>,
    /// The most entries that may be in use.
    entries: usize,
    used: usize,
    /// How far one candidate brings the next insertion nearer: [`ALSLOTS`] over the inverse of the probability.
    step: u64,
    /// How near it is, and where it takes place. Ports of different probabilities may take turns: what one has
    /// contributed stays.
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
    /// An empty cache of `entries` entries, into which one in `insert_inv_prob` candidates is inserted. With 0 entries it
    /// is off. `seed` is for the choice of what to overwrite.
    pub fn new(entries: usize, insert_inv_prob: u32, seed: u64) -> Self {
        let entries = entries.min(1 << 28);
        let buckets = if entries == 0 { 0 } else { (entries * 2).div_ceil(LANES).next_power_of_two() };
        let mut emc = Emc {
            buckets: HugeArray::new(buckets, READY),
            entries,
            used: 0,
            step: ALSLOTS,
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

    /// Changes the insertion probability to one in `n`, at least 1. Cheap enough for every batch.
    #[inline]
    pub fn set_insert_inv_prob(&mut self, n: u32) {
        self.step = ALSLOTS / u64::from(n.max(1));
    }

    /// Whether it is to be asked at all.
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

    /// Offers a flow that another level found; one in N is taken. The cache must be on to take any.
    #[inline]
    pub fn offer(&mut self, hash: u64, id: FlowId) {
        if self.step == ALSLOTS {
            return self.insert(hash, id);
        }
        self.progress += self.step;
        if self.progress >= self.due {
            self.insert(hash, id);
            self.draw_due();
        }
    }

    /// Draws where the next insertion takes place: evenly spread up to twice the mean.
    fn draw_due(&mut self) {
        self.progress = 0;
        self.due = hash::splitmix64(&mut self.random) % (2 * ALSLOTS);
    }

    /// Puts an entry in, whatever the probability.
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
            // A bucket all of whose slots are free when all entries are in use elsewhere takes nothing.
            if taken == 0 {
                return;
            }
            // The first one taken from a random slot on. Counting up to a random one takes branches nobody can predict: 1 M
            // flows, every candidate inserted, 289 cycles a packet instead of 243 (2026-11-20).
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

    /// Clears the entries of dead megaflows in a few buckets, if any are left to look at. Once a loop iteration.
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
        if self.buckets.len() >= PREFETCH_FROM {
            miss.into_iter().for_each(|i| prefetch::read(&self.buckets[self.at(batch.hashes[i])]));
        }
        let mut found = 0;
        for i in miss {
            let hash = batch.hashes[i];
            let bucket = &self.buckets[self.at(hash)];
            let same_tag = bucket.matching_with(ops, tag((hash >> 32) as u32));
            if same_tag == 0 {
                continue;
            }
            let key = &batch.keys[i];
            let slot = same_tag.trailing_zeros() as usize % LANES;
            // The first slot is it, but for two flows of one tag in one bucket.
            let hit = match batch.flows.get(bucket.ids[slot]) {
                Some(flow) if flow.contains_with(ops, key) => Some(flow),
                _ => other_slot(bucket, same_tag, batch, i),
            };
            hits[i] = hit;
            found |= u32::from(hit.is_some()) << i;
        }
        BatchMask(miss.0 & !found)
    }
}

/// Looks for packet `i` in the slots of its tag but the first.
#[cold]
fn other_slot<'g>(bucket: &Bucket, same_tag: u32, batch: &LookupBatch<'_, 'g>, i: usize) -> Option<&'g Megaflow> {
    let others = slots(same_tag & same_tag.wrapping_sub(1));
    others.filter_map(|slot| batch.flows.get(bucket.ids[slot])).find(|flow| flow.contains(&batch.keys[i]))
}

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
    fn one_in_so_many_is_taken_whoever_else_takes_turns() {
        for turns in [&[(50, 32)][..], &[(50, 32), (1, 32)], &[(50, 1), (100, 9)]] {
            let taken = taken(turns);
            assert!((1800..2200).contains(&taken), "{taken} of 100000 with {turns:?}");
        }
    }
}

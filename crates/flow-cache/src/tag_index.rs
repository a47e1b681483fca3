//! An exact index from 32-bit tags to ids, in buckets of one cache line: what a subtable finds its megaflows by.
//!
//! A bucket has seven slots. Its eighth word counts the entries that belong here and had to go to a later bucket. So a
//! lookup ends at the first bucket with a count of zero, which at this load is nearly always the first, and deletion
//! needs no tombstones. Source of the idea: folly's F14 (overflow counts).

use crate::bucket::{Bucket, slots};
use sluice_simd::{VectorOps, prefetch};

/// Slots of a bucket; the last lane counts overflow.
const SLOTS: usize = 7;
const SLOTS_AND_COUNT: usize = SLOTS + 1;
const SLOT_BITS: u32 = (1 << SLOTS) - 1;

/// Lookups prefetch from this many buckets on; a smaller index is in the first-level cache anyway.
const PREFETCH_FROM: usize = 128;

/// Tags and their ids; a tag may occur more than once.
///
/// Shape:  2^k buckets; the tag's low k bits select the first, and the following ones take what does not fit. At most
///         3/4 of the slots are in use.
#[derive(Debug)]
pub(crate) struct TagIndex {
    buckets: Vec<Bucket>,
    len: usize,
}

impl Default for TagIndex {
    fn default() -> Self {
        TagIndex { buckets: vec![Bucket::EMPTY], len: 0 }
    }
}

impl TagIndex {
    /// How many entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it pays to look at the buckets of a whole batch first.
    #[inline(always)]
    pub fn is_large(&self) -> bool {
        self.buckets.len() >= PREFETCH_FROM
    }

    /// Prefetches a tag's first bucket.
    #[inline(always)]
    pub fn prefetch(&self, tag: u32) {
        prefetch::read(&self.buckets[self.home(tag)]);
    }

    /// Whether the tag may be in the index, judged by its first bucket. No branch depends on the answer.
    #[inline(always)]
    pub fn may_hold_with<V: VectorOps>(&self, ops: V, tag: u32) -> bool {
        let bucket = &self.buckets[self.home(tag)];
        // Lane 7 is the overflow count. If it equals the tag by chance, it is not zero.
        (bucket.matching_with(ops, tag) | bucket.tags[SLOTS]) != 0
    }

    /// The id in the first slot of that tag in its first bucket, if there is one.
    #[inline(always)]
    pub fn first_id_with<V: VectorOps>(&self, ops: V, tag: u32) -> Option<u32> {
        let bucket = &self.buckets[self.home(tag)];
        let same = bucket.matching_with(ops, tag) & SLOT_BITS;
        if same == 0 { None } else { Some(bucket.ids[same.trailing_zeros() as usize % SLOTS_AND_COUNT]) }
    }

    /// An id of that tag in its first bucket, if there is one.
    #[inline(always)]
    pub fn first_id(&self, tag: u32) -> Option<u32> {
        let bucket = &self.buckets[self.home(tag)];
        slots(bucket.matching(tag) & SLOT_BITS).next().map(|slot| bucket.ids[slot])
    }

    /// All ids.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.buckets.iter().flat_map(|bucket| slots(!bucket.matching(0) & SLOT_BITS).map(|slot| bucket.ids[slot]))
    }

    /// The first result that `accept` returns for an id of that tag.
    #[inline]
    pub fn find<R>(&self, tag: u32, mut accept: impl FnMut(u32) -> Option<R>) -> Option<R> {
        let mut at = self.home(tag);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            for slot in slots(bucket.matching(tag) & SLOT_BITS) {
                let found = accept(bucket.ids[slot]);
                if found.is_some() {
                    return found;
                }
            }
            if bucket.tags[SLOTS] == 0 {
                return None;
            }
            at = self.next(at);
        }
        None
    }

    /// Inserts an entry. Returns whether it was new.
    pub fn insert(&mut self, tag: u32, id: u32) -> bool {
        if self.find(tag, |have| (have == id).then_some(())).is_some() {
            return false;
        }
        if (self.len + 1) * 4 > self.buckets.len() * SLOTS * 3 {
            self.grow();
        }
        self.place(tag, id);
        self.len += 1;
        true
    }

    /// Removes an entry. Returns whether it was there.
    pub fn remove(&mut self, tag: u32, id: u32) -> bool {
        let home = self.home(tag);
        let mut at = home;
        for _ in 0..self.buckets.len() {
            let bucket = &mut self.buckets[at];
            if let Some(slot) = slots(bucket.matching(tag) & SLOT_BITS).find(|&slot| bucket.ids[slot] == id) {
                bucket.tags[slot] = 0;
                self.len -= 1;
                while at != home {
                    at = self.before(at);
                    self.buckets[at].tags[SLOTS] -= 1;
                }
                return true;
            }
            if bucket.tags[SLOTS] == 0 {
                return false;
            }
            at = self.next(at);
        }
        false
    }

    /// Puts an entry into the first free slot from its home bucket on.
    fn place(&mut self, tag: u32, id: u32) {
        let mut at = self.home(tag);
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(slot) = slots(bucket.matching(0) & SLOT_BITS).next() {
                bucket.tags[slot] = tag;
                bucket.ids[slot] = id;
                return;
            }
            bucket.tags[SLOTS] += 1;
            at = self.next(at);
        }
    }

    fn grow(&mut self) {
        let doubled = vec![Bucket::EMPTY; self.buckets.len() * 2];
        for bucket in std::mem::replace(&mut self.buckets, doubled) {
            for slot in slots(!bucket.matching(0) & SLOT_BITS) {
                self.place(bucket.tags[slot], bucket.ids[slot]);
            }
        }
    }

    #[inline(always)]
    fn home(&self, tag: u32) -> usize {
        tag as usize & (self.buckets.len() - 1)
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.buckets.len() - 1)
    }

    fn before(&self, at: usize) -> usize {
        at.wrapping_sub(1) & (self.buckets.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_simd::vector_ops::Scalar;
    use std::collections::BTreeSet;

    proptest! {
        /// Tags from few values whose low bits are nearly all the same: full buckets, overflow and duplicates are
        /// common.
        #[test]
        fn it_is_a_set_of_pairs(steps in prop::collection::vec((any::<bool>(), 0..6u32, 0..4u32, 0..12u32), 0..300)) {
            let (mut index, mut twin) = (TagIndex::default(), BTreeSet::new());
            for (put, high, low, id) in steps {
                let tag = (high << 20 | low | 1 << 10).max(1);
                if put {
                    prop_assert_eq!(index.insert(tag, id), twin.insert((tag, id)));
                } else {
                    prop_assert_eq!(index.remove(tag, id), twin.remove(&(tag, id)));
                }
                prop_assert_eq!(index.len(), twin.len());
                for high in 0..6 {
                    let tag = (high << 20 | low | 1 << 10).max(1);
                    let mut ids = BTreeSet::new();
                    index.find(tag, |id| { assert!(ids.insert(id)); None::<()> });
                    let want: BTreeSet<_> = twin.iter().filter(|p| p.0 == tag).map(|p| p.1).collect();
                    prop_assert_eq!(&ids, &want);
                    prop_assert!(index.may_hold_with(Scalar, tag) || want.is_empty());
                }
            }
        }

        /// What is taken out leaves no overflow behind, so lookups stay short for ever.
        #[test]
        fn emptied_it_is_as_new(pairs in prop::collection::btree_set((1..40u32, 0..50u32), 0..200)) {
            let mut index = TagIndex::default();
            pairs.iter().for_each(|&(tag, id)| assert!(index.insert(tag << 6, id)));
            pairs.iter().for_each(|&(tag, id)| assert!(index.remove(tag << 6, id)));
            prop_assert!(index.buckets.iter().all(|b| b.tags == [0; 8]));
        }
    }
}

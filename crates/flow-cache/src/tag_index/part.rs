//! A part of the index: buckets of seven slots, with open addressing.
//!
//! A bucket's eighth word counts the entries that belong here and had to go to a later bucket. So a lookup ends at the
//! first bucket with a count of zero, which at this load is nearly always the first, and deletion needs no tombstones.
//! Source of the idea: folly's F14 (overflow counts).

use crate::bucket::{Bucket, slots};
use sluice_simd::{VectorOps, prefetch};

/// Slots of a bucket; the last lane counts overflow.
const SLOTS: usize = 7;
const SLOTS_AND_COUNT: usize = SLOTS + 1;
const SLOT_BITS: u32 = (1 << SLOTS) - 1;

/// The most buckets of a part, unless more entries share their tags than it has room for.
pub(super) const PART_BUCKETS: usize = 512;

/// The slots of these buckets.
pub(super) const PART_SLOTS: usize = PART_BUCKETS * SLOTS;

/// Tags and their ids; a tag may occur more than once.
///
/// Shape:  2^k buckets; the tag's low k bits select the first, and the following ones take what does not fit. It doubles
///         when 3/4 of the slots are in use; with [`PART_BUCKETS`] only when 7/8 are, which its index avoids by splits.
#[derive(Debug)]
pub(crate) struct Part {
    buckets: Box<[Bucket]>,
    len: u32,
}

impl Default for Part {
    fn default() -> Self {
        Part::with_buckets(1)
    }
}

impl Part {
    fn with_buckets(buckets: usize) -> Self {
        Part { buckets: vec![Bucket::EMPTY; buckets].into_boxed_slice(), len: 0 }
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
        self.entries().map(|(_, id)| id)
    }

    fn entries(&self) -> impl Iterator<Item = (u32, u32)> {
        let used = |bucket: &Bucket| slots(!bucket.matching(0) & SLOT_BITS);
        self.buckets.iter().flat_map(move |bucket| used(bucket).map(|slot| (bucket.tags[slot], bucket.ids[slot])))
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
        let (len, slots) = (self.len as usize + 1, self.buckets.len() * SLOTS);
        let is_full = if self.buckets.len() < PART_BUCKETS { len * 4 > slots * 3 } else { len * 8 > slots * 7 };
        if is_full {
            let doubled = Part::with_buckets(self.buckets.len() * 2);
            let part = std::mem::replace(self, doubled);
            part.entries().for_each(|(tag, id)| self.place(tag, id));
        }
        self.place(tag, id);
        true
    }

    /// Takes the entries out whose tags `moves` names, and returns them. Both parts are as new: no count tells of the
    /// other's entries.
    pub fn split(&mut self, moves: impl Fn(u32) -> bool) -> Part {
        let [mut stay, mut moved] = [(); 2].map(|()| Part::with_buckets(self.buckets.len()));
        for (tag, id) in self.entries() {
            if moves(tag) { &mut moved } else { &mut stay }.place(tag, id);
        }
        *self = stay;
        moved
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
                self.len += 1;
                return;
            }
            bucket.tags[SLOTS] += 1;
            at = self.next(at);
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

    /// Whether it is as one into which nothing was ever inserted.
    #[cfg(test)]
    pub fn is_blank(&self) -> bool {
        self.len == 0 && self.buckets.iter().all(|bucket| bucket.tags == [0; SLOTS_AND_COUNT])
    }

    /// How many buckets it has.
    #[cfg(test)]
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }
}

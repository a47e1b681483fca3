//! An exact index from 32-bit tags to ids, in buckets of one cache line: what megaflows are found by, in a subtable by
//! a packet and among all by their match. It grows by parts, see `parts.rs`.

mod part;

use crate::bucket;
use crate::parts::Parts;
use part::{PART_BUCKETS, PART_SLOTS, Part};

/// Lookups prefetch from this many entries on; the buckets of fewer are in the first-level cache anyway.
const PREFETCH_FROM: usize = 512;

/// Tags and their ids; a tag may occur more than once, and is never 0.
///
/// Shape:  parts of up to 512 buckets, 32 KiB; a tag's high bits select the part, its low bits the bucket. At most 3/4 of
///         all slots are in use, and at least 3/8 once it has grown, unless entries were removed.
/// Cost:   an insertion touches one bucket, or moves the entries of one part: at most 3136, some 20 µs.
#[derive(Debug, Default)]
pub struct TagIndex {
    parts: Parts<Part>,
    len: usize,
}

/// What selects the part of a tag.
#[inline(always)]
fn number(tag: u32) -> u32 {
    tag / PART_BUCKETS as u32
}

impl TagIndex {
    /// The tag of a hash: its high half, but never 0.
    #[inline]
    pub fn tag(hash: u64) -> u32 {
        bucket::tag((hash >> 32) as u32)
    }

    /// How many entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it pays to look at the buckets of a whole batch first.
    #[inline(always)]
    pub fn is_large(&self) -> bool {
        self.len >= PREFETCH_FROM
    }

    /// All entries, as long as they are in one part.
    #[inline(always)]
    pub(crate) fn only_part(&self) -> Option<&Part> {
        self.parts.only()
    }

    /// The part that has the entries of a tag, if there are any.
    #[inline(always)]
    pub(crate) fn part(&self, tag: u32) -> &Part {
        self.parts.of(number(tag))
    }

    /// Prefetches a tag's first bucket.
    #[inline(always)]
    pub fn prefetch(&self, tag: u32) {
        self.part(tag).prefetch(tag);
    }

    /// An id of that tag in its first bucket, if there is one.
    #[inline(always)]
    pub fn first_id(&self, tag: u32) -> Option<u32> {
        self.part(tag).first_id(tag)
    }

    /// All ids.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().flat_map(Part::ids)
    }

    /// The first result that `accept` returns for an id of that tag.
    #[inline]
    pub fn find<R>(&self, tag: u32, accept: impl FnMut(u32) -> Option<R>) -> Option<R> {
        self.part(tag).find(tag, accept)
    }

    /// Inserts an entry. Returns whether it was new.
    pub fn insert(&mut self, tag: u32, id: u32) -> bool {
        let is_new = self.parts.of_mut(number(tag)).insert(tag, id);
        if is_new {
            self.len += 1;
            self.parts.split_if_due(self.len, PART_SLOTS, |part, moves| part.split(|tag| moves(number(tag))));
        }
        is_new
    }

    /// Removes an entry. Returns whether it was there.
    pub fn remove(&mut self, tag: u32, id: u32) -> bool {
        let was_there = self.parts.of_mut(number(tag)).remove(tag, id);
        self.len -= usize::from(was_there);
        was_there
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
                    prop_assert!(index.part(tag).may_hold_with(Scalar, tag) || want.is_empty());
                }
            }
        }

        /// What is taken out leaves no overflow behind, so lookups stay short for ever.
        #[test]
        fn emptied_it_is_as_new(pairs in prop::collection::btree_set((1..40u32, 0..50u32), 0..200)) {
            let mut index = TagIndex::default();
            pairs.iter().for_each(|&(tag, id)| assert!(index.insert(tag << 6, id)));
            pairs.iter().for_each(|&(tag, id)| assert!(index.remove(tag << 6, id)));
            prop_assert!(index.parts.iter().all(Part::is_blank));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

        /// An index of many parts, in which many entries share one tag: more than a part has room for.
        #[test]
        fn it_grows_by_parts(seed: u32, n in 1..20_000u32, same in 0..6000u32) {
            let tag = |id: u32| (id ^ seed).wrapping_mul(0x9e37_79b1).max(1);
            let mut index = TagIndex::default();
            let (one, mut parts) = (tag(n), 1);
            for id in 0..n {
                prop_assert!(index.insert(tag(id), id));
                let now = index.parts.iter().count();
                prop_assert!(now <= parts + 1, "one part is split at most");
                parts = now;
            }
            let largest = index.parts.iter().map(Part::buckets).max();
            prop_assert!(largest <= Some(PART_BUCKETS));
            prop_assert!(parts == 1 || index.len() * 8 >= parts * PART_SLOTS * 3 - 8, "{} in {} parts", n, parts);
            (n..n + same).for_each(|id| assert!(index.insert(one, id)));
            for id in 0..n {
                prop_assert_eq!(index.find(tag(id), |have| (have == id).then_some(())), Some(()));
                prop_assert!(!index.insert(tag(id), id));
            }
            let mut of_one = Vec::new();
            index.find(one, |id| { of_one.push(id); None::<()> });
            of_one.sort_unstable();
            prop_assert_eq!(of_one, (n..n + same).collect::<Vec<_>>());
            let mut ids: Vec<_> = index.ids().collect();
            ids.sort_unstable();
            prop_assert_eq!(ids, (0..n + same).collect::<Vec<_>>());
            (0..n).for_each(|id| assert!(index.remove(tag(id), id)));
            (n..n + same).for_each(|id| assert!(index.remove(one, id)));
            prop_assert_eq!(index.len(), 0);
            prop_assert!(index.parts.iter().all(Part::is_blank));
        }
    }
}

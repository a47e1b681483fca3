//! The listed subtables by the prefix lengths of their masks. All subtables with the same lengths share one bit in
//! pruning's sets.
//!
//! Senders decide in which order masks appear. With bits in that order every word of every set would be non-zero and
//! would have to be read. Here each word holds similar lengths, so most words of an intersection are known to be zero.

use hashbrown::{HashMap, HashSet};

/// Bits in a word.
const WORD: u32 = u64::BITS;

/// No subtable.
const NONE: u32 = u32::MAX;

/// The prefix lengths of a mask, one byte for each field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lengths(pub u64);

/// The part of the lengths that all bits of a word share.
type Shape = [u8; 2];

/// Bits of pruning's sets, and the subtables that each of them stands for.
#[derive(Debug, Default)]
pub(crate) struct PruneIndex {
    by_lengths: HashMap<Lengths, u32>,
    /// For each bit, the place of its first subtable.
    first: Vec<u32>,
    /// For each place, the place of the next subtable with the same bit.
    next: Vec<u32>,
    listed: HashSet<u32>,
    /// The bits in use of each word.
    taken: Vec<u64>,
    /// Words without a bit in use.
    free: Vec<u32>,
    words: HashMap<Shape, Vec<u32>>,
}

impl Lengths {
    /// These lengths with `len` for field `field`, one of at most eight, which had none.
    #[inline(always)]
    pub fn with(self, field: usize, len: u8) -> Lengths {
        Lengths(self.0 | u64::from(len) << (8 * field))
    }

    /// The first two lengths in whole bytes, in units of 32 bits if they are long: some twenty shapes, so that few
    /// words are half empty.
    fn shape(self) -> Shape {
        let part = |len: u8| if len > 32 { 4 + (len - 1) / 32 } else { len.div_ceil(8) };
        let [first, second, ..] = self.0.to_le_bytes();
        [part(first), part(second)]
    }
}

impl PruneIndex {
    /// Adds the subtable at `place`, which is not listed. Returns its bit if that is newly in use.
    pub fn insert(&mut self, place: u32, lengths: Lengths) -> Option<u32> {
        self.listed.insert(place);
        if self.next.len() <= place as usize {
            self.next.resize(place as usize + 1, NONE);
        }
        let known = self.by_lengths.get(&lengths).copied();
        let bit = known.unwrap_or_else(|| self.allocate(lengths));
        self.next[place as usize] = std::mem::replace(&mut self.first[bit as usize], place);
        known.is_none().then_some(bit)
    }

    fn allocate(&mut self, lengths: Lengths) -> u32 {
        let words = self.words.entry(lengths.shape()).or_default();
        let word = words.iter().copied().find(|word| self.taken[*word as usize] != u64::MAX).unwrap_or_else(|| {
            let word = self.free.pop().unwrap_or_else(|| {
                self.taken.push(0);
                self.first.resize(self.taken.len() * WORD as usize, NONE);
                self.taken.len() as u32 - 1
            });
            words.push(word);
            word
        });
        let at = self.taken[word as usize].trailing_ones();
        self.taken[word as usize] |= 1 << at;
        let bit = word * WORD + at;
        self.by_lengths.insert(lengths, bit);
        bit
    }

    /// Removes the subtable at `place`. Returns its bit if that is no longer in use.
    pub fn remove(&mut self, place: u32, lengths: Lengths) -> Option<u32> {
        if !self.listed.remove(&place) {
            return None;
        }
        let bit = *self.by_lengths.get(&lengths)?;
        let after = self.next[place as usize];
        let before = self.subtables(bit).find(|before| self.next[*before as usize] == place);
        match before {
            Some(before) => self.next[before as usize] = after,
            None => self.first[bit as usize] = after,
        }
        if self.first[bit as usize] != NONE {
            return None;
        }
        self.by_lengths.remove(&lengths);
        let word = bit / WORD;
        self.taken[word as usize] &= !(1 << (bit % WORD));
        if self.taken[word as usize] == 0 {
            self.free.push(word);
            self.words.entry(lengths.shape()).or_default().retain(|other| *other != word);
        }
        Some(bit)
    }

    /// Whether the subtable at `place` is listed.
    pub fn has(&self, place: u32) -> bool {
        self.listed.contains(&place)
    }

    /// The number of words in a set.
    pub fn words(&self) -> usize {
        self.taken.len()
    }

    /// The bit for these lengths.
    #[inline(always)]
    pub fn of(&self, lengths: Lengths) -> Option<u32> {
        self.by_lengths.get(&lengths).copied()
    }

    /// The places of the subtables that a bit stands for.
    #[inline(always)]
    pub fn subtables(&self, bit: u32) -> impl Iterator<Item = u32> {
        let mut place = self.first[bit as usize];
        std::iter::from_fn(move || {
            let next = *self.next.get(place as usize)?;
            Some(std::mem::replace(&mut place, next))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        /// Compared with a plain map: subtables share a bit if and only if their lengths are equal, a word holds only
        /// similar lengths, and no more words are used than the shapes have needed.
        #[test]
        fn like_sit_together(steps in prop::collection::vec((any::<bool>(), 0..400u32), 1..900)) {
            let lengths = |place: u32| Lengths::default().with(0, (place % 90) as u8).with(2, 7);
            let (mut index, mut twin) = (PruneIndex::default(), BTreeMap::<u64, BTreeSet<u32>>::new());
            for (comes, place) in steps {
                let same = twin.entry(lengths(place).0).or_default();
                let (was_there, was_empty) = (same.contains(&place), same.is_empty());
                if comes && !was_there {
                    prop_assert_eq!(index.insert(place, lengths(place)).is_some(), was_empty);
                    same.insert(place);
                } else if !comes {
                    same.remove(&place);
                    let is_vacant = was_there && same.is_empty();
                    prop_assert_eq!(index.remove(place, lengths(place)).is_some(), is_vacant);
                }
                prop_assert_eq!(index.has(place), same.contains(&place));
            }
            let (mut shapes, mut taken) = (BTreeMap::new(), BTreeSet::new());
            for (lengths, same) in &twin {
                let bit = index.of(Lengths(*lengths));
                prop_assert_eq!(bit.is_some(), !same.is_empty());
                let Some(bit) = bit else { continue };
                prop_assert!(taken.insert(bit), "one bit for two lengths");
                prop_assert_eq!(index.subtables(bit).collect::<BTreeSet<u32>>(), same.clone());
                let shape = Lengths(*lengths).shape();
                prop_assert_eq!(*shapes.entry(bit / WORD).or_insert(shape), shape);
            }
            prop_assert_eq!(shapes.len() + index.free.len(), index.taken.len());
            prop_assert!(index.taken.len() <= 7, "{}", index.taken.len());
        }
    }
}

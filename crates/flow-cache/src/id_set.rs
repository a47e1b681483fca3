//! A set of ids that costs an insertion two stores and is emptied without a look at each possible id.

/// Ids below a capacity, as bits; a second level says which words of the first have any.
#[derive(Debug)]
pub(crate) struct IdSet {
    words: Vec<u64>,
    nonzero: Vec<u64>,
}

impl IdSet {
    /// An empty set of ids below `capacity`. It takes a bit an id, in pages that are provided when first written.
    pub fn new(capacity: u32) -> Self {
        let words = (capacity as usize).div_ceil(64);
        IdSet { words: vec![0; words], nonzero: vec![0; words.div_ceil(64)] }
    }

    /// Inserts an id.
    pub fn insert(&mut self, id: u32) {
        let word = id as usize / 64;
        self.words[word] |= 1 << (id % 64);
        self.nonzero[word / 64] |= 1 << (word % 64);
    }

    /// Takes the first ids out, in order, and appends them to `ids`: all of a word at a time, until there are `enough`.
    pub fn take(&mut self, enough: usize, ids: &mut Vec<u32>) {
        for (group, nonzero) in self.nonzero.iter_mut().enumerate() {
            while *nonzero != 0 {
                if ids.len() >= enough {
                    return;
                }
                let word = group * 64 + nonzero.trailing_zeros() as usize;
                *nonzero &= *nonzero - 1;
                ids.extend(bits(std::mem::take(&mut self.words[word])).map(|bit| word as u32 * 64 + bit));
            }
        }
    }
}

/// The places of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros());
        word &= word.wrapping_sub(1);
        bit
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(rounds in prop::collection::vec((prop::collection::vec(0..9000u32, 0..50), 1..100usize), 1..5)) {
            let (mut set, mut twin) = (IdSet::new(9000), BTreeSet::new());
            for (ids, enough) in rounds {
                ids.iter().for_each(|id| set.insert(*id));
                twin.extend(ids);
                let mut taken = Vec::new();
                set.take(enough, &mut taken);
                prop_assert!(taken.len() >= enough.min(twin.len()) && taken.len() < enough + 64);
                let first: Vec<u32> = taken.iter().filter_map(|_| twin.pop_first()).collect();
                prop_assert_eq!(taken, first);
            }
            let mut rest = Vec::new();
            set.take(usize::MAX, &mut rest);
            prop_assert_eq!(rest, twin.into_iter().collect::<Vec<_>>());
        }
    }
}

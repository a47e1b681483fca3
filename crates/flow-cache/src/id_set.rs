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

    /// Takes all ids out, in order.
    pub fn drain(&mut self) -> Vec<u32> {
        let mut ids = Vec::new();
        for (group, nonzero) in self.nonzero.iter_mut().enumerate() {
            for bit in bits(std::mem::take(nonzero)) {
                let word = group * 64 + bit as usize;
                ids.extend(bits(std::mem::take(&mut self.words[word])).map(|bit| word as u32 * 64 + bit));
            }
        }
        ids
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
        fn it_is_a_set(rounds in prop::collection::vec(prop::collection::vec(0..9000u32, 0..50), 1..5)) {
            let mut set = IdSet::new(9000);
            for ids in rounds {
                ids.iter().for_each(|id| set.insert(*id));
                prop_assert_eq!(set.drain(), BTreeSet::from_iter(ids).into_iter().collect::<Vec<_>>());
            }
            prop_assert_eq!(set.drain(), vec![]);
        }
    }
}

//! The 65,536 roots of a large trie, one for each value of a prefix's first 16 bits, and which of them are in use.
//!
//! With a million prefixes the upper levels of a binary trie cost more than the rest: sixteen dependent loads and as
//! many unpredictable branches. An array index replaces them. The missing levels would also tell how many bits a value
//! shares with the nearest prefix; where a value's bucket is empty, three levels of bit sets tell that.

/// Width of the index in bits.
pub(crate) const BUCKET_BITS: u32 = 16;
const BUCKETS: usize = 1 << BUCKET_BITS;

/// Roots by the first 16 bits of a prefix.
#[derive(Clone, Debug)]
pub(crate) struct TrieBuckets {
    roots: Box<[u32]>,
    /// Bit `b`: bucket `b` is in use.
    used: Box<[u64]>,
    /// Bit `w`: word `w` of `used` is not zero.
    words: [u64; 16],
    /// Bit `i`: `words[i]` is not zero.
    top: u64,
}

/// The root of an unused bucket.
pub(crate) const NO_ROOT: u32 = u32::MAX;

impl TrieBuckets {
    pub fn new() -> Self {
        TrieBuckets { roots: vec![NO_ROOT; BUCKETS].into(), used: vec![0; BUCKETS / 64].into(), words: [0; 16], top: 0 }
    }

    #[inline]
    pub fn root(&self, bucket: usize) -> u32 {
        self.roots[bucket]
    }

    pub fn set_root(&mut self, bucket: usize, root: u32) {
        self.roots[bucket] = root;
        let (word, group) = (bucket / 64, bucket / 4096);
        set_bit(&mut self.used[word], bucket % 64, root != NO_ROOT);
        set_bit(&mut self.words[group], word % 64, self.used[word] != 0);
        set_bit(&mut self.top, group, self.words[group] != 0);
    }

    /// The longest prefix, in bits, that an unused bucket's number shares with that of a used one; `None` if none is
    /// used.
    pub fn shared_bits(&self, bucket: usize) -> Option<u32> {
        let (word, group) = (bucket / 64, bucket / 4096);
        if self.used[word] != 0 {
            Some(10 + shared_in_word(self.used[word], bucket % 64, 6))
        } else if self.words[group] != 0 {
            Some(4 + shared_in_word(self.words[group], word % 64, 6))
        } else if self.top != 0 {
            Some(shared_in_word(self.top, group, 4))
        } else {
            None
        }
    }
}

fn set_bit(word: &mut u64, at: usize, on: bool) {
    *word = *word & !(1 << at) | u64::from(on) << at;
}

/// The longest prefix, of `width` bits, that `at` shares with the number of a set bit of `word`.
fn shared_in_word(word: u64, at: usize, width: u32) -> u32 {
    (0..width)
        .rev()
        .find(|shared| {
            let size = 1usize << (width - shared); // numbers with that shared prefix are adjacent
            let first = at & !(size - 1);
            word >> first & (u64::MAX >> (64 - size)) != 0
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_nearest_bucket_is_found(
            near in any::<u16>(),
            toggles in prop::collection::vec((0u32..17, any::<u16>()), 0..40),
        ) {
            let mut buckets = TrieBuckets::new();
            let mut used = std::collections::BTreeSet::new();
            for (shared, other) in toggles {
                // Buckets that share 0 to 16 bits with `near`.
                let bucket = near ^ (u16::MAX.checked_shr(shared).unwrap_or(0) & (other | 1 << 15 >> shared.min(15)));
                if bucket == near {
                    continue;
                }
                let on = used.insert(bucket) || !used.remove(&bucket);
                buckets.set_root(bucket.into(), if on { 7 } else { NO_ROOT });
                let wanted = used.iter().map(|b| (b ^ near).leading_zeros()).max();
                prop_assert_eq!(buckets.shared_bits(near.into()), wanted);
                prop_assert_eq!(buckets.root(bucket.into()) == 7, used.contains(&bucket));
            }
        }
    }
}

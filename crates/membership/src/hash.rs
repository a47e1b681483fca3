//! The keyed 64-bit hash of byte strings. Callers take disjoint parts of it.
//!
//! A block of up to 64 bytes is a sum of products: each pair of words, with an addend for each of the two, is one
//! multiplication of 64 by 64 bits, which does not depend on the others. Source of the sum: NH, in "UMAC: Fast and Secure Message
//! Authentication" (Black et al., 1999). One more multiplication, folded, mixes the sum's bits. With a constant length the
//! compiler removes every branch. The result is the same on every machine.

use sluice_simd::hash::splitmix64;

/// Bytes of a block.
const BLOCK: usize = 64;

/// What a seed expands to.
#[derive(Clone, Copy, Debug)]
pub struct HashKey {
    /// For each word of a block.
    addends: [u64; BLOCK / 8],
    /// For the two halves of a sum.
    last: [u64; 2],
}

impl HashKey {
    /// Expands a seed.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        let addends = std::array::from_fn(|_| splitmix64(&mut state));
        HashKey { addends, last: std::array::from_fn(|_| splitmix64(&mut state)) }
    }

    /// The hash of `key`.
    #[inline(always)]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let (mut state, mut rest) = (key.len() as u64, key);
        while let Some((block, others)) = rest.split_first_chunk::<BLOCK>().filter(|(_, others)| !others.is_empty()) {
            state = self.mix(self.sum(block), state);
            rest = others;
        }
        self.mix(self.sum(rest), state)
    }

    /// The sum of a block.
    #[inline(always)]
    fn sum(&self, block: &[u8]) -> u128 {
        let k = &self.addends;
        let pair = |at: usize| {
            product(word(block, at).wrapping_add(k[at / 8]), word(block, at + 8).wrapping_add(k[at / 8 + 1]))
        };
        // A block of over 16 bytes ends with its last 16, which may overlap those before: this saves a branch on the remainder.
        let (sum, last_at, k) = match block.len() {
            0..=16 => (0, 0, [k[0], k[1]]),
            n @ 17..=32 => (pair(0), n - 16, [k[2], k[3]]),
            n @ 33..=48 => (pair(0).wrapping_add(pair(16)), n - 16, [k[4], k[5]]),
            n => (pair(0).wrapping_add(pair(16)).wrapping_add(pair(32)), n - 16, [k[6], k[7]]),
        };
        let (a, b) = last_words(&block[last_at..]);
        sum.wrapping_add(product(a.wrapping_add(k[0]), b.wrapping_add(k[1])))
    }

    /// Bucket numbers use low bits of a hash and signatures high ones, so both are mixed.
    #[inline(always)]
    fn mix(&self, sum: u128, state: u64) -> u64 {
        let product = product(sum as u64 ^ self.last[0], (sum >> 64) as u64 ^ self.last[1] ^ state);
        product as u64 ^ (product >> 64) as u64
    }
}

#[inline(always)]
fn product(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("invariant: callers leave eight bytes"))
}

#[inline(always)]
fn half(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(*bytes[at..].first_chunk().expect("invariant: callers leave four bytes")))
}

/// Up to 16 bytes as two words. Different bytes of equal length give different words.
#[inline(always)]
fn last_words(rest: &[u8]) -> (u64, u64) {
    match rest.len() {
        0 => (0, 0),
        n @ 1..=3 => (u64::from(rest[0]) << 16 | u64::from(rest[n / 2]) << 8 | u64::from(rest[n - 1]), 0),
        n @ 4..=7 => (half(rest, 0) << 32 | half(rest, n - 4), 0),
        n => (word(rest, 0), word(rest, n - 8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_byte_counts_at_every_length() {
        let key = HashKey::new(1);
        for n in (1..=80).chain([127, 128, 129, 200]) {
            let base = vec![0u8; n];
            let mut seen = HashSet::from([key.hash(&base)]);
            for i in 0..n * 8 {
                let mut changed = base.clone();
                changed[i / 8] ^= 1 << (i % 8);
                assert!(seen.insert(key.hash(&changed)), "length {n}, bit {i}");
            }
        }
    }

    #[test]
    fn sequential_keys_spread_over_low_and_high_bits() {
        let key = HashKey::new(7);
        let (mut low, mut high) = (vec![0u32; 256], vec![0u32; 256]);
        for i in 0..65_536u32 {
            let h = key.hash(&i.to_be_bytes());
            low[h as usize & 255] += 1;
            high[(h >> 56) as usize] += 1;
        }
        // 256 expected in each with a deviation of 16; six deviations leave room for no biased hash.
        for count in low.iter().chain(&high) {
            assert!((160..=352).contains(count), "{count}");
        }
    }

    #[test]
    fn the_seed_matters() {
        assert_ne!(HashKey::new(1).hash(b"key"), HashKey::new(2).hash(b"key"));
    }
}

//! The keyed 64-bit hash of byte strings. Callers take disjoint parts of it.
//!
//! Sixteen bytes cost one 64 × 64 → 128 bit multiplication, folded (the wyhash family's step). With a constant length
//! the compiler removes every branch. The result is the same on every machine.

use sluice_simd::hash::splitmix64;

/// The four words that a seed expands to and that the hash mixes in.
#[derive(Clone, Copy, Debug)]
pub struct HashKey([u64; 4]);

impl HashKey {
    /// Expands a seed.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        HashKey(std::array::from_fn(|_| splitmix64(&mut state) | 1))
    }

    /// The hash of `key`.
    #[inline(always)]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let [k0, k1, k2, k3] = self.0;
        let mut state = k2 ^ key.len() as u64;
        let mut at = 0;
        while key.len() - at > 16 {
            state = fold(word(key, at) ^ k0 ^ state, word(key, at + 8) ^ k1);
            at += 16;
        }
        // A long key ends with its last 16 bytes, which may overlap those before: this saves a branch on the remainder.
        let (a, b) = last_words(&key[if at == 0 { 0 } else { key.len() - 16 }..]);
        // Bucket numbers use low bits and signatures high ones, so a second fold mixes both.
        fold(fold(a ^ k0 ^ state, b ^ k1) ^ k3, k2)
    }
}

/// The exclusive or of the product's two halves.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
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
        for n in 1..=80 {
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

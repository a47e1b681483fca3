//! The hash of masked words, which each stage continues.
//!
//! It is keyed, so that people who choose rules cannot choose collisions. 32 bits are enough: a hit in the map of
//! entries is verified, and a false hit in the index of a stage only adds bits to the mask.

/// A hash that more words may follow.
#[derive(Clone, Copy)]
pub(crate) struct MaskedHash(u64);

/// Odd constants with balanced bits. Source: the wyhash family's secrets.
const K0: u64 = 0xa076_1d64_78bd_642f;
const K1: u64 = 0xe703_7ed1_a0b4_28db;

impl MaskedHash {
    /// The hash of nothing.
    #[inline]
    pub fn start(key: u64) -> Self {
        MaskedHash(key ^ K0)
    }

    /// The hash after another word.
    #[inline]
    pub fn with(self, word: u64) -> Self {
        let wide = u128::from(self.0 ^ word) * u128::from(K1);
        MaskedHash((wide as u64 ^ (wide >> 64) as u64).wrapping_add(K0))
    }

    /// The final 32 bits.
    #[inline]
    pub fn end(self) -> u32 {
        let wide = u128::from(self.0) * u128::from(K0);
        (wide as u64 ^ (wide >> 64) as u64) as u32
    }
}

/// Spreads the 32 bits over the 64 that a hash map expects: it uses the lowest and the highest ones.
#[inline]
pub(crate) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(hash)
}

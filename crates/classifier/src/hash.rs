//! The hash of masked words, continued from stage to stage.
//!
//! Keyed, so that whoever chooses rules cannot choose collisions; 32 bits, since a rule's place and a stage's count
//! are found by it and both are verified or harmless: a false hit in a stage index only widens a mask.

/// A hash under way.
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

    /// The hash with a word more.
    #[inline]
    pub fn with(self, word: u64) -> Self {
        let wide = u128::from(self.0 ^ word) * u128::from(K1);
        MaskedHash((wide as u64 ^ (wide >> 64) as u64).wrapping_add(K0))
    }

    /// The 32 bits kept.
    #[inline]
    pub fn end(self) -> u32 {
        let wide = u128::from(self.0) * u128::from(K0);
        (wide as u64 ^ (wide >> 64) as u64) as u32
    }
}

/// Spreads a kept hash over the 64 bits a hash map wants (it uses both ends).
#[inline]
pub(crate) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(hash)
}

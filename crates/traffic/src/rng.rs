//! Random number generators with fixed sequences.

use sluice_simd::hash::splitmix64;

/// SplitMix64: 64-bit numbers from a seed, every number once in 2^64.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014; constants as in
/// Java's SplittableRandom.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence that belongs to `seed`.
    pub const fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    /// The next number.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        splitmix64(&mut self.0)
    }
}

/// A number below `n`, from the high half of a random number.
///
/// Each number's probability differs from uniform by less than n / 2^32. Source: Lemire, "Fast random integer
/// generation in an interval", 2019.
#[inline]
pub(crate) const fn below(n: u32, random: u64) -> u32 {
    (((random >> 32) * n as u64) >> 32) as u32
}

/// wyrand: a 64-bit random number with one multiplication, for choices for each packet. Passes BigCrush and PractRand.
///
/// Source: Wang Yi, wyhash final version 4 (public domain), `wyrand`.
#[derive(Clone, Debug)]
pub(crate) struct Wyrand(u64);

impl Wyrand {
    /// The sequence that belongs to `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Wyrand(seed)
    }

    /// The next number.
    #[inline]
    pub(crate) const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x2d35_8dcc_aa6c_78a5);
        let product = self.0 as u128 * (self.0 ^ 0x8bb8_4b93_962e_acc9) as u128;
        (product >> 64) as u64 ^ product as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut rng = SplitMix64::new(0);
        let first: [u64; 3] = std::array::from_fn(|_| rng.next_u64());
        assert_eq!(first, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
        let mut rng = SplitMix64::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
    }

    #[test]
    fn below_reaches_both_ends() {
        assert_eq!((below(7, 0), below(7, u64::MAX), below(1, u64::MAX)), (0, 6, 0));
    }
}

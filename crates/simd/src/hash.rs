//! The keyed hash of packet keys: the same number on every instruction set, unpredictable for the packets' senders.
//!
//! The sum is NH, the inner function of UMAC: each 64-bit word `w` at place `p` adds `(low(w) + k[2p]) * (high(w) +
//! k[2p+1])`, where additions of 32 bits wrap and the product has 64 bits. Two different inputs have the same sum with
//! probability 2^-32 over the keys, even if an attacker chose the inputs. A word of zeros adds a constant, so a masked
//! key may be hashed over the words that its mask touches: all other words are zero in every key. The finaliser then
//! spreads the sum, whose low bits are weak, over all 64 bits.
//!
//! Source: Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC, CRYPTO '99 (NH). The finaliser is one round of the usual
//! xor-shift-multiply kind with the golden ratio's odd constant, and is checked by the tests below.

/// Places in a key: 64 words, eight lines.
pub const PLACES: usize = 64;

/// The secret of the hash, drawn at start (or fixed, in `replay`).
#[derive(Clone)]
#[repr(align(64))] // so that vectors of it are loaded by one instruction
pub struct HashKey {
    /// For place `p`: the addend of the low half in the low half, that of the high half in the high half.
    addends: [u64; PLACES],
}

/// The multiplier of the finaliser: 2^64 divided by the golden ratio, made odd.
pub(crate) const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl HashKey {
    /// The key generated from `seed` by splitmix64.
    pub fn from_seed(seed: u64) -> Self {
        let mut state = seed;
        HashKey { addends: std::array::from_fn(|_| splitmix64(&mut state)) }
    }

    /// A key with known addends, for tests that force collisions. With addends of zero, a word adds nothing if one of
    /// its halves is zero.
    pub fn from_addends(addends: [u64; PLACES]) -> Self {
        HashKey { addends }
    }

    /// The addends of place `place`, for a caller that keeps them and calls [`product`] itself.
    #[inline]
    pub fn addends(&self, place: usize) -> u64 {
        self.addends[place]
    }

    /// The addends of line `line` (0 to 7).
    #[inline(always)]
    pub fn addends_of_line(&self, line: usize) -> &[u64; 8] {
        self.addends[line * 8..].first_chunk().expect("invariant: eight lines of eight places")
    }

    /// The sum over the eight words of line `line` (0 to 7).
    #[inline(always)]
    pub fn line(&self, line: usize, words: &[u64; 8]) -> u64 {
        let addends = self.addends_of_line(line);
        let mut sum = 0u64;
        for i in 0..8 {
            sum = sum.wrapping_add(product(words[i], addends[i]));
        }
        sum
    }
}

impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

/// One term of the sum.
#[inline(always)]
pub fn product(word: u64, addends: u64) -> u64 {
    let low = (word as u32).wrapping_add(addends as u32);
    let high = ((word >> 32) as u32).wrapping_add((addends >> 32) as u32);
    u64::from(low) * u64::from(high)
}

/// A word of a key in which a mask has bits: its place, those bits, and the addends of that place.
#[derive(Clone, Copy, Debug, Default)]
pub struct MaskedWord {
    /// The place in the key.
    pub place: usize,
    /// The mask's bits there.
    pub mask: u64,
    /// What the hash adds there.
    pub addends: u64,
}

impl MaskedWord {
    /// Adds the term of a key's word at this place to the sum.
    #[inline(always)]
    pub fn add_to(&self, sum: u64, word: u64) -> u64 {
        sum.wrapping_add(product(word & self.mask, self.addends))
    }
}

/// Turns a sum into a tag of 32 bits, the high half of the hash; never 0, which stands for an empty slot.
#[inline(always)]
pub fn tag(sum: u64) -> u32 {
    ((finish(sum) >> 32) as u32).max(1)
}

/// Turns a sum into the hash: every bit usable, the high 32 as good as the low.
#[inline(always)]
pub fn finish(sum: u64) -> u64 {
    // The middle of the sum is its best part; fold it down, multiply it up, fold again.
    let folded = sum ^ (sum >> 32);
    let spread = folded.wrapping_mul(SPREAD);
    spread ^ (spread >> 32)
}

/// The next number of the SplitMix64 generator. Source: Steele, Lea, Flood: Fast splittable pseudorandom number
/// generators.
#[inline]
pub fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(SPREAD);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(key: &HashKey, words: &[u64; 8]) -> u64 {
        finish(key.line(0, words))
    }

    /// The specification, read off the definition in 128-bit arithmetic.
    fn naive(key: &HashKey, words: &[u64; 8]) -> u64 {
        let sum = words.iter().enumerate().fold(0u128, |sum, (p, w)| {
            let low = (u128::from(*w & 0xffff_ffff) + u128::from(key.addends[p] & 0xffff_ffff)) % (1 << 32);
            let high = (u128::from(*w >> 32) + u128::from(key.addends[p] >> 32)) % (1 << 32);
            (sum + low * high) % (1 << 64)
        }) as u64;
        finish(sum)
    }

    #[test]
    fn the_vectorisable_form_is_the_definition() {
        let mut state = 1;
        for seed in 0..200 {
            let key = HashKey::from_seed(seed);
            let words = std::array::from_fn(|_| splitmix64(&mut state));
            assert_eq!(whole(&key, &words), naive(&key, &words));
            let by_place = (0..8).fold(0u64, |sum, p| sum.wrapping_add(product(words[p], key.addends(p))));
            assert_eq!(key.line(0, &words), by_place);
        }
    }

    /// Chi-square of `n` hashes over `cells` cells, as a multiple of its standard deviation from its mean.
    fn deviation(counts: &[u32], n: usize) -> f64 {
        let cells = counts.len() as f64;
        let want = n as f64 / cells;
        let chi2: f64 = counts.iter().map(|c| (f64::from(*c) - want).powi(2) / want).sum();
        (chi2 - (cells - 1.0)) / (2.0 * (cells - 1.0)).sqrt()
    }

    #[test]
    fn sequential_addresses_spread_over_buckets_and_tags() {
        // Destination addresses in a row are big-endian in word 6's high half, and vary little: the hard case.
        for seed in 0..20 {
            let key = HashKey::from_seed(seed);
            let (mut low, mut high) = (vec![0; 1024], vec![0; 1024]);
            let n = 65536u32;
            for i in 0..n {
                let mut words = [0x0102_0304_0506_0708; 8];
                words[6] = u64::from((0x0a00_0000 + i).swap_bytes()) << 32 | 0x0100_0001;
                let hash = whole(&key, &words);
                low[(hash & 1023) as usize] += 1;
                high[(hash >> 54) as usize] += 1;
            }
            // A fixed multiplier spreads a row more evenly than chance, which is welcome; unevenness is not.
            assert!(deviation(&low, n as usize) < 6.0, "low bits, seed {seed}: {}", deviation(&low, n as usize));
            assert!(deviation(&high, n as usize) < 6.0, "high bits, seed {seed}: {}", deviation(&high, n as usize));
        }
    }

    #[test]
    fn every_input_bit_moves_every_output_bit() {
        // Over keys: flipping input bit b flips output bit o in about half the cases.
        let trials = 2000u32;
        let mut state = 7;
        for bit in (0..512).step_by(5) {
            let mut flips = [0u32; 64];
            for _ in 0..trials {
                let key = HashKey::from_seed(splitmix64(&mut state));
                let words: [u64; 8] = std::array::from_fn(|_| splitmix64(&mut state));
                let mut other = words;
                other[bit / 64] ^= 1 << (bit % 64);
                let diff = whole(&key, &words) ^ whole(&key, &other);
                flips.iter_mut().enumerate().for_each(|(o, n)| *n += (diff >> o & 1) as u32);
            }
            for (o, n) in flips.iter().enumerate() {
                let share = f64::from(*n) / f64::from(trials);
                assert!((0.40..0.60).contains(&share), "input bit {bit}, output bit {o}: flips in {share}");
            }
        }
    }

    #[test]
    fn full_hashes_of_near_keys_do_not_collide() {
        let key = HashKey::from_seed(42);
        let mut seen = std::collections::HashSet::new();
        for a in 0..256u64 {
            for b in 0..256u64 {
                let mut words = [0; 8];
                words[6] = a << 24 | b << 56;
                words[7] = a ^ b;
                assert!(seen.insert(whole(&key, &words)), "{a} {b}");
            }
        }
    }
}

//! 4-bit counters, two per byte, in two generations.

/// The largest value a counter holds.
pub const MAX: u8 = 15;

/// 4-bit counters. Hashes with the same low bits share a counter. A count lives until the end of the generation after
/// the one in which it last changed.
#[derive(Debug)]
pub struct Counters {
    current: Generation,
    previous: Generation,
}

#[derive(Debug)]
struct Generation(Box<[u8]>);

impl Counters {
    /// Counters at 0, `size` bytes per generation; a power of two.
    pub fn new(size: usize) -> Self {
        Counters { current: Generation::new(size), previous: Generation::new(size) }
    }

    /// Bytes of the current generation.
    pub fn size(&self) -> usize {
        self.current.0.len()
    }

    /// Begins a generation of `size` bytes. Counts that did not change in the ending one are forgotten.
    pub fn begin_generation(&mut self, size: usize) {
        std::mem::swap(&mut self.current, &mut self.previous);
        if size == self.current.0.len() { self.current.0.fill(0) } else { self.current = Generation::new(size) }
    }

    /// The counter of `hash`.
    pub fn get(&self, hash: u64) -> u8 {
        match self.current.get(hash) {
            0 => self.previous.get(hash),
            count => count,
        }
    }

    /// Sets the counter of `hash`, to [`MAX`] if `value` is more.
    pub fn set(&mut self, hash: u64, value: u8) {
        self.current.set(hash, value.min(MAX));
        self.previous.set(hash, 0);
    }
}

impl Generation {
    fn new(size: usize) -> Self {
        debug_assert!(size.is_power_of_two());
        Generation(vec![0; size].into())
    }

    fn get(&self, hash: u64) -> u8 {
        let (at, shift) = self.place(hash);
        self.0[at] >> shift & 15
    }

    fn set(&mut self, hash: u64, value: u8) {
        let (at, shift) = self.place(hash);
        self.0[at] = self.0[at] & !(15 << shift) | value << shift;
    }

    /// The byte and the shift of a hash's counter: the lowest bit selects the half, the next bits the byte.
    fn place(&self, hash: u64) -> (usize, u32) {
        ((hash >> 1) as usize & (self.0.len() - 1), (hash as u32 & 1) * 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with an array of bytes. There are few counters, so that both halves of a byte are used.
        #[test]
        fn halves_do_not_touch_each_other(ops in prop::collection::vec((0u64..64, 0u8..20), 0..200)) {
            let (mut counters, mut twin) = (Counters::new(16), [0u8; 32]);
            for (hash, value) in ops {
                counters.set(hash, value);
                twin[hash as usize % 32] = value.min(MAX);
                for h in 0..32 {
                    prop_assert_eq!(counters.get(h), twin[h as usize]);
                }
            }
        }
    }

    #[test]
    fn a_count_outlives_one_generation() {
        let mut counters = Counters::new(16);
        counters.set(3, 2);
        counters.set(4, 4);
        for size in [32, 16] {
            counters.begin_generation(size);
            assert_eq!((counters.get(3), counters.size()), (2, size));
            counters.set(3, 2);
            counters.set(4, 0);
            assert_eq!(counters.get(4), 0, "what is set to 0 does not come back");
        }
        counters.begin_generation(16);
        counters.begin_generation(16);
        assert_eq!(counters.get(3), 0);
    }
}

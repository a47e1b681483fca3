//! 4-bit counters, two a byte, in two generations.

/// The largest value a counter holds.
pub const MAX: u8 = 15;

/// 4-bit counters. Hashes that share their low bits share a counter. A count is kept until the end of the generation after
/// the one that it was last changed in.
#[derive(Debug)]
pub struct Counters {
    now: Table,
    before: Table,
}

#[derive(Debug)]
struct Table(Box<[u8]>);

impl Counters {
    /// `size` bytes a generation, a power of two, of counters at 0.
    pub fn new(size: usize) -> Self {
        Counters { now: Table::new(size), before: Table::new(size) }
    }

    /// Bytes of this generation.
    pub fn size(&self) -> usize {
        self.now.0.len()
    }

    /// Begins a generation of `size` bytes: what has not been changed in the one that ends is forgotten.
    pub fn begin_generation(&mut self, size: usize) {
        std::mem::swap(&mut self.now, &mut self.before);
        if size == self.now.0.len() { self.now.0.fill(0) } else { self.now = Table::new(size) }
    }

    /// The counter of `hash`.
    pub fn get(&self, hash: u64) -> u8 {
        match self.now.get(hash) {
            0 => self.before.get(hash),
            count => count,
        }
    }

    /// Sets the counter of `hash`, to [`MAX`] if `value` is more.
    pub fn set(&mut self, hash: u64, value: u8) {
        self.now.set(hash, value.min(MAX));
        self.before.set(hash, 0);
    }
}

impl Table {
    fn new(size: usize) -> Self {
        debug_assert!(size.is_power_of_two());
        Table(vec![0; size].into())
    }

    fn get(&self, hash: u64) -> u8 {
        let (at, shift) = self.place(hash);
        self.0[at] >> shift & 15
    }

    fn set(&mut self, hash: u64, value: u8) {
        let (at, shift) = self.place(hash);
        self.0[at] = self.0[at] & !(15 << shift) | value << shift;
    }

    /// The byte and the shift of a hash's counter: the lowest bit chooses the half, the next ones the byte.
    fn place(&self, hash: u64) -> (usize, u32) {
        ((hash >> 1) as usize & (self.0.len() - 1), (hash as u32 & 1) * 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against an array of whole numbers; few places, so that halves of one byte meet.
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

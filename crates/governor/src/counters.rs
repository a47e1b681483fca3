//! 4-bit counters, two a byte.

/// The largest value a counter holds.
pub const MAX: u8 = 15;

/// A table of 4-bit counters. Hashes that share their low bits share a counter.
#[derive(Debug)]
pub struct Counters {
    bytes: Box<[u8]>,
}

impl Counters {
    /// `size` bytes, a power of two, of counters at 0.
    pub fn new(size: usize) -> Self {
        debug_assert!(size.is_power_of_two());
        Counters { bytes: vec![0; size].into() }
    }

    /// Bytes it takes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Sets every counter to 0 and the size to `size`.
    pub fn clear(&mut self, size: usize) {
        if size == self.bytes.len() { self.bytes.fill(0) } else { *self = Counters::new(size) }
    }

    /// The counter of `hash`.
    pub fn get(&self, hash: u64) -> u8 {
        let (at, shift) = self.place(hash);
        self.bytes[at] >> shift & 15
    }

    /// Sets the counter of `hash`, to [`MAX`] if `value` is more.
    pub fn set(&mut self, hash: u64, value: u8) {
        let (at, shift) = self.place(hash);
        self.bytes[at] = self.bytes[at] & !(15 << shift) | value.min(MAX) << shift;
    }

    /// The byte and the shift of a hash's counter: the lowest bit chooses the half, the next ones the byte.
    fn place(&self, hash: u64) -> (usize, u32) {
        ((hash >> 1) as usize & (self.bytes.len() - 1), (hash as u32 & 1) * 4)
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
}

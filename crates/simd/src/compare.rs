//! Masked comparison of a cache line: does a key under a mask equal the expected key?

/// Whether `key & mask == want` in all eight words of a line. No branch before the end.
#[inline(always)]
pub fn masked_eq(key: &[u64; 8], mask: &[u64; 8], want: &[u64; 8]) -> bool {
    let mut differ = 0;
    for i in 0..8 {
        differ |= (key[i] & mask[i]) ^ want[i];
    }
    differ == 0
}

/// A line's eight words, little-endian: the same numbers on every machine, and a plain load on most.
#[inline(always)]
pub fn words(line: &[u8; 64]) -> [u64; 8] {
    let (chunks, _) = line.as_chunks::<8>();
    std::array::from_fn(|i| u64::from_le_bytes(chunks[i]))
}

/// Word `place % 8` of a line, with one load.
#[inline(always)]
pub fn word(line: &[u8; 64], place: usize) -> u64 {
    let (chunks, _) = line.as_chunks::<8>();
    u64::from_le_bytes(chunks[place % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_decides() {
        let mask = [u64::MAX, 0, 0xff, 0, 1 << 63, 0, 0, 7];
        let key: [u64; 8] = std::array::from_fn(|i| 0x0123_4567_89ab_cdef << i);
        let want: [u64; 8] = std::array::from_fn(|i| key[i] & mask[i]);
        assert!(masked_eq(&key, &mask, &want));
        for bit in 0..512 {
            let mut other = key;
            other[bit / 64] ^= 1 << (bit % 64);
            assert_eq!(masked_eq(&other, &mask, &want), mask[bit / 64] >> (bit % 64) & 1 == 0, "bit {bit}");
        }
    }

    #[test]
    fn words_are_little_endian() {
        let line: [u8; 64] = std::array::from_fn(|i| i as u8);
        assert_eq!(words(&line)[1], 0x0f0e_0d0c_0b0a_0908);
        assert!((0..16).all(|place| word(&line, place) == words(&line)[place % 8]));
    }
}

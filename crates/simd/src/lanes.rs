//! Eight 32-bit tags in half a cache line: which equal the one looked for?

/// Tags a bucket holds.
pub const LANES: usize = 8;

/// Bit `i` is set if and only if `tags[i] == tag`.
#[inline(always)]
pub fn matching(tags: &[u32; LANES], tag: u32) -> u32 {
    // Compare, keep one bit a lane, add up: the compiler makes vector code of it, and the sum of distinct powers of
    // two is their union.
    let mut bits = 0;
    for (i, have) in tags.iter().enumerate() {
        bits |= u32::from(*have == tag) << i;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_exactly_the_equal_lanes() {
        for pattern in 0u32..256 {
            let tags = std::array::from_fn(|i| if pattern >> i & 1 != 0 { 7 } else { 7 ^ (1 << (i * 4)) });
            assert_eq!(matching(&tags, 7), pattern);
        }
    }
}

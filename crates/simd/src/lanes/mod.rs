//! Eight 32-bit tags in half a cache line: which of them equal the wanted tag?
//!
//! Exact on every instruction set: bit `i` of the result is set if and only if `tags[i] == tag`. From the scalar twin
//! the compiler makes four compares and forty instructions; SSE2 needs seven (2026-11-20).

mod scalar;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod sse2;

/// Tags a bucket holds.
pub const LANES: usize = 8;

/// Bit `i` is set where `tags[i]` is `tag`.
#[inline(always)]
pub fn matching(tags: &[u32; LANES], tag: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    return sse2::matching(tags, tag);
    #[cfg(not(target_arch = "x86_64"))]
    scalar::matching(tags, tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_exactly_the_equal_lanes() {
        for (tag, other) in [(7, 7 ^ 1 << 30), (0x8000_0000, 0), (0, 0x8000_0000), (u32::MAX, 0x7fff_ffff)] {
            for pattern in 0u32..256 {
                let tags = std::array::from_fn(|i| if pattern >> i & 1 != 0 { tag } else { other ^ (i as u32 & 1) });
                assert_eq!(matching(&tags, tag), pattern);
                assert_eq!(scalar::matching(&tags, tag), pattern);
            }
        }
    }
}

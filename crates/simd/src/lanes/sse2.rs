//! SSE2, which every x86-64 processor has.

use super::LANES;
use std::arch::x86_64::*;

/// Bit `i` is set where `tags[i]` is `tag`.
#[inline(always)]
pub fn matching(tags: &[u32; LANES], tag: u32) -> u32 {
    // SAFETY: SSE2 is part of x86-64; the loads are unaligned ones, of 32 bytes in all, which is the array's size.
    unsafe {
        let wanted = _mm_set1_epi32(tag as i32);
        let place = tags.as_ptr().cast::<__m128i>();
        let low = _mm_cmpeq_epi32(_mm_loadu_si128(place), wanted);
        let high = _mm_cmpeq_epi32(_mm_loadu_si128(place.add(1)), wanted);
        // All ones or zeros survive packing with saturation: a 32-bit lane becomes a byte.
        let words = _mm_packs_epi32(low, high);
        _mm_movemask_epi8(_mm_packs_epi16(words, _mm_setzero_si128())) as u32
    }
}

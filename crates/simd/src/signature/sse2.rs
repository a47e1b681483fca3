//! SSE2, which every x86-64 has: two comparisons of eight.

use std::arch::x86_64::{_mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16};

#[inline(always)]
pub fn matching(signatures: &[u16; super::SLOTS], wanted: u16) -> u16 {
    // SAFETY: SSE2 is part of x86-64, and both loads (of 16 bytes, unaligned) lie in the 32 bytes of `signatures`.
    unsafe {
        let at = signatures.as_ptr();
        let wanted = _mm_set1_epi16(wanted as i16);
        let low = _mm_cmpeq_epi16(_mm_loadu_si128(at.cast()), wanted);
        let high = _mm_cmpeq_epi16(_mm_loadu_si128(at.add(8).cast()), wanted);
        // All ones or all zeros survive the saturating pack, in order.
        _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u16
    }
}

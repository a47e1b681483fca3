//! AVX-512: 32 words in a register.

use super::AT_ONCE;
use crate::isa::{Isa, Set};
use std::arch::x86_64::*;

pub fn sum(isa: Isa, bytes: &[u8]) -> u64 {
    assert!(isa.0 == Set::Avx512 && bytes.len() <= AT_ONCE, "invariant: the caller has seen to it");
    // SAFETY: an `Isa` of this set is made only on a processor that has it.
    unsafe { sum_of(bytes) }
}

/// Multiplication adds neighbours up, but takes them as signed: each word is made less by 2¹⁵ before, and the sum greater
/// afterwards.
#[target_feature(enable = "avx512f,avx512bw")]
fn sum_of(bytes: &[u8]) -> u64 {
    let (less, ones) = (_mm512_set1_epi16(i16::MIN), _mm512_set1_epi16(1));
    let (blocks, rest) = bytes.as_chunks::<128>();
    let mut sums = [_mm512_setzero_si512(); 2];
    for block in blocks {
        for (at, sum) in sums.iter_mut().enumerate() {
            // SAFETY: 64 of the block's 128 bytes; loads need no alignment.
            let words = unsafe { _mm512_loadu_si512(block.as_ptr().add(64 * at).cast()) };
            *sum = _mm512_add_epi32(*sum, _mm512_madd_epi16(_mm512_xor_si512(words, less), ones));
        }
    }
    let mut vectors = 2 * blocks.len() as i64;
    for part in rest.chunks(64) {
        // SAFETY: bytes that the mask leaves out are not read, and are zero.
        let words = unsafe { _mm512_maskz_loadu_epi8(u64::MAX >> (64 - part.len()), part.as_ptr().cast()) };
        sums[0] = _mm512_add_epi32(sums[0], _mm512_madd_epi16(_mm512_xor_si512(words, less), ones));
        vectors += 1;
    }
    let wide = |sum| {
        let (low, high) = (_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64::<1>(sum));
        _mm512_add_epi64(_mm512_cvtepi32_epi64(low), _mm512_cvtepi32_epi64(high))
    };
    let total = _mm512_reduce_add_epi64(_mm512_add_epi64(wide(sums[0]), wide(sums[1])));
    (total + 32 * vectors * (1 << 15)) as u64
}

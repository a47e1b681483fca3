//! AVX2: sixteen words in a register.

use super::{AT_ONCE, scalar};
use crate::isa::{Isa, Set};
use std::arch::x86_64::*;

pub fn sum(isa: Isa, bytes: &[u8]) -> u64 {
    assert!(isa.0 == Set::Avx2 && bytes.len() <= AT_ONCE, "invariant: the caller has seen to it");
    let (blocks, rest) = bytes.as_chunks::<64>();
    // SAFETY: an `Isa` of this set is made only on a processor that has it.
    unsafe { sum_of_blocks(blocks) + scalar::sum(rest) }
}

/// Multiplication adds neighbours up, but takes them as signed: each word is made less by 2¹⁵ before, and the sum greater
/// afterwards.
#[target_feature(enable = "avx2")]
fn sum_of_blocks(blocks: &[[u8; 64]]) -> u64 {
    let (less, ones) = (_mm256_set1_epi16(i16::MIN), _mm256_set1_epi16(1));
    let mut sums = [_mm256_setzero_si256(); 2];
    for block in blocks {
        for (at, sum) in sums.iter_mut().enumerate() {
            // SAFETY: 32 of the block's 64 bytes; loads need no alignment.
            let words = unsafe { _mm256_lddqu_si256(block.as_ptr().add(32 * at).cast()) };
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(_mm256_xor_si256(words, less), ones));
        }
    }
    let [low, high] = sums.map(|sum| {
        let (low, high) = (_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
        _mm256_add_epi64(_mm256_cvtepi32_epi64(low), _mm256_cvtepi32_epi64(high))
    });
    let both = _mm256_add_epi64(low, high);
    let both = _mm_add_epi64(_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both));
    let total = _mm_cvtsi128_si64(both) + _mm_extract_epi64::<1>(both);
    (total + (32 * blocks.len() as i64) * (1 << 15)) as u64
}

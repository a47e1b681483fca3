//! AVX-512: the line in one register, the answer as a mask of slots.

use super::{Hints, SLOTS};
use crate::isa::{Isa, Set};
use std::arch::x86_64::{
    _mm256_cmpeq_epi16_mask, _mm256_load_si256, _mm256_set1_epi16, _mm512_castsi256_si512, _mm512_cmpeq_epi16_mask,
    _mm512_inserti64x4, _mm512_set1_epi16,
};

pub fn find(isa: Isa, lines: &[Hints], at: &[u32], wanted: &[u16], out: &mut [u16]) {
    assert_eq!(isa.0, Set::Avx512, "invariant: the caller has matched it");
    // SAFETY: an `Isa` of this set is made only on a processor that has it.
    unsafe { batch(lines, at, wanted, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1")]
fn batch(lines: &[Hints], at: &[u32], wanted: &[u16], out: &mut [u16]) {
    for ((at, wanted), out) in at.iter().zip(wanted).zip(out) {
        let line = &lines[*at as usize];
        // SAFETY: the signatures are the first 32 bytes of a line, which is aligned to 64.
        let have = unsafe { _mm256_load_si256(std::ptr::from_ref(line).cast()) };
        let equal = _mm256_cmpeq_epi16_mask(have, _mm256_set1_epi16(*wanted as i16));
        let hint = line.hints[equal.trailing_zeros() as usize % SLOTS];
        *out = if equal == 0 { 0 } else { hint };
    }
}

pub fn find_either(isa: Isa, lines: &[Hints], first: &[u32], second: &[u32], wanted: &[u16], out: &mut [u16]) {
    assert_eq!(isa.0, Set::Avx512, "invariant: the caller has matched it");
    // SAFETY: an `Isa` of this set is made only on a processor that has it.
    unsafe { batch_of_either(lines, first, second, wanted, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1")]
fn batch_of_either(lines: &[Hints], first: &[u32], second: &[u32], wanted: &[u16], out: &mut [u16]) {
    let signatures_of = |line: &Hints| {
        // SAFETY: the signatures are the first 32 bytes of a line, which is aligned to 64.
        unsafe { _mm256_load_si256(std::ptr::from_ref(line).cast()) }
    };
    for (((first, second), wanted), out) in first.iter().zip(second).zip(wanted).zip(out) {
        let pair = [&lines[*first as usize], &lines[*second as usize]];
        let have = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(signatures_of(pair[0])), signatures_of(pair[1]));
        let equal = _mm512_cmpeq_epi16_mask(have, _mm512_set1_epi16(*wanted as i16));
        let slot = equal.trailing_zeros() as usize;
        let hint = pair[slot / SLOTS % 2].hints[slot % SLOTS];
        *out = if equal == 0 { 0 } else { hint };
    }
}

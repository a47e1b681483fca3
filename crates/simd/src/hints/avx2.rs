//! AVX2: one comparison of sixteen.

use super::{Hints, SLOTS};
use crate::isa::{Isa, Set};
use std::arch::x86_64::{_mm256_cmpeq_epi16, _mm256_load_si256, _mm256_movemask_epi8, _mm256_set1_epi16};

pub fn find(isa: Isa, lines: &[Hints], at: &[u32], wanted: &[u16], out: &mut [u16]) {
    assert_eq!(isa.0, Set::Avx2, "invariant: the caller has matched it");
    // SAFETY: an `Isa` of this set is made only on a processor that has it.
    unsafe { batch(lines, at, wanted, out) }
}

#[target_feature(enable = "avx2,bmi1")]
fn batch(lines: &[Hints], at: &[u32], wanted: &[u16], out: &mut [u16]) {
    for ((at, wanted), out) in at.iter().zip(wanted).zip(out) {
        let line = &lines[*at as usize];
        // SAFETY: the signatures are the first 32 bytes of a line, which is aligned to 64.
        let have = unsafe { _mm256_load_si256(std::ptr::from_ref(line).cast()) };
        let equal = _mm256_cmpeq_epi16(have, _mm256_set1_epi16(*wanted as i16));
        // The mask has two bits for each slot. No branch on a match: it would be mispredicted half the time.
        let bits = _mm256_movemask_epi8(equal) as u32;
        let hint = line.hints[bits.trailing_zeros() as usize / 2 % SLOTS];
        *out = if bits == 0 { 0 } else { hint };
    }
}

pub fn find_either(isa: Isa, lines: &[Hints], first: &[u32], second: &[u32], wanted: &[u16], out: &mut [u16]) {
    assert_eq!(isa.0, Set::Avx2, "invariant: the caller has matched it");
    // SAFETY: an `Isa` of this set is made only on a processor that has it.
    unsafe { batch_of_either(lines, first, second, wanted, out) }
}

#[target_feature(enable = "avx2,bmi1")]
fn batch_of_either(lines: &[Hints], first: &[u32], second: &[u32], wanted: &[u16], out: &mut [u16]) {
    let signatures_of = |line: &Hints| {
        // SAFETY: the signatures are the first 32 bytes of a line, which is aligned to 64.
        unsafe { _mm256_load_si256(std::ptr::from_ref(line).cast()) }
    };
    for (((first, second), wanted), out) in first.iter().zip(second).zip(wanted).zip(out) {
        let pair = [&lines[*first as usize], &lines[*second as usize]];
        let wanted = _mm256_set1_epi16(*wanted as i16);
        let in_first = _mm256_movemask_epi8(_mm256_cmpeq_epi16(signatures_of(pair[0]), wanted)) as u32;
        let in_second = _mm256_movemask_epi8(_mm256_cmpeq_epi16(signatures_of(pair[1]), wanted)) as u32;
        // Two bits for each of 32 slots, those of the first line first; no branch on a match.
        let bits = u64::from(in_second) << 32 | u64::from(in_first);
        let slot = bits.trailing_zeros() as usize / 2;
        let hint = pair[slot / SLOTS % 2].hints[slot % SLOTS];
        *out = if bits == 0 { 0 } else { hint };
    }
}

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

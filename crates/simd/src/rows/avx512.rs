//! AVX-512: gathers of sixteen rows of up to 32 bits, or of eight of 64.

use super::{Probes, Row, scalar};
use crate::isa::{Isa, Set};
use std::arch::x86_64::*;

pub fn intersect<R: Row>(isa: Isa, rows: &[R], probes: Probes<'_>, out: &mut [u64]) {
    assert_eq!(isa.0, Set::Avx512, "invariant: the caller has matched it");
    // Indices are signed.
    if probes.mask > i32::MAX as u32 {
        return scalar::intersect(rows, probes, out);
    }
    let base = rows.as_ptr();
    let whole = probes.start.len() & !15;
    let (some, rest) = out.split_at_mut(whole);
    // SAFETY: an `Isa` of this set is made only on a processor that has it. The rows are `mask + 1` and their padding,
    // which the caller has asserted, so that four bytes (eight of a row of 64 bits) at every masked index are inside.
    unsafe {
        match size_of::<R>() {
            1 => gather_32::<1>(base.cast(), 0xff, probes, some),
            2 => gather_32::<2>(base.cast(), 0xffff, probes, some),
            4 => gather_32::<4>(base.cast(), u32::MAX, probes, some),
            _ => gather_64(base.cast(), probes, some),
        }
    }
    let probes = Probes { start: &probes.start[whole..], step: &probes.step[whole..], ..probes };
    scalar::intersect(rows, probes, rest);
}

/// # Safety
/// Four bytes at `base + SCALE * i` can be read for every `i` up to `probes.mask`, which is no negative `i32`.
#[target_feature(enable = "avx2,avx512f")]
unsafe fn gather_32<const SCALE: i32>(base: *const i32, width: u32, probes: Probes<'_>, out: &mut [u64]) {
    let mask = _mm512_set1_epi32(probes.mask as i32);
    let (start, _) = probes.start.as_chunks::<16>();
    let (step, _) = probes.step.as_chunks::<16>();
    let (out, _) = out.as_chunks_mut::<16>();
    for ((start, step), out) in start.iter().zip(step).zip(out) {
        // SAFETY: 64 bytes each; loads need no alignment.
        let (mut row, step) =
            unsafe { (_mm512_loadu_si512(start.as_ptr().cast()), _mm512_loadu_si512(step.as_ptr().cast())) };
        let mut bits = _mm512_set1_epi32(width as i32);
        for _ in 0..probes.n {
            // SAFETY: the indices are masked.
            let read = unsafe { _mm512_i32gather_epi32::<SCALE>(_mm512_and_si512(row, mask), base) };
            bits = _mm512_and_si512(bits, read);
            row = _mm512_add_epi32(row, step);
        }
        let low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(bits));
        let high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(bits));
        // SAFETY: `out` is 128 bytes; stores need no alignment.
        unsafe {
            _mm512_storeu_si512(out.as_mut_ptr().cast(), low);
            _mm512_storeu_si512(out.as_mut_ptr().add(8).cast(), high);
        }
    }
}

/// # Safety
/// Eight bytes at `base + 8 * i` can be read for every `i` up to `probes.mask`, which is no negative `i32`.
#[target_feature(enable = "avx2,avx512f")]
unsafe fn gather_64(base: *const i64, probes: Probes<'_>, out: &mut [u64]) {
    let mask = _mm256_set1_epi32(probes.mask as i32);
    let (start, _) = probes.start.as_chunks::<8>();
    let (step, _) = probes.step.as_chunks::<8>();
    let (out, _) = out.as_chunks_mut::<8>();
    for ((start, step), out) in start.iter().zip(step).zip(out) {
        // SAFETY: 32 bytes each; loads need no alignment.
        let (mut row, step) =
            unsafe { (_mm256_lddqu_si256(start.as_ptr().cast()), _mm256_lddqu_si256(step.as_ptr().cast())) };
        let mut bits = _mm512_set1_epi64(-1);
        for _ in 0..probes.n {
            // SAFETY: the indices are masked.
            let read = unsafe { _mm512_i32gather_epi64::<8>(_mm256_and_si256(row, mask), base) };
            bits = _mm512_and_si512(bits, read);
            row = _mm256_add_epi32(row, step);
        }
        // SAFETY: `out` is 64 bytes; stores need no alignment.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), bits) };
    }
}

//! AVX-512: a line in a register.

use super::{Columns, Permutation, SOURCE, TOGETHER, VectorOps};
use crate::hash::{MaskedWord, SPREAD};
use crate::isa::{Isa, Set};
use std::arch::x86_64::*;

/// The vector operations of AVX-512.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The processor has AVX-512 F, BW, DQ, VL and VBMI.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Avx512(())
    }

    /// A line, or its words.
    #[inline(always)]
    fn whole<T>(self, line: &[T]) -> __m512i {
        assert!(size_of_val(line) == 64);
        // SAFETY: a `self` exists only if the processor has AVX-512. The unaligned load reads the 64 bytes that were
        // asserted.
        unsafe { _mm512_loadu_si512(line.as_ptr().cast()) }
    }

    /// Whether `key & mask == want`, of lines or their words.
    #[inline(always)]
    fn is_masked<T>(self, key: &[u8; 64], mask: &[T], want: &[T]) -> bool {
        // SAFETY: a `self` exists only if the processor has AVX-512.
        unsafe { _mm512_cmpneq_epi64_mask(_mm512_and_si512(self.whole(key), self.whole(mask)), self.whole(want)) == 0 }
    }

    /// The terms of a line's sum.
    #[inline(always)]
    fn terms(self, line: &[u8; 64], addends: __m512i) -> __m512i {
        // SAFETY: a `self` exists only if the processor has AVX-512.
        unsafe {
            let both = _mm512_add_epi32(self.whole(line), addends);
            _mm512_mul_epu32(both, _mm512_srli_epi64::<32>(both))
        }
    }

    /// The terms of two lines, with neighbours added up. The two lines' terms alternate.
    #[inline(always)]
    fn terms_of_two(self, lines: [&[u8; 64]; 2], addends: __m512i) -> __m512i {
        let (a, b) = (self.terms(lines[0], addends), self.terms(lines[1], addends));
        // SAFETY: a `self` exists only if the processor has AVX-512.
        unsafe { _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)) }
    }

    /// Adds up the quarters of two registers: the even ones and the odd ones.
    #[inline(always)]
    fn add_quarters(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: a `self` exists only if the processor has AVX-512.
        unsafe { _mm512_add_epi64(_mm512_shuffle_i64x2::<0x88>(a, b), _mm512_shuffle_i64x2::<0xdd>(a, b)) }
    }
}

impl VectorOps for Avx512 {
    const SHUFFLES: bool = true;

    #[inline(always)]
    fn isa(self) -> Isa {
        Isa(Set::Avx512)
    }

    #[inline(always)]
    fn masked_eq(self, key: &[u8; 64], mask: &[u64; 8], want: &[u64; 8]) -> bool {
        self.is_masked(key, mask, want)
    }

    #[inline(always)]
    fn masked_eq_bytes(self, key: &[u8; 64], mask: &[u8; 64], want: &[u8; 64]) -> bool {
        self.is_masked(key, mask, want)
    }

    #[inline(always)]
    fn signatures(self, signatures: &[u16; 16], wanted: u16) -> u16 {
        // SAFETY: a `self` exists only if the processor has AVX-512; the load reads the array's 32 bytes.
        unsafe {
            let have = _mm256_lddqu_si256(signatures.as_ptr().cast());
            _mm256_cmpeq_epi16_mask(have, _mm256_set1_epi16(wanted as i16))
        }
    }

    #[inline(always)]
    fn tags(self, tags: &[u32; 8], wanted: u32) -> u32 {
        // SAFETY: a `self` exists only if the processor has AVX-512; the load reads the array's 32 bytes.
        unsafe {
            let have = _mm256_lddqu_si256(tags.as_ptr().cast());
            u32::from(_mm256_cmpeq_epi32_mask(have, _mm256_set1_epi32(wanted as i32)))
        }
    }

    #[inline(always)]
    fn sums(self, addends: &[u64; 8], lines: [&[u8; 64]; TOGETHER]) -> [u64; TOGETHER] {
        let [a, b, c, d, e, f, g, h] = lines;
        let addends = self.whole(addends);
        // Adds across eight registers in three steps: neighbouring words, quarters, halves.
        let first = self.add_quarters(self.terms_of_two([a, b], addends), self.terms_of_two([c, d], addends));
        let second = self.add_quarters(self.terms_of_two([e, f], addends), self.terms_of_two([g, h], addends));
        let mut sums = [0; TOGETHER];
        // SAFETY: a `self` exists only if the processor has AVX-512; the store writes the 64 bytes of `sums`.
        unsafe { _mm512_storeu_si512(sums.as_mut_ptr().cast(), self.add_quarters(first, second)) };
        sums
    }

    #[inline(always)]
    fn masked_sum(self, line: &[u8; 64], mask: &[u64; 8], addends: &[u64; 8]) -> u64 {
        // SAFETY: a `self` exists only if the processor has AVX-512.
        unsafe {
            let masked = _mm512_and_si512(self.whole(line), self.whole(mask));
            let both = _mm512_add_epi32(masked, self.whole(addends));
            _mm512_reduce_add_epi64(_mm512_mul_epu32(both, _mm512_srli_epi64::<32>(both))) as u64
        }
    }

    #[inline(always)]
    fn transpose(self, lines: [&[u8; 64]; TOGETHER], Columns(columns): &mut Columns) {
        // SAFETY: a `self` exists only if the processor has AVX-512; a column has 64 bytes.
        unsafe {
            // Words of neighbouring lines side by side: even places, odd places. Then quarters, twice.
            let mut pairs = [_mm512_setzero_si512(); 8];
            for i in 0..4 {
                let (even, odd) = (self.whole(lines[2 * i]), self.whole(lines[2 * i + 1]));
                pairs[i] = _mm512_unpacklo_epi64(even, odd);
                pairs[4 + i] = _mm512_unpackhi_epi64(even, odd);
            }
            for odd in 0..2 {
                let (ab, cd) = (pairs[4 * odd], pairs[4 * odd + 1]);
                let (ef, gh) = (pairs[4 * odd + 2], pairs[4 * odd + 3]);
                // Quarter q holds places 2q and 2q + 1; `low` has quarters 0 and 2, `high` 1 and 3.
                let (low, low2) = (_mm512_shuffle_i64x2::<0x88>(ab, cd), _mm512_shuffle_i64x2::<0x88>(ef, gh));
                let (high, high2) = (_mm512_shuffle_i64x2::<0xdd>(ab, cd), _mm512_shuffle_i64x2::<0xdd>(ef, gh));
                let by_quarter = [
                    _mm512_shuffle_i64x2::<0x88>(low, low2),
                    _mm512_shuffle_i64x2::<0x88>(high, high2),
                    _mm512_shuffle_i64x2::<0xdd>(low, low2),
                    _mm512_shuffle_i64x2::<0xdd>(high, high2),
                ];
                for quarter in 0..4 {
                    _mm512_storeu_si512(columns[2 * quarter + odd].as_mut_ptr().cast(), by_quarter[quarter]);
                }
            }
        }
    }

    #[inline(always)]
    fn masked_tags<const N: usize>(self, columns: &Columns, words: &[MaskedWord; N]) -> [u32; TOGETHER] {
        let mut tags = [0; TOGETHER];
        // SAFETY: a `self` exists only if the processor has AVX-512; the store writes the 32 bytes of `tags`.
        unsafe {
            let mut sum = _mm512_setzero_si512();
            for word in words {
                let masked =
                    _mm512_and_si512(self.whole(&columns.0[word.place % 8]), _mm512_set1_epi64(word.mask as i64));
                let both = _mm512_add_epi32(masked, _mm512_set1_epi64(word.addends as i64));
                sum = _mm512_add_epi64(sum, _mm512_mul_epu32(both, _mm512_srli_epi64::<32>(both)));
            }
            let folded = _mm512_xor_si512(sum, _mm512_srli_epi64::<32>(sum));
            // The high half of `hash::finish` is that of this product.
            let spread = _mm512_mullo_epi64(folded, _mm512_set1_epi64(SPREAD as i64));
            let high = _mm512_cvtepi64_epi32(_mm512_srli_epi64::<32>(spread));
            _mm256_storeu_si256(tags.as_mut_ptr().cast(), _mm256_max_epu32(high, _mm256_set1_epi32(1)));
        }
        tags
    }

    #[inline(always)]
    fn permute<P: Permutation>(self, from: &[u8; SOURCE], keep: &[u64; 8], base: &[u64; 8], to: &mut [u8; 64]) {
        // SAFETY: a `self` exists only if the processor has AVX-512 with VBMI. The masked load reads only the source's
        // bytes; the rest is zero. `NOWHERE` selects the last byte (only its low six bits count), which is zero. The
        // store writes the line's 64 bytes.
        unsafe {
            let bytes = _mm512_maskz_loadu_epi64((1 << (SOURCE / 8)) - 1, from.as_ptr().cast());
            let drawn = _mm512_permutexvar_epi8(self.whole(&P::FROM), bytes);
            // (drawn & keep) | base
            let line = _mm512_ternarylogic_epi64::<0xea>(drawn, self.whole(keep), self.whole(base));
            _mm512_storeu_si512(to.as_mut_ptr().cast(), line);
        }
    }
}

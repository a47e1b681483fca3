//! AVX2: half a line in a register.

use super::{NOWHERE, Permutation, SOURCE, TOGETHER, VectorOps};
use crate::isa::{Isa, Set};
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// The vector operations of AVX2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The processor has AVX2, BMI1, BMI2 and LZCNT.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Avx2(())
    }

    /// Half 0 or 1 of a line, or of its words.
    #[inline(always)]
    fn half<T>(self, line: &[T], at: usize) -> __m256i {
        assert!(size_of_val(line) == 64 && at < 2);
        // SAFETY: a `self` exists only if the processor has AVX2. The unaligned load reads 32 of the 64 bytes that were
        // asserted.
        unsafe { _mm256_loadu_si256(line.as_ptr().cast::<__m256i>().add(at)) }
    }

    /// The terms of half a line's sum.
    #[inline(always)]
    fn terms(self, line: &[u8; 64], addends: &[u64; 8], at: usize) -> __m256i {
        // SAFETY: a `self` exists only if the processor has AVX2.
        unsafe {
            let both = _mm256_add_epi32(self.half(line, at), self.half(addends, at));
            _mm256_mul_epu32(both, _mm256_srli_epi64::<32>(both))
        }
    }

    /// The terms of two lines, with halves and neighbours added up. The two lines' terms alternate.
    #[inline(always)]
    fn terms_of_two(self, lines: [&[u8; 64]; 2], addends: &[u64; 8]) -> __m256i {
        // SAFETY: a `self` exists only if the processor has AVX2.
        unsafe {
            let a = _mm256_add_epi64(self.terms(lines[0], addends, 0), self.terms(lines[0], addends, 1));
            let b = _mm256_add_epi64(self.terms(lines[1], addends, 0), self.terms(lines[1], addends, 1));
            _mm256_add_epi64(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b))
        }
    }

    /// Four lines' sums.
    #[inline(always)]
    fn sums_of_four(self, addends: &[u64; 8], lines: [&[u8; 64]; 4]) -> __m256i {
        let [a, b, c, d] = lines;
        let (ab, cd) = (self.terms_of_two([a, b], addends), self.terms_of_two([c, d], addends));
        // SAFETY: a `self` exists only if the processor has AVX2.
        unsafe {
            _mm256_add_epi64(_mm256_permute2x128_si256::<0x20>(ab, cd), _mm256_permute2x128_si256::<0x31>(ab, cd))
        }
    }
}

/// The shuffles of a permutation, for each half of the line and each third of the source.
struct Shuffles<P>(PhantomData<P>);

impl<P: Permutation> Shuffles<P> {
    const BY_HALF: [[[u8; 32]; SOURCE / 16]; 2] = {
        // A byte with its high bit set is shuffled to zero.
        let mut shuffles = [[[0x80; 32]; SOURCE / 16]; 2];
        let mut i = 0;
        while i < 64 {
            let from = P::FROM[i];
            if from != NOWHERE {
                shuffles[i / 32][from as usize / 16][i % 32] = from % 16;
            }
            i += 1;
        }
        shuffles
    };

    /// Whether a half takes any byte from a third.
    const fn draws(half: usize, third: usize) -> bool {
        let (shuffle, mut i) = (&Self::BY_HALF[half][third], 0);
        while i < 32 {
            if shuffle[i] != 0x80 {
                return true;
            }
            i += 1;
        }
        false
    }

    const DRAWS: [[bool; SOURCE / 16]; 2] = [
        [Self::draws(0, 0), Self::draws(0, 1), Self::draws(0, 2)],
        [Self::draws(1, 0), Self::draws(1, 1), Self::draws(1, 2)],
    ];
}

impl VectorOps for Avx2 {
    const SHUFFLES: bool = true;

    #[inline(always)]
    fn isa(self) -> Isa {
        Isa(Set::Avx2)
    }

    #[inline(always)]
    fn masked_eq(self, key: &[u8; 64], mask: &[u64; 8], want: &[u64; 8]) -> bool {
        // SAFETY: a `self` exists only if the processor has AVX2.
        unsafe {
            let low = _mm256_xor_si256(_mm256_and_si256(self.half(key, 0), self.half(mask, 0)), self.half(want, 0));
            let high = _mm256_xor_si256(_mm256_and_si256(self.half(key, 1), self.half(mask, 1)), self.half(want, 1));
            let differ = _mm256_or_si256(low, high);
            _mm256_testz_si256(differ, differ) != 0
        }
    }

    #[inline(always)]
    fn signatures(self, signatures: &[u16; 16], wanted: u16) -> u16 {
        // SAFETY: a `self` exists only if the processor has AVX2; the load reads the array's 32 bytes.
        unsafe {
            let have = _mm256_loadu_si256(signatures.as_ptr().cast());
            let equal = _mm256_cmpeq_epi16(have, _mm256_set1_epi16(wanted as i16));
            // All ones or zeros survive the saturating pack, in order.
            let bytes = _mm_packs_epi16(_mm256_castsi256_si128(equal), _mm256_extracti128_si256::<1>(equal));
            _mm_movemask_epi8(bytes) as u16
        }
    }

    #[inline(always)]
    fn tags(self, tags: &[u32; 8], wanted: u32) -> u32 {
        // SAFETY: a `self` exists only if the processor has AVX2; the load reads the array's 32 bytes.
        unsafe {
            let have = _mm256_loadu_si256(tags.as_ptr().cast());
            let equal = _mm256_cmpeq_epi32(have, _mm256_set1_epi32(wanted as i32));
            _mm256_movemask_ps(_mm256_castsi256_ps(equal)) as u32
        }
    }

    #[inline(always)]
    fn sums(self, addends: &[u64; 8], lines: [&[u8; 64]; TOGETHER]) -> [u64; TOGETHER] {
        let [a, b, c, d, e, f, g, h] = lines;
        let mut sums = [0; TOGETHER];
        // SAFETY: a `self` exists only if the processor has AVX2; both stores lie in the 64 bytes of `sums`.
        unsafe {
            let at = sums.as_mut_ptr().cast::<__m256i>();
            _mm256_storeu_si256(at, self.sums_of_four(addends, [a, b, c, d]));
            _mm256_storeu_si256(at.add(1), self.sums_of_four(addends, [e, f, g, h]));
        }
        sums
    }

    #[inline(always)]
    fn permute<P: Permutation>(self, from: &[u8; SOURCE], keep: &[u64; 8], base: &[u64; 8], to: &mut [u8; 64]) {
        for at in 0..2 {
            // SAFETY: a `self` exists only if the processor has AVX2. A third of the source is 16
            // bytes, half of the line is 32.
            unsafe {
                let mut drawn = _mm256_setzero_si256();
                for third in 0..SOURCE / 16 {
                    if Shuffles::<P>::DRAWS[at][third] {
                        let shuffle = _mm256_loadu_si256(Shuffles::<P>::BY_HALF[at][third].as_ptr().cast());
                        let bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128(from.as_ptr().add(16 * third).cast()));
                        drawn = _mm256_or_si256(drawn, _mm256_shuffle_epi8(bytes, shuffle));
                    }
                }
                let line = _mm256_or_si256(_mm256_and_si256(drawn, self.half(keep, at)), self.half(base, at));
                _mm256_storeu_si256(to.as_mut_ptr().cast::<__m256i>().add(at), line);
            }
        }
    }
}

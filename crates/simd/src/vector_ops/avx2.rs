//! AVX2: half a line in a register.
//!
//! A compiler that does not know the processor takes a load of 32 bytes without alignment (`loadu`) apart: two loads of 16
//! bytes and an insertion, as suits the first processors with AVX, which had no AVX2. `lddqu` is the same load and stays
//! one instruction, also where it would better be a constant. There is no such store: what is read again soon is aligned.

use super::{Columns, NOWHERE, Permutation, SOURCE, TOGETHER, VectorOps};
use crate::hash::{MaskedWord, SPREAD};
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
        unsafe { _mm256_lddqu_si256(line.as_ptr().cast::<__m256i>().add(at)) }
    }

    /// Whether `key & mask == want`, of lines or their words.
    #[inline(always)]
    fn is_masked<T>(self, key: &[u8; 64], mask: &[T], want: &[T]) -> bool {
        // SAFETY: a `self` exists only if the processor has AVX2.
        unsafe {
            let low = _mm256_xor_si256(_mm256_and_si256(self.half(key, 0), self.half(mask, 0)), self.half(want, 0));
            let high = _mm256_xor_si256(_mm256_and_si256(self.half(key, 1), self.half(mask, 1)), self.half(want, 1));
            let differ = _mm256_or_si256(low, high);
            _mm256_testz_si256(differ, differ) != 0
        }
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

impl Avx2 {
    /// Four lines' words at four places: `[place]`, a register of the four lines.
    #[inline(always)]
    fn transpose_four(self, lines: [&[u8; 64]; 4], at: usize) -> [__m256i; 4] {
        let [a, b, c, d] = lines;
        let (a, b, c, d) = (self.half(a, at), self.half(b, at), self.half(c, at), self.half(d, at));
        // SAFETY: a `self` exists only if the processor has AVX2.
        unsafe {
            let (ab_even, ab_odd) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
            let (cd_even, cd_odd) = (_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d));
            [
                _mm256_permute2x128_si256::<0x20>(ab_even, cd_even),
                _mm256_permute2x128_si256::<0x20>(ab_odd, cd_odd),
                _mm256_permute2x128_si256::<0x31>(ab_even, cd_even),
                _mm256_permute2x128_si256::<0x31>(ab_odd, cd_odd),
            ]
        }
    }

    /// The tags of four lines, each in the high half of its lane.
    #[inline(always)]
    fn masked_tags_of_four<const N: usize>(self, columns: &Columns, words: &[MaskedWord; N], at: usize) -> __m256i {
        // SAFETY: a `self` exists only if the processor has AVX2.
        unsafe {
            let mut sum = _mm256_setzero_si256();
            for word in words {
                let masked =
                    _mm256_and_si256(self.half(&columns.0[word.place % 8], at), _mm256_set1_epi64x(word.mask as i64));
                let both = _mm256_add_epi32(masked, _mm256_set1_epi64x(word.addends as i64));
                sum = _mm256_add_epi64(sum, _mm256_mul_epu32(both, _mm256_srli_epi64::<32>(both)));
            }
            // `hash::finish`, of which the high half is wanted: that of the product of 64 bits.
            let folded = _mm256_xor_si256(sum, _mm256_srli_epi64::<32>(sum));
            let low = _mm256_mul_epu32(folded, _mm256_set1_epi64x((SPREAD & 0xffff_ffff) as i64));
            let cross = _mm256_mullo_epi32(folded, _mm256_set1_epi64x(SPREAD.rotate_left(32) as i64));
            _mm256_add_epi32(_mm256_add_epi32(low, cross), _mm256_slli_epi64::<32>(cross))
        }
    }
}

/// A permutation as shuffles. A shuffle moves bytes within a lane of 16, so each lane of the result is drawn from windows
/// of 16 bytes of the source, which begin where its first missing byte comes from.
struct Shuffles<P>(PhantomData<P>);

/// One shuffle of half a line: where each lane's window begins, and what each byte takes from it.
#[derive(Clone, Copy)]
struct Shuffle {
    windows: [usize; 2],
    bytes: [u8; 32],
    /// Whether any byte comes from it.
    is_used: bool,
}

/// Shuffles of half a line: windows of 16 bytes that cover the source.
const ROUNDS: usize = SOURCE / 16;

impl<P: Permutation> Shuffles<P> {
    const BY_HALF: [[Shuffle; ROUNDS]; 2] = [Self::of_half(0), Self::of_half(1)];

    const fn of_half(half: usize) -> [Shuffle; ROUNDS] {
        // A byte with its high bit set is shuffled to zero.
        let mut shuffles = [Shuffle { windows: [0; 2], bytes: [0x80; 32], is_used: false }; ROUNDS];
        let mut is_drawn = [false; 32];
        let mut round = 0;
        while round < ROUNDS {
            let mut lane = 0;
            while lane < 2 {
                let window = Self::first_missing(half, lane, &is_drawn);
                if window < SOURCE {
                    let window = if window > SOURCE - 16 { SOURCE - 16 } else { window };
                    shuffles[round].windows[lane] = window;
                    let mut i = 16 * lane;
                    while i < 16 * lane + 16 {
                        let from = P::FROM[32 * half + i] as usize;
                        if !is_drawn[i] && window <= from && from < window + 16 {
                            shuffles[round].bytes[i] = (from - window) as u8;
                            shuffles[round].is_used = true;
                            is_drawn[i] = true;
                        }
                        i += 1;
                    }
                }
                lane += 1;
            }
            round += 1;
        }
        shuffles
    }

    /// The first place of the source from which a byte of the lane is still to be drawn; beyond the source if none is.
    const fn first_missing(half: usize, lane: usize, is_drawn: &[bool; 32]) -> usize {
        let (mut first, mut i) = (NOWHERE as usize, 16 * lane);
        while i < 16 * lane + 16 {
            let from = P::FROM[32 * half + i];
            if from != NOWHERE && !is_drawn[i] && (from as usize) < first {
                first = from as usize;
            }
            i += 1;
        }
        first
    }
}

impl VectorOps for Avx2 {
    const SHUFFLES: bool = true;

    #[inline(always)]
    fn isa(self) -> Isa {
        Isa(Set::Avx2)
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
        // SAFETY: a `self` exists only if the processor has AVX2; the load reads the array's 32 bytes.
        unsafe {
            let have = _mm256_lddqu_si256(signatures.as_ptr().cast());
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
            let have = _mm256_lddqu_si256(tags.as_ptr().cast());
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
    fn masked_sum(self, line: &[u8; 64], mask: &[u64; 8], addends: &[u64; 8]) -> u64 {
        // SAFETY: a `self` exists only if the processor has AVX2.
        unsafe {
            let mut sum = _mm256_setzero_si256();
            for at in 0..2 {
                let masked = _mm256_and_si256(self.half(line, at), self.half(mask, at));
                let both = _mm256_add_epi32(masked, self.half(addends, at));
                sum = _mm256_add_epi64(sum, _mm256_mul_epu32(both, _mm256_srli_epi64::<32>(both)));
            }
            let sum = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
            _mm_cvtsi128_si64(_mm_add_epi64(sum, _mm_unpackhi_epi64(sum, sum))) as u64
        }
    }

    #[inline(always)]
    fn transpose(self, lines: [&[u8; 64]; TOGETHER], Columns(columns): &mut Columns) {
        let [a, b, c, d, e, f, g, h] = lines;
        for at in 0..2 {
            let first = self.transpose_four([a, b, c, d], at);
            let second = self.transpose_four([e, f, g, h], at);
            for i in 0..4 {
                let to = columns[4 * at + i].as_mut_ptr().cast::<__m256i>();
                // SAFETY: a `self` exists only if the processor has AVX2; a column has 64 bytes, and they are aligned to 64.
                unsafe {
                    _mm256_store_si256(to, first[i]);
                    _mm256_store_si256(to.add(1), second[i]);
                }
            }
        }
    }

    #[inline(always)]
    fn masked_tags<const N: usize>(self, columns: &Columns, words: &[MaskedWord; N]) -> [u32; TOGETHER] {
        let first = self.masked_tags_of_four(columns, words, 0);
        let second = self.masked_tags_of_four(columns, words, 1);
        let mut tags = [0; TOGETHER];
        // SAFETY: a `self` exists only if the processor has AVX2; the store writes the 32 bytes of `tags`.
        unsafe {
            // The high halves of both, lanes 0, 1, 4, 5, 2, 3, 6, 7; then in order.
            let high = _mm256_shuffle_ps::<0xdd>(_mm256_castsi256_ps(first), _mm256_castsi256_ps(second));
            let ordered = _mm256_permute4x64_epi64::<0xd8>(_mm256_castps_si256(high));
            _mm256_storeu_si256(tags.as_mut_ptr().cast(), _mm256_max_epu32(ordered, _mm256_set1_epi32(1)));
        }
        tags
    }

    #[inline(always)]
    fn permute<P: Permutation>(self, from: &[u8; SOURCE], keep: &[u64; 8], base: &[u64; 8], to: &mut [u8; 64]) {
        for at in 0..2 {
            // SAFETY: a `self` exists only if the processor has AVX2. A window is 16 of the source's bytes, half of the
            // line is 32.
            unsafe {
                let mut drawn = _mm256_setzero_si256();
                for round in 0..ROUNDS {
                    let shuffle = const { &Shuffles::<P>::BY_HALF }[at][round];
                    if shuffle.is_used {
                        let low = _mm_loadu_si128(from.as_ptr().add(shuffle.windows[0]).cast());
                        let high = _mm_loadu_si128(from.as_ptr().add(shuffle.windows[1]).cast());
                        let by = _mm256_loadu_si256(shuffle.bytes.as_ptr().cast());
                        drawn = _mm256_or_si256(drawn, _mm256_shuffle_epi8(_mm256_set_m128i(high, low), by));
                    }
                }
                let line = _mm256_or_si256(_mm256_and_si256(drawn, self.half(keep, at)), self.half(base, at));
                _mm256_storeu_si256(to.as_mut_ptr().cast::<__m256i>().add(at), line);
            }
        }
    }
}

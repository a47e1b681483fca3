//! Plain code, which is the specification. On x86-64, signatures and tags use SSE2, which every processor has.

use super::{Columns, NOWHERE, Permutation, SOURCE, TOGETHER, VectorOps};
use crate::hash::MaskedWord;
use crate::isa::Isa;
use crate::{compare, hash, lanes, signature};

/// The vector operations for the instruction set that the whole program is built for.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

impl VectorOps for Scalar {
    const SHUFFLES: bool = false;

    #[inline(always)]
    fn isa(self) -> Isa {
        Isa::SCALAR
    }

    #[inline(always)]
    fn masked_eq(self, key: &[u8; 64], mask: &[u64; 8], want: &[u64; 8]) -> bool {
        compare::masked_eq(&compare::words(key), mask, want)
    }

    #[inline(always)]
    fn masked_eq_bytes(self, key: &[u8; 64], mask: &[u8; 64], want: &[u8; 64]) -> bool {
        self.masked_eq(key, &compare::words(mask), &compare::words(want))
    }

    #[inline(always)]
    fn signatures(self, signatures: &[u16; 16], wanted: u16) -> u16 {
        signature::matching(signatures, wanted)
    }

    #[inline(always)]
    fn tags(self, tags: &[u32; 8], wanted: u32) -> u32 {
        lanes::matching(tags, wanted)
    }

    #[inline(always)]
    fn sums(self, addends: &[u64; 8], lines: [&[u8; 64]; TOGETHER]) -> [u64; TOGETHER] {
        lines.map(|line| {
            let words = compare::words(line);
            (0..8).fold(0, |sum: u64, i| sum.wrapping_add(hash::product(words[i], addends[i])))
        })
    }

    #[inline(always)]
    fn masked_sum(self, line: &[u8; 64], mask: &[u64; 8], addends: &[u64; 8]) -> u64 {
        let words = compare::words(line);
        (0..8).fold(0, |sum: u64, i| sum.wrapping_add(hash::product(words[i] & mask[i], addends[i])))
    }

    #[inline(always)]
    fn transpose(self, lines: [&[u8; 64]; TOGETHER], Columns(columns): &mut Columns) {
        for (i, line) in lines.into_iter().enumerate() {
            let words = compare::words(line);
            for place in 0..8 {
                columns[place][i] = words[place];
            }
        }
    }

    #[inline(always)]
    fn masked_tags<const N: usize>(self, columns: &Columns, words: &[MaskedWord; N]) -> [u32; TOGETHER] {
        std::array::from_fn(|i| {
            let sum = words.iter().fold(0, |sum: u64, word| word.add_to(sum, columns.0[word.place % 8][i]));
            hash::tag(sum)
        })
    }

    #[inline(always)]
    fn permute<P: Permutation>(self, from: &[u8; SOURCE], keep: &[u64; 8], base: &[u64; 8], to: &mut [u8; 64]) {
        for (i, to) in to.iter_mut().enumerate() {
            let (keep, base) = (keep[i / 8].to_le_bytes()[i % 8], base[i / 8].to_le_bytes()[i % 8]);
            let byte = if P::FROM[i] == NOWHERE { 0 } else { from[usize::from(P::FROM[i])] };
            *to = byte & keep | base;
        }
    }
}

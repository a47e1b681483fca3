//! The vector operations that kernels use, by instruction set.
//!
//! [`Isa::run`] passes a [`Kernel`](crate::isa::Kernel) the operations of its instruction set and compiles the kernel
//! for that set, so the operations are inlined and keep their operands in registers. Each instruction set has a file;
//! [`Scalar`] is the specification.

use crate::hash::MaskedWord;
use crate::isa::Isa;

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
mod scalar;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub use scalar::Scalar;

/// Lines that are hashed together.
pub const TOGETHER: usize = 8;

/// The words of eight lines by place: `[place][line]`. So one vector holds the same word of several lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
pub struct Columns(pub [[u64; TOGETHER]; 8]);

/// Bytes that a permutation reads: Ethernet, IPv4 and L4 up to TCP's flags, and two bytes that are always zero.
pub const SOURCE: usize = 48;

/// The vector operations of one instruction set. A value exists only where the processor has that instruction set.
///
/// Use them in functions that are `#[inline(always)]` all the way up to `Kernel::run`, and not in closures: elsewhere
/// each instruction becomes a function call.
pub trait VectorOps: Copy {
    /// Whether [`VectorOps::permute`] is fast. Without shuffles it works byte by byte.
    const SHUFFLES: bool;

    /// The instruction set, for operations that take a whole batch.
    fn isa(self) -> Isa;

    /// Whether `key & mask == want`, where `key` is a line's bytes and the others are its little-endian words.
    fn masked_eq(self, key: &[u8; 64], mask: &[u64; 8], want: &[u64; 8]) -> bool;

    /// The same of lines that are all bytes.
    fn masked_eq_bytes(self, key: &[u8; 64], mask: &[u8; 64], want: &[u8; 64]) -> bool;

    /// Bit `i` is set where `signatures[i]` is `wanted`.
    fn signatures(self, signatures: &[u16; 16], wanted: u16) -> u16;

    /// Bit `i` is set where `tags[i]` is `wanted`.
    fn tags(self, tags: &[u32; 8], wanted: u32) -> u32;

    /// The sums that [`HashKey::line`](crate::HashKey::line) computes for these lines, with these addends.
    fn sums(self, addends: &[u64; 8], lines: [&[u8; 64]; TOGETHER]) -> [u64; TOGETHER];

    /// The sum ([`hash::product`](crate::hash::product)) over the words of one line under a mask. A word whose mask and
    /// addends are zero adds nothing.
    fn masked_sum(self, line: &[u8; 64], mask: &[u64; 8], addends: &[u64; 8]) -> u64;

    /// Writes the words of eight lines by place.
    fn transpose(self, lines: [&[u8; 64]; TOGETHER], columns: &mut Columns);

    /// The tag ([`hash::tag`](crate::hash::tag)) of each line over these words.
    fn masked_tags<const N: usize>(self, columns: &Columns, words: &[MaskedWord; N]) -> [u32; TOGETHER];

    /// Writes a line: byte `i` is `from[P::FROM[i]]`, masked by `keep`, with the bits of `base` added.
    fn permute<P: Permutation>(self, from: &[u8; SOURCE], keep: &[u64; 8], base: &[u64; 8], to: &mut [u8; 64]);
}

/// Where each byte of a line comes from. A type rather than a value, so that shuffles are constants.
pub trait Permutation {
    /// For each byte of the line, its index in the source, or [`NOWHERE`].
    const FROM: [u8; 64];
}

/// The index of a byte that is zero.
pub const NOWHERE: u8 = 0xff;

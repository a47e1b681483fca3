//! The vector operations that work inside a batch's loop, by instruction set.
//!
//! [`Isa::run`] hands [`Kernel`](crate::isa::Kernel) the vector operations of its instruction set and compiles it for that, so they are
//! inlined and keep what they need in registers. One file an instruction set; [`Scalar`] is the specification.

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

/// Bytes that a permutation draws from: Ethernet, IPv4 and L4 up to TCP's flags, with two bytes to spare for none.
pub const SOURCE: usize = 48;

/// The vector operations of one instruction set. Having a value says that the processor has it.
///
/// Use them in code that says `#[inline(always)]` all the way up to `Kernel::run`, and in no closure: elsewhere each
/// instruction would be a function call.
pub trait VectorOps: Copy {
    /// Whether [`VectorOps::permute`] is worth calling: without shuffles it is a byte at a time.
    const SHUFFLES: bool;

    /// The instruction set, for kernels that take a batch.
    fn isa(self) -> Isa;

    /// Whether `key & mask == want`, where `key` is a line's bytes and the others are its little-endian words.
    fn masked_eq(self, key: &[u8; 64], mask: &[u64; 8], want: &[u64; 8]) -> bool;

    /// Bit `i` is set where `signatures[i]` is `wanted`.
    fn signatures(self, signatures: &[u16; 16], wanted: u16) -> u16;

    /// Bit `i` is set where `tags[i]` is `wanted`.
    fn tags(self, tags: &[u32; 8], wanted: u32) -> u32;

    /// The sum that [`HashKey::line`](crate::HashKey::line) gives for each of the lines, with these addends.
    fn sums(self, addends: &[u64; 8], lines: [&[u8; 64]; TOGETHER]) -> [u64; TOGETHER];

    /// Writes the line whose byte `i` is `from[P::FROM[i]]` where `keep` has ones, with the ones of `base` added.
    fn permute<P: Permutation>(self, from: &[u8; SOURCE], keep: &[u64; 8], base: &[u64; 8], to: &mut [u8; 64]);
}

/// Where each byte of a line comes from. A type, so that shuffles are constants.
pub trait Permutation {
    /// By byte of the line: its place in the source, or [`NOWHERE`].
    const FROM: [u8; 64];
}

/// A byte of a permuted line that is zero.
pub const NOWHERE: u8 = 0xff;

//! One cache line of a hash index: eight tags and eight ids.

use sluice_simd::VectorOps;
use sluice_simd::lanes::{self, LANES};
use zerocopy::FromZeros;

/// Eight slots. Tag 0 marks an empty slot.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C, align(64))]
pub(crate) struct Bucket {
    pub tags: [u32; LANES],
    pub ids: [u32; LANES],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    pub const EMPTY: Bucket = Bucket { tags: [0; LANES], ids: [0; LANES] };

    /// Bit `i` is set if slot `i` has that tag.
    #[inline(always)]
    pub fn matching(&self, tag: u32) -> u32 {
        lanes::matching(&self.tags, tag)
    }

    /// [`Bucket::matching`] inside a lookup.
    #[inline(always)]
    pub fn matching_with<V: VectorOps>(&self, ops: V, tag: u32) -> u32 {
        ops.tags(&self.tags, tag)
    }
}

/// A tag from 32 bits of a hash, never the empty slot's 0.
#[inline(always)]
pub(crate) fn tag(bits: u32) -> u32 {
    bits.max(1)
}

/// The slots named by a bit set.
#[inline(always)]
pub(crate) fn slots(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (slot < LANES).then_some(slot)
    })
}

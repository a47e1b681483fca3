//! The index that is asked first about packets just received.
//!
//! With many flows its line comes from memory, which takes longer than reading the headers of a whole batch. So the lines
//! of the first packets' keys are fetched while the headers of the others are read. With few flows that would gain nothing:
//! 20 instructions a packet, and no cycle fewer with 100 or 10,000 flows (2026-11-27).

use crate::compose::Composer;
use crate::lookup::Levels;
use sluice_flow::PacketKey;
use sluice_simd::VectorOps;
use sluice_simd::vector_ops::TOGETHER;

/// What is asked first.
#[derive(Clone, Copy)]
pub(crate) enum FirstIndex<'a> {
    /// The composed entries.
    Paths(&'a Composer),
    /// A cache of the levels.
    Cache(&'a Levels),
    /// Nothing that comes from far.
    None,
}

/// What a batch's hashes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hashed {
    /// Those of packets that have gone.
    Nothing,
    /// Of addresses and ports, as the composed entries want them.
    Endpoints,
    /// Of whole keys, as the levels of the lookup want them.
    Keys,
}

impl<'a> FirstIndex<'a> {
    #[inline]
    pub fn of(composer: &'a Composer, levels: &'a Levels) -> Self {
        if composer.is_asked_first() {
            if composer.is_far() { FirstIndex::Paths(composer) } else { FirstIndex::None }
        } else if levels.is_far() && !composer.knows_pops() {
            FirstIndex::Cache(levels)
        } else {
            FirstIndex::None
        }
    }

    /// What it makes of a batch's hashes.
    pub fn hashed(self) -> Hashed {
        match self {
            FirstIndex::Paths(_) => Hashed::Endpoints,
            FirstIndex::Cache(_) => Hashed::Keys,
            FirstIndex::None => Hashed::Nothing,
        }
    }

    /// Hashes the first `n` of some keys, and fetches the lines that they will be looked up in.
    #[inline(always)]
    pub fn prefetch<V: VectorOps>(self, ops: V, keys: &[PacketKey; TOGETHER], n: usize, hashes: &mut [u64; TOGETHER]) {
        match self {
            FirstIndex::Paths(composer) => composer.prefetch(&keys[..n], hashes),
            FirstIndex::Cache(levels) => levels.prefetch(ops, keys, n, hashes),
            FirstIndex::None => {}
        }
    }
}

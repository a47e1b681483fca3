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
    /// Nothing: it is in the second-level cache, whose latency the processor hides by itself.
    Near,
}

/// What the hashes of a batch are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HashKind {
    /// Of other packets.
    Stale,
    /// Of addresses and ports, as the composed entries want them.
    Endpoints,
    /// Of whole keys, as the levels of the lookup want them.
    Keys,
}

impl<'a> FirstIndex<'a> {
    #[inline]
    pub fn of(composer: &'a Composer, levels: &'a Levels) -> Self {
        if composer.is_asked_first() {
            if composer.exceeds_l2() { FirstIndex::Paths(composer) } else { FirstIndex::Near }
        } else if levels.exceeds_l2() && !composer.knows_pops() {
            FirstIndex::Cache(levels)
        } else {
            FirstIndex::Near
        }
    }

    /// The kind of hashes that [`FirstIndex::hash_and_prefetch`] writes.
    pub fn hash_kind(self) -> HashKind {
        match self {
            FirstIndex::Paths(_) => HashKind::Endpoints,
            FirstIndex::Cache(_) => HashKind::Keys,
            FirstIndex::Near => HashKind::Stale,
        }
    }

    /// Hashes the first `n` of some keys, and fetches the lines that they will be looked up in.
    #[inline(always)]
    pub fn hash_and_prefetch<V: VectorOps>(
        self,
        ops: V,
        keys: &[PacketKey; TOGETHER],
        n: usize,
        hashes: &mut [u64; TOGETHER],
    ) {
        match self {
            FirstIndex::Paths(composer) => composer.hash_and_prefetch(&keys[..n], hashes),
            FirstIndex::Cache(levels) => levels.hash_and_prefetch(ops, keys, n, hashes),
            FirstIndex::Near => {}
        }
    }
}

//! What all levels of the lookup share: the batch and its hits.

use crate::{FlowCounters, Megaflow};
use sluice_flow::PacketKey;
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::{Isa, VectorOps};
use sluice_sync::Slots;

/// A batch in one pass through the lookup.
#[derive(Clone, Copy)]
pub struct LookupBatch<'a, 'g> {
    /// The packets' keys, by arrival.
    pub keys: &'a [PacketKey; BATCH_MAX],
    /// Their hashes ([`crate::key_hashes`]).
    pub hashes: &'a [u64; BATCH_MAX],
    /// The records, read under the guard of this pass.
    pub flows: Slots<'g, Megaflow>,
    /// The counters that count hits.
    pub counters: &'a FlowCounters,
    /// The vector instructions to use.
    pub isa: Isa,
    /// The lines that the first cache reads are on their way.
    pub is_prefetched: bool,
}

impl<'a, 'g> LookupBatch<'a, 'g> {
    /// A batch of which nothing is prefetched yet.
    #[inline(always)]
    pub fn new(
        keys: &'a [PacketKey; BATCH_MAX],
        hashes: &'a [u64; BATCH_MAX],
        flows: Slots<'g, Megaflow>,
        counters: &'a FlowCounters,
        isa: Isa,
    ) -> Self {
        LookupBatch { keys, hashes, flows, counters, isa, is_prefetched: false }
    }
}

/// The megaflows found, in arrival order.
pub type Hits<'g> = [Option<&'g Megaflow>; BATCH_MAX];

/// A cache in front of the subtables.
pub trait LookupStage {
    /// For each packet in `miss`, looks up its key; on a hit writes `hits`. Returns the packets still missing.
    ///
    /// A hit is verified: the key under the megaflow's mask equals the megaflow's key. The result is a subset of
    /// `miss`; `hits` is written only where this stage hit.
    fn lookup<'g, V: VectorOps>(
        &mut self,
        ops: V,
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
    ) -> BatchMask;
}

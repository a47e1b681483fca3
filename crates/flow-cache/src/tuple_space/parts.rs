//! The search of subtables taken apart, for measurements: what of it is hashing, probing and comparing.
//!
//! The parts of a search cannot be timed inside it: reading the clock three times for each subtable costs as much as
//! a third of the search, and a sampling profiler sees one function, because all of it is inlined. So the search is run
//! once and recorded: which subtables it asked about which packets. Then the same subtables are asked about the same
//! packets again, but only up to a part. The part's cost is the difference to the part before it.
//!
//! The first two parts run the code of the search itself (`Subtable::tags_of_batch`, `Subtable::may_hold`).

use super::TupleSpace;
use crate::subtable::{BatchColumns, Subtable};
use crate::{Hits, LookupBatch};
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::VectorOps;
use sluice_simd::isa::Kernel;
use std::hint::black_box;

/// Where a search that is repeated ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchPart {
    /// The keys are hashed under the masks.
    Hash,
    /// The buckets of the hashes are read, too. No record is compared.
    Probe,
}

/// Which subtables a search of a batch asked about which packets. One list for each (in_port, recirc_id).
#[derive(Clone, Debug, Default)]
pub struct SearchRecord(pub(crate) Vec<Vec<Asked>>);

/// A subtable's place, and the packets that it was asked about.
pub(crate) type Asked = (u32, BatchMask);

impl TupleSpace {
    /// Searches for the packets of `miss` in all subtables in turn, and records which ones were asked. Writes `hits` and
    /// returns the packets that still miss.
    pub fn search_and_record<'g>(
        &mut self,
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
    ) -> (BatchMask, Vec<Asked>) {
        let (subtables, ranking) = (&mut self.subtables, &self.ranking);
        batch.isa.run(Recorded { batch, hits, subtables, ranking, miss })
    }

    /// Asks the recorded subtables about the recorded packets again, up to a part.
    #[inline]
    pub fn repeat(
        &self,
        batch: &LookupBatch<'_, '_>,
        columns: &mut BatchColumns,
        miss: BatchMask,
        asked: &[Asked],
        part: SearchPart,
    ) {
        let subtables = &self.subtables;
        match part {
            SearchPart::Hash => batch.isa.run(Repeated::<false> { batch, columns, subtables, miss, asked }),
            SearchPart::Probe => batch.isa.run(Repeated::<true> { batch, columns, subtables, miss, asked }),
        }
    }
}

/// The plain search with a record of what it asks.
struct Recorded<'s, 'k, 'g> {
    batch: &'s LookupBatch<'k, 'g>,
    hits: &'s mut Hits<'g>,
    subtables: &'s mut [Option<Subtable>],
    ranking: &'s [u32],
    miss: BatchMask,
}

impl Kernel for Recorded<'_, '_, '_> {
    type Output = (BatchMask, Vec<Asked>);

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> Self::Output {
        let Recorded { batch, hits, subtables, ranking, mut miss } = self;
        let (mut columns, mut asked) = (BatchColumns::default(), Vec::new());
        columns.fill(ops, batch.keys, miss);
        for place in ranking {
            let Some(subtable) = &mut subtables[*place as usize] else { continue };
            if miss.is_empty() {
                break;
            }
            asked.push((*place, miss));
            miss = subtable.lookup(ops, &columns, batch, miss, hits);
        }
        (miss, asked)
    }
}

/// A recorded search up to the hash, or up to the bucket if `PROBES`.
struct Repeated<'s, 'k, 'g, const PROBES: bool> {
    batch: &'s LookupBatch<'k, 'g>,
    columns: &'s mut BatchColumns,
    subtables: &'s [Option<Subtable>],
    miss: BatchMask,
    asked: &'s [Asked],
}

impl<const PROBES: bool> Kernel for Repeated<'_, '_, '_, PROBES> {
    type Output = ();

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) {
        let Repeated { batch, columns, subtables, miss, asked } = self;
        columns.fill(ops, batch.keys, miss);
        for (place, miss) in asked {
            let Some(subtable) = &subtables[*place as usize] else { continue };
            let mut tags = [0; BATCH_MAX];
            subtable.tags_of_batch(ops, columns, batch, *miss, &mut tags);
            if PROBES {
                black_box(subtable.may_hold(ops, *miss, &tags));
            } else {
                black_box(&tags);
            }
        }
    }
}

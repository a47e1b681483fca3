//! The cuckoo distributor: from a key to the one subtable to ask, in front of the search.
//!
//! It keeps 16 bits of a flow's hash and the number of a subtable, four bytes in all, so a million flows take 4 MiB.
//! Its answer is a *hint*: that subtable is asked, and if it does not have the packet (a *wrong answer*: another flow's
//! signature, or a subtable that no longer exists) the search follows, and its result is recorded. So no entry needs to
//! be deleted, and a flow without an entry costs one cache line.
//!
//! It does not pay where a search asks little more than one subtable for a hit. Source: Y. Wang, "dpif-netdev: cuckoo
//! distributor" (2017), after B. Fan et al., "Cuckoo Filter", CoNEXT 2014.

mod own;
mod summary;

use crate::{Hits, LookupBatch, Megaflow, Subtables};
use own::OwnTable;
use sluice_flow::PacketKey;
use sluice_mem::ArrayMemory;
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::Isa;
use std::sync::Arc;
use summary::{HtTable, VbfTable};

/// The table in which the distributor keeps its hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DistributorTable {
    /// A table of its own: the key's hash, which is known anyway, selects a cache line, or a second one if that is
    /// full.
    Own,
    /// The membership library's HT in cache mode.
    Ht,
    /// The membership library's vBF: at most 64 subtables. Nothing can be deleted from it, so it is rebuilt.
    Vbf,
}

impl DistributorTable {
    /// All of them.
    pub const ALL: [DistributorTable; 3] = [DistributorTable::Own, DistributorTable::Ht, DistributorTable::Vbf];

    /// Its name, as in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            DistributorTable::Own => "own",
            DistributorTable::Ht => "ht",
            DistributorTable::Vbf => "vbf",
        }
    }

    /// The most subtables of one (in_port, recirc_id) that it can tell apart. Packets of further subtables never get a
    /// hint.
    pub fn max_subtables(self) -> usize {
        match self {
            DistributorTable::Own | DistributorTable::Ht => u16::MAX as usize,
            DistributorTable::Vbf => summary::VBF_SETS_MAX,
        }
    }
}

/// The outcomes of the distributor's lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DistributorAnswers {
    /// The subtable that it named had the packet.
    pub hits: u64,
    /// It named no subtable.
    pub misses: u64,
    /// The subtable that it named did not have the packet.
    pub wrong: u64,
}

/// One PMD's distributor.
///
/// Shape:  see [`DistributorTable`]. Hints of one (in_port, recirc_id) mean nothing for another, but the hash covers
///         both.
/// Errors: none; a full bucket overwrites.
/// Memory: none while it is off.
#[derive(Debug)]
pub struct Distributor {
    table: Option<HintTable>,
    entries: usize,
    /// The key of the summaries' hashes.
    seed: u64,
    answers: DistributorAnswers,
}

#[derive(Debug)]
enum HintTable {
    Own(OwnTable),
    Ht(HtTable),
    Vbf(VbfTable),
}

impl Distributor {
    /// A distributor that is off, for `entries` flows once it is on. `seed` is for the hash of the summaries.
    pub fn new(entries: usize, seed: u64) -> Self {
        Distributor { table: None, entries: entries.clamp(1, 1 << 28), seed, answers: Default::default() }
    }

    /// Turns it on with a table of that kind, empty unless it has that kind already; or off.
    pub fn set(&mut self, kind: Option<DistributorTable>) {
        if kind != self.kind() {
            self.table = kind.map(|kind| match kind {
                DistributorTable::Own => HintTable::Own(OwnTable::new(self.entries)),
                DistributorTable::Ht => HintTable::Ht(HtTable::new(self.entries, self.seed)),
                DistributorTable::Vbf => HintTable::Vbf(VbfTable::new(self.entries, self.seed)),
            });
        }
    }

    /// The memory of its own table; `None` for other kinds.
    pub fn memory(&self) -> Option<Arc<ArrayMemory>> {
        match self.table.as_ref()? {
            HintTable::Own(own) => own.lines.memory(),
            HintTable::Ht(_) | HintTable::Vbf(_) => None,
        }
    }

    /// The kind of its table, if it is on.
    pub fn kind(&self) -> Option<DistributorTable> {
        self.table.as_ref().map(|table| match table {
            HintTable::Own(_) => DistributorTable::Own,
            HintTable::Ht(_) => DistributorTable::Ht,
            HintTable::Vbf(_) => DistributorTable::Vbf,
        })
    }

    /// Whether it is on.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.table.is_some()
    }

    /// The outcomes since the last call.
    pub fn take_answers(&mut self) -> DistributorAnswers {
        std::mem::take(&mut self.answers)
    }

    /// Looks up each packet of `miss` in the subtable that its hint names. Writes `hits` and returns the packets that
    /// still miss. Hits are verified, as everywhere.
    pub fn lookup<'g>(
        &mut self,
        subtables: &mut Subtables,
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
    ) -> BatchMask {
        let Some(table) = &mut self.table else { return miss };
        let mut hints = [0; BATCH_MAX];
        let told = table.find(batch.isa, batch.hashes, miss, &mut hints, subtables.gone());
        let mut wrong = if told.is_empty() { told } else { subtables.lookup_at(&hints, batch, told, hits) };
        // In a Bloom filter a flow may be in several sets, and one of them is its own.
        while let HintTable::Vbf(vbf) = table
            && !wrong.is_empty()
        {
            let more = vbf.find_more(batch.hashes, wrong, &mut hints);
            if more.is_empty() {
                break;
            }
            let still = subtables.lookup_at(&hints, batch, more, hits);
            wrong = BatchMask(wrong.0 & !(more.0 & !still.0));
        }
        self.answers.misses += (miss.len() - told.len()) as u64;
        self.answers.wrong += wrong.len() as u64;
        self.answers.hits += (told.len() - wrong.len()) as u64;
        BatchMask(miss.0 & !told.0 | wrong.0)
    }

    /// Records in which subtable a packet's megaflow is. Does nothing while the distributor is off.
    #[inline]
    pub fn note(&mut self, subtables: &mut Subtables, hash: u64, key: &PacketKey, flow: &Megaflow) {
        let Some(table) = &mut self.table else { return };
        let Some(hint) = subtables.hint_of(key, flow) else { return };
        match table {
            HintTable::Own(own) => own.note(hash, hint),
            HintTable::Ht(ht) => ht.note(hash, hint),
            HintTable::Vbf(vbf) => vbf.note(hash, hint),
        }
    }
}

impl HintTable {
    /// Writes the hints of the packets of `miss`. Returns the packets that have one.
    #[inline]
    fn find(
        &mut self,
        isa: Isa,
        hashes: &[u64; BATCH_MAX],
        miss: BatchMask,
        hints: &mut [u16; BATCH_MAX],
        subtables_gone: u64,
    ) -> BatchMask {
        let mut asked = [0; BATCH_MAX];
        let mut n = 0;
        for i in miss {
            asked[n] = hashes[i];
            n += 1;
        }
        let mut found = [0; BATCH_MAX];
        let (asked, found) = (&asked[..n], &mut found[..n]);
        match self {
            HintTable::Own(own) => own.find(isa, asked, found),
            HintTable::Ht(ht) => ht.find(asked, found),
            HintTable::Vbf(vbf) => vbf.find(asked, found, subtables_gone),
        }
        let mut told = 0;
        for (i, hint) in miss.into_iter().zip(found) {
            hints[i] = *hint;
            told |= u32::from(*hint != 0) << i;
        }
        BatchMask(told)
    }
}

#[cfg(test)]
mod tests;

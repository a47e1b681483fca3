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

use crate::{CACHE_ENTRIES_MAX, Hits, LookupBatch, Megaflow, Subtables};
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
    /// full. It grows with the flows.
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
    tables: Vec<HintTable>,
    /// The table that is asked, by its index in `tables`.
    active: usize,
    /// The most flows of a table, if it is not the usual number.
    entries: Option<usize>,
    /// The key of the summaries' hashes.
    seed: u64,
    /// The vector instructions of its lookups; `None`: those of the batch.
    isa: Option<Isa>,
    answers: DistributorAnswers,
}

/// The most flows of its own table, in 64 MiB of address space. It begins with a few thousand and grows.
const OWN_ENTRIES: usize = 1 << 24;

/// The most flows of a set summary, which has its whole memory from the start: 1 MiB for HT, some 4 MiB for vBF.
const SUMMARY_ENTRIES: usize = 1 << 18;

#[derive(Debug)]
enum HintTable {
    Own(OwnTable),
    Ht(HtTable),
    Vbf(VbfTable),
}

impl Distributor {
    /// A distributor that is off, for at most `entries` flows once it is on; `None`: as many as are usual for the
    /// table. `seed` is for the hash of the summaries.
    pub fn new(entries: Option<usize>, seed: u64) -> Self {
        let entries = entries.map(|entries| entries.clamp(1, CACHE_ENTRIES_MAX));
        Distributor { tables: Vec::new(), active: 0, entries, seed, isa: None, answers: Default::default() }
    }

    /// Turns it on with empty tables of these kinds, the first of which is asked; with none, turns it off.
    pub fn set(&mut self, kinds: &[DistributorTable]) {
        let table = |kind: &DistributorTable| match kind {
            DistributorTable::Own => HintTable::Own(OwnTable::new(self.entries.unwrap_or(OWN_ENTRIES))),
            DistributorTable::Ht => HintTable::Ht(HtTable::new(self.entries.unwrap_or(SUMMARY_ENTRIES), self.seed)),
            DistributorTable::Vbf => HintTable::Vbf(VbfTable::new(self.entries.unwrap_or(SUMMARY_ENTRIES), self.seed)),
        };
        self.tables = kinds.iter().map(table).collect();
        self.active = 0;
    }

    /// Sets the vector instructions of its lookups; `None`: those of the batch.
    pub fn set_isa(&mut self, isa: Option<Isa>) {
        self.isa = isa;
    }

    /// Asks the table of that kind from now on, if there is one. Hints of the others stay, and may be of use again.
    #[inline]
    pub fn use_table(&mut self, kind: DistributorTable) {
        if let Some(at) = self.tables.iter().position(|table| table.kind() == kind) {
            self.active = at;
        }
    }

    /// The memory of its own table; `None` if it has none.
    pub fn memory(&self) -> Option<Arc<ArrayMemory>> {
        self.tables.iter().find_map(|table| match table {
            HintTable::Own(own) => own.memory(),
            HintTable::Ht(_) | HintTable::Vbf(_) => None,
        })
    }

    /// Whether flows replace each other in the table that is asked until more memory is resident.
    #[inline]
    pub fn awaits_memory(&self) -> bool {
        matches!(self.tables.get(self.active), Some(HintTable::Own(own)) if own.awaits_memory())
    }

    /// Lines in use of the table that is asked, if it grows.
    #[inline]
    pub fn lines_in_use(&self) -> usize {
        match self.tables.get(self.active) {
            Some(HintTable::Own(own)) => own.lines_in_use(),
            _ => 0,
        }
    }

    /// The kind of the table that is asked, if it is on.
    pub fn kind(&self) -> Option<DistributorTable> {
        self.tables.get(self.active).map(HintTable::kind)
    }

    /// Whether it is on.
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.tables.is_empty()
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
        let Some(table) = self.tables.get_mut(self.active) else { return miss };
        let mut hints = [0; BATCH_MAX];
        let told = table.find(self.isa.unwrap_or(batch.isa), batch.hashes, miss, &mut hints, subtables.gone());
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
        let Some(table) = self.tables.get_mut(self.active) else { return };
        let Some(hint) = subtables.hint_of(key, flow) else { return };
        match table {
            HintTable::Own(own) => own.note(hash, hint),
            HintTable::Ht(ht) => ht.note(hash, hint),
            HintTable::Vbf(vbf) => vbf.note(hash, hint),
        }
    }
}

impl HintTable {
    #[inline]
    fn kind(&self) -> DistributorTable {
        match self {
            HintTable::Own(_) => DistributorTable::Own,
            HintTable::Ht(_) => DistributorTable::Ht,
            HintTable::Vbf(_) => DistributorTable::Vbf,
        }
    }

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
        // Nearly always all packets of a batch are asked about, and nothing has to be gathered.
        if miss == BatchMask::first(miss.len()) {
            self.find_all(isa, &hashes[..miss.len()], &mut hints[..miss.len()], subtables_gone);
        } else {
            let (mut asked, mut found) = ([0; BATCH_MAX], [0; BATCH_MAX]);
            miss.into_iter().zip(&mut asked).for_each(|(i, asked)| *asked = hashes[i]);
            self.find_all(isa, &asked[..miss.len()], &mut found[..miss.len()], subtables_gone);
            miss.into_iter().zip(found).for_each(|(i, hint)| hints[i] = hint);
        }
        let mut told = 0;
        for (i, hint) in hints.iter().enumerate() {
            told |= u32::from(*hint != 0) << i;
        }
        BatchMask(told & miss.0)
    }

    /// Writes the hint for each hash; 0: none.
    #[inline]
    fn find_all(&mut self, isa: Isa, hashes: &[u64], hints: &mut [u16], subtables_gone: u64) {
        match self {
            HintTable::Own(own) => own.find(isa, hashes, hints),
            HintTable::Ht(ht) => ht.find(isa, hashes, hints),
            HintTable::Vbf(vbf) => vbf.find(isa, hashes, hints, subtables_gone),
        }
    }
}

#[cfg(test)]
mod shares;
#[cfg(test)]
mod tests;

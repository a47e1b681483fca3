//! Set summaries of the membership library as the distributor's table: a subtable is a set, a flow's hash is the key.

use sluice_membership::{Ht, HtConfig, SetId, Summary, Vbf, VbfConfig};
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::Isa;

/// The most subtables that a vector Bloom filter can tell apart: the bits of its widest row.
pub(super) const VBF_SETS_MAX: usize = 64;

/// The share of unknown flows for which a vBF may name a subtable. Source: 97 % right answers in "Optimizing OvS using
/// DPDK Membership Library" (2017).
const VBF_FALSE_POSITIVES: f64 = 0.03;

/// Lookups between two rebuilds after subtables were removed: clearing the rows takes some 100 µs.
const VBF_REBUILD_EVERY: u64 = 1 << 20;

/// A flow's hash as a key of the membership library.
fn key(hash: u64) -> [u8; 8] {
    hash.to_le_bytes()
}

/// HT in cache mode.
pub(super) struct HtTable(Ht);

impl HtTable {
    pub fn new(entries: usize, seed: u64) -> Self {
        let ht = Ht::new(&HtConfig { keys: entries, cache: true, seed });
        HtTable(ht.expect("invariant: the number of entries is within the library's limits"))
    }

    /// The hint recorded for each hash, 0 if there is none.
    pub fn find(&mut self, isa: Isa, hashes: &[u64], found: &mut [u16]) {
        self.0.set_isa(isa);
        let mut keys = [[0; 8]; BATCH_MAX];
        keys.iter_mut().zip(hashes).for_each(|(to, hash)| *to = key(*hash));
        let mut sets = [None; BATCH_MAX];
        self.0.lookup_bulk(&keys[..hashes.len()], &mut sets);
        found.iter_mut().zip(sets).for_each(|(to, set)| *to = set.map_or(0, SetId::get));
    }

    /// Notes a hint.
    pub fn note(&mut self, hash: u64, hint: u16) {
        if let Some(set) = SetId::new(hint) {
            // In cache mode, adding never fails.
            let _ = self.0.add(&key(hash), set);
        }
    }
}

impl std::fmt::Debug for HtTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HtTable").field("entries", &self.0.len()).finish_non_exhaustive()
    }
}

/// Vector Bloom filters, of which the narrowest is used that has a set for every subtable.
///
/// It is rebuilt, that is, emptied and filled again by the search's results: when it holds as many keys as it was made
/// for, when a subtable comes that it has no set for, and, not too often, after subtables were removed.
pub(super) struct VbfTable {
    /// For 8, 16, 32 and 64 sets. All are made at once, since a PMD must not wait for memory.
    filters: Vec<Vbf>,
    /// The filter in use.
    width: usize,
    entries: usize,
    /// Keys added since it was built.
    added: usize,
    /// Lookups since it was built.
    asked: u64,
    /// Subtables that had been removed when it was built.
    gone: u64,
}

/// A filter is made for this many times the keys that it gets. Its size assumes that all of its sets are used equally, but the narrowest filter
/// that fits uses little more than half of them (17 of 32, say), so each set gets up to twice its share; with fewer than four subtables even
/// more.
const VBF_CROWDED: usize = 2;

/// The sets of each filter.
const VBF_SETS: [usize; 4] = [8, 16, 32, VBF_SETS_MAX];

impl VbfTable {
    pub fn new(entries: usize, seed: u64) -> Self {
        let mut filters: Vec<Vbf> = VBF_SETS.iter().map(|sets| vbf(VBF_CROWDED * entries, *sets, seed)).collect();
        // Writing makes their memory resident.
        filters.iter_mut().for_each(Summary::reset);
        VbfTable { filters, width: 0, entries, added: 0, asked: 0, gone: 0 }
    }

    /// A hint recorded for each hash, 0 if there is none.
    pub fn find(&mut self, isa: Isa, hashes: &[u64], found: &mut [u16], subtables_gone: u64) {
        self.asked += hashes.len() as u64;
        if subtables_gone != self.gone && self.asked >= VBF_REBUILD_EVERY {
            self.gone = subtables_gone;
            self.clear();
        }
        self.filters[self.width].set_isa(isa);
        let mut keys = [[0; 8]; BATCH_MAX];
        keys.iter_mut().zip(hashes).for_each(|(to, hash)| *to = key(*hash));
        let mut sets = [None; BATCH_MAX];
        self.filters[self.width].lookup_bulk(&keys[..hashes.len()], &mut sets);
        found.iter_mut().zip(sets).for_each(|(to, set)| *to = set.map_or(0, SetId::get));
    }

    /// Writes, for each packet of `wrong`, the next hint after the one in `hints`. Returns the packets that have one.
    pub fn find_more(&self, hashes: &[u64; BATCH_MAX], wrong: BatchMask, hints: &mut [u16; BATCH_MAX]) -> BatchMask {
        let mut more = BatchMask::NONE;
        for i in wrong {
            let mut sets = [SetId::MIN; VBF_SETS_MAX];
            let n = self.filters[self.width].lookup_multi(&key(hashes[i]), &mut sets);
            if let Some(next) = sets[..n].iter().find(|set| set.get() > hints[i]) {
                hints[i] = next.get();
                more.insert(i);
            }
        }
        more
    }

    /// Records a hint, if there can be a set for it.
    pub fn note(&mut self, hash: u64, hint: u16) {
        let Some(set) = SetId::new(hint) else { return };
        let Some(width) = VBF_SETS.iter().position(|sets| usize::from(hint) <= *sets) else { return };
        if width > self.width || self.added >= self.entries {
            self.width = self.width.max(width);
            self.clear();
        }
        self.added += usize::from(self.filters[self.width].add(&key(hash), set).is_ok());
    }

    #[cold]
    fn clear(&mut self) {
        self.filters[self.width].reset();
        (self.added, self.asked) = (0, 0);
    }
}

fn vbf(keys: usize, sets: usize, seed: u64) -> Vbf {
    let vbf = Vbf::new(&VbfConfig { keys, sets, false_positives: VBF_FALSE_POSITIVES, seed });
    vbf.expect("invariant: keys, sets and rate are within the library's limits")
}

impl std::fmt::Debug for VbfTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VbfTable")
            .field("sets", &VBF_SETS[self.width])
            .field("added", &self.added)
            .finish_non_exhaustive()
    }
}

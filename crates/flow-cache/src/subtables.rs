//! Tuple space search with ranking: a PMD's subtables, by (in_port, recirc_id).
//!
//! Megaflows never overlap, so the first hit is the result and the order of subtables is free. The subtables of one
//! (in_port, recirc_id) are ranked by recent hits, about once a second and soon after a new mask was added. Passes
//! before and after recirculation do not compete in one ranking; in OVS, which has one classifier for each port, they
//! do.

use crate::node_pool::NodePool;
use crate::subtable::TABLE_WORD;
use crate::tuple_space::parts::{SearchPart, SearchRecord};
use crate::tuple_space::{SearchState, SubtableSearch, TupleSpace};
use crate::{FlowCounters, FlowDeleted, Hits, LookupBatch, Megaflow};
use sluice_flow::PacketKey;
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::{HashKey, compare};
use sluice_sync::Slots;
use std::collections::HashMap;
use std::sync::Arc;

/// Milliseconds between rankings. Source: OVS, DPCLS_OPTIMIZATION_INTERVAL.
const RANK_INTERVAL_MS: u64 = 1000;

/// Milliseconds until a table that has a new subtable is ranked.
const RANK_SOON_MS: u64 = 50;

/// Trie nodes of 4 KiB that one PMD's pruning may use. Senders can make arbitrary prefixes; beyond the limit pruning
/// gets coarser.
const NODES_MAX: usize = 8192;

/// One PMD's megaflow subtables.
#[derive(Debug)]
pub struct Subtables {
    secret: HashKey,
    tables: Vec<TupleSpace>,
    /// The index in `tables` of each (in_port, recirc_id), which is a word of the key.
    by_word: HashMap<u64, usize>,
    /// The table used last.
    last: usize,
    n_subtables: usize,
    n_gone: u64,
    n_flows: usize,
    rank_at_ms: u64,
    rank_soon: bool,
    /// Whether subtables are listed for pruning.
    prunes: bool,
    search: SubtableSearch,
    state: SearchState,
}

impl Subtables {
    /// No subtables.
    pub fn new(secret: &HashKey) -> Self {
        Subtables {
            secret: secret.clone(),
            tables: Vec::new(),
            by_word: HashMap::new(),
            last: 0,
            n_subtables: 0,
            n_gone: 0,
            n_flows: 0,
            rank_at_ms: 0,
            rank_soon: false,
            prunes: true,
            search: SubtableSearch::default(),
            state: SearchState::new(NodePool::new(NODES_MAX)),
        }
    }

    /// No subtables; every lookup will ask all. The reference for `new`.
    pub fn without_pruning(secret: &HashKey) -> Self {
        Subtables { prunes: false, ..Subtables::new(secret) }
    }

    /// Changes how the subtables are searched. The results are the same.
    pub fn set_search(&mut self, search: SubtableSearch) {
        self.search = search;
        self.tables.iter_mut().for_each(|table| table.set_search(search));
    }

    /// As [`Subtables::new`], with `nodes` trie nodes for pruning.
    #[cfg(test)]
    pub(crate) fn with_nodes(secret: &HashKey, nodes: usize) -> Self {
        Subtables { state: SearchState::new(NodePool::new(nodes)), ..Subtables::new(secret) }
    }

    /// Trie nodes that may still be made.
    #[cfg(test)]
    pub(crate) fn nodes_left(&self) -> usize {
        self.state.nodes.left()
    }

    /// The number of subtables.
    pub fn subtables(&self) -> usize {
        self.n_subtables
    }

    /// The number of megaflows.
    pub fn flows(&self) -> usize {
        self.n_flows
    }

    /// Subtables probed for hits since the last call: a hit in the third subtable counts three.
    pub fn take_probes(&mut self) -> u64 {
        std::mem::take(&mut self.state.probes)
    }

    /// Inserts a megaflow under the key of one of its packets. Returns whether it was new.
    pub fn insert(&mut self, key: &PacketKey, flow: &Megaflow) -> bool {
        let word = table_word(key);
        let at = *self.by_word.entry(word).or_insert_with(|| {
            self.tables.push(TupleSpace::new(word, self.search));
            self.tables.len() - 1
        });
        let nodes = self.prunes.then_some(&mut self.state.nodes);
        let (is_new, is_new_mask) = self.tables[at].insert(key, flow, &self.secret, nodes);
        self.n_subtables += usize::from(is_new_mask);
        self.rank_soon |= is_new_mask;
        self.n_flows += usize::from(is_new);
        is_new
    }

    /// Forgets a megaflow that was deleted. A modified one that is here has its new record in place of the earlier one
    /// from now on, so that its packets need no upcall.
    pub fn read_notice(&mut self, deleted: &FlowDeleted, flows: Slots<'_, Megaflow>, counters: &FlowCounters) {
        let (key, flows_before) = (deleted.matched.key(), self.n_flows);
        self.remove_key(deleted, &key);
        let is_here = self.n_flows < flows_before;
        let successor = deleted.successor.filter(|_| is_here).and_then(|id| flows.get(id.0));
        if let Some(flow) =
            successor.filter(|flow| Arc::ptr_eq(flow.mask(), deleted.matched.mask()) && flow.contains(&key))
        {
            self.insert(&key, flow);
            counters.set_indexed(flow.id());
        }
    }

    /// Forgets a megaflow that was deleted, and its subtable if that was the last.
    pub fn remove(&mut self, deleted: &FlowDeleted) {
        self.remove_key(deleted, &deleted.matched.key());
    }

    fn remove_key(&mut self, deleted: &FlowDeleted, key: &PacketKey) {
        let exact = deleted.matched.mask().words()[TABLE_WORD] == u64::MAX;
        if exact {
            if let Some(&at) = self.by_word.get(&table_word(key)) {
                self.remove_from(at, deleted, key);
            }
        } else {
            // Its mask leaves in_port or recirc_id open, so it may be in any table. Backwards, since tables may be
            // removed.
            (0..self.tables.len()).rev().for_each(|at| self.remove_from(at, deleted, key));
        }
    }

    fn remove_from(&mut self, at: usize, deleted: &FlowDeleted, key: &PacketKey) {
        let table = &mut self.tables[at];
        let removed = table.remove(deleted, key, &mut self.state.nodes);
        self.n_flows -= usize::from(removed.flow);
        self.n_subtables -= usize::from(removed.subtable);
        self.n_gone += u64::from(removed.subtable);
        if removed.subtable && table.is_empty() {
            table.put_back(&mut self.state.nodes);
            self.by_word.remove(&table.word);
            self.tables.swap_remove(at);
            if let Some(moved) = self.tables.get(at) {
                self.by_word.insert(moved.word, at);
            }
        }
    }

    /// Ranks the subtables when it is time. Called once a loop iteration.
    #[inline]
    pub fn maintain(&mut self, now_ms: u64) {
        if self.rank_soon {
            self.rank_soon = false;
            self.rank_at_ms = self.rank_at_ms.min(now_ms + RANK_SOON_MS);
        }
        if now_ms >= self.rank_at_ms {
            if self.search.ranks {
                self.rank();
            }
            self.rank_at_ms = now_ms + RANK_INTERVAL_MS;
        }
    }

    #[cold]
    fn rank(&mut self) {
        self.tables.iter_mut().for_each(TupleSpace::rank);
    }

    /// The index of the table for a (in_port, recirc_id).
    #[inline]
    fn table_at(&mut self, word: u64) -> Option<usize> {
        if self.tables.get(self.last).is_none_or(|table| table.word != word) {
            self.last = *self.by_word.get(&word)?;
        }
        Some(self.last)
    }
}

impl Subtables {
    /// Searches for the key of each packet in `miss`, as a [`LookupStage`](crate::LookupStage) does.
    pub fn lookup<'g>(&mut self, batch: &LookupBatch<'_, 'g>, miss: BatchMask, hits: &mut Hits<'g>) -> BatchMask {
        self.by_table(batch, miss, |table, state, same| table.lookup(batch, same, hits, state))
    }

    /// Asks one subtable for each packet: the one that `hints[i]` names, which is its place in its table plus one.
    /// Writes `hits` and returns the packets that still miss.
    pub(crate) fn lookup_at<'g>(
        &mut self,
        hints: &[u16; BATCH_MAX],
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
    ) -> BatchMask {
        self.state.probes += miss.len() as u64;
        self.by_table(batch, miss, |table, _, same| table.lookup_at(hints, batch, same, hits))
    }

    /// The hint for the subtable of this megaflow, to which `key` belongs. `None` if the number does not fit.
    #[inline]
    pub(crate) fn hint_of(&mut self, key: &PacketKey, flow: &Megaflow) -> Option<u16> {
        let at = self.table_at(table_word(key))?;
        let place = self.tables[at].place_of(flow.mask())?;
        u16::try_from(place + 1).ok()
    }

    /// The number of subtables removed so far.
    #[inline]
    pub(crate) fn gone(&self) -> u64 {
        self.n_gone
    }

    /// Searches as [`Subtables::lookup`] does without pruning, and records which subtables it asked: for measurements.
    pub fn search_and_record<'g>(
        &mut self,
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
    ) -> (BatchMask, SearchRecord) {
        let mut record = SearchRecord::default();
        let left = self.by_table(batch, miss, |table, _, same| {
            let (left, asked) = table.search_and_record(batch, same, hits);
            record.0.push(asked);
            left
        });
        (left, record)
    }

    /// Repeats a recorded search of the same packets up to a part: for measurements. The subtables must not have changed
    /// meanwhile, or other ones are asked.
    #[inline]
    pub fn repeat(&mut self, batch: &LookupBatch<'_, '_>, miss: BatchMask, record: &SearchRecord, part: SearchPart) {
        let mut recorded = record.0.iter();
        self.by_table(batch, miss, |table, state, same| {
            if let Some(asked) = recorded.next() {
                table.repeat(batch, &mut state.columns, same, asked, part);
            }
            same
        });
    }

    /// Calls `look` for each (in_port, recirc_id) with its packets of `miss`. Both return the packets that still miss.
    #[inline(always)]
    fn by_table(
        &mut self,
        batch: &LookupBatch<'_, '_>,
        miss: BatchMask,
        mut look: impl FnMut(&mut TupleSpace, &mut SearchState, BatchMask) -> BatchMask,
    ) -> BatchMask {
        let (mut todo, mut left) = (miss, miss);
        while let Some(first) = todo.into_iter().next() {
            // The packets in the first one's table: all of them, unless recirculation mixed the batch.
            let word = table_word(&batch.keys[first]);
            let mut same = BatchMask::NONE;
            todo.filter(|&i| table_word(&batch.keys[i]) == word).for_each(|i| same.insert(i));
            todo = BatchMask(todo.0 & !same.0);
            let Some(at) = self.table_at(word) else { continue };
            let missing = look(&mut self.tables[at], &mut self.state, same);
            left = BatchMask(left.0 & !(same.0 & !missing.0));
        }
        left
    }
}

/// in_port and recirc_id as one word.
#[inline(always)]
fn table_word(key: &PacketKey) -> u64 {
    compare::word(&key.lines[0].0, TABLE_WORD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Installed, MegaflowTable};
    use sluice_action::{FlowId, Translation, XcacheHandle};
    use sluice_fate::DropReason;
    use sluice_flow::layout;
    use sluice_simd::Isa;

    fn key(subtable: u8) -> PacketKey {
        let mut key = PacketKey::ZERO;
        key.set(layout::NW_SRC, &[subtable, 0, 0, 1]);
        key
    }

    fn translation(subtable: u8) -> Translation {
        let mut mask = PacketKey::ZERO;
        mask.set(layout::IN_PORT, &[0xff; 4]);
        mask.set(layout::RECIRC_ID, &[0xff; 4]);
        mask.set(layout::NW_SRC, &(!0u32 << (16 - subtable)).to_be_bytes());
        Translation {
            mask,
            actions: [].into(),
            no_output: DropReason::Rules,
            version: 0,
            cacheable: true,
            xcache: XcacheHandle(Arc::new(())),
        }
    }

    #[test]
    fn the_subtable_with_the_most_recent_hits_is_probed_first() {
        let secret = HashKey::from_seed(1);
        let table = MegaflowTable::new(64, &secret).unwrap();
        let mut side = table.attach(0).unwrap();
        let mut subtables = Subtables::new(&secret);
        let guard = side.reader.pin();
        let flows = table.read(&guard);
        for subtable in 0..10 {
            let installed = table.install(0, &key(subtable), &translation(subtable), 0, |_| true, |_, _, _| ());
            let Installed::New(FlowId(id)) = installed else { panic!("{installed:?}") };
            assert!(subtables.insert(&key(subtable), flows.get(id).unwrap()));
        }
        assert_eq!((subtables.subtables(), subtables.flows()), (10, 10));
        subtables.maintain(0);
        let mut probes = |subtable: u8, now_ms| {
            let (mut keys, mut hits) = ([PacketKey::ZERO; BATCH_MAX], [None; BATCH_MAX]);
            keys[0] = key(subtable);
            let batch = LookupBatch::new(&keys, &[0; BATCH_MAX], flows, &side.counters, Isa::best());
            assert!(subtables.lookup(&batch, BatchMask::first(1), &mut hits).is_empty());
            subtables.maintain(now_ms);
            subtables.take_probes()
        };
        // Nothing has been ranked, and each was put behind those without hits.
        let first: Vec<_> = (0..10).map(|subtable| probes(subtable, 0)).collect();
        assert_eq!(first.iter().sum::<u64>(), 55);
        for (favourite, now_ms) in [(7, 2000), (2, 4000)] {
            assert!((0..50).all(|_| probes(favourite, 0) > 0));
            probes(favourite, now_ms);
            assert_eq!(probes(favourite, 0), 1);
        }
    }
}

//! Tuple space search with ranking: one PMD's subtables, by (in_port, recirc_id).
//!
//! Megaflows never overlap in what they say, so the first hit is the answer and the order of subtables is free. The
//! subtables of one (in_port, recirc_id) are ranked by recent hits: about once a second, and soon after a new mask has
//! come. Passes before and after recirculation do not compete in one ranking, as they do in OVS, which keeps a
//! classifier a port.

use crate::subtable::{Subtable, TABLE_WORD};
use crate::{Died, Hits, LookupStage, Mask, Megaflow, Pass};
use sluice_flow::PacketKey;
use sluice_packet::BatchMask;
use sluice_simd::{HashKey, compare};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// Milliseconds between rankings. Source: OVS, DPCLS_OPTIMIZATION_INTERVAL.
const RANK_INTERVAL_MS: u64 = 1000;

/// Milliseconds until a table that has a new subtable is ranked.
const RANK_SOON_MS: u64 = 50;

/// One PMD's megaflow subtables.
#[derive(Debug)]
pub struct Subtables {
    secret: HashKey,
    tables: Vec<Table>,
    /// Where in `tables` a (in_port, recirc_id) is; the word as in a key.
    by_word: HashMap<u64, usize>,
    /// The table used last.
    last: usize,
    n_subtables: usize,
    n_flows: usize,
    probes: u64,
    rank_at_ms: u64,
    rank_soon: bool,
}

/// The subtables of one (in_port, recirc_id).
#[derive(Debug)]
struct Table {
    word: u64,
    /// In places that never change; one that has gone leaves a hole, which the next one fills.
    subtables: Vec<Option<Subtable>>,
    /// Their places, in order of rank.
    ranking: Vec<u32>,
    /// The place by mask; holding the mask keeps its address its own.
    by_mask: HashMap<MaskId, (u32, Arc<Mask>)>,
}

/// A mask by its address. Masks that are equal are one: `MegaflowTable` sees to that.
type MaskId = usize;

fn mask_id(mask: &Arc<Mask>) -> MaskId {
    Arc::as_ptr(mask).addr()
}

impl Subtables {
    /// None yet.
    pub fn new(secret: &HashKey) -> Self {
        Subtables {
            secret: secret.clone(),
            tables: Vec::new(),
            by_word: HashMap::new(),
            last: 0,
            n_subtables: 0,
            n_flows: 0,
            probes: 0,
            rank_at_ms: 0,
            rank_soon: false,
        }
    }

    /// How many subtables there are.
    pub fn subtables(&self) -> usize {
        self.n_subtables
    }

    /// How many megaflows are indexed.
    pub fn flows(&self) -> usize {
        self.n_flows
    }

    /// Subtables probed for hits since this was last asked: a hit in the third subtable counts three.
    pub fn take_probes(&mut self) -> u64 {
        std::mem::take(&mut self.probes)
    }

    /// Indexes a megaflow under a packet's key, which belongs to it. Whether it was not there.
    pub fn insert(&mut self, key: &PacketKey, flow: &Megaflow) -> bool {
        let word = table_word(key);
        let at = *self.by_word.entry(word).or_insert_with(|| {
            self.tables.push(Table::new(word));
            self.tables.len() - 1
        });
        let (subtable, is_new_mask) = self.tables[at].subtable_of(flow.mask(), &self.secret);
        let is_new = subtable.insert(key, flow.id());
        self.n_subtables += usize::from(is_new_mask);
        self.rank_soon |= is_new_mask;
        self.n_flows += usize::from(is_new);
        is_new
    }

    /// Forgets a megaflow that has died, and its subtable if that was the last.
    pub fn remove(&mut self, died: &Died) {
        let exact = compare::word(&died.matched.mask.lines[0].0, TABLE_WORD) == u64::MAX;
        if exact {
            if let Some(&at) = self.by_word.get(&table_word(&died.matched.key)) {
                self.remove_from(at, died);
            }
        } else {
            // Its mask leaves in_port or recirc_id open, so it may be in any table. From the back: tables may go.
            (0..self.tables.len()).rev().for_each(|at| self.remove_from(at, died));
        }
    }

    fn remove_from(&mut self, at: usize, died: &Died) {
        let table = &mut self.tables[at];
        let Some(&(place, _)) = table.by_mask.get(&mask_id(&died.mask)) else { return };
        let Some(subtable) = &mut table.subtables[place as usize] else { return };
        self.n_flows -= usize::from(subtable.remove(&died.matched.key, died.id));
        if subtable.len() != 0 {
            return;
        }
        table.subtables[place as usize] = None;
        table.ranking.retain(|ranked| *ranked != place);
        table.by_mask.remove(&mask_id(&died.mask));
        self.n_subtables -= 1;
        if table.by_mask.is_empty() {
            self.by_word.remove(&table.word);
            self.tables.swap_remove(at);
            if let Some(moved) = self.tables.get(at) {
                self.by_word.insert(moved.word, at);
            }
        }
    }

    /// Ranks the subtables when it is time. Once a loop iteration.
    #[inline]
    pub fn maintain(&mut self, now_ms: u64) {
        if self.rank_soon {
            self.rank_soon = false;
            self.rank_at_ms = self.rank_at_ms.min(now_ms + RANK_SOON_MS);
        }
        if now_ms >= self.rank_at_ms {
            self.rank();
            self.rank_at_ms = now_ms + RANK_INTERVAL_MS;
        }
    }

    /// Puts the subtables with the most recent hits first; equals keep their order.
    #[cold]
    fn rank(&mut self) {
        for Table { subtables, ranking, .. } in &mut self.tables {
            ranking.sort_by_key(|place| Reverse(subtables[*place as usize].as_ref().map_or(0, |s| s.hits)));
            subtables.iter_mut().flatten().for_each(|s| s.hits /= 2);
        }
    }

    #[inline]
    fn table_of(&mut self, word: u64) -> Option<&mut Table> {
        if self.tables.get(self.last).is_none_or(|table| table.word != word) {
            self.last = *self.by_word.get(&word)?;
        }
        self.tables.get_mut(self.last)
    }
}

impl Table {
    fn new(word: u64) -> Self {
        Table { word, subtables: Vec::new(), ranking: Vec::new(), by_mask: HashMap::new() }
    }

    /// The subtable of a mask, made if there was none, which is the second answer.
    fn subtable_of(&mut self, mask: &Arc<Mask>, secret: &HashKey) -> (&mut Subtable, bool) {
        let known = self.by_mask.get(&mask_id(mask)).map(|(place, _)| *place);
        let place = known.unwrap_or_else(|| {
            let hole = self.subtables.iter().position(Option::is_none).unwrap_or(self.subtables.len());
            if hole == self.subtables.len() {
                self.subtables.push(None);
            }
            // Behind those in use, in front of those that have found nothing lately; ranked anew soon.
            let in_use = |place: &u32| self.subtables[*place as usize].as_ref().is_some_and(|s| s.hits != 0);
            let rank = self.ranking.partition_point(in_use);
            self.ranking.insert(rank, hole as u32);
            self.by_mask.insert(mask_id(mask), (hole as u32, mask.clone()));
            hole as u32
        });
        let subtable = self.subtables[place as usize].get_or_insert_with(|| Subtable::new(mask, secret));
        (subtable, known.is_none())
    }
}

impl LookupStage for Subtables {
    fn lookup<'g>(&mut self, pass: &Pass<'_, 'g>, miss: BatchMask, hits: &mut Hits<'g>) -> BatchMask {
        let (mut todo, mut left) = (miss, miss);
        while let Some(first) = todo.into_iter().next() {
            // The packets that share the first one's table: all of them, unless recirculation mixed the batch.
            let word = table_word(&pass.keys[first]);
            let mut same = BatchMask::NONE;
            todo.filter(|&i| table_word(&pass.keys[i]) == word).for_each(|i| same.insert(i));
            todo = BatchMask(todo.0 & !same.0);
            let mut probes = 0;
            let Some(table) = self.table_of(word) else { continue };
            let mut missing = same;
            let Table { subtables, ranking, .. } = table;
            for (rank, place) in ranking.iter().enumerate() {
                let Some(subtable) = &mut subtables[*place as usize] else { continue };
                let before = missing.len();
                missing = subtable.lookup(pass, missing, hits);
                probes += (rank + 1) * (before - missing.len());
                if missing.is_empty() {
                    break;
                }
            }
            self.probes += probes as u64;
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
    use sluice_action::{FlowId, Trail, Translation};
    use sluice_fate::DropReason;
    use sluice_flow::layout;
    use sluice_packet::BATCH_MAX;

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
            trail: Trail(Arc::new(())),
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
            let installed = table.install(&key(subtable), &translation(subtable), 0, |_| true);
            let Installed::New(FlowId(id)) = installed else { panic!("{installed:?}") };
            assert!(subtables.insert(&key(subtable), flows.get(id).unwrap()));
        }
        assert_eq!((subtables.subtables(), subtables.flows()), (10, 10));
        subtables.maintain(0);
        let mut probes = |subtable: u8, now_ms| {
            let (mut keys, mut hits) = ([PacketKey::ZERO; BATCH_MAX], [None; BATCH_MAX]);
            keys[0] = key(subtable);
            let pass = Pass { keys: &keys, hashes: &[0; BATCH_MAX], flows };
            assert!(subtables.lookup(&pass, BatchMask::first(1), &mut hits).is_empty());
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

//! Tuple space search with ranking: one PMD's subtables, by (in_port, recirc_id).
//!
//! Megaflows never overlap in what they say, so the first hit is the answer and the order of subtables is free. The
//! subtables of one (in_port, recirc_id) are ranked by recent hits: about once a second, and soon after a new mask has
//! come. Passes before and after recirculation do not compete in one ranking, as they do in OVS, which keeps a
//! classifier a port.

use crate::subtable::{Subtable, TABLE_WORD};
use crate::{Died, Hits, LookupStage, Megaflow, Pass};
use sluice_flow::PacketKey;
use sluice_packet::BatchMask;
use sluice_simd::{HashKey, compare};
use std::collections::HashMap;

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

/// The subtables of one (in_port, recirc_id), in order of rank.
#[derive(Debug)]
struct Table {
    word: u64,
    subtables: Vec<Subtable>,
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
            self.tables.push(Table { word, subtables: Vec::new() });
            self.tables.len() - 1
        });
        let table = &mut self.tables[at];
        let have = table.subtables.iter().position(|s| s.mask().whole == flow.mask().whole);
        let at = have.unwrap_or_else(|| {
            // Behind those in use, in front of those that have found nothing lately; ranked anew soon.
            let at = table.subtables.partition_point(|s| s.hits != 0);
            table.subtables.insert(at, Subtable::new(flow.mask().clone(), &self.secret));
            self.n_subtables += 1;
            self.rank_soon = true;
            at
        });
        let is_new = table.subtables[at].insert(key, flow.id());
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
        let Some(s) = table.subtables.iter().position(|s| s.mask().whole == died.matched.mask) else { return };
        self.n_flows -= usize::from(table.subtables[s].remove(&died.matched.key, died.id));
        if table.subtables[s].len() != 0 {
            return;
        }
        table.subtables.remove(s);
        self.n_subtables -= 1;
        if table.subtables.is_empty() {
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
        for table in &mut self.tables {
            table.subtables.sort_by_key(|s| std::cmp::Reverse(s.hits));
            table.subtables.iter_mut().for_each(|s| s.hits /= 2);
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
            for (rank, subtable) in table.subtables.iter_mut().enumerate() {
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

//! The subtables of one (in_port, recirc_id), in order of rank, and which of them a packet need not ask.
//!
//! With few subtables all are asked in turn ([`PRUNE_FROM`]). With more, packets that the first few do not match
//! are looked up only in the subtables that [`Pruning`] leaves. A subtable is listed for pruning when it is made,
//! except for the first [`UNLISTED`], so that small tables pay nothing; those are listed once the table turns out to be
//! large.

pub(crate) mod parts;

use crate::node_pool::NodePool;
use crate::pruning::Pruning;
use crate::subtable::{BatchColumns, Subtable};
use crate::{FlowDeleted, Hits, LookupBatch, Mask, Megaflow};
use arrayvec::ArrayVec;
use hashbrown::HashMap;
use sluice_flow::{Line, PacketKey, layout};
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::isa::Kernel;
use sluice_simd::{HashKey, VectorOps, prefetch};
use sluice_sync::Slots;
use std::cmp::Reverse;
use std::sync::Arc;

/// With fewer subtables all are asked. Measured: docs/notes/bounded-misses.md.
const PRUNE_FROM: usize = 17;

/// The same for packets that are looked up together, since a subtable is asked about eight of them at a time. Tests have
/// fewer, so that small cases prune.
const PRUNE_FROM_TOGETHER: usize = if cfg!(test) { 17 } else { 65 };

/// From this number of packets on they count as together.
const TOGETHER: usize = 4;

/// Subtables that are made before new ones are listed at once.
const UNLISTED: usize = 8;

/// Subtables of the highest rank that are asked before pruning: most packets hit there.
const FIRST: usize = 2;

/// The most megaflows of a subtable that is listed later: listing it is work for a single lookup.
const LIST_LATER_MAX: usize = 256;

/// Subtables left by pruning that are kept for a packet. If there are more, pruning is asked for them once again. Tests keep
/// fewer, so that small cases have more.
const KEPT: usize = if cfg!(test) { 6 } else { 16 };

/// How many of these are asked about a packet at a time: more would be asked in vain once one matches.
const AT_ONCE: usize = 4;

/// How subtables are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SubtableSearch {
    /// Whether subtables that cannot match are skipped, where there are many. Without, all are asked in turn, as in
    /// Open vSwitch.
    pub prunes: bool,
    /// Whether those with the most recent hits are asked first. Without, they stay in the order in which they came.
    pub ranks: bool,
}

impl Default for SubtableSearch {
    fn default() -> Self {
        SubtableSearch { prunes: true, ranks: true }
    }
}

/// The subtables of one (in_port, recirc_id).
#[derive(Debug)]
pub(crate) struct TupleSpace {
    /// in_port and recirc_id, as a word of the key.
    pub word: u64,
    /// A subtable keeps its place. A removed one leaves a hole, which a new one fills.
    subtables: Vec<Option<Subtable>>,
    holes: Vec<u32>,
    /// Their places, in order of rank.
    ranking: Vec<u32>,
    /// The place for each mask. The mask is held, so that its address stays its own.
    by_mask: HashMap<MaskId, (u32, Arc<Mask>)>,
    /// `None`: every lookup asks all subtables.
    pruning: Option<Box<Pruning>>,
    /// Places not listed for pruning.
    unlisted: Vec<u32>,
    /// Whether subtables that cannot match are skipped, where there are many.
    prunes: bool,
    /// Whether those with the most recent hits are asked first.
    ranks: bool,
}

/// What the searches of all (in_port, recirc_id) share.
#[derive(Debug)]
pub(crate) struct SearchState {
    /// Subtables asked for the hits.
    pub probes: u64,
    /// The nodes of pruning's tries.
    pub nodes: NodePool,
    /// Memory of the search under way.
    pub columns: BatchColumns,
}

impl SearchState {
    /// Before the first search.
    pub fn new(nodes: NodePool) -> Self {
        SearchState { probes: 0, nodes, columns: BatchColumns::default() }
    }
}

/// A mask's address. `MegaflowTable` keeps one copy of each mask, so equal masks have one address.
type MaskId = usize;

fn mask_id(mask: &Arc<Mask>) -> MaskId {
    Arc::as_ptr(mask).addr()
}

/// The ingress port of a table's word.
fn in_port(word: u64) -> u32 {
    let mut key = PacketKey::ZERO;
    key.lines[0] = Line::from_words([word, 0, 0, 0, 0, 0, 0, 0]);
    key.number(layout::IN_PORT) as u32
}

/// What a removal removed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Removed {
    pub flow: bool,
    pub subtable: bool,
}

impl TupleSpace {
    /// Without subtables.
    pub fn new(word: u64, search: SubtableSearch) -> Self {
        TupleSpace {
            word,
            subtables: Vec::new(),
            holes: Vec::new(),
            ranking: Vec::new(),
            by_mask: HashMap::new(),
            pruning: None,
            unlisted: Vec::new(),
            prunes: search.prunes,
            ranks: search.ranks,
        }
    }

    /// Changes how it is searched.
    pub fn set_search(&mut self, search: SubtableSearch) {
        (self.prunes, self.ranks) = (search.prunes, search.ranks);
    }

    /// Whether it has no subtables.
    pub fn is_empty(&self) -> bool {
        self.by_mask.is_empty()
    }

    /// Inserts a megaflow under the key of one of its packets. Returns whether it was new, and whether its mask was.
    pub fn insert(
        &mut self,
        key: &PacketKey,
        flow: &Megaflow,
        secret: &HashKey,
        nodes: Option<&mut NodePool>,
    ) -> (bool, bool) {
        let known = self.by_mask.get(&mask_id(flow.mask())).map(|(place, _)| *place);
        let place = known.unwrap_or_else(|| self.add_subtable(flow.mask(), secret, nodes.is_some()));
        if let (Some(pruning), Some(nodes)) = (&mut self.pruning, nodes)
            && pruning.has(place)
        {
            pruning.add_flow(flow.id(), flow.serial(), &flow.mask().whole, &flow.key(), nodes);
        }
        let subtable = self.subtables[place as usize].as_mut();
        (subtable.is_some_and(|subtable| subtable.insert(key, flow.id())), known.is_none())
    }

    fn add_subtable(&mut self, mask: &Arc<Mask>, secret: &HashKey, may_list: bool) -> u32 {
        let place = self.holes.pop().unwrap_or_else(|| {
            self.subtables.push(None);
            self.subtables.len() as u32 - 1
        });
        // Behind the subtables with recent hits, in front of those without. Ranking follows soon, if it does.
        let in_use = |place: &u32| self.subtables[*place as usize].as_ref().is_some_and(|s| s.hits != 0);
        let rank = if self.ranks { self.ranking.partition_point(in_use) } else { self.ranking.len() };
        self.ranking.insert(rank, place);
        if may_list && self.by_mask.len() >= UNLISTED {
            let pruning = self.pruning.get_or_insert_with(|| Box::new(Pruning::new(in_port(self.word))));
            pruning.list(place, &mask.whole);
        } else {
            self.unlisted.push(place);
        }
        self.by_mask.insert(mask_id(mask), (place, mask.clone()));
        self.subtables[place as usize] = Some(Subtable::new(mask, secret));
        place
    }

    /// Forgets a megaflow that was deleted, and its subtable if that was the last.
    pub fn remove(&mut self, deleted: &FlowDeleted, key: &PacketKey, nodes: &mut NodePool) -> Removed {
        let mask = deleted.matched.mask();
        if let Some(pruning) = &mut self.pruning {
            pruning.remove_flow(deleted.id, deleted.serial, &mask.whole, key, nodes);
        }
        let Some(&(place, _)) = self.by_mask.get(&mask_id(mask)) else { return Removed::default() };
        let Some(subtable) = &mut self.subtables[place as usize] else { return Removed::default() };
        let flow = subtable.remove(key, deleted.id);
        if subtable.len() != 0 {
            return Removed { flow, subtable: false };
        }
        self.subtables[place as usize] = None;
        self.holes.push(place);
        self.ranking.retain(|ranked| *ranked != place);
        self.by_mask.remove(&mask_id(mask));
        if let Some(pruning) = &mut self.pruning {
            pruning.unlist(place, &mask.whole);
        }
        self.unlisted.retain(|other| *other != place);
        Removed { flow, subtable: true }
    }

    /// Puts its trie nodes back before it is dropped.
    pub fn put_back(&mut self, nodes: &mut NodePool) {
        self.pruning.iter_mut().for_each(|pruning| pruning.clear(nodes));
    }

    /// Sorts the subtables by recent hits; equal ones keep their order.
    pub fn rank(&mut self) {
        let subtables = &mut self.subtables;
        let hits = |place: &u32| Reverse(subtables[*place as usize].as_ref().map_or(0, |s| s.hits));
        self.ranking.sort_by_cached_key(hits);
        subtables.iter_mut().flatten().for_each(|s| s.hits /= 2);
    }

    /// Looks up the packets of `miss`, all of this (in_port, recirc_id). Writes `hits` and returns the packets that
    /// still miss.
    #[inline]
    pub fn lookup<'g>(
        &mut self,
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
        search: &mut SearchState,
    ) -> BatchMask {
        let from = if miss.len() < TOGETHER { PRUNE_FROM } else { PRUNE_FROM_TOGETHER };
        if !self.prunes || self.pruning.is_none() || self.ranking.len() < from {
            let subtables = &mut self.subtables;
            return batch.isa.run(InTurn { batch, hits, search, subtables, places: [&self.ranking, &[]], miss });
        }
        self.lookup_pruned(batch, miss, hits, search)
    }

    #[inline(never)]
    fn lookup_pruned<'g>(
        &mut self,
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
        search: &mut SearchState,
    ) -> BatchMask {
        self.list_one_more(batch.flows, &mut search.nodes);
        let (subtables, first) = (&mut self.subtables, &self.ranking[..FIRST]);
        let asked = FIRST + self.unlisted.iter().filter(|place| !first.contains(place)).count();
        let (hits_found, places) = (&mut *hits, [first, &self.unlisted[..]]);
        let in_turn = InTurn { batch, hits: hits_found, search, subtables: &mut *subtables, places, miss };
        let mut left = batch.isa.run(in_turn);
        let Some(pruning) = &self.pruning else { return left };
        let mut kept = Kept::new();
        let nodes = &search.nodes;
        let find =
            InLeft { batch, hits, subtables: &mut *subtables, pruning, nodes, first, kept: &mut kept, miss: left };
        let found = batch.isa.run(find);
        for i in left {
            let mut n = asked as u64 + kept.asked[i];
            if !found.contains(i) {
                if !kept.places[i].is_full() {
                    continue;
                }
                let (hit, further) = batch.isa.run(InFurther { batch, subtables, pruning, nodes, first, i });
                if hit.is_none() {
                    continue;
                }
                hits[i] = hit;
                n += further;
            }
            left.remove(i);
            search.probes += n;
        }
        left
    }

    /// The place of a mask's subtable.
    #[inline]
    pub fn place_of(&self, mask: &Arc<Mask>) -> Option<u32> {
        self.by_mask.get(&mask_id(mask)).map(|(place, _)| *place)
    }

    /// Asks one subtable for each packet: the one at place `hints[i] - 1`, if there is one. Writes `hits` and returns
    /// the packets that still miss.
    pub fn lookup_at<'g>(
        &mut self,
        hints: &[u16; BATCH_MAX],
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
    ) -> BatchMask {
        batch.isa.run(InNamed { batch, hits, subtables: &mut self.subtables, hints, miss })
    }

    /// Lists for pruning one subtable that was made while the table was small.
    fn list_one_more(&mut self, flows: Slots<'_, Megaflow>, nodes: &mut NodePool) {
        let Some(pruning) = &mut self.pruning else { return };
        let subtables = &self.subtables;
        let is_small = |place: &u32| subtables[*place as usize].as_ref().is_none_or(|s| s.len() <= LIST_LATER_MAX);
        let Some(at) = self.unlisted.iter().position(is_small) else { return };
        let place = self.unlisted.swap_remove(at);
        let Some(subtable) = &subtables[place as usize] else { return };
        let mut mask = None;
        // A dead megaflow cannot be a hit, so it needs no prefixes. Its id may be used again by another megaflow.
        for (flow, _) in subtable.ids().filter_map(|id| flows.get_any(id)) {
            let is_here = self.by_mask.get(&mask_id(flow.mask())).is_some_and(|(at, _)| *at == place);
            if is_here {
                pruning.add_flow(flow.id(), flow.serial(), &flow.mask().whole, &flow.key(), nodes);
                mask = Some(flow.mask());
            }
        }
        match mask {
            Some(mask) => pruning.list(place, &mask.whole),
            // All its megaflows are dead; their notices will remove it.
            None => self.unlisted.push(place),
        }
    }
}

/// For each packet, the first subtables that pruning leaves, and how many were asked up to the one that matches.
///
/// Filled in place: as the result of a function it was copied, 147 instructions a batch (2026-11-22).
struct Kept {
    places: [ArrayVec<u32, KEPT>; BATCH_MAX],
    asked: [u64; BATCH_MAX],
}

impl Kept {
    #[inline(always)]
    fn new() -> Kept {
        Kept { places: std::array::from_fn(|_| ArrayVec::new_const()), asked: [0; BATCH_MAX] }
    }
}

/// A search for the packets of `miss` in the first subtables that pruning leaves, except for those in `first`. Writes `hits`
/// and returns the packets that match.
struct InLeft<'s, 'k, 'g> {
    batch: &'s LookupBatch<'k, 'g>,
    hits: &'s mut Hits<'g>,
    subtables: &'s mut [Option<Subtable>],
    pruning: &'s Pruning,
    nodes: &'s NodePool,
    first: &'s [u32],
    kept: &'s mut Kept,
    miss: BatchMask,
}

impl Kernel for InLeft<'_, '_, '_> {
    type Output = BatchMask;

    #[inline(always)]
    fn run<V: VectorOps>(mut self, ops: V) -> BatchMask {
        self.keep();
        let (mut found, mut left) = (BatchMask::NONE, self.miss);
        for from in (0..KEPT).step_by(AT_ONCE) {
            let (asked, hit) = self.ask(ops, left, from);
            found = BatchMask(found.0 | hit.0);
            left = BatchMask(asked.0 & !hit.0);
            if left.is_empty() {
                break;
            }
        }
        for i in left {
            self.kept.asked[i] = self.kept.places[i].len() as u64;
        }
        found
    }
}

impl InLeft<'_, '_, '_> {
    /// Keeps the first subtables that pruning leaves.
    #[inline(always)]
    fn keep(&mut self) {
        for i in self.miss {
            let places = &mut self.kept.places[i];
            self.pruning.survivors(self.nodes, &self.batch.keys[i], |place| {
                if !self.first.contains(&place) {
                    places.push(place);
                    prefetch::read(&self.subtables[place as usize]);
                }
                places.is_full()
            });
        }
    }

    /// Asks [`AT_ONCE`] of the kept subtables, from number `from` on, about each of `packets`. Returns those packets that have so
    /// many, and those that match.
    ///
    /// Stage by stage for the whole batch, so that the packets' cache misses overlap. Which subtable may match is unpredictable, so
    /// no branch depends on it before all of them are known.
    #[inline(always)]
    fn ask<V: VectorOps>(&mut self, ops: V, packets: BatchMask, from: usize) -> (BatchMask, BatchMask) {
        let InLeft { batch, subtables, kept: Kept { places, asked }, .. } = self;
        let (mut tags, mut candidates) = ([[0; AT_ONCE]; BATCH_MAX], [BatchMask::NONE; BATCH_MAX]);
        let mut asks = BatchMask::NONE;
        for i in packets {
            for (tag, place) in tags[i].iter_mut().zip(places[i].iter().skip(from)) {
                let Some(subtable) = &subtables[*place as usize] else { continue };
                *tag = subtable.tag_of_with(ops, &batch.keys[i]);
                subtable.prefetch(*tag);
                asks.insert(i);
            }
        }
        for i in asks {
            for (n, (tag, place)) in tags[i].iter().zip(places[i].iter().skip(from)).enumerate() {
                let Some(subtable) = &subtables[*place as usize] else { continue };
                candidates[i].0 |= u32::from(subtable.may_hold_one(ops, *tag)) << n;
            }
            for n in candidates[i] {
                let Some(subtable) = &subtables[places[i][from + n] as usize] else { continue };
                if subtable.is_large() {
                    subtable.prefetch_flows(tags[i][n], batch.flows);
                }
            }
        }
        let mut found = BatchMask::NONE;
        for i in asks {
            for n in candidates[i] {
                let Some(subtable) = &mut subtables[places[i][from + n] as usize] else { continue };
                let hit = subtable.find_with(ops, i, tags[i][n], batch);
                if hit.is_some() {
                    self.hits[i] = hit;
                    subtable.hits += 1;
                    asked[i] = (from + n + 1) as u64;
                    found.insert(i);
                    break;
                }
            }
        }
        (asks, found)
    }
}

/// A search for packet `i` in the subtables that pruning leaves, from the one after [`KEPT`] of them on. Returns the megaflow
/// and how many were asked.
struct InFurther<'s, 'k, 'g> {
    batch: &'s LookupBatch<'k, 'g>,
    subtables: &'s mut [Option<Subtable>],
    pruning: &'s Pruning,
    nodes: &'s NodePool,
    first: &'s [u32],
    i: usize,
}

impl<'g> Kernel for InFurther<'_, '_, 'g> {
    type Output = (Option<&'g Megaflow>, u64);

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> Self::Output {
        let InFurther { batch, subtables, pruning, nodes, first, i } = self;
        let key = &batch.keys[i];
        let (mut hit, mut seen, mut asked) = (None, 0, 0);
        pruning.survivors(nodes, key, |place| {
            if first.contains(&place) {
                return false;
            }
            seen += 1;
            if seen <= KEPT {
                return false;
            }
            asked += 1;
            let Some(subtable) = &mut subtables[place as usize] else { return false };
            let tag = subtable.tag_of_with(ops, key);
            hit = if subtable.may_hold_one(ops, tag) { subtable.find_with(ops, i, tag, batch) } else { None };
            subtable.hits += u64::from(hit.is_some());
            hit.is_some()
        });
        (hit, asked)
    }
}

/// A search for the packets of `miss` in subtables one after another: those at `places[0]`, then those that are at
/// `places[1]` alone. Writes `hits` and returns the packets that still miss.
struct InTurn<'s, 'k, 'g> {
    batch: &'s LookupBatch<'k, 'g>,
    hits: &'s mut Hits<'g>,
    search: &'s mut SearchState,
    subtables: &'s mut [Option<Subtable>],
    places: [&'s [u32]; 2],
    miss: BatchMask,
}

impl Kernel for InTurn<'_, '_, '_> {
    type Output = BatchMask;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> BatchMask {
        let InTurn { batch, hits, search, subtables, places: [first, further], mut miss } = self;
        search.columns.fill(ops, batch.keys, miss);
        let mut asked = 0;
        for (at, place) in first.iter().chain(further).enumerate() {
            if miss.is_empty() {
                break;
            }
            if at >= first.len() && first.contains(place) {
                continue;
            }
            let Some(subtable) = &mut subtables[*place as usize] else { continue };
            asked += 1;
            let before = miss.len();
            miss = subtable.lookup(ops, &search.columns, batch, miss, hits);
            search.probes += (asked * (before - miss.len())) as u64;
        }
        miss
    }
}

/// A search for the packets of `miss`, each in one subtable: the one at place `hints[i] - 1`, if there is one. Writes `hits`
/// and returns the packets that still miss.
struct InNamed<'s, 'k, 'g> {
    batch: &'s LookupBatch<'k, 'g>,
    hits: &'s mut Hits<'g>,
    subtables: &'s mut [Option<Subtable>],
    hints: &'s [u16; BATCH_MAX],
    miss: BatchMask,
}

impl Kernel for InNamed<'_, '_, '_> {
    type Output = BatchMask;

    // Stage by stage for the whole batch, so that the packets' cache misses overlap.
    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> BatchMask {
        let InNamed { batch, hits, subtables, hints, miss } = self;
        let (mut places, mut tags) = ([0; BATCH_MAX], [0; BATCH_MAX]);
        let (mut there, mut large) = (BatchMask::NONE, BatchMask::NONE);
        for i in miss {
            let place = usize::from(hints[i]).wrapping_sub(1);
            let Some(Some(subtable)) = subtables.get(place) else { continue };
            (places[i], tags[i]) = (place, subtable.tag_of_with(ops, &batch.keys[i]));
            there.insert(i);
            if subtable.is_large() {
                subtable.prefetch(tags[i]);
                large.insert(i);
            }
        }
        for i in large {
            if let Some(subtable) = &subtables[places[i]] {
                subtable.prefetch_flows(tags[i], batch.flows);
            }
        }
        let mut found = 0;
        for i in there {
            let Some(subtable) = &mut subtables[places[i]] else { continue };
            let hit = subtable.find_with(ops, i, tags[i], batch);
            if hit.is_some() {
                hits[i] = hit;
                subtable.hits += 1;
                found |= 1 << i;
            }
        }
        BatchMask(miss.0 & !found)
    }
}

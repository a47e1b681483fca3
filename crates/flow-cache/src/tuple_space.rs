//! The subtables of one (in_port, recirc_id), in order of rank, and which of them a packet need not ask.
//!
//! Up to [`PRUNE_FROM`] subtables all are asked in turn. From there on, what the first few have not found is looked
//! for only where [`Pruning`] says that it can be. Subtables are listed there from birth, but for the first
//! [`UNLISTED`], so that small tables do without; those are listed when the table turns out to be large.

use crate::prefixes::NodeQuota;
use crate::pruning::Pruning;
use crate::subtable::Subtable;
use crate::{FlowDeleted, Hits, LookupBatch, Mask, Megaflow};
use arrayvec::ArrayVec;
use hashbrown::HashMap;
use sluice_flow::PacketKey;
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::{HashKey, prefetch};
use sluice_sync::Slots;
use std::cmp::Reverse;
use std::sync::Arc;

/// With fewer subtables all are asked. Measured: docs/notes/bounded-misses.md.
const PRUNE_FROM: usize = 17;

/// So many subtables may be there before one is listed from birth.
const UNLISTED: usize = 8;

/// So many of the highest rank are asked before anything is left out: most packets hit there.
const FIRST: usize = 2;

/// The most megaflows that a subtable may have to be listed later: listing them is work for one lookup.
const LIST_LATER_MAX: usize = 256;

/// So many survivors of a packet are fetched ahead; the others, if it comes to them, are not.
const AHEAD: usize = 4;

/// The subtables of one (in_port, recirc_id).
#[derive(Debug)]
pub(crate) struct TupleSpace {
    /// in_port and recirc_id as in a key.
    pub word: u64,
    /// In places that never change; one that has gone leaves a hole, which another fills.
    subtables: Vec<Option<Subtable>>,
    holes: Vec<u32>,
    /// Their places, in order of rank.
    ranking: Vec<u32>,
    /// The place by mask; holding the mask keeps its address its own.
    by_mask: HashMap<MaskId, (u32, Arc<Mask>)>,
    /// `None`: every lookup asks all.
    pruning: Option<Box<Pruning>>,
    /// Places that are not listed for pruning.
    unlisted: Vec<u32>,
}

/// A mask by its address. Masks that are equal are one: `MegaflowTable` sees to that.
type MaskId = usize;

fn mask_id(mask: &Arc<Mask>) -> MaskId {
    Arc::as_ptr(mask).addr()
}

/// What a removal did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Removed {
    pub flow: bool,
    pub subtable: bool,
}

impl TupleSpace {
    /// Without subtables.
    pub fn new(word: u64) -> Self {
        TupleSpace {
            word,
            subtables: Vec::new(),
            holes: Vec::new(),
            ranking: Vec::new(),
            by_mask: HashMap::new(),
            pruning: None,
            unlisted: Vec::new(),
        }
    }

    /// Whether it has no subtables.
    pub fn is_empty(&self) -> bool {
        self.by_mask.is_empty()
    }

    /// Indexes a megaflow under a packet's key. Whether it was not there, and whether its mask was not.
    pub fn insert(
        &mut self,
        key: &PacketKey,
        flow: &Megaflow,
        secret: &HashKey,
        quota: Option<&mut NodeQuota>,
    ) -> (bool, bool) {
        let known = self.by_mask.get(&mask_id(flow.mask())).map(|(place, _)| *place);
        let place = known.unwrap_or_else(|| self.add_subtable(flow.mask(), secret, quota.is_some()));
        if let (Some(pruning), Some(quota)) = (&mut self.pruning, quota)
            && pruning.has(place)
        {
            pruning.add_flow(flow.id(), flow.matched(), quota);
        }
        let subtable = self.subtables[place as usize].as_mut();
        (subtable.is_some_and(|subtable| subtable.insert(key, flow.id())), known.is_none())
    }

    fn add_subtable(&mut self, mask: &Arc<Mask>, secret: &HashKey, may_list: bool) -> u32 {
        let place = self.holes.pop().unwrap_or_else(|| {
            self.subtables.push(None);
            self.subtables.len() as u32 - 1
        });
        // Behind those in use, in front of those that have found nothing lately; ranked anew soon.
        let in_use = |place: &u32| self.subtables[*place as usize].as_ref().is_some_and(|s| s.hits != 0);
        let rank = self.ranking.partition_point(in_use);
        self.ranking.insert(rank, place);
        if may_list && self.by_mask.len() >= UNLISTED {
            self.pruning.get_or_insert_default().list(place, &mask.whole);
        } else {
            self.unlisted.push(place);
        }
        self.by_mask.insert(mask_id(mask), (place, mask.clone()));
        self.subtables[place as usize] = Some(Subtable::new(mask, secret));
        place
    }

    /// Forgets a megaflow that was deleted, and its subtable if that was the last.
    pub fn remove(&mut self, deleted: &FlowDeleted, quota: &mut NodeQuota) -> Removed {
        if let Some(pruning) = &mut self.pruning {
            pruning.remove_flow(deleted.id, &deleted.matched, quota);
        }
        let Some(&(place, _)) = self.by_mask.get(&mask_id(&deleted.mask)) else { return Removed::default() };
        let Some(subtable) = &mut self.subtables[place as usize] else { return Removed::default() };
        let flow = subtable.remove(&deleted.matched.key, deleted.id);
        if subtable.len() != 0 {
            return Removed { flow, subtable: false };
        }
        self.subtables[place as usize] = None;
        self.holes.push(place);
        self.ranking.retain(|ranked| *ranked != place);
        self.by_mask.remove(&mask_id(&deleted.mask));
        if let Some(pruning) = &mut self.pruning {
            pruning.unlist(place, &deleted.mask.whole);
        }
        self.unlisted.retain(|other| *other != place);
        Removed { flow, subtable: true }
    }

    /// Gives back what it has of the quota, to be dropped.
    pub fn give_back(&self, quota: &mut NodeQuota) {
        quota.0 += self.pruning.as_ref().map_or(0, |pruning| pruning.nodes());
    }

    /// Puts the subtables with the most recent hits first; equals keep their order.
    pub fn rank(&mut self) {
        let subtables = &mut self.subtables;
        let hits = |place: &u32| Reverse(subtables[*place as usize].as_ref().map_or(0, |s| s.hits));
        self.ranking.sort_by_cached_key(hits);
        subtables.iter_mut().flatten().for_each(|s| s.hits /= 2);
    }

    /// Looks up the packets of `miss`, all of which are of this port and recirculation; writes `hits`. Returns who still
    /// misses, and adds how many subtables the others had to ask.
    #[inline]
    pub fn lookup<'g>(
        &mut self,
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
        probes: &mut u64,
        quota: &mut NodeQuota,
    ) -> BatchMask {
        if self.pruning.is_none() || self.ranking.len() < PRUNE_FROM {
            let ranking = &self.ranking;
            return ask_in_turn(&mut self.subtables, ranking.iter(), 0, batch, miss, hits, probes);
        }
        self.lookup_pruned(batch, miss, hits, probes, quota)
    }

    #[inline(never)]
    fn lookup_pruned<'g>(
        &mut self,
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
        probes: &mut u64,
        quota: &mut NodeQuota,
    ) -> BatchMask {
        self.list_one_more(batch.flows, quota);
        let (subtables, first) = (&mut self.subtables, &self.ranking[..FIRST]);
        let mut left = ask_in_turn(subtables, first.iter(), 0, batch, miss, hits, probes);
        let unlisted = self.unlisted.iter().filter(|place| !first.contains(place));
        let asked = FIRST + unlisted.clone().count();
        left = ask_in_turn(subtables, unlisted, FIRST, batch, left, hits, probes);
        let Some(pruning) = &self.pruning else { return left };
        // Stage by stage for the whole batch, so that the packets' cache misses overlap.
        let mut ahead: [ArrayVec<u32, AHEAD>; BATCH_MAX] = std::array::from_fn(|_| ArrayVec::new_const());
        for i in left {
            pruning.survivors(batch.isa, &batch.keys[i], |place| {
                if !first.contains(&place) {
                    ahead[i].push(place);
                    prefetch::read(&subtables[place as usize]);
                }
                ahead[i].is_full()
            });
        }
        let mut tags = [[0; AHEAD]; BATCH_MAX];
        for i in left {
            for (tag, place) in tags[i].iter_mut().zip(&ahead[i]) {
                let Some(subtable) = &subtables[*place as usize] else { continue };
                *tag = subtable.tag_of(&batch.keys[i]);
                subtable.prefetch(*tag);
            }
        }
        for i in left {
            for (tag, place) in tags[i].iter().zip(&ahead[i]) {
                subtables[*place as usize].iter().for_each(|subtable| subtable.prefetch_flows(*tag, batch.flows));
            }
        }
        for i in left {
            let mut n = asked as u64;
            let mut ask = |place: u32, tag: Option<u32>| {
                n += 1;
                let subtable = subtables[place as usize].as_mut()?;
                subtable.find(&batch.keys[i], tag.unwrap_or_else(|| subtable.tag_of(&batch.keys[i])), batch.flows)
            };
            let mut hit = tags[i].iter().zip(&ahead[i]).find_map(|(tag, place)| ask(*place, Some(*tag)));
            if hit.is_none() && ahead[i].is_full() {
                let mut skip = AHEAD;
                pruning.survivors(batch.isa, &batch.keys[i], |place| {
                    if first.contains(&place) {
                        return false;
                    }
                    if skip > 0 {
                        skip -= 1;
                        return false;
                    }
                    hit = ask(place, None);
                    hit.is_some()
                });
            }
            if hit.is_some() {
                hits[i] = hit;
                left.remove(i);
                *probes += n;
            }
        }
        left
    }

    /// Where the subtable of a mask is.
    #[inline]
    pub fn place_of(&self, mask: &Arc<Mask>) -> Option<u32> {
        self.by_mask.get(&mask_id(mask)).map(|(place, _)| *place)
    }

    /// Asks one subtable a packet: the one whose place is `hints[i] - 1`, if there is such a one. Writes `hits` and
    /// returns who still misses.
    pub fn lookup_at<'g>(
        &mut self,
        hints: &[u16; BATCH_MAX],
        batch: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
    ) -> BatchMask {
        let subtables = &mut self.subtables;
        let place = |i: usize| usize::from(hints[i]).wrapping_sub(1);
        // Stage by stage for the whole batch, so that the packets' cache misses overlap.
        let (mut tags, mut large) = ([0; BATCH_MAX], BatchMask::NONE);
        for i in miss {
            let Some(Some(subtable)) = subtables.get(place(i)) else { continue };
            tags[i] = subtable.tag_of(&batch.keys[i]);
            if subtable.is_large() {
                subtable.prefetch(tags[i]);
                large.insert(i);
            }
        }
        for i in large {
            subtables[place(i)].iter().for_each(|subtable| subtable.prefetch_flows(tags[i], batch.flows));
        }
        let mut found = 0;
        for i in miss {
            let Some(Some(subtable)) = subtables.get_mut(place(i)) else { continue };
            if let Some(flow) = subtable.find(&batch.keys[i], tags[i], batch.flows) {
                hits[i] = Some(flow);
                found |= 1 << i;
            }
        }
        BatchMask(miss.0 & !found)
    }

    /// Lists a subtable that was here before the table was large.
    fn list_one_more(&mut self, flows: Slots<'_, Megaflow>, quota: &mut NodeQuota) {
        let Some(pruning) = &mut self.pruning else { return };
        let subtables = &self.subtables;
        let is_small = |place: &u32| subtables[*place as usize].as_ref().is_none_or(|s| s.len() <= LIST_LATER_MAX);
        let Some(at) = self.unlisted.iter().position(is_small) else { return };
        let place = self.unlisted.swap_remove(at);
        let Some(subtable) = &subtables[place as usize] else { return };
        let mut mask = None;
        // A dead megaflow whose notice has not come yet can be no hit, so it needs no prefixes. Its id may be another's.
        for (flow, _) in subtable.ids().filter_map(|id| flows.get_any(id)) {
            let is_here = self.by_mask.get(&mask_id(flow.mask())).is_some_and(|(at, _)| *at == place);
            if is_here {
                pruning.add_flow(flow.id(), flow.matched(), quota);
                mask = Some(flow.mask());
            }
        }
        match mask {
            Some(mask) => pruning.list(place, &mask.whole),
            // All are dead; it goes with their notices.
            None => self.unlisted.push(place),
        }
    }
}

/// Asks subtables one after another about the packets of `miss`; `asked` have been asked before.
#[inline(always)]
fn ask_in_turn<'a, 'g>(
    subtables: &mut [Option<Subtable>],
    places: impl Iterator<Item = &'a u32>,
    asked: usize,
    batch: &LookupBatch<'_, 'g>,
    mut miss: BatchMask,
    hits: &mut Hits<'g>,
    probes: &mut u64,
) -> BatchMask {
    for (at, place) in places.enumerate() {
        if miss.is_empty() {
            break;
        }
        let Some(subtable) = &mut subtables[*place as usize] else { continue };
        let before = miss.len();
        miss = subtable.lookup(batch, miss, hits);
        *probes += ((asked + at + 1) * (before - miss.len())) as u64;
    }
    miss
}

//! The distributor's own table: sixteen signatures and sixteen hints to a cache line.
//!
//! A flow is in the line that its hash selects or, if that was full, in a second line, which follows from the first and
//! the signature. So nearly every lookup reads one line. If both lines are full, one of their entries moves to its
//! other line, where that has a free slot, as in a cuckoo filter. Only if a few entries have none, one is overwritten,
//! in either line: if it were always the first, the same flows would replace each other for ever, beside slots that
//! nobody uses.
//!
//! The table grows with the flows ([`Fill`]). An entry holds too few bits of its hash to find its line in the larger
//! table, so the lines that were in use before are emptied, a few with each entry recorded; else they would be full
//! of entries that no lookup finds, and 3.7 % of those packets would find no hint.

use crate::fill::Fill;
use sluice_mem::{ArrayMemory, HugeArray};
use sluice_packet::BATCH_MAX;
use sluice_simd::hints::{self, Hints, SLOTS};
use sluice_simd::{Isa, prefetch, signature};
use std::ops::Range;
use std::sync::Arc;

/// Lines that are resident when the table is made: 4 MiB, for a million flows.
const READY: usize = 1 << 16;

/// Entries of full lines that may move before one is overwritten. With a million flows in 2^20 slots 0.1 % of the
/// packets find no hint, and 1.1 % if none moves (`shares.rs`).
const MOVES: usize = 8;

/// Lines emptied with each entry recorded after the table grew.
const EMPTIED_A_NOTE: usize = 4;

/// Shape:  2^k lines of 16 slots, of which as many are used as the flows need. The hash's low bits select the line, its
///         high 16 are the signature; 0 is an empty slot.
/// Errors: none. If both lines are full and no entry can move, one is overwritten.
#[derive(Debug)]
pub(super) struct OwnTable {
    lines: HugeArray<Hints>,
    fill: Fill,
    /// Lines still to be emptied since the table grew.
    outgrown: Range<usize>,
    /// Which entries of full lines are looked at next.
    turn: usize,
}

/// Where the hint for a hash may be.
#[derive(Clone, Copy)]
struct BucketPair {
    signature: u16,
    first: u32,
    second: u32,
}

impl OwnTable {
    /// An empty table for up to `entries` flows.
    pub fn new(entries: usize) -> Self {
        let lines = entries.div_ceil(SLOTS).next_power_of_two().max(2);
        OwnTable { lines: HugeArray::new(lines, READY), fill: Fill::new(lines.min(READY)), outgrown: 0..0, turn: 0 }
    }

    /// Its memory, for a thread that may wait.
    pub fn memory(&self) -> Option<Arc<ArrayMemory>> {
        self.lines.memory()
    }

    /// Lines in use: more each time it grows.
    #[inline]
    pub fn lines_in_use(&self) -> usize {
        self.fill.mask() + 1
    }

    /// Whether flows replace each other until more memory is resident.
    #[inline]
    pub fn awaits_memory(&self) -> bool {
        self.fill.is_short_of(self.lines.len())
    }

    #[inline(always)]
    fn place(&self, hash: u64) -> BucketPair {
        let signature = ((hash >> 48) as u16).max(1);
        let first = hash as u32 & self.fill.mask() as u32;
        BucketPair { signature, first, second: self.other(first, signature) }
    }

    /// The other line of an entry. Applied twice it gives the first again. It is never the same line, since the
    /// difference is odd.
    #[inline(always)]
    fn other(&self, line: u32, signature: u16) -> u32 {
        (line ^ (u32::from(signature).wrapping_mul(0x5bd1_e995) | 1)) & self.fill.mask() as u32
    }

    /// The hint recorded for each hash, 0 if there is none.
    pub fn find(&mut self, isa: Isa, hashes: &[u64], found: &mut [u16]) {
        self.fill.count_asked(hashes.len());
        let mut at = [0; BATCH_MAX];
        let mut wanted = [0; BATCH_MAX];
        for (i, hash) in hashes.iter().enumerate() {
            let place = self.place(*hash);
            (at[i], wanted[i]) = (place.first, place.signature);
            prefetch::read(&self.lines[at[i] as usize]);
        }
        hints::find(isa, &self.lines, &at[..hashes.len()], &wanted, found);
        // No branch on a single result: few packets are in their second line, and which is unpredictable.
        let mut unknown = [0; BATCH_MAX];
        let mut n = 0;
        for (i, hint) in found.iter().enumerate() {
            unknown[n] = i;
            n += usize::from(*hint == 0);
        }
        if n == 0 {
            return;
        }
        for (to, i) in unknown[..n].iter().enumerate() {
            let place = self.place(hashes[*i]);
            (at[to], wanted[to]) = (place.second, place.signature);
            prefetch::read(&self.lines[place.second as usize]);
        }
        let mut second = [0; BATCH_MAX];
        hints::find(isa, &self.lines, &at[..n], &wanted, &mut second);
        unknown[..n].iter().zip(second).for_each(|(i, hint)| found[*i] = hint);
    }

    /// Records a hint.
    pub fn note(&mut self, hash: u64, hint: u16) {
        self.grow();
        let BucketPair { signature, first, second } = self.place(hash);
        // Another flow's hint under the same signature is replaced: it would hide this one for ever.
        let same = || self.slot_of(signature, first).or_else(|| self.slot_of(signature, second));
        let free = || self.slot_of(0, first).or_else(|| self.slot_of(0, second));
        let (at, slot) = match same().or_else(free) {
            Some(room) => room,
            None => self.make_room(first, second),
        };
        self.put(at, slot, signature, hint);
    }

    /// The first slot of a line that has this signature.
    #[inline]
    fn slot_of(&self, signature: u16, at: u32) -> Option<(u32, usize)> {
        let slots = signature::matching(&self.lines[at as usize].signatures, signature);
        (slots != 0).then(|| (at, slots.trailing_zeros() as usize))
    }

    #[inline]
    fn put(&mut self, at: u32, slot: usize, signature: u16, hint: u16) {
        let line = &mut self.lines[at as usize];
        (line.signatures[slot], line.hints[slot]) = (signature, hint);
    }

    /// Frees a slot in one of two full lines: moves an entry to its other line, or gives up one.
    fn make_room(&mut self, first: u32, second: u32) -> (u32, usize) {
        // A rotating start: if it followed from the hash, two flows could replace each other beside unused entries.
        self.turn = self.turn.wrapping_add(7);
        let slots: [(u32, usize); MOVES] = std::array::from_fn(|n| {
            let turn = self.turn.wrapping_add(n);
            ([first, second][turn % 2], turn / 2 % SLOTS)
        });
        // Entries from before the table grew are in lines that do not follow from their signatures.
        if self.outgrown.is_empty() {
            let others = slots.map(|(at, slot)| self.other(at, self.lines[at as usize].signatures[slot]));
            others.iter().for_each(|other| prefetch::read(&self.lines[*other as usize]));
            for ((at, slot), other) in slots.into_iter().zip(others) {
                if let Some((to, free)) = self.slot_of(0, other) {
                    let line = &self.lines[at as usize];
                    self.put(to, free, line.signatures[slot], line.hints[slot]);
                    return (at, slot);
                }
            }
        }
        self.fill.count_lost();
        slots[0]
    }

    /// Uses more lines if flows replace each other, and empties some that it has outgrown.
    #[inline]
    fn grow(&mut self) {
        let before = self.fill.mask();
        if let Some(lines) = self.fill.grow() {
            let ready = self.lines.ready().max(1);
            self.fill.set_lines(1 << ready.ilog2());
            self.lines.ask_for(lines);
        }
        if self.fill.mask() != before {
            self.outgrown = 0..before + 1;
        }
        if !self.outgrown.is_empty() {
            let to = self.outgrown.end.min(self.outgrown.start + EMPTIED_A_NOTE);
            self.lines[self.outgrown.start..to].fill(Hints::EMPTY);
            self.outgrown.start = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        /// The last hint recorded is found as long as the lines of its signature have room, and nothing is found that
        /// was not recorded under that signature. Few lines and few signatures make full lines and collisions common.
        #[test]
        fn the_last_noted_is_found(
            steps in prop::collection::vec((0..40u64, 0..4u64, 1..6u16), 1..200),
            entries in 1..100usize,
        ) {
            let mut own = OwnTable::new(entries);
            let mut noted = HashSet::new();
            for (signature, low, hint) in steps {
                let hash = signature << 48 | signature << 32 | low;
                own.note(hash, hint);
                noted.insert((signature.max(1), hint));
                for isa in Isa::available() {
                    let mut found = [0; 3];
                    own.find(isa, &[hash, hash ^ 1 << 50, hash], &mut found);
                    prop_assert_eq!([found[0], found[2]], [hint, hint]);
                    prop_assert!(found[1] == 0 || noted.contains(&((signature ^ 4).max(1), found[1])));
                }
            }
        }
    }

    #[test]
    fn a_full_line_uses_the_second() {
        let mut own = OwnTable::new(1000);
        let hashes: Vec<u64> = (1..=17).map(|signature| signature << 48 | 5).collect();
        hashes.iter().enumerate().for_each(|(i, hash)| own.note(*hash, i as u16 + 1));
        let mut found = [0; 17];
        own.find(Isa::SCALAR, &hashes, &mut found);
        assert_eq!(found.to_vec(), (1..=17).collect::<Vec<u16>>());
    }
}

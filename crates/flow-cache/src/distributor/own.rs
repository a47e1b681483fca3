//! The distributor's own table: sixteen signatures and sixteen hints to a cache line.
//!
//! A flow is in the line that its hash selects or, if that was full, in a second line, which follows from the first and
//! the signature. So nearly every lookup reads one line. As in the work that it is named after, entries are never
//! moved.

use crate::fill::Fill;
use sluice_mem::HugeArray;
use sluice_packet::BATCH_MAX;
use sluice_simd::hints::{self, Hints, SLOTS};
use sluice_simd::{Isa, prefetch, signature};

/// Shape:  2^k lines of 16 slots, of which as many are used as the flows need ([`Fill`]). The hash's low bits select
///         the line, its high 16 are the signature; 0 is an empty slot.
/// Errors: none. If both lines are full, the slots of the first are overwritten in turn.
#[derive(Debug)]
pub(super) struct OwnTable {
    pub lines: HugeArray<Hints>,
    fill: Fill,
}

/// Where the hint for a hash may be.
#[derive(Clone, Copy)]
struct BucketPair {
    signature: u16,
    first: u32,
    second: u32,
}

impl OwnTable {
    pub fn new(entries: usize) -> Self {
        let lines = entries.div_ceil(SLOTS).next_power_of_two().max(2);
        OwnTable { lines: HugeArray::new(lines, lines), fill: Fill::new(lines) }
    }

    #[inline(always)]
    fn place(&self, hash: u64) -> BucketPair {
        let mask = self.fill.mask() as u32;
        let signature = ((hash >> 48) as u16).max(1);
        let first = hash as u32 & mask;
        // The difference is odd, so the second line is never the first.
        BucketPair { signature, first, second: (first ^ (u32::from(signature).wrapping_mul(0x5bd1_e995) | 1)) & mask }
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
        let mut unknown = [0; BATCH_MAX];
        let mut n = 0;
        for (i, hash) in hashes.iter().enumerate() {
            let place = self.place(*hash);
            (unknown[n], at[n], wanted[n]) = (i, place.second, place.signature);
            n += usize::from(found[i] == 0);
        }
        if n == 0 {
            return;
        }
        at[..n].iter().for_each(|at| prefetch::read(&self.lines[*at as usize]));
        let mut second = [0; BATCH_MAX];
        hints::find(isa, &self.lines, &at[..n], &wanted, &mut second);
        unknown[..n].iter().zip(second).for_each(|(i, hint)| found[*i] = hint);
    }

    /// Records a hint.
    pub fn note(&mut self, hash: u64, hint: u16) {
        self.fill.grow();
        let BucketPair { signature, first, second } = self.place(hash);
        let slot_of = |signature, at: u32| {
            let slots = signature::matching(&self.lines[at as usize].signatures, signature);
            (slots != 0).then(|| (at, slots.trailing_zeros() as usize))
        };
        // Another flow's hint under the same signature is replaced: it would hide this one for ever.
        let same = || slot_of(signature, first).or_else(|| slot_of(signature, second));
        let free = || slot_of(0, first).or_else(|| slot_of(0, second));
        let room = same().or_else(free);
        let (at, slot) = room.unwrap_or_else(|| (first, self.fill.count_lost() % SLOTS));
        let line = &mut self.lines[at as usize];
        (line.signatures[slot], line.hints[slot]) = (signature, hint);
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

//! Whether the search for composed entries pays.
//!
//! It does if enough packets have an entry, or enough of a sample's: the flows of the sample are searched for and recorded at all
//! times, so their entries are there when their packets come again. Otherwise the others rest for a while. By the time alone,
//! without a sample, a hundred thousand connections in turn hardly ever met an entry of theirs: it took 50 rests, two
//! seconds, until enough were found. By the sample alone, a few large flows might have none in it.

use sluice_packet::BatchMask;

/// The sample has one flow of this many.
const ONE_IN: u64 = 64;
/// The search is judged each time after this many packets.
const WINDOW: u32 = 4096;
/// While the others rest, it is judged after this many packets of the sample.
const SAMPLE_WINDOW: u32 = 256;
/// The search pays if one packet of this many has an entry.
const FOUND_OF: u32 = 16;
/// A rest lasts for this many packets at most.
const REST: u32 = 64 * WINDOW;

/// What the search has found lately.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// Whether the others rest.
    is_alone: bool,
    all: Found,
    own: Found,
}

/// Packets in a window, and those that had an entry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub packets: u32,
    pub found: u32,
}

impl Found {
    fn add(&mut self, other: Found) {
        self.packets += other.packets;
        self.found += other.found;
    }

    fn pays(self) -> bool {
        self.found != 0 && self.found >= self.packets / FOUND_OF
    }
}

impl Sample {
    /// Whether the flow of this hash is in the sample: by its high bits, since the low ones tell the places of entries.
    #[inline(always)]
    pub fn has(hash: u64) -> bool {
        hash < u64::MAX / ONE_IN
    }

    /// The packets whose flows are in the sample, by the hashes of all packets.
    #[inline(always)]
    pub fn of(hashes: &[u64]) -> BatchMask {
        let mut packets = 0;
        for (i, hash) in hashes.iter().enumerate() {
            packets |= u32::from(Sample::has(*hash)) << i;
        }
        BatchMask(packets)
    }

    /// Whether flows of the sample alone are searched for and recorded.
    #[inline(always)]
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Learns what was found of all packets, and of its own. The others rest only if they may.
    #[inline]
    pub fn learn(&mut self, all: Found, own: Found, may_rest: bool) {
        self.all.add(all);
        self.own.add(own);
        if self.all.packets >= if self.is_alone { REST } else { WINDOW } {
            let pays = self.all.pays() || self.own.pays();
            *self = Sample { is_alone: may_rest && !self.is_alone && !pays, ..Sample::default() };
        } else if self.is_alone && self.own.packets >= SAMPLE_WINDOW {
            let all = if self.own.pays() { Found::default() } else { self.all };
            *self = Sample { is_alone: may_rest && !self.own.pays(), all, own: Found::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_simd::hash::splitmix64;

    fn one(found: bool) -> Found {
        Found { packets: 1, found: found.into() }
    }

    /// Flows in turn, each of which has an entry once it was recorded, if it may: the packets after which others than the
    /// sample rest for the last time.
    fn last_rest(flows: usize, turns: usize, may_have_entry: impl Fn(usize) -> bool) -> usize {
        let mut seed = 1;
        let hashes: Vec<u64> = (0..flows).map(|_| splitmix64(&mut seed)).collect();
        let (mut sample, mut recorded, mut last) = (Sample::default(), vec![false; flows], 0);
        for at in 0..turns * flows {
            let flow = at % flows;
            let is_own = !Sample::of(&hashes[flow..=flow]).is_empty();
            let is_searched = is_own || !sample.is_alone();
            last = if is_searched { last } else { at };
            let found = one(is_searched && recorded[flow]);
            sample.learn(found, if is_own { found } else { Found::default() }, true);
            recorded[flow] |= is_searched && may_have_entry(flow);
        }
        last
    }

    #[test]
    fn many_flows_in_turn_are_found_in_their_second_turn() {
        for flows in [100_000, 1_000_000] {
            let rested = last_rest(flows, 3, |_| true);
            let windows = 3 * SAMPLE_WINDOW as usize * ONE_IN as usize;
            assert!((flows..flows + windows).contains(&rested), "{rested} packets of {flows} flows");
        }
    }

    #[test]
    fn flows_without_entries_rest() {
        let turns = 400;
        assert!(last_rest(1000, turns, |_| false) > 1000 * turns - 2 * WINDOW as usize);
    }

    /// A few flows that have no entry, then others: none of either need be of the sample.
    #[test]
    fn a_rest_ends_without_the_sample() {
        let mut sample = Sample::default();
        (0..WINDOW).for_each(|_| sample.learn(one(false), Found::default(), true));
        assert!(sample.is_alone());
        (0..REST).for_each(|_| sample.learn(one(false), Found::default(), true));
        assert!(!sample.is_alone());
        (0..100 * WINDOW).for_each(|_| {
            sample.learn(one(true), Found::default(), true);
            assert!(!sample.is_alone());
        });
        (0..2 * WINDOW).for_each(|_| sample.learn(one(false), Found::default(), false));
        assert!(!sample.is_alone(), "a setting says that none rests");
    }

    #[test]
    fn one_in_so_many_flows_is_of_it() {
        let mut seed = 7;
        let hashes: Vec<u64> = (0..64_000).map(|_| splitmix64(&mut seed)).collect();
        let n: usize = hashes.chunks(32).map(|hashes| Sample::of(hashes).len()).sum();
        assert!((900..1100).contains(&n), "{n}");
    }
}

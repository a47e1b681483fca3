//! Whether the search for composed entries pays, told by some of the flows.
//!
//! The flows of the sample are searched for and recorded at all times, so their entries are there when their packets come again.
//! The others are, as long as enough of the sample's packets are found. When all flows were searched for a while and then none,
//! a hundred thousand connections in turn hardly ever met an entry of theirs: it took 50 such turns, two seconds, until
//! enough were found.

use sluice_packet::BatchMask;

/// One in this many flows is of the sample.
const ONE_IN: u64 = 32;
/// Packets of the sample after which it is decided.
const WINDOW: u32 = 256;
/// One in this many of them must find an entry.
const FOUND_OF: u32 = 16;

/// What the sample has shown.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// Whether its flows alone are searched for.
    is_alone: bool,
    /// Its packets that were searched for in this window, and found.
    searched: u32,
    found: u32,
}

impl Sample {
    /// Whether flows of that hash are of it. By the high bits: an entry's place is told by the low ones.
    #[inline(always)]
    fn has(hash: u64) -> bool {
        hash < (u64::MAX / ONE_IN)
    }

    /// The packets of it, by the hashes of all packets.
    #[inline(always)]
    pub fn of(hashes: &[u64]) -> BatchMask {
        let mut packets = 0;
        for (i, hash) in hashes.iter().enumerate() {
            packets |= u32::from(Sample::has(*hash)) << i;
        }
        BatchMask(packets)
    }

    /// Whether its flows alone are searched for and recorded.
    #[inline(always)]
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Learns how many of its packets were searched for and found. If the others' search may end, `may_pause`, it decides
    /// after a while about that.
    #[inline]
    pub fn learn(&mut self, searched: usize, found: usize, may_pause: bool) {
        self.searched += searched as u32;
        self.found += found as u32;
        if self.searched >= WINDOW {
            let pays = self.found >= self.searched / FOUND_OF;
            *self = Sample { is_alone: may_pause && !pays, ..Sample::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_simd::hash::splitmix64;

    /// A search of flows in turn, each of which has an entry once it was recorded; how many packets it takes until all are
    /// searched for again.
    fn packets_until_found(flows: usize) -> usize {
        let mut seed = 1;
        let hashes: Vec<u64> = (0..flows).map(|_| splitmix64(&mut seed)).collect();
        let (mut sample, mut recorded, mut was_alone) = (Sample::default(), vec![false; flows], false);
        for at in 0.. {
            let flow = at % flows;
            let is_of_it = !Sample::of(&hashes[flow..=flow]).is_empty();
            let is_searched = is_of_it || !sample.is_alone();
            if is_of_it {
                sample.learn(1, recorded[flow].into(), true);
            }
            recorded[flow] |= is_searched;
            was_alone |= sample.is_alone();
            if was_alone && !sample.is_alone() {
                return at;
            }
        }
        unreachable!("the range has no end")
    }

    #[test]
    fn many_flows_in_turn_are_found_in_their_second_turn() {
        for flows in [100_000, 1_000_000] {
            let packets = packets_until_found(flows);
            assert!((flows..flows + flows / 4).contains(&packets), "{packets} packets of {flows} flows");
        }
    }

    #[test]
    fn flows_that_do_not_come_again_are_not_searched_for() {
        let mut sample = Sample::default();
        (0..10 * WINDOW).for_each(|_| sample.learn(1, 0, true));
        assert!(sample.is_alone());
        (0..10 * WINDOW).for_each(|_| sample.learn(1, 0, false));
        assert!(!sample.is_alone(), "a setting says that they are");
    }

    #[test]
    fn one_in_so_many_flows_is_of_it() {
        let mut seed = 7;
        let hashes: Vec<u64> = (0..32_000).map(|_| splitmix64(&mut seed)).collect();
        let n: usize = hashes.chunks(32).map(|hashes| Sample::of(hashes).len()).sum();
        assert!((900..1100).contains(&n), "{n}");
    }
}

//! Bursts that something besides their packets lengthened: an interrupt, or the host of a virtual machine, which takes the core away
//! for a tenth of a millisecond and tells nobody, so that the thread's own time passes ([`other_work`] does not see it).
//!
//! A few bursts of a chunk are then many times as dear as all others, and they seldom say anything about an arm: if they counted, the
//! autopilot would take the chunk for a change of traffic. Where more bursts are dear, or they are dearer by less, the traffic is
//! what makes them so, and they stay.
//!
//! What took the time is not known. A sender that makes one burst in sixteen many times as dear hides these from the choice of an arm,
//! which is then made for all other packets. Its queue is charged for them nevertheless.
//!
//! [`other_work`]: super::other_work

use super::sample::Sample;
use arrayvec::ArrayVec;

/// The most bursts of a chunk that are set aside.
const MOST: usize = 8;
/// Nothing is set aside if more than one burst in this many would be.
const ONE_IN: u64 = 16;
/// How much dearer than all others the packets of a burst are that is set aside.
const DEARER: f64 = 4.0;

/// A burst.
#[derive(Clone, Copy, Debug)]
struct Burst {
    cycles: u64,
    packets: u64,
}

/// The longest bursts of a chunk under way: as many as may be set aside, and one more.
#[derive(Clone, Debug, Default)]
pub(super) struct Outliers {
    longest: ArrayVec<Burst, { MOST + 1 }>,
    /// Cycles of the shortest of them, once there are as many as are kept: only a longer burst replaces it.
    shortest: u64,
}

impl Outliers {
    /// Takes a burst.
    #[inline]
    pub fn push(&mut self, burst: &Sample) {
        if burst.cycles > self.shortest {
            self.keep(Burst { cycles: burst.cycles, packets: burst.packets });
        }
    }

    fn keep(&mut self, burst: Burst) {
        if !self.longest.is_full() {
            self.longest.push(burst);
        } else if let Some(shortest) = self.longest.iter_mut().min_by_key(|kept| kept.cycles) {
            *shortest = burst;
        }
        if self.longest.is_full() {
            self.shortest = self.longest.iter().map(|kept| kept.cycles).min().unwrap_or(0);
        }
    }

    /// Ends the chunk, whose bursts were all taken: notes in it what is set aside, and forgets its bursts.
    pub fn set_aside(&mut self, chunk: &mut Sample) {
        let mut longest = std::mem::take(self).longest;
        longest.sort_by_key(|burst| std::cmp::Reverse(burst.cycles));
        let most = (chunk.bursts / ONE_IN).min(MOST as u64) as usize;
        longest.truncate(most + 1);
        let of_all = |count: fn(&Burst) -> u64| longest.iter().map(count).sum::<u64>();
        let (cycles, packets) = (of_all(|burst| burst.cycles), of_all(|burst| burst.packets));
        let usual = (chunk.cycles - cycles) as f64 / (chunk.packets - packets).max(1) as f64;
        let is_dear = |burst: &&Burst| burst.cycles as f64 > DEARER * usual * burst.packets as f64;
        if longest.iter().filter(is_dear).count() > most {
            return;
        }
        for burst in longest.iter().filter(is_dear) {
            chunk.aside_cycles += burst.cycles;
            chunk.aside_packets += burst.packets;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn chunk(bursts: &[(u64, u64)]) -> Sample {
        let mut outliers = Outliers::default();
        let mut chunk = Sample::default();
        for (cycles, packets) in bursts {
            let burst = Sample { bursts: 1, cycles: *cycles, packets: *packets, ..Sample::default() };
            outliers.push(&burst);
            chunk.add(&burst);
        }
        outliers.set_aside(&mut chunk);
        chunk
    }

    #[test]
    fn bursts_that_an_interrupt_struck_do_not_count() {
        let mut bursts = vec![(3200, 32); 100];
        (bursts[3], bursts[50], bursts[99]) = ((200_000, 32), (14_000, 32), (90_000, 1));
        assert_eq!(chunk(&bursts).cost(), 100.0);
        assert_eq!(
            chunk(&bursts[..15]).cost(),
            (200_000.0 + 14.0 * 3200.0) / (15.0 * 32.0),
            "one of fifteen is not rare"
        );
    }

    #[test]
    fn dear_traffic_counts() {
        let twice = [vec![(3200, 32); 97], vec![(6400, 32); 3]].concat();
        assert_eq!(chunk(&twice).aside_packets, 0, "dearer by less");
        let many = [vec![(3200, 32); 80], vec![(64_000, 32); 20]].concat();
        assert_eq!(chunk(&many).aside_packets, 0, "a fifth of the bursts");
    }

    /// The same by sorting all bursts.
    fn plainly(bursts: &[(u64, u64)]) -> (u64, u64) {
        let mut sorted = bursts.to_vec();
        sorted.sort_by_key(|(cycles, _)| std::cmp::Reverse(*cycles));
        let most = (bursts.len() / ONE_IN as usize).min(MOST);
        let (longest, others) = sorted.split_at(most + 1);
        let sum =
            |bursts: &[(u64, u64)]| bursts.iter().fold((0, 0), |(c, p), (cycles, packets)| (c + cycles, p + packets));
        let (cycles, packets) = sum(others);
        let usual = cycles as f64 / packets.max(1) as f64;
        let dear: Vec<(u64, u64)> =
            longest.iter().copied().filter(|(c, p)| *c as f64 > DEARER * usual * *p as f64).collect();
        if dear.len() > most { (0, 0) } else { sum(&dear) }
    }

    proptest! {
        #[test]
        fn it_sets_aside_what_sorting_finds(
            // Lengths differ, since of two that are alike either may be set aside.
            bursts in vec((40u64..50, 1u64..=32, prop_oneof![30 => Just(1u64), 1 => 2u64..200]), 1..200)
        ) {
            let bursts: Vec<(u64, u64)> =
                (0..).zip(&bursts).map(|(n, (cost, packets, dearness))| (cost * packets * dearness * 256 + n, *packets)).collect();
            let chunk = chunk(&bursts);
            prop_assert_eq!((chunk.aside_cycles, chunk.aside_packets), plainly(&bursts));
        }
    }
}

//! The load of receive queues, for `pmd-rxq-show` and for their assignment to PMDs, and the fates of their packets.

use parking_lot::Mutex;
use sluice_action::PortNo;
use sluice_fate::PmdStats;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Length of a measuring interval. Source: OVS, PMD_INTERVAL_LEN.
pub(crate) const INTERVAL_MS: u64 = 5000;
/// Intervals that are remembered. Source: OVS, PMD_INTERVAL_MAX.
pub(crate) const INTERVALS: usize = 12;

/// Cycles in the last intervals: written by one PMD, read by anyone.
#[derive(Debug, Default)]
pub(crate) struct Load {
    past: [AtomicU64; INTERVALS],
    /// Intervals that have ended.
    ended: AtomicU64,
    current: AtomicU64,
}

/// What a PMD reports about a receive queue. It moves with the queue from PMD to PMD.
#[derive(Debug)]
pub(crate) struct RxqLoad {
    pub port: PortNo,
    pub port_name: String,
    pub queue: usize,
    pub placement: Mutex<Placement>,
    /// Whether a thread can sleep until it has packets.
    pub can_be_waited_for: bool,
    pub load: Load,
    /// The fates of the packets that it received.
    pub fates: PmdStats,
}

/// What decides which PMD polls a queue, besides its load. Control threads alone read and change it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The NUMA node of the port.
    pub numa: u32,
    /// The core whose PMD the user assigned the queue to, where it stays if there is such a PMD.
    pub core: Option<usize>,
}

impl Load {
    /// Adds cycles to the interval under way.
    #[inline]
    pub fn add(&self, cycles: u64) {
        self.current.store(self.current.load(Relaxed) + cycles, Relaxed);
    }

    /// Ends the interval under way.
    pub fn end_interval(&self) {
        let ended = self.ended.load(Relaxed);
        self.past[ended as usize % INTERVALS].store(self.current.swap(0, Relaxed), Relaxed);
        self.ended.store(ended + 1, Relaxed);
    }

    /// A number that differs from one addition to the next.
    pub fn now(&self) -> u64 {
        // An interval that ends takes its cycles along.
        self.current.load(Relaxed) ^ self.ended.load(Relaxed) << 56
    }

    /// The cycles of each interval remembered, in no order.
    pub fn intervals(&self) -> Vec<u64> {
        let n = (self.ended.load(Relaxed) as usize).min(INTERVALS);
        self.past[..n].iter().map(|cycles| cycles.load(Relaxed)).collect()
    }

    /// Cycles of the intervals remembered.
    pub fn sum(&self) -> u64 {
        self.sum_of_last(INTERVALS)
    }

    /// Cycles of the last intervals; of no more than are remembered.
    pub fn sum_of_last(&self, intervals: usize) -> u64 {
        let ended = self.ended.load(Relaxed) as usize;
        let last = (1..=intervals.min(INTERVALS)).map(|ago| (ended + INTERVALS - ago) % INTERVALS);
        last.map(|at| self.past[at].load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_twelve_intervals_count() {
        let load = Load::default();
        for i in 0..20 {
            load.add(i);
            load.end_interval();
        }
        load.add(1000);
        assert_eq!(load.sum(), (8..20).sum::<u64>());
        assert_eq!([load.sum_of_last(1), load.sum_of_last(2), load.sum_of_last(99)], [19, 37, load.sum()]);
    }
}

//! The last iterations, or milliseconds, of a PMD.

use std::collections::VecDeque;

/// How many of them are kept. Source: Open vSwitch lib/dpif-netdev-perf.h, HISTORY_LEN.
pub const HISTORY_LEN: usize = 1000;

/// What a PMD did in an iteration, or in all iterations of a millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerfSample {
    /// The iteration's number, or the millisecond.
    pub timestamp: u64,
    /// Iterations.
    pub iterations: u64,
    /// Cycles of all of them.
    pub cycles: u64,
    /// Cycles of those that received something.
    pub busy_cycles: u64,
    /// Packets received.
    pub packets: u64,
    /// Bursts in which they came.
    pub batches: u64,
    /// The fullest ring of a guest; of several iterations, the sum.
    pub vhost_qfill: u64,
    /// Upcalls.
    pub upcalls: u64,
    /// Their cycles.
    pub upcall_cycles: u64,
}

impl PerfSample {
    /// Adds another one's numbers.
    pub fn add(&mut self, other: &PerfSample) {
        self.iterations += other.iterations;
        self.cycles += other.cycles;
        self.busy_cycles += other.busy_cycles;
        self.packets += other.packets;
        self.batches += other.batches;
        self.vhost_qfill += other.vhost_qfill;
        self.upcalls += other.upcalls;
        self.upcall_cycles += other.upcall_cycles;
    }
}

/// The last samples. Its memory is reserved at the start.
#[derive(Debug)]
pub struct History(VecDeque<PerfSample>);

impl Default for History {
    fn default() -> Self {
        History(VecDeque::with_capacity(HISTORY_LEN))
    }
}

impl Clone for History {
    fn clone(&self) -> Self {
        let mut samples = VecDeque::with_capacity(HISTORY_LEN);
        samples.extend(&self.0);
        History(samples)
    }
}

impl History {
    /// Keeps a sample, and forgets the oldest if there are too many.
    pub fn push(&mut self, sample: PerfSample) {
        if self.0.len() == HISTORY_LEN {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// The samples, the last first.
    pub fn newest_first(&self) -> impl Iterator<Item = &PerfSample> {
        self.0.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_and_memory_stays() {
        let mut history = History::default();
        let capacity = history.0.capacity();
        for timestamp in 0..2500 {
            history.push(PerfSample { timestamp, ..PerfSample::default() });
        }
        let kept: Vec<u64> = history.newest_first().map(|sample| sample.timestamp).collect();
        assert_eq!(kept, (1500..2500).rev().collect::<Vec<_>>());
        assert_eq!(history.0.capacity(), capacity);
        assert!(history.clone().newest_first().eq(history.newest_first()));
    }
}

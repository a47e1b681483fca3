//! Counting a batch ([`Tally`]), publishing it ([`PmdStats`]), reading it ([`Snapshot`]).

use crate::{Counter, DropReason};
use std::ops::{Index, IndexMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a PMD has counted since it last published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    counters: [u64; Counter::COUNT],
    drops: [u64; DropReason::COUNT],
}

/// One PMD's counters: written by that PMD only, read by anyone.
///
/// Values never decrease. Values that are read together may be one batch apart.
#[derive(Debug)]
#[repr(align(128))] // keep two PMDs off one line pair. Source: crossbeam-utils cache_padded.rs
pub struct PmdStats {
    counters: [AtomicU64; Counter::COUNT],
    drops: [AtomicU64; DropReason::COUNT],
}

/// Counters as they were read, of one PMD or added up over several.
pub type Snapshot = Tally;

impl Default for Tally {
    fn default() -> Self {
        Tally { counters: [0; Counter::COUNT], drops: [0; DropReason::COUNT] }
    }
}

impl Default for PmdStats {
    fn default() -> Self {
        PmdStats {
            counters: std::array::from_fn(|_| AtomicU64::new(0)),
            drops: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Tally {
    /// Counts `n` packets dropped for `reason`.
    #[inline]
    pub fn drop(&mut self, reason: DropReason, n: usize) {
        self.drops[reason as usize] += n as u64;
    }

    /// Packets dropped for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Packets dropped for any reason.
    pub fn dropped_in_all(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Adds every value of `other`.
    pub fn add(&mut self, other: &Tally) {
        self.counters.iter_mut().zip(&other.counters).for_each(|(to, n)| *to += n);
        self.drops.iter_mut().zip(&other.drops).for_each(|(to, n)| *to += n);
    }

    /// What was counted after `earlier`, an older reading of the same counters.
    pub fn since(&self, earlier: &Tally) -> Tally {
        let mut out = self.clone();
        out.counters.iter_mut().zip(&earlier.counters).for_each(|(to, n)| *to = to.saturating_sub(*n));
        out.drops.iter_mut().zip(&earlier.drops).for_each(|(to, n)| *to = to.saturating_sub(*n));
        out
    }

    /// Checks the conservation law: every packet ended in exactly one way. On failure, both sides of the sum.
    ///
    /// It holds whenever no batch is being processed.
    pub fn conserved(&self) -> Result<(), Imbalance> {
        let came =
            self[Counter::Received] + self[Counter::Originated] + self[Counter::Cloned] + self[Counter::Released];
        let went = self[Counter::Sent] + self[Counter::Delivered] + self[Counter::Held] + self.dropped_in_all();
        if came == went { Ok(()) } else { Err(Imbalance { came, went }) }
    }
}

/// The two sides of the conservation law when they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// Packets received, originated, cloned and released.
    pub came: u64,
    /// Packets sent, delivered, held and dropped.
    pub went: u64,
}

impl std::fmt::Display for Imbalance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "packets are not conserved: {} came, {} went", self.came, self.went)
    }
}

impl std::error::Error for Imbalance {}

impl Index<Counter> for Tally {
    type Output = u64;
    fn index(&self, counter: Counter) -> &u64 {
        &self.counters[counter as usize]
    }
}

impl IndexMut<Counter> for Tally {
    #[inline]
    fn index_mut(&mut self, counter: Counter) -> &mut u64 {
        &mut self.counters[counter as usize]
    }
}

impl PmdStats {
    /// Adds `tally` to the published counters and empties it. Only the owning PMD calls this.
    pub fn publish(&self, tally: &mut Tally) {
        let pairs = self.counters.iter().zip(&mut tally.counters).chain(self.drops.iter().zip(&mut tally.drops));
        for (shared, n) in pairs {
            // Most counters do not change in a batch. A cache line that is not written stays shared with its readers.
            if *n != 0 {
                // With a single writer, a load and a store replace an atomic addition.
                shared.store(shared.load(Relaxed) + *n, Relaxed);
                *n = 0;
            }
        }
    }

    /// Reads all counters.
    pub fn snapshot(&self) -> Snapshot {
        Tally {
            counters: std::array::from_fn(|i| self.counters[i].load(Relaxed)),
            drops: std::array::from_fn(|i| self.drops[i].load(Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishing_moves_the_tally() {
        let stats = PmdStats::default();
        let mut tally = Tally::default();
        tally[Counter::Received] += 3;
        tally.drop(DropReason::RxRunt, 1);
        stats.publish(&mut tally);
        assert_eq!(tally, Tally::default());
        tally[Counter::Sent] += 2;
        stats.publish(&mut tally);
        let read = stats.snapshot();
        assert_eq!((read[Counter::Received], read.dropped(DropReason::RxRunt)), (3, 1));
        assert_eq!(read.conserved(), Ok(()));
    }

    #[test]
    fn a_lost_packet_is_noticed() {
        let mut tally = Tally::default();
        tally[Counter::Received] = 5;
        tally[Counter::Cloned] = 1;
        tally[Counter::Sent] = 5;
        assert_eq!(tally.conserved(), Err(Imbalance { came: 6, went: 5 }));
    }

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<_> =
            DropReason::ALL.iter().map(|r| r.name()).chain(Counter::ALL.iter().map(|c| c.name())).collect();
        let n = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), n);
        assert_eq!(DropReason::RxRunt.explanation(), "Frame shorter than an Ethernet header.");
    }
}

//! The counters of a queue: one writer, any number of readers.

use crate::PortStats;
use sluice_fate::{Counter, DropReason, Tally};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One queue's counters. Only the queue's owner writes them, once a batch.
#[derive(Debug)]
#[repr(align(128))] // keep two queues off one line pair. Source: crossbeam-utils cache_padded.rs
pub(crate) struct QueueStats {
    packets: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    missed: AtomicU64,
    retries: AtomicU64,
    /// By reason.
    drops: [AtomicU64; DropReason::COUNT],
}

// Not derived: arrays of more than 32 elements have no default.
impl Default for QueueStats {
    fn default() -> Self {
        let zero = AtomicU64::default;
        QueueStats {
            packets: zero(),
            bytes: zero(),
            errors: zero(),
            missed: zero(),
            retries: zero(),
            drops: std::array::from_fn(|_| zero()),
        }
    }
}

impl QueueStats {
    /// Counts carried packets.
    #[inline]
    pub(crate) fn carried(&self, packets: usize, bytes: usize) {
        add(&self.packets, packets);
        add(&self.bytes, bytes);
    }

    /// Counts unsent packets of this queue for a reason, here and in the PMD's tally.
    #[inline]
    pub(crate) fn drop_unsent(&self, reason: DropReason, packets: usize, tally: &mut Tally) {
        if packets != 0 {
            tally.drop(reason, packets);
            add(&self.drops[reason as usize], packets);
        }
    }

    /// The same for packets that this queue received but does not deliver.
    #[inline]
    pub(crate) fn drop_received(&self, reason: DropReason, packets: usize, tally: &mut Tally) {
        tally[Counter::Received] += packets as u64;
        self.drop_unsent(reason, packets, tally);
    }

    /// Counts packets that were lost before this queue received them.
    #[inline]
    pub(crate) fn missed(&self, packets: usize) {
        if packets != 0 {
            add(&self.missed, packets);
        }
    }

    /// Counts further attempts to send the rest of a batch.
    #[inline]
    pub(crate) fn retried(&self, n: usize) {
        if n != 0 {
            add(&self.retries, n);
        }
    }

    /// Further attempts to send the rest of a batch.
    pub(crate) fn retries(&self) -> u64 {
        self.retries.load(Relaxed)
    }

    /// Counts packets, or attempts, that the device refused.
    pub(crate) fn errors(&self, n: usize) {
        if n != 0 {
            add(&self.errors, n);
        }
    }
}

#[inline]
fn add(counter: &AtomicU64, n: usize) {
    // With a single writer, a load and a store replace an atomic addition.
    counter.store(counter.load(Relaxed) + n as u64, Relaxed);
}

/// Adds up the queues of a port.
pub(crate) fn total<'a>(
    rx: impl IntoIterator<Item = &'a QueueStats>,
    tx: impl IntoIterator<Item = &'a QueueStats>,
) -> PortStats {
    let mut sum = PortStats::default();
    for queue in rx {
        sum.rx_packets += queue.packets.load(Relaxed);
        sum.rx_bytes += queue.bytes.load(Relaxed);
        collect(&queue.drops, &mut sum.rx_drops);
        sum.rx_errors += queue.errors.load(Relaxed);
        sum.rx_missed += queue.missed.load(Relaxed);
    }
    for queue in tx {
        sum.tx_packets += queue.packets.load(Relaxed);
        sum.tx_bytes += queue.bytes.load(Relaxed);
        collect(&queue.drops, &mut sum.tx_drops);
        sum.tx_errors += queue.errors.load(Relaxed);
    }
    sum.rx_dropped = sum.rx_drops.iter().sum::<u64>() + sum.rx_missed;
    sum.tx_dropped = sum.tx_drops.iter().sum();
    sum
}

fn collect(drops: &[AtomicU64; DropReason::COUNT], into: &mut [u64; DropReason::COUNT]) {
    into.iter_mut().zip(drops).for_each(|(sum, n)| *sum += n.load(Relaxed));
}

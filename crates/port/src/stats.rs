//! Counting what a queue carries: one writer, any reader.

use crate::PortStats;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One queue's counters. Only the queue's owner writes, once a batch.
#[derive(Debug, Default)]
#[repr(align(128))] // keep two queues off one line pair. Source: crossbeam-utils cache_padded.rs
pub(crate) struct QueueStats {
    packets: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
    errors: AtomicU64,
}

impl QueueStats {
    /// Counts packets carried.
    #[inline]
    pub(crate) fn carried(&self, packets: usize, bytes: usize) {
        add(&self.packets, packets);
        add(&self.bytes, bytes);
    }

    /// Counts packets dropped at this queue.
    #[inline]
    pub(crate) fn dropped(&self, packets: usize) {
        if packets != 0 {
            add(&self.dropped, packets);
        }
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
    // One writer, so load and store need no locked add.
    counter.store(counter.load(Relaxed) + n as u64, Relaxed);
}

/// Sums up the queues of a port.
pub(crate) fn total<'a>(
    rx: impl IntoIterator<Item = &'a QueueStats>,
    tx: impl IntoIterator<Item = &'a QueueStats>,
) -> PortStats {
    let mut sum = PortStats::default();
    for queue in rx {
        sum.rx_packets += queue.packets.load(Relaxed);
        sum.rx_bytes += queue.bytes.load(Relaxed);
        sum.rx_dropped += queue.dropped.load(Relaxed);
        sum.rx_errors += queue.errors.load(Relaxed);
    }
    for queue in tx {
        sum.tx_packets += queue.packets.load(Relaxed);
        sum.tx_bytes += queue.bytes.load(Relaxed);
        sum.tx_dropped += queue.dropped.load(Relaxed);
        sum.tx_errors += queue.errors.load(Relaxed);
    }
    sum
}

//! Counters of a patch port, which no device has.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Packets and bytes that crossed a patch port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchStats {
    /// Packets that came from its peer.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Packets that went to its peer.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
}

/// The counters, which translations and revalidation credit.
#[derive(Debug, Default)]
pub(crate) struct PatchCounts {
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
}

impl PatchCounts {
    pub fn receive(&self, packets: u64, bytes: u64) {
        self.rx_packets.fetch_add(packets, Relaxed);
        self.rx_bytes.fetch_add(bytes, Relaxed);
    }

    pub fn send(&self, packets: u64, bytes: u64) {
        self.tx_packets.fetch_add(packets, Relaxed);
        self.tx_bytes.fetch_add(bytes, Relaxed);
    }

    pub fn read(&self) -> PatchStats {
        PatchStats {
            rx_packets: self.rx_packets.load(Relaxed),
            rx_bytes: self.rx_bytes.load(Relaxed),
            tx_packets: self.tx_packets.load(Relaxed),
            tx_bytes: self.tx_bytes.load(Relaxed),
        }
    }
}

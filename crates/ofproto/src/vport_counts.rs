//! Counters of patch ports and tunnels, which have no device.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Packets and bytes of a patch port or a tunnel. Those of a tunnel are the inner ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VportStats {
    /// Packets that came from its peer or by the tunnel.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Packets that went to its peer or into the tunnel.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
}

/// The counters, which translations and revalidation credit.
#[derive(Debug, Default)]
pub(crate) struct VportCounts {
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
}

impl VportCounts {
    pub fn receive(&self, packets: u64, bytes: u64) {
        self.rx_packets.fetch_add(packets, Relaxed);
        self.rx_bytes.fetch_add(bytes, Relaxed);
    }

    pub fn send(&self, packets: u64, bytes: u64) {
        self.tx_packets.fetch_add(packets, Relaxed);
        self.tx_bytes.fetch_add(bytes, Relaxed);
    }

    pub fn read(&self) -> VportStats {
        VportStats {
            rx_packets: self.rx_packets.load(Relaxed),
            rx_bytes: self.rx_bytes.load(Relaxed),
            tx_packets: self.tx_packets.load(Relaxed),
            tx_bytes: self.tx_bytes.load(Relaxed),
        }
    }
}

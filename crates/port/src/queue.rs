//! The traits every port back end implements.

use sluice_fate::{DropReason, Tally};
use sluice_packet::{Buffers, PacketBatch};

/// A receive queue, polled by one PMD.
pub trait RxQueue: Send {
    /// Appends up to a batch of packets, without waiting.
    ///
    /// The caller counts what was appended as received. A frame the queue itself must drop (truncated, oversize) it
    /// counts here, both as received and as dropped by name, so that the counters add up.
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally);

    /// Whether nothing will ever come again (a capture read to its end).
    fn exhausted(&self) -> bool {
        false
    }
}

/// A transmit queue, used by one PMD.
pub trait TxQueue: Send {
    /// Sends every packet of `batch`, leaving it empty: counts each as sent, or as dropped by name.
    ///
    /// A frame of the device's own pool leaves without a copy; of another pool it is copied and given back.
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally);
}

/// What a port is, for `dpif/show` and the like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The type as configured: `generator`, `null`, `pcap`, `tap` …
    pub kind: &'static str,
    /// Receive queues.
    pub n_rxq: usize,
    /// Transmit queues; PMDs beyond that share them.
    pub n_txq: usize,
    /// Longest packet without its Ethernet header and tags, bytes.
    pub mtu: u32,
    /// Its Ethernet address.
    pub mac: [u8; 6],
}

/// What a port has counted over all queues, in packets and bytes.
///
/// `rx_packets` were handed over and `tx_packets` sent; those dropped are not among them. Drops by reason are indexed by
/// `reason as usize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct PortStats {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    /// Those in `rx_drops` and `rx_missed`.
    pub rx_dropped: u64,
    pub rx_errors: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    /// Those in `tx_drops`.
    pub tx_dropped: u64,
    pub tx_errors: u64,
    /// Received and not handed over.
    pub rx_drops: [u64; DropReason::COUNT],
    /// Meant for this port and not sent.
    pub tx_drops: [u64; DropReason::COUNT],
    /// Lost by the device or the kernel before the port had them: for want of a buffer, as a rule.
    pub rx_missed: u64,
}

/// A port's control side. Lives in a control thread; its queues live in PMDs and may outlive one reconfiguration.
pub trait Port: Send {
    /// What it is.
    fn info(&self) -> PortInfo;

    /// Gives out receive queue `queue` (below `n_rxq`). Asked once for each.
    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue>;

    /// Gives out a transmit queue for PMD number `pmd`; may be asked again after a reconfiguration.
    fn tx_queue(&mut self, pmd: usize) -> Box<dyn TxQueue>;

    /// Whether the link is up.
    fn is_up(&self) -> bool {
        true
    }

    /// What was asked for and could not be had, when it was opened; for the log.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// Opens anew what has gone and come back. Called from a control thread, about once a second.
    fn service(&mut self) {}

    /// What all its queues have counted.
    fn stats(&self) -> PortStats;
}

//! The traits that every port type implements.

use crate::dummy::DummyDevice;
use crate::{DeviceStatus, Pools, PortConfig};
use sluice_fate::{DropReason, Tally};
use sluice_packet::{Buffers, PacketBatch};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A receive queue, polled by one PMD.
pub trait RxQueue: Send {
    /// Appends up to [`PacketBatch::room`] packets without waiting.
    ///
    /// The caller counts the appended packets as received. The queue counts a frame that it must drop itself
    /// (truncated, oversize) as received and as dropped with a reason, so that the counters add up.
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally);

    /// A descriptor that poll(2) reports as readable while the queue has packets. `None`: the queue has no such thing,
    /// so a PMD must poll it again and again.
    ///
    /// The descriptor keeps its number as long as the queue lives, also if its device goes and comes back.
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// How many packets wait in a guest's ring, for statistics; `None`: it is none, or cannot tell.
    fn waiting(&self) -> Option<usize> {
        None
    }

    /// Whether no packet will ever come again (a capture at its end).
    fn exhausted(&self) -> bool {
        false
    }
}

/// A transmit queue, used by one PMD.
pub trait TxQueue: Send {
    /// Sends every packet of `batch` and leaves it empty. Counts each packet as sent, or as dropped with a reason.
    ///
    /// A frame of the device's own pool leaves without a copy; a frame of another pool is copied and given back.
    ///
    /// A queue may keep packets that the next batch is likely to continue, counted as held. Its caller then asks for them
    /// before it rests.
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally);

    /// Whether it keeps packets.
    fn keeps_packets(&self) -> bool {
        false
    }

    /// Sends the packets that it keeps.
    fn send_kept(&mut self, _buffers: &mut Buffers, _tally: &mut Tally) {}
}

/// A port's properties, for `dpif/show` and the like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The type as configured: `generator`, `null`, `pcap`, `tap` …
    pub kind: &'static str,
    /// Receive queues.
    pub n_rxq: usize,
    /// Transmit queues; further PMDs share them.
    pub n_txq: usize,
    /// Longest packet without its Ethernet header and tags, bytes.
    pub mtu: u32,
    /// Its Ethernet address.
    pub mac: [u8; 6],
}

/// A port's statistics over all queues, in packets and bytes.
///
/// `rx_packets` were delivered and `tx_packets` sent; dropped packets are not among them. Drops by reason are indexed
/// by `reason as usize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct PortStats {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    /// The sum of `rx_drops` and `rx_missed`.
    pub rx_dropped: u64,
    pub rx_errors: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    /// The sum of `tx_drops`.
    pub tx_dropped: u64,
    pub tx_errors: u64,
    /// Received but not delivered.
    pub rx_drops: [u64; DropReason::COUNT],
    /// Meant for this port but not sent.
    pub tx_drops: [u64; DropReason::COUNT],
    /// Lost by the device or the kernel before the port received them, usually for lack of a buffer.
    pub rx_missed: u64,
}

// Not derived: arrays of more than 32 elements have no default.
impl Default for PortStats {
    fn default() -> Self {
        PortStats {
            rx_packets: 0,
            rx_bytes: 0,
            rx_dropped: 0,
            rx_errors: 0,
            tx_packets: 0,
            tx_bytes: 0,
            tx_dropped: 0,
            tx_errors: 0,
            rx_drops: [0; DropReason::COUNT],
            tx_drops: [0; DropReason::COUNT],
            rx_missed: 0,
        }
    }
}

/// A port's control side. It belongs to a control thread; its queues belong to PMDs and may outlive a reconfiguration.
pub trait Port: Send {
    /// Its properties.
    fn info(&self) -> PortInfo;

    /// Hands out receive queue `queue` (below `n_rxq`). Called once for each that the port has got.
    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue>;

    /// Hands out a transmit queue for PMD number `pmd`. May be called again after a reconfiguration.
    fn tx_queue(&mut self, pmd: usize) -> Box<dyn TxQueue>;

    /// The NUMA node of its device.
    fn numa_id(&self) -> u32 {
        0
    }

    /// Whether the link is up.
    fn is_up(&self) -> bool {
        true
    }

    /// What its device says of itself now.
    fn device_status(&self) -> DeviceStatus {
        DeviceStatus::of_info(&self.info(), self.is_up())
    }

    /// The kernel's device that [`Port::device_status`] asks: while the kernel tells of no change of it
    /// ([`crate::LinkMonitor`]), the answer stays the same.
    fn kernel_device(&self) -> Option<&str> {
        None
    }

    /// Changes its Ethernet address.
    ///
    /// # Errors
    /// If the device refuses, or its address cannot be changed.
    fn set_mac(&mut self, _mac: [u8; 6]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Changes its MTU without closing its device. `pools` have the buffers for longer packets.
    ///
    /// # Errors
    /// If the device refuses, or the port must be opened again for that.
    fn set_mtu(&mut self, _mtu: u32, _pools: &mut Pools) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Changes its options and its number of receive queues without closing its device. Receive queues whose numbers
    /// it still has keep working, those that it has no more give nothing, and new ones can be had.
    ///
    /// # Errors
    /// If the port must be opened again for that.
    fn reconfigure(&mut self, _config: &PortConfig) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sets it up or down, as `netdev-dpdk/set-admin-state` asks.
    ///
    /// # Errors
    /// If it is no port of Open vSwitch's DPDK types, or its device refuses.
    fn set_admin_state(&mut self, _is_up: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// What DPDK shows of the pool of its packet buffers, if that is DPDK's.
    fn mempool_info(&self) -> Option<String> {
        None
    }

    /// Tells it whether a queueing discipline is to shape what its kernel device sends. A port that goes past the
    /// kernel's disciplines sends through them while there is one.
    ///
    /// # Errors
    /// If the kernel gives no socket for that.
    fn set_shaped(&mut self, _is_shaped: bool) -> io::Result<()> {
        Ok(())
    }

    /// Requests that could not be met when the port was opened or changed, for the log.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// Deletes what was made for the port and would outlast the process. Called when the port is removed, and not when
    /// the process ends: the next one goes on with it.
    fn delete_device(&mut self) {}

    /// Opens the device again if it has disappeared and come back. A control thread calls this about once a second.
    fn service(&mut self) {}

    /// The statistics of all its queues.
    fn stats(&self) -> PortStats;

    /// Counters of its type, by name.
    fn custom_stats(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// The device that control commands drive, if it is a dummy port.
    fn dummy(&self) -> Option<&Arc<DummyDevice>> {
        None
    }
}

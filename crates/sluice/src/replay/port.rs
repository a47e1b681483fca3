//! Ports of a replay: they receive what they are handed and keep what they are sent, with the time.

use super::capture::Record;
use parking_lot::Mutex;
use sluice_fate::{Counter, DropReason, Tally};
use sluice_mem::FramePool;
use sluice_packet::{Buffers, PacketBatch};
use sluice_port::{Port, PortInfo, PortStats, RxQueue, TxQueue, rss_hash, rss_queue};
use std::collections::VecDeque;
use std::sync::Arc;

/// The least size of a frame, bytes: rules may push headers onto short packets.
pub const FRAME_SIZE_MIN: usize = 2048;

/// The wire of a port.
pub struct Wire {
    /// The port's OpenFlow number.
    pub ofport: u16,
    state: Mutex<State>,
}

struct State {
    /// Packets not received yet, by queue.
    waiting: Vec<VecDeque<Record>>,
    sent: Vec<Record>,
    time_ns: u64,
    received: u64,
}

impl Wire {
    /// An empty wire of a port with `queues` receive queues.
    pub fn new(ofport: u16, queues: usize) -> Self {
        let waiting = vec![VecDeque::new(); queues];
        Wire { ofport, state: Mutex::new(State { waiting, sent: Vec::new(), time_ns: 0, received: 0 }) }
    }

    /// Hands a packet to the port.
    pub fn receive(&self, packet: Record) {
        let mut state = self.state.lock();
        // As a NIC does it: all packets of a flow go to one queue.
        let queue = rss_queue(rss_hash(&packet.bytes), state.waiting.len());
        state.waiting[queue].push_back(packet);
        state.received += 1;
    }

    /// Sets the time of what is sent from now on.
    pub fn set_time(&self, time_ns: u64) {
        self.state.lock().time_ns = time_ns;
    }

    /// Whether the port has taken everything.
    pub fn is_empty(&self) -> bool {
        self.state.lock().waiting.iter().all(VecDeque::is_empty)
    }

    /// Packets handed to the port, and packets it sent.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.received, state.sent.len() as u64)
    }

    /// What the port sent, in order.
    pub fn sent(&self) -> Vec<Record> {
        self.state.lock().sent.clone()
    }
}

/// A port on a wire.
pub struct WirePort {
    wire: Arc<Wire>,
    pool: Arc<dyn FramePool>,
}

impl WirePort {
    /// A port whose packets are in buffers of `pool`.
    pub fn new(wire: &Arc<Wire>, pool: Arc<dyn FramePool>) -> Self {
        WirePort { wire: Arc::clone(wire), pool }
    }
}

impl Port for WirePort {
    fn info(&self) -> PortInfo {
        let n_rxq = self.wire.state.lock().waiting.len();
        PortInfo { kind: "replay", n_rxq, n_txq: n_rxq, mtu: u32::from(u16::MAX), mac: [0; 6] }
    }

    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue> {
        Box::new(WireRx { wire: Arc::clone(&self.wire), pool: Arc::clone(&self.pool), queue })
    }

    fn tx_queue(&mut self, _pmd: usize) -> Box<dyn TxQueue> {
        Box::new(WireTx { wire: Arc::clone(&self.wire) })
    }

    fn stats(&self) -> PortStats {
        let (rx_packets, tx_packets) = self.wire.counts();
        PortStats { rx_packets, tx_packets, ..PortStats::default() }
    }
}

struct WireRx {
    wire: Arc<Wire>,
    pool: Arc<dyn FramePool>,
    queue: usize,
}

impl RxQueue for WireRx {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let mut state = self.wire.state.lock();
        while !batch.is_full()
            && let Some(record) = state.waiting[self.queue].pop_front()
        {
            let whole = if record.is_cut { Err(DropReason::RxError) } else { buffers.write(&self.pool, &record.bytes) };
            match whole {
                Ok(packet) => batch.push(packet),
                Err(reason) => {
                    tally[Counter::Received] += 1;
                    tally.drop(reason, 1);
                }
            }
        }
    }

    fn exhausted(&self) -> bool {
        self.wire.state.lock().waiting[self.queue].is_empty()
    }
}

struct WireTx {
    wire: Arc<Wire>,
}

impl TxQueue for WireTx {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let mut state = self.wire.state.lock();
        let time_ns = state.time_ns;
        state.sent.extend(batch.iter().map(|packet| Record { time_ns, bytes: packet.bytes().to_vec(), is_cut: false }));
        tally[Counter::Sent] += batch.len() as u64;
        buffers.give(batch.drain(..));
    }
}

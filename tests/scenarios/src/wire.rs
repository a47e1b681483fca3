//! A port whose other end is the test: queues to receive from, and a record of what was sent.

use parking_lot::Mutex;
use sluice_fate::{Counter, DropReason, Tally};
use sluice_mem::FramePool;
use sluice_packet::{Buffers, PacketBatch};
use sluice_port::{Port, PortInfo, PortStats, RxQueue, TxQueue};
use std::collections::VecDeque;
use std::sync::Arc;

/// The test's end of a port.
#[derive(Clone)]
pub struct Wire(Arc<Shared>);

struct Shared {
    pool: Arc<dyn FramePool>,
    /// What each receive queue will deliver.
    to_switch: Vec<Mutex<VecDeque<Vec<u8>>>>,
    from_switch: Mutex<Vec<Vec<u8>>>,
}

impl Wire {
    /// The end of a port with `n_rxq` receive queues and frames of `pool`.
    pub fn new(pool: &Arc<dyn FramePool>, n_rxq: usize) -> Self {
        let to_switch = (0..n_rxq).map(|_| Mutex::default()).collect();
        Wire(Arc::new(Shared { pool: pool.clone(), to_switch, from_switch: Mutex::default() }))
    }

    /// Lets a frame come in. Frames of one flow meet one queue, as a NIC would have it.
    pub fn send(&self, frame: &[u8]) {
        let queue = flow_of(frame) as usize % self.0.to_switch.len();
        self.0.to_switch[queue].lock().push_back(frame.to_vec());
    }

    /// Whether the switch has taken everything.
    pub fn is_empty(&self) -> bool {
        self.0.to_switch.iter().all(|queue| queue.lock().is_empty())
    }

    /// What the switch has sent since this was last asked.
    pub fn take_sent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.from_switch.lock())
    }

    /// The switch's end.
    pub fn port(&self) -> Box<dyn Port> {
        Box::new(WirePort(self.clone()))
    }
}

/// Which flow a frame belongs to: addresses and ports, as far as they stand where they do in plain IPv4. What matters
/// is only that equal headers give equal numbers.
pub fn flow_of(frame: &[u8]) -> u32 {
    let header = frame.get(..38.min(frame.len())).unwrap_or_default();
    // Without the fields of IPv4 that change from packet to packet: length, identification, TTL, checksum.
    let steady = header.iter().enumerate().filter(|(i, _)| !(16..20).contains(i) && !(22..26).contains(i));
    steady.fold(0x811c_9dc5, |hash, (_, b)| (hash ^ u32::from(*b)).wrapping_mul(0x0100_0193)) >> 8
}

struct WirePort(Wire);

impl Port for WirePort {
    fn info(&self) -> PortInfo {
        let n_rxq = self.0.0.to_switch.len();
        PortInfo { kind: "wire", n_rxq, n_txq: 64, mtu: 1500, mac: [2, 0, 0, 0, 0, 9] }
    }

    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue> {
        Box::new(WireRx { wire: self.0.clone(), queue })
    }

    fn tx_queue(&mut self, _pmd: usize) -> Box<dyn TxQueue> {
        Box::new(WireTx { wire: self.0.clone() })
    }

    fn stats(&self) -> PortStats {
        PortStats::default()
    }
}

struct WireRx {
    wire: Wire,
    queue: usize,
}

impl RxQueue for WireRx {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let mut frames = self.wire.0.to_switch[self.queue].lock();
        while !batch.is_full() {
            let Some(frame) = frames.pop_front() else { return };
            match buffers.write(&self.wire.0.pool, &frame) {
                Ok(packet) => batch.push(packet),
                Err(reason) => {
                    tally[Counter::Received] += 1;
                    tally.drop(reason, 1);
                }
            }
        }
    }
}

struct WireTx {
    wire: Wire,
}

impl TxQueue for WireTx {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let mut sent = self.wire.0.from_switch.lock();
        for packet in batch.iter() {
            if packet.bytes().len() > 1518 + 8 {
                tally.drop(DropReason::TxOversize, 1);
            } else {
                tally[Counter::Sent] += 1;
                sent.push(packet.bytes().to_vec());
            }
        }
        drop(sent);
        buffers.give(batch.drain(..));
    }
}

//! Ports for the datapath's tests.

use sluice_fate::{Counter, Tally};
use sluice_mem::{FramePool, HeapPool, PoolConfig};
use sluice_packet::{Buffers, PacketBatch};
use sluice_port::{Port, PortInfo, PortStats, RxQueue, TxQueue};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Packets sent by a port, in order.
pub type Sent = Arc<Mutex<Vec<Vec<u8>>>>;
/// Packets that a queue will receive.
pub type Feed = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// A port that receives what its feeds contain, one feed per queue, and keeps what it sends.
pub struct TestPort {
    pub feeds: Vec<Feed>,
    pub sent: Sent,
    pool: Arc<dyn FramePool>,
    burst: usize,
}

impl TestPort {
    pub fn new(n_rxq: usize, burst: usize, pool: &Arc<dyn FramePool>) -> Self {
        let feeds = (0..n_rxq).map(|_| Feed::default()).collect();
        TestPort { feeds, sent: Sent::default(), pool: pool.clone(), burst }
    }
}

pub fn pool(frames: usize) -> Arc<dyn FramePool> {
    Arc::new(HeapPool::new(PoolConfig { frames, frame_size: 2048, reserve: 0 }).unwrap())
}

impl Port for TestPort {
    fn info(&self) -> PortInfo {
        PortInfo { kind: "test", n_rxq: self.feeds.len(), n_txq: 8, mtu: 1500, mac: [2, 0, 0, 0, 0, 1] }
    }
    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue> {
        Box::new(TestRx { feed: self.feeds[queue].clone(), pool: self.pool.clone(), burst: self.burst })
    }
    fn tx_queue(&mut self, _pmd: usize) -> Box<dyn TxQueue> {
        Box::new(TestTx { sent: self.sent.clone() })
    }
    fn stats(&self) -> PortStats {
        PortStats::default()
    }
}

struct TestRx {
    feed: Feed,
    pool: Arc<dyn FramePool>,
    burst: usize,
}

impl RxQueue for TestRx {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let mut feed = self.feed.lock().unwrap();
        for _ in 0..self.burst.min(batch.room()) {
            let Some(bytes) = feed.pop_front() else { break };
            match buffers.write(&self.pool, &bytes) {
                Ok(packet) => batch.push(packet),
                Err(reason) => {
                    tally[Counter::Received] += 1;
                    tally.drop(reason, 1);
                }
            }
        }
    }
    fn exhausted(&self) -> bool {
        self.feed.lock().unwrap().is_empty()
    }
}

struct TestTx {
    sent: Sent,
}

impl TxQueue for TestTx {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        tally[Counter::Sent] += batch.len() as u64;
        self.sent.lock().unwrap().extend(batch.iter().map(|packet| packet.bytes().to_vec()));
        buffers.give(batch.drain(..));
    }
}

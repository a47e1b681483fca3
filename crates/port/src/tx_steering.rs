//! Which of a port's transmit queues a packet takes. Source: Open vSwitch, `other_config:tx-steering` of an interface.

use crate::{Port, TxQueue, rss_hash, rss_queue};
use sluice_fate::Tally;
use sluice_packet::{Buffers, PacketBatch};

/// How packets are spread over a port's transmit queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxSteering {
    /// Each worker sends by one queue, its own if there are enough.
    #[default]
    Thread,
    /// Each packet takes the queue of its hash, so that one worker uses all queues. Packets of a connection keep their order.
    Hash,
}

impl TxSteering {
    /// The transmit queue for the worker of that number.
    pub fn queue(self, port: &mut dyn Port, worker: usize) -> Box<dyn TxQueue> {
        let n_txq = port.info().n_txq;
        match self {
            TxSteering::Hash if n_txq > 1 => {
                let queues = (0..n_txq).map(|queue| (port.tx_queue(queue), PacketBatch::new()));
                Box::new(HashTxQueue { queues: queues.collect() })
            }
            _ => port.tx_queue(worker),
        }
    }
}

/// All transmit queues of a port, each with the packets of a batch that take it.
struct HashTxQueue {
    queues: Vec<(Box<dyn TxQueue>, PacketBatch)>,
}

impl TxQueue for HashTxQueue {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        for packet in batch.drain(..) {
            let at = rss_queue(rss_hash(packet.bytes()), self.queues.len());
            self.queues[at].1.push(packet);
        }
        for (queue, part) in self.queues.iter_mut().filter(|(_, part)| !part.is_empty()) {
            queue.send(part, buffers, tally);
        }
    }

    fn keeps_packets(&self) -> bool {
        self.queues.iter().any(|(queue, _)| queue.keeps_packets())
    }

    fn send_kept(&mut self, buffers: &mut Buffers, tally: &mut Tally) {
        self.queues.iter_mut().for_each(|(queue, _)| queue.send_kept(buffers, tally));
    }
}

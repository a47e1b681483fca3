//! Traffic that changes at once: a port that receives from one of several ports, and from another as soon as it is told.

use sluice_fate::Tally;
use sluice_packet::{Buffers, PacketBatch};
use sluice_port::{Port, PortInfo, PortStats, RxQueue, TxQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The phase that traffic is in: the number of the port that is received from. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Phase(Arc<AtomicUsize>);

impl Phase {
    /// Receives from port `n` from the next poll on.
    pub fn begin(&self, n: usize) {
        self.0.store(n, Relaxed);
    }
}

/// A port that receives from one of several ports, and sends through the first.
pub struct PhasedPort {
    ports: Vec<Box<dyn Port>>,
    phase: Phase,
}

impl PhasedPort {
    /// Of at least one port; all have as many receive queues.
    pub fn new(ports: Vec<Box<dyn Port>>, phase: Phase) -> PhasedPort {
        PhasedPort { ports, phase }
    }
}

impl Port for PhasedPort {
    fn info(&self) -> PortInfo {
        self.ports[0].info()
    }

    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue> {
        let queues = self.ports.iter_mut().map(|port| port.rx_queue(queue)).collect();
        Box::new(PhasedRx { queues, phase: self.phase.clone() })
    }

    fn tx_queue(&mut self, pmd: usize) -> Box<dyn TxQueue> {
        self.ports[0].tx_queue(pmd)
    }

    fn stats(&self) -> PortStats {
        let mut all = self.ports[0].stats();
        for other in self.ports[1..].iter().map(|port| port.stats()) {
            all.rx_packets += other.rx_packets;
            all.rx_bytes += other.rx_bytes;
        }
        all
    }
}

struct PhasedRx {
    queues: Vec<Box<dyn RxQueue>>,
    phase: Phase,
}

impl RxQueue for PhasedRx {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        self.queues[self.phase.0.load(Relaxed)].poll(batch, buffers, tally);
    }
}

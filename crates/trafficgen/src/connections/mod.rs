//! Connections that begin and end, through a switch in this process: a client's port and a server's.
//!
//! A closed loop: a number of connections are open at a time, each segment follows the arrival of its predecessor, and
//! when a connection has ended the next begins at once. So the switch determines the transactions a second. If it loses
//! or reorders segments, the connection hangs, and unexpected segments are counted.

mod segment;

use parking_lot::Mutex;
use segment::{FRAME_SIZE, SCRIPT, Side};
use sluice_fate::{Counter, Tally};
use sluice_mem::FramePool;
use sluice_packet::{Buffers, PacketBatch};
use sluice_port::{Port, PortInfo, PortStats, RxQueue, TxQueue};
use std::collections::VecDeque;
use std::sync::Arc;

/// The counts of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transactions {
    /// Completed connections.
    pub done: u64,
    /// Unexpected segments, and other packets.
    pub astray: u64,
}

/// The open connections.
#[derive(Clone, Debug)]
pub struct Connections(Arc<Mutex<ClosedLoop>>);

#[derive(Debug)]
struct ClosedLoop {
    /// For each place: its connection, and the next segment to arrive.
    open: Vec<(u64, usize)>,
    /// Segments that the client and the server are to send: place and step.
    due: [VecDeque<(usize, usize)>; 2],
    /// Packets sent by the client and the server.
    sent: [u64; 2],
    figures: Transactions,
}

impl Connections {
    /// `at_once` connections at a time, and the ports to give to the switch: the client's, then the server's.
    pub fn new(at_once: usize, pool: &Arc<dyn FramePool>) -> (Connections, [Box<dyn Port>; 2]) {
        let state = ClosedLoop {
            open: (0..at_once as u64).map(|number| (number, 0)).collect(),
            due: [(0..at_once).map(|place| (place, 0)).collect(), VecDeque::new()],
            sent: [0; 2],
            figures: Transactions::default(),
        };
        let connections = Connections(Arc::new(Mutex::new(state)));
        let port = |side| -> Box<dyn Port> {
            Box::new(End { side, pool: Arc::clone(pool), connections: connections.clone() })
        };
        let ports = [port(Side::Client), port(Side::Server)];
        (connections, ports)
    }

    /// The counts.
    pub fn transactions(&self) -> Transactions {
        self.0.lock().figures
    }
}

impl ClosedLoop {
    /// Begins the next connection of a place, which is the connection's number modulo the number of places.
    fn begin(&mut self, place: usize) {
        self.open[place] = (self.open[place].0 + self.open.len() as u64, 0);
        self.due[Side::Client as usize].push_back((place, 0));
    }

    /// Handles a frame that arrived at a side.
    fn arrived(&mut self, frame: &[u8], side: Side) {
        let at_once = self.open.len() as u64;
        let Some(seen) = segment::read(frame, side) else { return self.figures.astray += 1 };
        let place = (seen.connection % at_once) as usize;
        let (connection, step) = self.open[place];
        if SCRIPT[step].from == side || !seen.is(connection, step) {
            self.figures.astray += 1;
            return;
        }
        let next = step + 1;
        self.open[place].1 = next;
        if next == SCRIPT.len() {
            self.figures.done += 1;
            return self.begin(place);
        }
        if SCRIPT[next].from == side {
            let answers = SCRIPT[next..].iter().take_while(|segment| segment.from == side).count();
            self.due[side as usize].extend((next..next + answers).map(|step| (place, step)));
        }
    }
}

/// A port: one end of all connections.
#[derive(Debug)]
struct End {
    side: Side,
    pool: Arc<dyn FramePool>,
    connections: Connections,
}

impl Port for End {
    fn info(&self) -> PortInfo {
        let mac = [2, 0, 0, 0, 2, self.side as u8];
        PortInfo { kind: "connections", n_rxq: 1, n_txq: 1, mtu: 1500, mac }
    }

    fn rx_queue(&mut self, _queue: usize) -> Box<dyn RxQueue> {
        Box::new(EndRx { side: self.side, pool: Arc::clone(&self.pool), connections: self.connections.clone() })
    }

    fn tx_queue(&mut self, _pmd: usize) -> Box<dyn TxQueue> {
        Box::new(EndTx { side: self.side, connections: self.connections.clone() })
    }

    fn stats(&self) -> PortStats {
        let sent = self.connections.0.lock().sent;
        PortStats { rx_packets: sent[self.side as usize], ..PortStats::default() }
    }
}

struct EndRx {
    side: Side,
    pool: Arc<dyn FramePool>,
    connections: Connections,
}

impl RxQueue for EndRx {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, _tally: &mut Tally) {
        let mut state = self.connections.0.lock();
        let ClosedLoop { open, due, sent, .. } = &mut *state;
        let due = &mut due[self.side as usize];
        let first = batch.len();
        // Without a free buffer, a segment waits.
        let n = buffers.fill(&self.pool, due.len().min(batch.room()), FRAME_SIZE, batch);
        for (packet, (place, step)) in batch[first..].iter_mut().zip(due.drain(..n)) {
            segment::write(open[place].0, step, packet.frame.bytes_mut());
        }
        sent[self.side as usize] += n as u64;
    }
}

struct EndTx {
    side: Side,
    connections: Connections,
}

impl TxQueue for EndTx {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let mut state = self.connections.0.lock();
        batch.iter().for_each(|packet| state.arrived(packet.bytes(), self.side));
        drop(state);
        tally[Counter::Sent] += batch.len() as u64;
        buffers.give_batch(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_port::Pools;

    /// A switch between two ends, which may lose or repeat a packet.
    fn run(at_once: usize, turns: usize, spoil: impl Fn(u64) -> usize) -> (Transactions, u64) {
        let pool: Arc<dyn FramePool> = Pools::new(512).of_size(FRAME_SIZE).unwrap();
        let (connections, mut ports) = Connections::new(at_once, &pool);
        let mut rx: Vec<_> = ports.iter_mut().map(|port| port.rx_queue(0)).collect();
        let mut tx: Vec<_> = ports.iter_mut().map(|port| port.tx_queue(0)).collect();
        let (mut buffers, mut tally, mut seen) = (Buffers::new(), Tally::default(), 0);
        for _ in 0..turns {
            for side in [0, 1] {
                let (mut batch, mut out) = (PacketBatch::new(), PacketBatch::new());
                rx[side].poll(&mut batch, &mut buffers, &mut tally);
                for packet in batch.drain(..) {
                    seen += 1;
                    let copies: Vec<_> = (1..spoil(seen)).map(|_| buffers.copy(&packet).unwrap()).collect();
                    if spoil(seen) == 0 {
                        buffers.give([packet].into_iter())
                    } else {
                        out.push(packet)
                    }
                    copies.into_iter().for_each(|copy| out.push(copy));
                }
                tx[side ^ 1].send(&mut out, &mut buffers, &mut tally);
            }
        }
        (connections.transactions(), seen)
    }

    #[test]
    fn a_transaction_is_eleven_segments() {
        let (figures, seen) = run(7, 1000, |_| 1);
        assert_eq!(figures.astray, 0);
        assert!(figures.done > 100 && seen / 11 >= figures.done && seen / 11 - figures.done <= 7, "{figures:?} {seen}");
    }

    #[test]
    fn what_is_lost_or_repeated_is_noticed() {
        let (figures, _) = run(1, 1000, |n| usize::from(n != 30));
        assert_eq!((figures.done, figures.astray), (2, 0), "the third hangs");
        let (figures, _) = run(1, 1000, |n| if n == 30 { 2 } else { 1 });
        assert_eq!(figures.astray, 1);
        assert!(figures.done > 10);
    }
}

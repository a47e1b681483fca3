//! Packets that a transmit queue keeps for its next batch.

#[path = "harness/follow.rs"]
mod follow;
mod harness;

use follow::follow;
use harness::{FakeTables, Feed, TestPort, pool, udp};
use proptest::prelude::*;
use sluice_action::{Action, PortNo, UpcallResult};
use sluice_datapath::{Config, Datapath};
use sluice_fate::{Counter, Tally};
use sluice_flow::{PacketKey, layout};
use sluice_packet::{BATCH_MAX, Buffers, PacketBatch};
use sluice_port::{Port, PortInfo, PortStats, RxQueue, TxQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// All packets go to port 3.
fn to_three(_: &PacketKey, _: &[u8]) -> UpcallResult {
    let mut mask = PacketKey::ZERO;
    mask.set(layout::IN_PORT, &[0xff; 4]);
    mask.set(layout::RECIRC_ID, &[0xff; 4]);
    follow(mask, [Action::Output(PortNo(3))])
}

/// A port that keeps the last packet of each batch.
struct KeepingPort {
    port: TestPort,
    batches: Arc<AtomicUsize>,
}

impl Port for KeepingPort {
    fn info(&self) -> PortInfo {
        self.port.info()
    }
    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue> {
        self.port.rx_queue(queue)
    }
    fn tx_queue(&mut self, pmd: usize) -> Box<dyn TxQueue> {
        Box::new(KeepingTx { queue: self.port.tx_queue(pmd), kept: PacketBatch::new(), batches: self.batches.clone() })
    }
    fn stats(&self) -> PortStats {
        self.port.stats()
    }
}

struct KeepingTx {
    queue: Box<dyn TxQueue>,
    kept: PacketBatch,
    batches: Arc<AtomicUsize>,
}

impl TxQueue for KeepingTx {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        self.send_kept(buffers, tally);
        self.batches.fetch_add(1, Relaxed);
        self.kept.extend(batch.pop());
        tally[Counter::Held] += self.kept.len() as u64;
        self.queue.send(batch, buffers, tally);
    }
    fn keeps_packets(&self) -> bool {
        !self.kept.is_empty()
    }
    fn send_kept(&mut self, buffers: &mut Buffers, tally: &mut Tally) {
        tally[Counter::Released] += self.kept.len() as u64;
        self.queue.send(&mut self.kept, buffers, tally);
    }
}

/// Two ports that receive, and one that keeps packets.
struct Bench {
    datapath: Datapath,
    feeds: [Feed; 2],
    port: KeepingPortHandle,
}

/// What the test sees of the port that keeps packets.
struct KeepingPortHandle {
    sent: harness::Sent,
    batches: Arc<AtomicUsize>,
}

impl Bench {
    fn new() -> Self {
        let datapath = Datapath::new(Config { seed: Some(1), ..Config::default() }).unwrap();
        let tables = FakeTables::new(to_three);
        datapath.set_upcalls(move |_| Box::new(tables.clone()));
        let pool = pool(1024);
        let receiving = [TestPort::new(1, BATCH_MAX, &pool), TestPort::new(1, BATCH_MAX, &pool)];
        let feeds = [receiving[0].feeds[0].clone(), receiving[1].feeds[0].clone()];
        for (number, port) in (1..).zip(receiving) {
            datapath.add_port(PortNo(number), Box::new(port)).unwrap();
        }
        let keeping = KeepingPort { port: TestPort::new(1, BATCH_MAX, &pool), batches: Arc::default() };
        let port = KeepingPortHandle { sent: keeping.port.sent.clone(), batches: keeping.batches.clone() };
        datapath.add_port(PortNo(3), Box::new(keeping)).unwrap();
        Bench { datapath, feeds, port }
    }

    /// Lets a port receive packets with these tags.
    fn feed(&self, port: usize, tags: std::ops::Range<u32>) {
        let packets = tags.map(|tag| udp([1, 1, 1, port as u8], [2, 2, 2, 2], 1, 5, tag));
        self.feeds[port].lock().unwrap().extend(packets);
    }

    /// One iteration. Returns how many packets the queue keeps.
    fn run_once(&self) -> u64 {
        self.datapath.run_once(0);
        let totals = self.datapath.totals();
        assert_eq!(totals.conserved(), Ok(()));
        totals[Counter::Held] - totals[Counter::Released]
    }

    fn sent(&self) -> usize {
        self.port.sent.lock().unwrap().len()
    }
}

#[test]
fn packets_are_kept_while_full_batches_come() {
    let bench = Bench::new();
    bench.feed(0, 0..2 * BATCH_MAX as u32);
    assert_eq!((bench.run_once(), bench.sent()), (1, BATCH_MAX - 1));
    assert_eq!((bench.run_once(), bench.sent()), (1, 2 * BATCH_MAX - 1));
    assert_eq!((bench.run_once(), bench.sent()), (0, 2 * BATCH_MAX), "nothing comes any more");
}

#[test]
fn packets_are_not_kept_behind_a_batch_that_is_not_full() {
    let bench = Bench::new();
    bench.feed(0, 0..10);
    assert_eq!((bench.run_once(), bench.sent()), (0, 10));
    assert_eq!(bench.port.batches.load(Relaxed), 1);
}

#[test]
fn packets_leave_before_their_port_goes() {
    let bench = Bench::new();
    bench.feed(0, 0..BATCH_MAX as u32);
    assert_eq!(bench.run_once(), 1);
    drop(bench.datapath.del_port(PortNo(3)).unwrap());
    assert_eq!((bench.run_once(), bench.sent()), (0, BATCH_MAX));
}

proptest! {
    /// Whatever comes, packets of one source keep their order, and all are sent once nothing comes any more.
    #[test]
    fn all_are_sent_in_order(bursts in prop::collection::vec((0..3 * BATCH_MAX as u32, 0..2usize), 1..8)) {
        let bench = Bench::new();
        let mut next = 0;
        for (n, port) in bursts {
            bench.feed(port, next..next + n);
            next += n;
            bench.run_once();
        }
        // The longest way: all by one port, and one more iteration.
        (0..=next as usize / BATCH_MAX + 1).for_each(|_| _ = bench.run_once());
        prop_assert_eq!((bench.run_once(), bench.sent()), (0, next as usize));
        let sent = bench.port.sent.lock().unwrap();
        for port in 0..2 {
            let of_port = sent.iter().filter(|packet| packet[29] == port);
            prop_assert!(of_port.map(|packet| &packet[packet.len() - 4..]).is_sorted());
        }
    }
}

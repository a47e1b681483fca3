//! What a receive queue is charged for, and when its quantum ends: with threads, since only these count cycles.

#[path = "harness/follow.rs"]
mod follow;
mod harness;

use follow::follow;
use harness::{FakeTables, TestPort, pool, udp};
use sluice_action::{Action, PortNo, UpcallResult};
use sluice_datapath::{Config, Datapath};
use sluice_fate::{Counter, DropReason, Tally};
use sluice_flow::{PacketKey, layout};
use sluice_mem::FramePool;
use sluice_packet::{BATCH_MAX, Buffers, PacketBatch};
use sluice_port::{Port, PortInfo, PortStats, RxQueue, TxQueue};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One megaflow a port, and all go to port 3.
fn to_three(_: &PacketKey, _: &[u8]) -> UpcallResult {
    let mut mask = PacketKey::ZERO;
    mask.set(layout::IN_PORT, &[0xff; 4]);
    mask.set(layout::RECIRC_ID, &[0xff; 4]);
    follow(mask, [Action::Output(PortNo(3))])
}

/// What a poll of a queue does.
#[derive(Clone)]
enum Rx {
    /// Gives a full batch.
    Endless(Arc<dyn FramePool>, Vec<u8>),
    /// Spends [`DEAR`] on a packet that the port itself drops.
    DropsAll,
}

/// Time enough for a hundred bursts.
const DEAR: Duration = Duration::from_micros(300);

/// What the ports' transmit rings are asked.
#[derive(Default)]
struct Asked {
    bursts: AtomicUsize,
    /// Bursts of another queue than the one before.
    changes: AtomicUsize,
    last: AtomicUsize,
}

/// A port of one queue.
struct BusyPort {
    rx: Rx,
    /// Polls of its queue.
    polls: Arc<AtomicUsize>,
    /// What its transmit ring, if that is full, is asked.
    full: Option<Arc<Asked>>,
}

impl BusyPort {
    fn new(rx: Rx) -> Self {
        BusyPort { rx, polls: Arc::default(), full: None }
    }
}

impl Port for BusyPort {
    fn info(&self) -> PortInfo {
        PortInfo { kind: "test", n_rxq: 1, n_txq: 8, mtu: 1500, mac: [2, 0, 0, 0, 0, 1] }
    }
    fn rx_queue(&mut self, _queue: usize) -> Box<dyn RxQueue> {
        Box::new(TestRx { rx: self.rx.clone(), polls: self.polls.clone() })
    }
    fn tx_queue(&mut self, _pmd: usize) -> Box<dyn TxQueue> {
        Box::new(TestTx { full: self.full.clone() })
    }
    fn stats(&self) -> PortStats {
        PortStats::default()
    }
}

struct TestRx {
    rx: Rx,
    polls: Arc<AtomicUsize>,
}

impl RxQueue for TestRx {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        self.polls.fetch_add(1, Relaxed);
        match &self.rx {
            Rx::Endless(pool, packet) => {
                buffers.fill(pool, batch.room(), packet.len(), batch);
                batch.iter_mut().for_each(|to| to.bytes_mut().copy_from_slice(packet));
            }
            Rx::DropsAll => {
                let began = Instant::now();
                while began.elapsed() < DEAR {}
                tally[Counter::Received] += 1;
                tally.drop(DropReason::RxError, 1);
            }
        }
    }
}

struct TestTx {
    full: Option<Arc<Asked>>,
}

impl TxQueue for TestTx {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        match &self.full {
            Some(asked) => {
                let source = usize::from(batch[0].bytes()[29]);
                asked.bursts.fetch_add(1, Relaxed);
                asked.changes.fetch_add(usize::from(asked.last.swap(source, Relaxed) != source), Relaxed);
                tally.drop(DropReason::TxFull, batch.len());
            }
            None => tally[Counter::Sent] += batch.len() as u64,
        }
        buffers.give_batch(batch);
    }
}

/// Held while a test's PMD runs. A PMD of another test on the same core would take it now and then for milliseconds, which are
/// charged to the queue that is polled meanwhile.
static CORE: Mutex<()> = Mutex::new(());

/// Runs ports 1 to 3 and an idle one on one PMD until port 1 was polled often, and for a while.
fn run(ports: [BusyPort; 3]) {
    let _alone = CORE.lock().unwrap_or_else(PoisonError::into_inner);
    let datapath = Datapath::new(Config { seed: Some(1), ..Config::default() }).unwrap();
    let tables = FakeTables::new(to_three);
    datapath.set_upcalls(move |_| Box::new(tables.clone()));
    let polls = ports[0].polls.clone();
    for (number, port) in (1..).zip(ports) {
        datapath.add_port(PortNo(number), Box::new(port)).unwrap();
    }
    let idle = TestPort::new(1, BATCH_MAX, &pool(32));
    let sent = idle.sent.clone();
    datapath.add_port(PortNo(4), Box::new(idle)).unwrap();
    datapath.start().unwrap();
    let began = Instant::now();
    while polls.load(Relaxed) < 500 || began.elapsed() < Duration::from_millis(300) {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(10));
    }
    datapath.stop();
    assert_eq!(datapath.totals().conserved(), Ok(()));
    assert!(sent.lock().unwrap().is_empty());
}

/// A queue that always has packets, whose source is `source`.
fn endless(pool: &Arc<dyn FramePool>, source: u8) -> Rx {
    Rx::Endless(pool.clone(), udp([1, 1, 1, source], [2, 2, 2, 2], 1, 5, 0))
}

#[test]
fn polls_that_only_drop_are_charged_to_their_queue() {
    let pool = pool(4096);
    let ports = [BusyPort::new(endless(&pool, 1)), BusyPort::new(Rx::DropsAll), BusyPort::new(Rx::DropsAll)];
    let polls = [&ports[0], &ports[1], &ports[2]].map(|port| port.polls.clone());
    run(ports);
    let [victim, dear, as_dear] = polls.map(|polls| polls.load(Relaxed));
    assert!(dear > 0 && as_dear > 0 && victim > 5 * dear.max(as_dear), "{victim} beside {dear} and {as_dear}");
}

#[test]
fn a_quantum_ends_when_the_transmit_ring_is_full() {
    let (pool, asked) = (pool(4096), Arc::new(Asked::default()));
    let full = BusyPort { full: Some(asked.clone()), ..BusyPort::new(endless(&pool, 3)) };
    run([BusyPort::new(endless(&pool, 1)), BusyPort::new(endless(&pool, 2)), full]);
    let (bursts, changes) = (asked.bursts.load(Relaxed), asked.changes.load(Relaxed));
    assert!(bursts < 8 * changes, "{bursts} bursts for a full ring, {changes} of another queue than the one before");
}

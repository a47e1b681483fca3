//! PMDs as threads, with everything changing under them.

#[path = "harness/follow.rs"]
mod follow;
mod harness;

use follow::follow;
use harness::*;
use sluice_action::{Action, PortNo, UpcallResult};
use sluice_datapath::{Arm, Config, Datapath, DistributorTable, EmcInsert, PortPolling};
use sluice_fate::{Counter, Tally};
use sluice_flow::{PacketKey, layout};
use sluice_packet::{Buffers, PacketBatch};
use sluice_port::{Port, PortInfo, PortStats, RxQueue, TxQueue};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

/// Tables whose megaflows are as wide as the source port.
fn by_source_port(key: &PacketKey, _bytes: &[u8]) -> UpcallResult {
    let mut mask = PacketKey::ZERO;
    for span in [layout::IN_PORT, layout::RECIRC_ID, layout::TP_SRC] {
        mask.set(span, &[0xff; 4][..span.size]);
    }
    let recirculated = key.recirc_id() != 0;
    let actions: Arc<[Action]> = match key.number(layout::TP_SRC) % 4 {
        0 if !recirculated => Arc::new([Action::Recirc(1)]),
        1 => Arc::new([Action::Output(PortNo(2)), Action::Output(PortNo(1))]),
        _ => Arc::new([Action::Output(PortNo(2))]),
    };
    follow(mask, actions)
}

/// Checks that `n` packets were sent and none overtook another of its flow.
fn in_order_by_flow(sent: &[Vec<u8>], n: usize) {
    assert_eq!(sent.len(), n);
    let mut last = HashMap::new();
    for packet in sent {
        let tag = u32::from_be_bytes(*packet.last_chunk().unwrap());
        let before = last.insert(packet[34..36].to_vec(), tag);
        assert!(before.is_none_or(|before| before < tag), "a packet overtook another of its flow");
    }
}

#[test]
fn two_pmds_with_three_queues_lose_nothing_while_megaflows_and_ports_come_and_go() {
    const PACKETS: u32 = 30_000;
    let pool = pool(16_384);
    let config = Config {
        cores: vec![0, 0],
        settings: Arm {
            emc: Some(EmcInsert::OneIn(2)),
            smc: true,
            distributor: Some(DistributorTable::Own),
            ..Arm::BARE
        }
        .into(),
        max_megaflows: 256,
        ..Config::default()
    };
    let datapath = Datapath::new(config).unwrap();
    let tables = FakeTables::new(by_source_port);
    let upcalls = tables.clone();
    datapath.set_upcalls(move |_| Box::new(upcalls.clone()));
    let ports: Vec<_> = (1..=2).map(|_| TestPort::new(3, 32, &pool)).collect();
    let (feeds, sent) = (ports[0].feeds.clone(), ports[1].sent.clone());
    for (number, port) in (1..).zip(ports) {
        datapath.add_port(PortNo(number), Box::new(port)).unwrap();
    }
    let (store, counted) = (datapath.store(), AtomicU64::new(0));
    let count = |packets| {
        counted.fetch_add(packets, Relaxed);
    };
    let remove_all = || {
        let mut ids = Vec::new();
        store.for_each(&mut |flow| ids.push(flow.id));
        ids.iter().for_each(|id| count(store.remove(*id).unwrap().packets));
        store.settle(&mut |_, late| count(late.packets));
        ids.len()
    };
    datapath.start().unwrap();
    let mut removed = 0;
    for tag in 0..PACKETS {
        let flow = (tag * 7 % 40) as u16;
        let packet = udp([1, 1, 1, 1], [2, 2, 2, 2], flow, 5, tag);
        feeds[usize::from(flow) % 3].lock().unwrap().push_back(packet);
        if tag % 100 == 0 {
            removed += remove_all();
        }
        if tag % 1000 == 0 {
            datapath.add_port(PortNo(9), Box::new(TestPort::new(2, 1, &pool))).unwrap();
            datapath.clear_stats();
            datapath.rebalance();
            datapath.del_port(PortNo(9)).unwrap();
        }
    }
    while datapath.totals()[Counter::Received] < u64::from(PACKETS) {
        std::thread::yield_now();
    }
    datapath.stop();
    let totals = datapath.totals();
    assert_eq!(totals.conserved(), Ok(()));
    assert_eq!((totals[Counter::Received], totals.dropped_in_all()), (u64::from(PACKETS), 0));
    assert!(removed > 0, "nothing changed while packets flowed");
    in_order_by_flow(&sent.lock().unwrap(), PACKETS as usize);
    // Every pass is counted once: by a megaflow while it lived, when it settled, or through its translation.
    remove_all();
    assert_eq!(counted.load(Relaxed) + tables.credited.lock().unwrap().0, totals[Counter::Passes]);
    drop(datapath);
    assert_eq!(pool.available(), pool.capacity(), "every buffer is back");
}

/// Sixteen times as many PMDs as cores: each is preempted anywhere, between any two of its instructions. What they count without
/// locks is only right if each has its own.
#[test]
fn each_of_many_pmds_counts_what_its_own_queue_gave() {
    const PMDS: usize = 32;
    let pool = pool(16_384);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(2));
    let settings = Arm { emc: Some(EmcInsert::OneIn(2)), smc: true, ..Arm::BARE }.into();
    let config = Config { cores: (0..PMDS).map(|pmd| pmd % cores).collect(), settings, ..Config::default() };
    let datapath = Datapath::new(config).unwrap();
    let tables = FakeTables::new(by_source_port);
    let upcalls = tables.clone();
    datapath.set_upcalls(move |_| Box::new(upcalls.clone()));
    let ports: Vec<_> = [PMDS, 1].map(|n_rxq| TestPort::new(n_rxq, 32, &pool)).into();
    let (feeds, sent) = (ports[0].feeds.clone(), ports[1].sent.clone());
    for (number, port) in (1..).zip(ports) {
        datapath.add_port(PortNo(number), Box::new(port)).unwrap();
    }
    datapath.start().unwrap();
    // Of a queue's 40 flows, which all queues have, each packet comes after the one before.
    let fed = |queue: usize| 1000 + 10 * queue as u32;
    let n: u32 = (0..PMDS).map(fed).sum();
    for tag in 0..fed(PMDS - 1) {
        for (queue, feed) in feeds.iter().enumerate().filter(|(queue, _)| tag < fed(*queue)) {
            feed.lock().unwrap().push_back(udp([1, 1, 1, 1], [2, 2, 2, queue as u8], (tag % 40) as u16, 5, tag));
        }
    }
    while datapath.totals()[Counter::Received] < u64::from(n) {
        std::thread::yield_now();
    }
    datapath.stop();
    assert_eq!(datapath.totals().conserved(), Ok(()));
    assert_eq!((sent.lock().unwrap().len(), datapath.totals().dropped_in_all()), (n as usize, 0));

    let flows = datapath.flows();
    let mut translated = 0;
    for report in datapath.pmds() {
        let received: u32 = report.rxqs.iter().filter(|rxq| rxq.port == PortNo(1)).map(|rxq| fed(rxq.queue)).sum();
        assert_eq!(report.counters[Counter::Received], u64::from(received), "PMD {}", report.pmd);
        let by_megaflows: u64 =
            flows.iter().filter_map(|flow| flow.on_pmd(report.pmd)).map(|stats| stats.packets).sum();
        translated += report.counters[Counter::Passes] - by_megaflows;
    }
    assert_eq!(tables.credited.lock().unwrap().0, translated, "what no megaflow has counted was translated");
    drop(datapath);
    assert_eq!(pool.available(), pool.capacity(), "every buffer is back");
}

/// Megaflows that two PMDs install by turns.
#[test]
fn the_megaflows_of_a_pmd_have_ids_of_its_own_runs() {
    const RUN: u32 = 64;
    let pool = pool(1024);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(2));
    let datapath = Datapath::new(Config { cores: vec![0, cores - 1], ..Config::default() }).unwrap();
    let tables = FakeTables::new(by_source_port);
    datapath.set_upcalls(move |_| Box::new(tables.clone()));
    let ports: Vec<_> = [2, 1].map(|n_rxq| TestPort::new(n_rxq, 32, &pool)).into();
    let feeds = ports[0].feeds.clone();
    for (number, port) in (1..).zip(ports) {
        datapath.add_port(PortNo(number), Box::new(port)).unwrap();
    }
    datapath.start().unwrap();
    for flow in 0..300u16 {
        let packet = udp([1, 1, 1, 1], [2, 2, 2, 2], flow, 5, flow.into());
        feeds[usize::from(flow) % 2].lock().unwrap().push_back(packet);
        while datapath.totals()[Counter::MegaflowsInstalled] <= u64::from(flow) {
            std::thread::yield_now();
        }
    }
    // A second packet of each, since the first is not counted for its megaflow.
    for flow in 0..300u16 {
        let packet = udp([1, 1, 1, 1], [2, 2, 2, 2], flow, 5, flow.into());
        feeds[usize::from(flow) % 2].lock().unwrap().push_back(packet);
    }
    while datapath.totals()[Counter::Received] < 600 {
        std::thread::yield_now();
    }
    datapath.stop();
    let (pmds, mut owners) = (datapath.pmds(), std::collections::BTreeMap::new());
    for flow in datapath.flows() {
        let carried = |pmd: usize| flow.on_pmd(pmd).is_some_and(|stats| stats.packets != 0);
        let by: Vec<usize> = pmds.iter().map(|report| report.pmd).filter(|pmd| carried(*pmd)).collect();
        assert_eq!(by, [*owners.entry(flow.flow.id.0 / RUN).or_insert(by[0])]);
    }
    assert!(owners.len() >= 6 && owners.values().any(|pmd| pmd != &owners[&0]), "{owners:?}");
}

#[test]
fn threads_stop_and_start_again_where_they_were() {
    let pool = pool(256);
    let datapath = Datapath::new(Config { cores: vec![0], max_megaflows: 16, ..Config::default() }).unwrap();
    let tables = FakeTables::new(by_source_port);
    let upcalls = tables.clone();
    datapath.set_upcalls(move |_| Box::new(upcalls.clone()));
    let port = TestPort::new(1, 32, &pool);
    let feed = port.feeds[0].clone();
    datapath.add_port(PortNo(2), Box::new(port)).unwrap();
    for round in 1..=3 {
        datapath.start().unwrap();
        datapath.start().unwrap();
        feed.lock().unwrap().extend((0..50).map(|i| udp([1, 1, 1, 1], [2, 2, 2, 2], 2, 5, i)));
        while datapath.totals()[Counter::Sent] < round * 50 {
            std::thread::yield_now();
        }
        datapath.stop();
        assert_eq!(datapath.totals()[Counter::Upcalls], 1, "the caches are as they were");
        assert_eq!(pool.available(), pool.capacity(), "a PMD that rests holds no buffers");
    }
}

#[test]
fn a_pmd_that_panics_is_named_and_the_other_goes_on() {
    let pool = pool(256);
    let datapath = Datapath::new(Config { cores: vec![0, 0], max_megaflows: 16, ..Config::default() }).unwrap();
    let tables = FakeTables::new(|key, bytes| match key.number(layout::TP_SRC) {
        666 => panic!("a bug that this test made"),
        _ => by_source_port(key, bytes),
    });
    let upcalls = tables.clone();
    datapath.set_upcalls(move |_| Box::new(upcalls.clone()));
    let port = TestPort::new(2, 32, &pool);
    let feeds = port.feeds.clone();
    datapath.add_port(PortNo(2), Box::new(port)).unwrap();
    datapath.start().unwrap();
    assert!(datapath.lost_pmds().is_empty());
    feeds[1].lock().unwrap().push_back(udp([1, 1, 1, 1], [2, 2, 2, 2], 666, 5, 0));
    while datapath.lost_pmds().is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(datapath.lost_pmds().len(), 1);
    feeds[0].lock().unwrap().push_back(udp([1, 1, 1, 1], [2, 2, 2, 2], 2, 5, 0));
    while datapath.totals()[Counter::Sent] < 1 {
        std::thread::yield_now();
    }
    datapath.stop();
}

/// A PMD that is lost does not answer; that is no reason to go on before the other has.
#[test]
fn a_lost_pmd_shortens_no_wait_for_the_other() {
    let pool = pool(256);
    let datapath = Datapath::new(Config { cores: vec![0, 0], max_megaflows: 16, ..Config::default() }).unwrap();
    let (asks, asked) = mpsc::channel();
    let (answer, answers) = mpsc::channel();
    let answers = Mutex::new(answers);
    let tables = FakeTables::new(move |key, bytes| match key.number(layout::TP_SRC) {
        666 => panic!("a bug that this test made"),
        _ => {
            asks.send(()).unwrap();
            answers.lock().unwrap().recv().unwrap();
            by_source_port(key, bytes)
        }
    });
    let upcalls = tables.clone();
    datapath.set_upcalls(move |_| Box::new(upcalls.clone()));
    let port = TestPort::new(2, 32, &pool);
    let feeds = port.feeds.clone();
    datapath.add_port(PortNo(2), Box::new(port)).unwrap();
    datapath.start().unwrap();
    feeds[1].lock().unwrap().push_back(udp([1, 1, 1, 1], [2, 2, 2, 2], 666, 5, 0));
    while datapath.lost_pmds().is_empty() {
        std::thread::yield_now();
    }
    // The other PMD stands still in its upcall until it has an answer.
    feeds[0].lock().unwrap().push_back(udp([1, 1, 1, 1], [2, 2, 2, 2], 2, 5, 0));
    asked.recv().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| datapath.stop_receiving(PortNo(2)).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waits.is_finished(), "the PMD that runs still has the queue");
        answer.send(()).unwrap();
        waits.join().unwrap();
    });
    datapath.stop();
}

/// A port whose next poll, once that is `wanted`, meets the test twice: when it begins and when it may end.
struct HaltingPort {
    port: TestPort,
    halt: Arc<Halt>,
}

struct Halt {
    wanted: AtomicBool,
    begins: Barrier,
    may_end: Barrier,
}

impl Port for HaltingPort {
    fn info(&self) -> PortInfo {
        self.port.info()
    }
    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue> {
        Box::new(HaltingRx { rx: self.port.rx_queue(queue), halt: self.halt.clone() })
    }
    fn tx_queue(&mut self, pmd: usize) -> Box<dyn TxQueue> {
        self.port.tx_queue(pmd)
    }
    fn stats(&self) -> PortStats {
        self.port.stats()
    }
}

struct HaltingRx {
    rx: Box<dyn RxQueue>,
    halt: Arc<Halt>,
}

impl RxQueue for HaltingRx {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        if self.halt.wanted.swap(false, Relaxed) {
            self.halt.begins.wait();
            self.halt.may_end.wait();
        }
        self.rx.poll(batch, buffers, tally);
    }
    fn exhausted(&self) -> bool {
        self.rx.exhausted()
    }
}

#[test]
fn a_pmd_that_stands_still_says_where() {
    let pool = pool(256);
    let datapath = Datapath::new(Config { cores: vec![0], max_megaflows: 16, ..Config::default() }).unwrap();
    let halt = Arc::new(Halt { wanted: AtomicBool::new(false), begins: Barrier::new(2), may_end: Barrier::new(2) });
    let port = HaltingPort { port: TestPort::new(1, 32, &pool), halt: halt.clone() };
    let polling = PortPolling { name: "p3", affinity: &BTreeMap::new() };
    datapath.add_port_polled(PortNo(3), Box::new(port), &polling).unwrap();
    assert!(datapath.progress().is_empty(), "no thread runs");
    datapath.start().unwrap();
    let beat = || datapath.progress()[0].beat;
    let first = beat();
    while beat() == first {
        std::thread::yield_now();
    }
    halt.wanted.store(true, Relaxed);
    halt.begins.wait();
    let (place, still) = (datapath.progress()[0].to_string(), beat());
    std::thread::sleep(Duration::from_millis(50));
    let later = beat();
    // Before anything is asserted: a PMD that stands still would keep a failed test from ending.
    halt.may_end.wait();
    assert_eq!((place.as_str(), later), ("PMD 0 in stage rx, port p3", still));
    while beat() == still {
        std::thread::yield_now();
    }
    datapath.stop();
    assert!(datapath.progress().is_empty(), "no thread runs any more");
}

#[test]
fn a_core_that_is_not_there_is_told() {
    let datapath = Datapath::new(Config { cores: vec![1023], max_megaflows: 16, ..Config::default() }).unwrap();
    let unpinned = datapath.start().unwrap();
    assert_eq!(unpinned[0].pmd, 0);
    assert!(unpinned[0].source.to_string().contains("1023"), "{unpinned:?}");
    datapath.stop();
}

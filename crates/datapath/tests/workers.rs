//! Workers that come and go: the main worker that sleeps, PMDs that exist while they are needed, and nothing lost.

#[path = "harness/follow.rs"]
mod follow;
mod harness;

use follow::follow;
use harness::*;
use proptest::prelude::*;
use rustix::event::EventfdFlags;
use sluice_action::{Action, PortNo, UpcallResult};
use sluice_datapath::{Config, Datapath, PortPolling};
use sluice_fate::{Counter, Tally};
use sluice_flow::{PacketKey, layout};
use sluice_mem::FramePool;
use sluice_packet::{Buffers, PacketBatch};
use sluice_port::{Port, PortInfo, PortStats, RxQueue, TxQueue};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tables that send everything to port 9, or to a controller what comes from source port 5; a megaflow a source port.
fn to_nine(key: &PacketKey, _bytes: &[u8]) -> UpcallResult {
    let mut mask = PacketKey::ZERO;
    for span in [layout::IN_PORT, layout::RECIRC_ID, layout::TP_SRC] {
        mask.set(span, &[0xff; 4][..span.size]);
    }
    let punt =
        Action::Controller { reason: 1, controller_id: 0, max_len: 128, cookie: 0, recirc_id: 0, continuation: false };
    let action = if key.number(layout::TP_SRC) == 5 { punt } else { Action::Output(PortNo(9)) };
    follow(mask, [action])
}

fn datapath(config: Config) -> (Datapath, FakeTables) {
    let datapath = Datapath::new(Config { max_megaflows: 256, ..config }).unwrap();
    let tables = FakeTables::new(to_nine);
    let upcalls = tables.clone();
    datapath.set_upcalls(move |_| Box::new(upcalls.clone()));
    (datapath, tables)
}

fn with_main_worker(cores: &[usize]) -> Config {
    Config { cores: cores.to_vec(), main_worker: true, ..Config::default() }
}

fn packet(flow: u16, tag: u32) -> Vec<u8> {
    udp([1, 1, 1, 1], [2, 2, 2, 2], flow, 5, tag)
}

/// A port with queues that a thread can wait for if it has bells.
struct WaitedPort {
    port: TestPort,
    /// By queue: an eventfd that is readable as long as there are packets.
    bells: Vec<Arc<OwnedFd>>,
}

struct WaitedRx {
    queue: Box<dyn RxQueue>,
    feed: Feed,
    wakeup: Arc<OwnedFd>,
}

/// A queue that must be polled: packets may come at any time, and nothing tells of them.
struct PolledRx(Box<dyn RxQueue>);

impl RxQueue for PolledRx {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        self.0.poll(batch, buffers, tally);
    }
}

/// A queue, to put packets into.
#[derive(Clone)]
struct Feeder {
    feed: Feed,
    wakeup: Option<Arc<OwnedFd>>,
}

impl Feeder {
    fn push(&self, packet: Vec<u8>) {
        let mut feed = self.feed.lock().unwrap();
        feed.push_back(packet);
        if let Some(wakeup) = &self.wakeup {
            rustix::io::write(wakeup, &1u64.to_ne_bytes()).unwrap();
        }
    }
}

/// A port that must be polled.
fn polled(n_rxq: usize, burst: usize, pool: &Arc<dyn FramePool>) -> WaitedPort {
    WaitedPort { port: TestPort::new(n_rxq, burst, pool), bells: Vec::new() }
}

/// A port that a thread can wait for.
fn waited_for(n_rxq: usize, burst: usize, pool: &Arc<dyn FramePool>) -> WaitedPort {
    let wakeup = || Arc::new(rustix::event::eventfd(0, EventfdFlags::NONBLOCK).unwrap());
    WaitedPort { bells: (0..n_rxq).map(|_| wakeup()).collect(), ..polled(n_rxq, burst, pool) }
}

impl WaitedPort {
    fn feeders(&self) -> Vec<Feeder> {
        let feeds = self.port.feeds.iter().cloned().enumerate();
        feeds.map(|(queue, feed)| Feeder { feed, wakeup: self.bells.get(queue).cloned() }).collect()
    }

    fn sent(&self) -> Sent {
        self.port.sent.clone()
    }
}

impl Port for WaitedPort {
    fn info(&self) -> PortInfo {
        self.port.info()
    }

    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue> {
        let (feed, polled) = (self.port.feeds[queue].clone(), self.port.rx_queue(queue));
        match self.bells.get(queue).cloned() {
            Some(wakeup) => Box::new(WaitedRx { queue: polled, feed, wakeup }),
            None => Box::new(PolledRx(polled)),
        }
    }

    fn tx_queue(&mut self, pmd: usize) -> Box<dyn TxQueue> {
        self.port.tx_queue(pmd)
    }

    fn stats(&self) -> PortStats {
        self.port.stats()
    }
}

impl RxQueue for WaitedRx {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        self.queue.poll(batch, buffers, tally);
        let feed = self.feed.lock().unwrap();
        if feed.is_empty() {
            let _ = rustix::io::read(&self.wakeup, &mut [0; 8]);
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wakeup.as_fd())
    }

    fn exhausted(&self) -> bool {
        self.queue.exhausted()
    }
}

/// The cores of the workers there are.
fn cores(datapath: &Datapath) -> Vec<Option<usize>> {
    datapath.pmds().iter().map(|worker| worker.core).collect()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn a_host_without_polled_ports_burns_no_core() {
    let pool = pool(1024);
    let (datapath, _) = datapath(with_main_worker(&[0]));
    let ports = [waited_for(2, 32, &pool), waited_for(1, 32, &pool)];
    let (feeders, sent) = (ports[0].feeders(), ports[1].sent());
    for (number, port) in [1, 9].into_iter().zip(ports) {
        datapath.add_port(PortNo(number), Box::new(port)).unwrap();
    }
    datapath.start().unwrap();
    assert_eq!(cores(&datapath), [None]);
    std::thread::sleep(Duration::from_millis(100));
    let before = datapath.totals();
    std::thread::sleep(Duration::from_secs(1));
    let idle = datapath.totals().since(&before);
    assert!(idle[Counter::IdleIterations] <= 12, "{} iterations in an idle second", idle[Counter::IdleIterations]);
    // Packets wake it at once.
    (0..300).for_each(|tag| feeders[tag as usize % 2].push(packet(tag as u16 % 7 + 10, tag)));
    wait_until("all packets are sent", || sent.lock().unwrap().len() == 300);
    datapath.stop();
    assert_eq!(datapath.totals().conserved(), Ok(()));
}

/// A PMD on a core, whose port a thread can wait for, as those of a configuration file: it sleeps when it is idle, and
/// neither packets nor commands wait for the end of its sleep.
#[test]
fn an_idle_pmd_whose_ports_can_be_waited_for_burns_no_core() {
    let pool = pool(1024);
    let (datapath, _) = datapath(Config { cores: vec![0], ..Config::default() });
    let ports = [waited_for(2, 32, &pool), waited_for(1, 32, &pool)];
    let (feeders, sent) = (ports[0].feeders(), ports[1].sent());
    for (number, port) in [1, 9].into_iter().zip(ports) {
        datapath.add_port(PortNo(number), Box::new(port)).unwrap();
    }
    datapath.start().unwrap();
    assert_eq!(cores(&datapath), [Some(0)]);
    for round in 1..=5 {
        // Idle iterations end: a PMD that polls makes thousands of them in the time between two looks.
        let mut last = datapath.totals()[Counter::IdleIterations];
        wait_until("it sleeps", || {
            std::thread::sleep(Duration::from_millis(300));
            let now = datapath.totals()[Counter::IdleIterations];
            now - std::mem::replace(&mut last, now) <= 4
        });
        (0..300).for_each(|tag| feeders[tag as usize % 2].push(packet(tag as u16 % 7 + 10, tag)));
        wait_until("all packets are sent", || sent.lock().unwrap().len() == 300 * round);
        datapath.quiesce();
    }
    // A port that must be polled keeps it awake.
    let polled = polled(1, 32, &pool);
    datapath.add_port(PortNo(10), Box::new(polled)).unwrap();
    let before = datapath.totals()[Counter::IdleIterations];
    wait_until("it polls", || datapath.totals()[Counter::IdleIterations] > before + 100_000);
    datapath.stop();
    assert_eq!(datapath.totals().conserved(), Ok(()));
}

#[test]
fn a_pmd_exists_while_there_is_a_queue_to_poll() {
    let pool = pool(1024);
    let (datapath, tables) = datapath(with_main_worker(&[0, 1]));
    datapath.add_port(PortNo(1), Box::new(waited_for(1, 32, &pool))).unwrap();
    datapath.start().unwrap();
    for round in 1..=3 {
        assert_eq!(cores(&datapath), [None]);
        let port = polled(2, 32, &pool);
        let (feeders, sent) = (port.feeders(), port.sent());
        datapath.add_port(PortNo(9), Box::new(port)).unwrap();
        assert_eq!(cores(&datapath), [None, Some(0), Some(1)]);
        let queues: Vec<usize> = datapath.pmds().iter().map(|worker| worker.rxqs.len()).collect();
        assert_eq!(queues, [1, 1, 1]);
        (0..50).for_each(|tag| feeders[tag as usize % 2].push(packet(11, tag)));
        wait_until("all packets are sent", || sent.lock().unwrap().len() == 50);
        datapath.del_port(PortNo(9)).unwrap();
        // What a PMD that is gone has counted stays.
        assert_eq!(datapath.totals()[Counter::Received], round * 50);
    }
    datapath.stop();
    assert_eq!(datapath.totals().conserved(), Ok(()));
    let carried: u64 = datapath.flows().iter().map(|flow| flow.flow.stats.packets).sum();
    assert_eq!(carried + tables.credited.lock().unwrap().0, 150);
}

#[test]
fn a_pinned_queue_goes_to_its_core_when_that_has_a_pmd() {
    let pool = pool(64);
    let (datapath, _) = datapath(with_main_worker(&[0]));
    let port = polled(1, 32, &pool);
    let affinity = [(0, 3)].into();
    datapath.add_port_polled(PortNo(9), Box::new(port), &PortPolling { name: "p", affinity: &affinity }).unwrap();
    let place = || datapath.pmds().into_iter().find(|worker| !worker.rxqs.is_empty()).map(|worker| worker.core);
    assert_eq!(place(), Some(Some(0)));
    datapath.set_workers(&[0, 3], true).unwrap();
    assert_eq!(place(), Some(Some(3)));
    datapath.set_workers(&[0], true).unwrap();
    assert_eq!(place(), Some(Some(0)));
    assert!(datapath.set_workers(&[], false).is_err());
    datapath.set_workers(&[0], false).unwrap();
    assert_eq!(cores(&datapath), [Some(0)]);
}

#[test]
fn what_was_received_is_done_when_a_datapath_is_quiescent() {
    let pool = pool(1024);
    for is_started in [false, true] {
        let (datapath, _) = datapath(with_main_worker(&[0]));
        let ports = [waited_for(1, 4, &pool), polled(1, 4, &pool)];
        let feeders = [ports[0].feeders(), ports[1].feeders()].concat();
        let sent = ports[1].sent();
        for (number, port) in [1, 9].into_iter().zip(ports) {
            datapath.add_port(PortNo(number), Box::new(port)).unwrap();
        }
        if is_started {
            datapath.start().unwrap();
        }
        for round in 1..=20 {
            (0..50).for_each(|tag| feeders[tag as usize % 2].push(packet(11, tag)));
            datapath.quiesce();
            assert_eq!(sent.lock().unwrap().len(), round * 50);
            assert_eq!(datapath.totals()[Counter::Sent], round as u64 * 50);
        }
        datapath.stop();
    }
}

#[test]
fn packets_for_controllers_are_waited_for_until_they_are_handled() {
    let pool = pool(1024);
    let (datapath, _) = datapath(with_main_worker(&[0]));
    let port = waited_for(1, 32, &pool);
    let feeder = port.feeders().remove(0);
    datapath.add_port(PortNo(1), Box::new(port)).unwrap();
    datapath.start().unwrap();
    let packets = datapath.take_packet_ins().unwrap();
    let handled = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = handled.clone();
    let owner = std::thread::spawn(move || {
        while packets.recv_timeout(Duration::from_secs(2)).is_ok() {
            std::thread::sleep(Duration::from_millis(2));
            counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    });
    (0..30).for_each(|tag| feeder.push(packet(5, tag)));
    datapath.quiesce();
    datapath.wait_for_packet_ins(Duration::from_secs(10));
    assert_eq!(handled.load(std::sync::atomic::Ordering::SeqCst), 30);
    datapath.stop();
    owner.join().unwrap();
}

/// What happens while packets come.
#[derive(Clone, Debug)]
enum Event {
    /// Packets of a flow come by a queue.
    Packets { queue: usize, packets: u32 },
    /// Other workers.
    Workers { cores: Vec<usize>, has_main: bool },
    /// A port comes, and one of that number goes.
    AnotherPort { number: u32, is_polled: bool },
    /// Queues are assigned by load.
    Rebalance,
    /// All threads end and begin again.
    Restart,
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..4usize, 1..200u32).prop_map(|(queue, packets)| Event::Packets { queue, packets }),
        3 => (proptest::collection::vec(0..2usize, 0..3), any::<bool>())
            .prop_map(|(cores, has_main)| Event::Workers { has_main: has_main || cores.is_empty(), cores }),
        2 => (20..23u32, any::<bool>()).prop_map(|(number, is_polled)| Event::AnotherPort { number, is_polled }),
        1 => Just(Event::Rebalance),
        1 => Just(Event::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever comes and goes, each packet is sent, in the order of its flow, and everything adds up.
    #[test]
    fn nothing_is_lost_while_workers_and_ports_come_and_go(
        main in any::<bool>(),
        events in proptest::collection::vec(any_event(), 1..30),
    ) {
        let pool = pool(16_384);
        let (datapath, _) = datapath(Config { cores: vec![0], main_worker: main, ..Config::default() });
        let ports = [waited_for(2, 32, &pool), polled(2, 32, &pool)];
        let feeders = [ports[0].feeders(), ports[1].feeders()].concat();
        let sent = ports[1].sent();
        for (number, port) in [1, 9].into_iter().zip(ports) {
            datapath.add_port(PortNo(number), Box::new(port)).unwrap();
        }
        datapath.start().unwrap();
        let (mut tag, mut others) = (0u32, std::collections::BTreeSet::new());
        for event in events {
            match event {
                Event::Packets { queue, packets } => {
                    for _ in 0..packets {
                        feeders[queue].push(packet(20 + queue as u16, tag));
                        tag += 1;
                    }
                }
                Event::Workers { cores, has_main } => datapath.set_workers(&cores, has_main).unwrap(),
                Event::AnotherPort { number, is_polled } => {
                    if others.remove(&number) {
                        datapath.del_port(PortNo(number)).unwrap();
                    } else {
                        let make = if is_polled { polled } else { waited_for };
                        let port = make(1, 32, &pool);
                        datapath.add_port(PortNo(number), Box::new(port)).unwrap();
                        others.insert(number);
                    }
                }
                Event::Rebalance => _ = datapath.rebalance(),
                Event::Restart => {
                    datapath.stop();
                    datapath.start().unwrap();
                }
            }
        }
        datapath.quiesce();
        let sent = std::mem::take(&mut *sent.lock().unwrap());
        prop_assert_eq!(sent.len(), tag as usize);
        let mut last = HashMap::new();
        for packet in &sent {
            let tag = u32::from_be_bytes(*packet.last_chunk().unwrap());
            let before = last.insert(packet[34..36].to_vec(), tag);
            prop_assert!(before.is_none_or(|before| before < tag), "a packet overtook another of its flow");
        }
        datapath.stop();
        let totals = datapath.totals();
        prop_assert_eq!(totals.conserved(), Ok(()));
        prop_assert_eq!((totals[Counter::Received], totals.dropped_in_all()), (u64::from(tag), 0));
        drop(datapath);
        prop_assert_eq!(pool.available(), pool.capacity(), "every buffer is back");
    }
}

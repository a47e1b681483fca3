//! Tables that a control thread has: a PMD goes on polling, and misses ask again later, in order.

#[path = "harness/follow.rs"]
mod follow;
#[path = "harness/ports.rs"]
mod ports;

use follow::follow;
use ports::{Feed, Sent, TestPort, pool};
use proptest::prelude::*;
use sluice_action::{Action, Miss, PortNo, Upcall, UpcallResult, XcacheHandle};
use sluice_datapath::{Config, Datapath, MissBudget};
use sluice_fate::{Counter, DropReason};
use sluice_flow::{PacketKey, layout};
use sluice_simd::tsc;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Packets of one queue that wait at most.
const DEFERRED_MAX: u64 = 256;

/// Tables that a control thread has while `is_busy`, or at the calls that `schedule` says; a megaflow for each UDP source
/// port. Flows of odd ports take a second pass.
#[derive(Clone, Default)]
struct BusyTables {
    is_busy: Arc<AtomicBool>,
    /// Each translation takes longer than a queue's turn.
    is_slow: Arc<AtomicBool>,
    schedule: Arc<Mutex<Vec<bool>>>,
    calls: Arc<AtomicU64>,
    /// Whether the PMD has said that it asks, and not yet that it ends.
    is_asking: Arc<AtomicBool>,
    /// How often it has said that it ends.
    ended: Arc<AtomicU64>,
}

impl Upcall for BusyTables {
    fn translate(&mut self, miss: &Miss<'_>) -> UpcallResult {
        let call = self.calls.fetch_add(1, Relaxed) as usize;
        let is_scheduled = self.schedule.lock().unwrap().get(call).copied().unwrap_or(false);
        if is_scheduled || self.is_busy.load(Relaxed) {
            return UpcallResult::Busy;
        }
        let began = tsc::now();
        while self.is_slow.load(Relaxed) && tsc::now() - began < 60_000 {}
        let key = miss.key;
        let mut mask = PacketKey::ZERO;
        mask.set(layout::IN_PORT, &[0xff; 4]);
        mask.set(layout::RECIRC_ID, &[0xff; 4]);
        mask.set(layout::TP_SRC, &[0xff; 2]);
        let is_first_of_two = key.number(layout::TP_SRC) % 2 == 1 && key.recirc_id() == 0;
        follow(mask, [if is_first_of_two { Action::Recirc(7) } else { Action::Output(PortNo(3)) }])
    }
    fn begin_asking(&mut self) {
        self.is_asking.store(true, Relaxed);
    }
    fn end_asking(&mut self) {
        self.is_asking.store(false, Relaxed);
        self.ended.fetch_add(1, Relaxed);
    }
    fn is_current(&self, version: u64) -> bool {
        version == 1
    }
    fn credit(&mut self, _xcache: &XcacheHandle, _packets: u64, _bytes: u64, _tcp_flags: u16, _now_ms: u64) {}
}

impl BusyTables {
    fn is_asking(&self) -> bool {
        self.is_asking.load(Relaxed)
    }
}

/// Ports 1 and 2 receive, port 3 sends.
fn datapath() -> (Datapath, [Feed; 2], Sent, BusyTables) {
    datapath_with(MissBudget::Unlimited)
}

fn datapath_with(miss_budget: MissBudget) -> (Datapath, [Feed; 2], Sent, BusyTables) {
    let (datapath, feeds, sent, tables) = datapath_of(miss_budget, 1);
    (datapath, feeds.try_into().unwrap(), sent, tables)
}

/// Ports 1 and 2 have `queues` receive queues each, port 3 sends.
fn datapath_of(miss_budget: MissBudget, queues: usize) -> (Datapath, Vec<Feed>, Sent, BusyTables) {
    let datapath = Datapath::new(Config { seed: Some(1), miss_budget, ..Config::default() }).unwrap();
    let tables = BusyTables::default();
    let upcalls = tables.clone();
    datapath.set_upcalls(move |_| Box::new(upcalls.clone()));
    let pool = pool(16_384);
    let ports: Vec<_> = (1..=3).map(|_| TestPort::new(queues, 32, &pool)).collect();
    let (feeds, sent) = (ports[..2].iter().flat_map(|port| port.feeds.clone()).collect(), ports[2].sent.clone());
    for (number, port) in (1..).zip(ports) {
        datapath.add_port(PortNo(number), Box::new(port)).unwrap();
    }
    (datapath, feeds, sent, tables)
}

/// Lets a queue receive a UDP packet from port `flow` with `tag` at its end.
fn put(feed: &Feed, flow: u16, tag: u32) {
    let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend([1, 1, 1, 1, 2, 2, 2, 2]);
    packet.extend(flow.to_be_bytes());
    packet.extend([0, 5, 0, 12, 0, 0]);
    packet.extend(tag.to_be_bytes());
    feed.lock().unwrap().push_back(packet);
}

/// Flow and tag of each packet sent.
fn sent_packets(sent: &Sent) -> Vec<(u16, u32)> {
    let of = |p: &Vec<u8>| (u16::from_be_bytes([p[34], p[35]]), u32::from_be_bytes(*p.last_chunk().unwrap()));
    sent.lock().unwrap().iter().map(of).collect()
}

#[test]
fn known_flows_go_on_and_misses_follow_in_order() {
    let (datapath, [feed, _], sent, tables) = datapath();
    put(&feed, 2, 0);
    datapath.run_once(0);
    assert_eq!(sent_packets(&sent), [(2, 0)]);
    tables.is_busy.store(true, Relaxed);
    for tag in 1..=40 {
        put(&feed, 2, tag);
        put(&feed, 4, tag);
        datapath.run_once(0);
    }
    assert_eq!(sent_packets(&sent).len(), 41, "the known flow's only");
    assert!(tables.is_asking(), "changes are put off while packets wait");
    let totals = datapath.totals();
    assert_eq!(totals.conserved(), Ok(()));
    assert_eq!(totals[Counter::Held] - totals[Counter::Released], 40);
    tables.is_busy.store(false, Relaxed);
    while !datapath.run_once(0).exhausted || sent_packets(&sent).len() < 81 {}
    let tags = sent_packets(&sent).iter().filter(|(flow, _)| *flow == 4).map(|(_, tag)| *tag).collect::<Vec<_>>();
    assert_eq!(tags, (1..=40).collect::<Vec<_>>());
    assert!(!tables.is_asking());
    let totals = datapath.totals();
    assert_eq!((totals.conserved(), totals[Counter::UpcallsLost]), (Ok(()), 0));
    let answers = [Counter::EmcHits, Counter::SmcHits, Counter::MegaflowHits, Counter::Upcalls].map(|c| totals[c]);
    assert_eq!((totals[Counter::Passes], answers.iter().sum::<u64>()), (81, 81), "each pass has one answer");
}

/// Changes of the tables are put off for the packets of every queue, not only for those of the queue that asked last.
#[test]
fn a_pmd_asks_until_no_queue_has_packets_that_wait() {
    let (datapath, [first, second], sent, tables) = datapath_with(MissBudget::Unlimited);
    // The second queue's packet finds the tables busy, and again after the first queue's has been answered.
    *tables.schedule.lock().unwrap() = vec![true, false, true, false];
    put(&second, 2, 0);
    datapath.run_once(0);
    put(&first, 4, 0);
    datapath.run_once(0);
    assert_eq!(sent_packets(&sent), [(4, 0)]);
    assert_eq!((tables.is_asking(), tables.ended.load(Relaxed)), (true, 0));
    datapath.run_once(0);
    assert_eq!(sent_packets(&sent), [(4, 0), (2, 0)]);
    assert!(!tables.is_asking());
}

/// Packets that wait may find their megaflow, which a packet of another queue installed, without asking again.
#[test]
fn a_pmd_whose_packets_found_their_megaflow_does_not_ask_any_more() {
    let (datapath, feeds, sent, tables) = datapath_of(MissBudget::Unlimited, 2);
    tables.is_busy.store(true, Relaxed);
    put(&feeds[1], 2, 0);
    datapath.run_once(0);
    assert!(tables.is_asking());
    tables.is_busy.store(false, Relaxed);
    put(&feeds[0], 2, 1);
    datapath.run_once(0);
    assert_eq!(sent_packets(&sent), [(2, 1), (2, 0)]);
    assert_eq!(datapath.totals()[Counter::Upcalls], 1);
    assert!(!tables.is_asking());
}

#[test]
fn each_queue_has_its_own_bound() {
    let (datapath, [flood, few], sent, tables) = datapath();
    tables.is_busy.store(true, Relaxed);
    for tag in 0..1000 {
        put(&flood, 2 * tag as u16, tag);
        if tag % 100 == 0 {
            put(&few, 2, tag);
        }
        datapath.run_once(0);
    }
    let totals = datapath.totals();
    assert_eq!(totals.conserved(), Ok(()));
    assert_eq!(totals.dropped(DropReason::UpcallLost), 1000 - DEFERRED_MAX);
    assert_eq!(totals[Counter::UpcallsLost], 1000 - DEFERRED_MAX);
    tables.is_busy.store(false, Relaxed);
    (0..100).for_each(|_| _ = datapath.run_once(0));
    let sent = sent_packets(&sent);
    assert_eq!(sent.len() as u64, DEFERRED_MAX + 10);
    assert_eq!(datapath.totals().conserved(), Ok(()));
}

/// The megaflow that the first packet of a flow installs does not let a packet that comes now overtake one that waits.
#[test]
fn a_flow_whose_packets_wait_in_two_batches_keeps_its_order() {
    let (datapath, [feed, _], sent, tables) = datapath();
    tables.is_busy.store(true, Relaxed);
    for (tag, flow) in (0..).zip([2].into_iter().chain((2..41).map(|other| 2 * other)).chain([2])) {
        put(&feed, flow, tag);
    }
    (0..2).for_each(|_| _ = datapath.run_once(0));
    tables.is_busy.store(false, Relaxed);
    for tag in [41, 42] {
        put(&feed, 2, tag);
        datapath.run_once(0);
    }
    (0..2).for_each(|_| _ = datapath.run_once(0));
    let tags = sent_packets(&sent).iter().filter(|(flow, _)| *flow == 2).map(|(_, tag)| *tag).collect::<Vec<_>>();
    assert_eq!(tags, [0, 40, 41, 42]);
    assert_eq!(datapath.totals().conserved(), Ok(()));
    assert_eq!(datapath.totals()[Counter::MegaflowsInstalled], 40, "each flow's first packet installs it");
}

#[test]
fn a_flow_that_never_pauses_gets_its_megaflow() {
    let (datapath, [feed, _], _, tables) = datapath();
    tables.is_busy.store(true, Relaxed);
    (0..5000).for_each(|tag| put(&feed, 2, tag));
    (0..10).for_each(|_| _ = datapath.run_once(0));
    tables.is_busy.store(false, Relaxed);
    datapath.run_once(0);
    assert!(!feed.lock().unwrap().is_empty());
    assert_eq!(datapath.totals()[Counter::MegaflowsInstalled], 1);
}

/// Where the tables are free and just many packets wait, the device keeps what comes.
#[test]
fn nothing_is_lost_once_the_tables_are_free() {
    let (datapath, [feed, _], sent, tables) = datapath();
    tables.is_busy.store(true, Relaxed);
    (0..250).for_each(|tag| put(&feed, 2 * tag as u16, tag));
    (0..10).for_each(|_| _ = datapath.run_once(0));
    tables.is_busy.store(false, Relaxed);
    (250..5000).for_each(|tag| put(&feed, 2 * tag as u16, tag));
    while sent.lock().unwrap().len() < 5000 {
        datapath.run_once(0);
    }
    let totals = datapath.totals();
    assert_eq!((totals.conserved(), totals[Counter::UpcallsLost]), (Ok(()), 0));
}

#[test]
fn packets_that_wait_go_with_their_port() {
    let (datapath, [feed, _], _, tables) = datapath();
    tables.is_busy.store(true, Relaxed);
    (0..20).for_each(|tag| put(&feed, 2, tag));
    datapath.run_once(0);
    datapath.del_port(PortNo(1)).unwrap();
    datapath.run_once(0);
    let totals = datapath.totals();
    assert_eq!(totals.conserved(), Ok(()));
    assert_eq!((totals.dropped(DropReason::UpcallLost), totals[Counter::Released]), (20, 20));
    assert!(!tables.is_asking(), "no change is put off for them any more");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whenever the tables are busy, and however long they take, each flow's packets leave in order and none is lost; the
    /// plain twin is a switch whose tables are never busy.
    #[test]
    fn order_within_a_flow_is_kept(
        packets in prop::collection::vec((0u16..6, 0usize..2, 0usize..4), 1..200),
        busy in prop::collection::vec(any::<bool>(), 0..120),
        is_slow in any::<bool>(),
    ) {
        let run = |schedule: Vec<bool>, is_slow: bool| {
            // All cycles may go into misses: these have turns, and none is dropped.
            let (datapath, feeds, sent, tables) = datapath_with(MissBudget::PerMille(1000));
            tables.is_slow.store(is_slow, Relaxed);
            *tables.schedule.lock().unwrap() = schedule;
            for (tag, (flow, port, polls)) in (0..).zip(&packets) {
                put(&feeds[*port], *flow, tag);
                (0..*polls / 3).for_each(|_| _ = datapath.run_once(0));
            }
            (0..400).for_each(|_| _ = datapath.run_once(0));
            let mut flows: HashMap<(u16, usize), Vec<u32>> = HashMap::new();
            for (flow, tag) in sent_packets(&sent) {
                flows.entry((flow, packets[tag as usize].1)).or_default().push(tag);
            }
            (flows, datapath.totals())
        };
        let (plain, _) = run(Vec::new(), false);
        let (flows, totals) = run(busy, is_slow);
        prop_assert_eq!(totals.conserved(), Ok(()));
        prop_assert_eq!(totals[Counter::Held], totals[Counter::Released]);
        prop_assert_eq!(totals[Counter::UpcallsDeferred], totals[Counter::Held]);
        prop_assert_eq!(flows, plain);
    }
}

//! Policers at the edges of PMDs: what they drop is counted, what passes keeps its order, and they stay with their port.
//!
//! The policers' time is the machine's, so bounds follow from the time that a test took, and no number is exact.

#[path = "harness/follow.rs"]
mod follow;
mod harness;

use follow::follow;
use harness::{FakeTables, Feed, Sent, TestPort, pool, udp};
use sluice_action::{Action, Header, MaskedField, PortNo, UpcallResult};
use sluice_datapath::{Config, Datapath};
use sluice_fate::DropReason;
use sluice_flow::{PacketKey, layout};
use sluice_policer::{EgressPolicer, IngressPolicer, PolicingRates, QueuePolicer, Rate, TrTcmRates};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The tokens of a packet of `udp`.
const TOKENS: u64 = 32;
/// The slowest rate that an interface may have, bytes a second, and its smallest burst, bytes: three packets.
const SLOW: PolicingRates = PolicingRates { kbits: 1, kbits_burst: 1, kpkts: 0, kpkts_burst: 0 };
const SLOW_RATE: u64 = 125;
const SLOW_BURST: u64 = 3;

/// All packets go to port 2, in the queue that their UDP destination port is.
fn to_two(key: &PacketKey, _: &[u8]) -> UpcallResult {
    let mut mask = PacketKey::ZERO;
    for span in [layout::IN_PORT, layout::RECIRC_ID, layout::TP_DST] {
        mask.set(span, &[0xff; 4][..span.size]);
    }
    let mut queue = MaskedField { span: layout::SKB_PRIORITY, value: [0; 16], mask: [0; 16] };
    queue.mask[..4].fill(0xff);
    queue.value[2..4].copy_from_slice(key.get(layout::TP_DST));
    let queue = Action::Set { header: Header::SkbPriority, fields: Box::new([queue]) };
    follow(mask, [queue, Action::Output(PortNo(2))])
}

/// A datapath that rests, with port 1 of two queues and port 2; what they receive and what port 2 sends.
fn datapath() -> (Datapath, [Feed; 2], Sent) {
    let (datapath, pool) = (Datapath::new(Config { seed: Some(1), ..Config::default() }).unwrap(), pool(4096));
    let tables = FakeTables::new(to_two);
    datapath.set_upcalls(move |_| Box::new(tables.clone()));
    let (one, two) = (TestPort::new(2, 32, &pool), TestPort::new(1, 32, &pool));
    let (feeds, sent) = ([one.feeds[0].clone(), one.feeds[1].clone()], two.sent.clone());
    datapath.add_port(PortNo(1), Box::new(one)).unwrap();
    datapath.add_port(PortNo(2), Box::new(two)).unwrap();
    (datapath, feeds, sent)
}

/// Lets `n` packets come, numbered, for a queue.
fn feed(feed: &Feed, n: u32, queue: u16) {
    feed.lock().unwrap().extend((0..n).map(|tag| udp([1, 1, 1, 1], [2, 2, 2, 2], 1, queue, tag)));
}

fn run(datapath: &Datapath) {
    while !datapath.run_once(0).exhausted {}
    datapath.run_once(0);
    assert_eq!(datapath.totals().conserved(), Ok(()));
}

/// The queues and numbers of what was sent.
fn tags(sent: &Sent) -> Vec<(u16, u32)> {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
    sent.lock().unwrap().drain(..).map(|packet| (number(&packet[36..38]) as u16, number(&packet[42..46]))).collect()
}

/// A counter of a port's own.
fn counter(datapath: &Datapath, port: u32, name: &str) -> Option<u64> {
    let ports = datapath.ports();
    let report = ports.iter().find(|report| report.number == PortNo(port)).unwrap();
    report.custom_stats.iter().find(|(own, _)| own == name).map(|(_, n)| *n)
}

/// The packets that may have passed: a burst at least, and at most what the rate has made since `began` as well.
fn allowed(burst: u64, rate: u64, began: Instant) -> std::ops::RangeInclusive<u64> {
    let made = rate * began.elapsed().as_millis() as u64 / 1000;
    burst..=burst + made / TOKENS + 1
}

#[test]
fn a_policed_port_receives_its_burst_and_its_rate_over_all_queues() {
    let (datapath, feeds, sent) = datapath();
    let began = Instant::now();
    datapath.set_ingress_policer(PortNo(1), IngressPolicer::new(SLOW)).unwrap();
    feeds.iter().for_each(|queue| feed(queue, 500, 7));
    run(&datapath);
    let passed = tags(&sent);
    assert!(passed.starts_with(&[(7, 0), (7, 1), (7, 2)]), "{passed:?}");
    let allowed = allowed(SLOW_BURST, SLOW_RATE, began);
    assert!(allowed.contains(&(passed.len() as u64)), "{} passed, expected {allowed:?}", passed.len());
    let dropped = datapath.totals().dropped(DropReason::IngressPolicer);
    assert_eq!(dropped + passed.len() as u64, 1000);
    let of_port: u64 = datapath.ports().iter().map(|port| port.fates.dropped(DropReason::IngressPolicer)).sum();
    assert_eq!(of_port, dropped, "the port says so, too");
    assert_eq!(counter(&datapath, 1, "ovs_rx_qos_drops"), Some(dropped));
    assert_eq!(counter(&datapath, 2, "ovs_tx_qos_drops"), None, "it has no policer");

    datapath.set_ingress_policer(PortNo(1), None).unwrap();
    feed(&feeds[0], 500, 7);
    run(&datapath);
    assert_eq!(tags(&sent).len(), 500);
}

#[test]
fn a_policer_stays_with_its_port() {
    let (datapath, feeds, sent) = datapath();
    let began = Instant::now();
    datapath.set_ingress_policer(PortNo(1), IngressPolicer::new(SLOW)).unwrap();
    let egress = EgressPolicer::single(Rate { per_second: SLOW_RATE, burst: 100 });
    datapath.set_egress_policer(PortNo(2), Some(Arc::new(egress))).unwrap();
    // Other workers get the queues, and make new ones to the ports.
    for cores in [&[0, 1][..], &[1]] {
        datapath.set_workers(cores, false).unwrap();
        feeds.iter().for_each(|queue| feed(queue, 100, 7));
        run(&datapath);
    }
    let (passed, allowed) = (tags(&sent).len() as u64, allowed(SLOW_BURST, SLOW_RATE, began));
    assert!(allowed.contains(&passed), "{passed} passed, expected {allowed:?}");

    // A port without policers takes the number.
    datapath.del_port(PortNo(2)).unwrap();
    let again = TestPort::new(1, 32, &pool(64));
    let sent = again.sent.clone();
    datapath.add_port(PortNo(2), Box::new(again)).unwrap();
    datapath.set_ingress_policer(PortNo(1), None).unwrap();
    feed(&feeds[0], 300, 7);
    run(&datapath);
    assert_eq!(tags(&sent).len(), 300);
    assert!(datapath.set_egress_policer(PortNo(9), None).is_err());
}

#[test]
fn a_port_sends_what_the_queues_and_its_own_rates_allow() {
    let (datapath, feeds, sent) = datapath();
    let rates = |packets: u64| TrTcmRates { cir: SLOW_RATE, cbs: packets * TOKENS, eir: 0, ebs: 0 };
    let queues = [(0, 10), (7, 20)].map(|(number, packets)| (number, QueuePolicer::new(rates(packets))));
    let policer = Arc::new(EgressPolicer::by_queue(rates(100), BTreeMap::from(queues)));
    let began = Instant::now();
    datapath.set_egress_policer(PortNo(2), Some(Arc::clone(&policer))).unwrap();
    // Queue 9 is not there: its packets are the default queue's.
    for (at, queue) in [(0, 7), (1, 9)] {
        feed(&feeds[at], 200, queue);
    }
    run(&datapath);
    let passed = tags(&sent);
    for (queue, of_policer, burst) in [(7, 7, 20), (9, 0, 10)] {
        let numbers: Vec<u32> = passed.iter().filter(|(of, _)| *of == queue).map(|(_, tag)| *tag).collect();
        assert!(numbers.is_sorted(), "queue {queue}: {numbers:?}");
        let allowed = allowed(burst, SLOW_RATE, began);
        assert!(allowed.contains(&(numbers.len() as u64)), "queue {queue}: {numbers:?}, expected {allowed:?}");
        let counts = policer.queues().unwrap()[&of_policer].counts();
        assert_eq!((counts.packets, counts.bytes), (numbers.len() as u64, numbers.len() as u64 * TOKENS));
        assert_eq!(counts.packets + counts.errors, 200);
    }
    let dropped = datapath.totals().dropped(DropReason::EgressPolicer);
    assert_eq!(dropped + passed.len() as u64, 400);
    assert_eq!(counter(&datapath, 2, "ovs_tx_qos_drops"), Some(dropped));
    datapath.set_egress_policer(PortNo(2), None).unwrap();
    assert_eq!(counter(&datapath, 2, "ovs_tx_qos_drops"), Some(dropped), "it stays when the policer goes");
}

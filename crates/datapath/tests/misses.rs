//! The miss budget and the governor, by counters: a port of new flows beside a port of known ones, and flows that are
//! counted first.

#[path = "harness/follow.rs"]
mod follow;
mod harness;

use follow::follow;
use harness::{FakeTables, TestPort, pool, udp};
use sluice_action::{Action, PortNo, UpcallResult};
use sluice_datapath::{Config, Datapath, GovernorMode, MissBudget};
use sluice_fate::{Counter, DropReason};
use sluice_flow::{PacketKey, layout};
use sluice_simd::tsc;

/// One megaflow for each source port, and all go to port 3.
fn by_source_port(_: &PacketKey, _: &[u8]) -> UpcallResult {
    let mut mask = PacketKey::ZERO;
    mask.set(layout::IN_PORT, &[0xff; 4]);
    mask.set(layout::RECIRC_ID, &[0xff; 4]);
    mask.set(layout::TP_SRC, &[0xff; 2]);
    follow(mask, [Action::Output(PortNo(3))])
}

/// Ports 1 and 2 receive, port 3 sends.
fn datapath(config: Config) -> (Datapath, [harness::Feed; 2], harness::Sent, FakeTables) {
    datapath_with(config, by_source_port)
}

fn datapath_with(
    config: Config,
    rule: fn(&PacketKey, &[u8]) -> UpcallResult,
) -> (Datapath, [harness::Feed; 2], harness::Sent, FakeTables) {
    let datapath = Datapath::new(Config { seed: Some(1), ..config }).unwrap();
    let tables = FakeTables::new(rule);
    let upcalls = tables.clone();
    datapath.set_upcalls(move |_| Box::new(upcalls.clone()));
    let pool = pool(16_384);
    let ports: Vec<_> = (1..=3).map(|_| TestPort::new(1, 32, &pool)).collect();
    let (feeds, sent) = ([ports[0].feeds[0].clone(), ports[1].feeds[0].clone()], ports[2].sent.clone());
    for (number, port) in (1..).zip(ports) {
        datapath.add_port(PortNo(number), Box::new(port)).unwrap();
    }
    (datapath, feeds, sent, tables)
}

fn packet(flow: u16, tag: u32) -> Vec<u8> {
    udp([1, 1, 1, 1], [2, 2, 2, 2], flow, 5, tag)
}

#[test]
fn over_the_budget_misses_are_dropped_by_name_and_hits_are_not() {
    // The smallest budget: after the first misses the bucket is empty for a long time.
    let (datapath, [attacker, victim], sent, _) =
        datapath(Config { miss_budget: MissBudget::PerMille(1), ..Config::default() });
    victim.lock().unwrap().push_back(packet(1, 0));
    while !datapath.run_once(0).exhausted {}
    assert_eq!(sent.lock().unwrap().len(), 1, "a full purse at first");
    let before = datapath.totals();
    for tag in 0..20_000u32 {
        attacker.lock().unwrap().push_back(packet(tag as u16, tag));
        victim.lock().unwrap().push_back(packet(1, tag));
        if tag % 16 == 15 {
            datapath.run_once(0);
        }
    }
    while !datapath.run_once(0).exhausted {}
    let all = datapath.totals();
    let (totals, lost) = (all.since(&before), all.dropped(DropReason::MissBudget));
    assert_eq!(all.conserved(), Ok(()));
    assert!(lost > 1000, "{lost} of 20000");
    assert_eq!(totals[Counter::UpcallsLost], lost, "a lost upcall each");
    assert_eq!(totals[Counter::Sent] + lost, totals[Counter::Received]);
    let of_victim = sent.lock().unwrap().iter().filter(|p| p[34..36] == [0, 1]).count();
    // The attacker's flow of that number arrives at another port.
    assert!(of_victim >= 20_000, "every packet of the victim: {of_victim}");
}

/// A translation that takes longer than a queue's turn.
fn slowly(key: &PacketKey, bytes: &[u8]) -> UpcallResult {
    let began = tsc::now();
    while tsc::now() - began < 60_000 {}
    by_source_port(key, bytes)
}

#[test]
fn misses_end_the_turn_of_their_queue() {
    // All cycles may go into misses, so that none is dropped.
    let config = Config { miss_budget: MissBudget::PerMille(1000), ..Config::default() };
    let (datapath, [attacker, victim], sent, _) = datapath_with(config, slowly);
    victim.lock().unwrap().push_back(packet(60_000, 0));
    while !datapath.run_once(0).exhausted {}
    // Each flow has a second packet behind all first ones.
    (0..40u32).for_each(|tag| attacker.lock().unwrap().push_back(packet(tag as u16 % 20, tag)));
    let before = datapath.totals();
    let mut rounds = 0;
    loop {
        let upcalls = datapath.totals()[Counter::Upcalls];
        victim.lock().unwrap().push_back(packet(60_000, 0));
        let is_done = datapath.run_once(0).exhausted && sent.lock().unwrap().len() == 42 + rounds;
        rounds += 1;
        // The second packet of a flow that waits in the same batch follows the first one's answer.
        let asked = datapath.totals()[Counter::Upcalls] - upcalls;
        assert!(asked <= 2, "{asked} misses in a turn");
        assert_eq!(sent_by(&sent, 60_000), rounds + 1, "the other queue is polled in each round");
        if is_done {
            break;
        }
    }
    let totals = datapath.totals().since(&before);
    assert_eq!(datapath.totals().conserved(), Ok(()));
    assert!(rounds >= 20, "a round each flow: {rounds}");
    assert_eq!(totals[Counter::Sent], 40 + rounds as u64, "none is dropped");
    assert!(totals[Counter::UpcallsDeferred] > 0);
    for flow in 0..20 {
        let tags: Vec<_> = sent.lock().unwrap().iter().filter(|p| is_of(p, flow)).map(|p| *p.last().unwrap()).collect();
        assert_eq!(tags, [flow as u8, flow as u8 + 20], "in order");
    }
}

#[test]
fn known_flows_do_not_wait_for_misses_of_their_queue() {
    let config = Config { miss_budget: MissBudget::PerMille(1000), ..Config::default() };
    let (datapath, [feed, _], sent, _) = datapath_with(config, slowly);
    feed.lock().unwrap().push_back(packet(60_000, 0));
    while !datapath.run_once(0).exhausted {}
    (0..32).for_each(|flow| feed.lock().unwrap().push_back(packet(flow, 0)));
    (0..200).for_each(|_| feed.lock().unwrap().push_back(packet(60_000, 0)));
    let before = datapath.totals()[Counter::Upcalls];
    while sent_by(&sent, 60_000) < 201 {
        datapath.run_once(0);
    }
    let asked = datapath.totals()[Counter::Upcalls] - before;
    assert!(asked < 32, "all {asked} misses came first");
    while !datapath.run_once(0).exhausted {}
    assert_eq!(sent.lock().unwrap().len(), 233, "none is lost");
    assert_eq!(datapath.totals().conserved(), Ok(()));
}

/// Whether a packet is of a flow.
fn is_of(packet: &[u8], flow: u16) -> bool {
    packet[34..36] == flow.to_be_bytes()
}

/// How many packets of a flow were sent.
fn sent_by(sent: &harness::Sent, flow: u16) -> usize {
    sent.lock().unwrap().iter().filter(|packet| is_of(packet, flow)).count()
}

#[test]
fn without_a_budget_nothing_is_dropped() {
    let (datapath, [attacker, _], sent, _) = datapath(Config::default());
    (0..5000u32).for_each(|tag| attacker.lock().unwrap().push_back(packet(tag as u16, tag)));
    while !datapath.run_once(0).exhausted {}
    assert_eq!(sent.lock().unwrap().len(), 5000);
}

#[test]
fn counted_flows_are_forwarded_in_order_and_installed_at_the_fifth_packet() {
    let (datapath, [feed, _], sent, tables) = datapath(Config { governor: GovernorMode::Classic, ..Config::default() });
    // 20 flows of 20 packets and 20 flows of 3, one packet of each flow in turn.
    let mut tag = 0;
    for round in 0..20 {
        for flow in 0..40u16 {
            if flow < 20 || round < 3 {
                feed.lock().unwrap().push_back(packet(flow, tag));
                tag += 1;
                datapath.run_once(0);
            }
        }
    }
    let totals = datapath.totals();
    assert_eq!(totals.conserved(), Ok(()));
    assert_eq!(sent.lock().unwrap().len() as u32, tag, "all are forwarded");
    let tags = sent.lock().unwrap().iter().map(|p| u32::from_be_bytes(*p.last_chunk().unwrap())).collect::<Vec<_>>();
    assert!(tags.is_sorted(), "none overtook another");
    let flows = datapath.flows();
    assert_eq!(flows.len(), 20, "those of twenty packets");
    // With this seed no two flows share a counter.
    assert_eq!(totals[Counter::GovernedSetups], 20);
    assert_eq!(totals[Counter::GovernedFlows], 40);
    assert_eq!(totals[Counter::GovernedPackets], 20 * 4 + 20 * 3);
    assert_eq!(totals[Counter::Upcalls], 20 * 5 + 20 * 3);
    // Each packet counts once: by its megaflow, or by the translation that it followed.
    let carried: u64 = flows.iter().map(|flow| flow.flow.stats.packets).sum();
    assert_eq!((carried, tables.credited.lock().unwrap().0), (20 * 15, 160));
}

#[test]
fn duplicates_in_a_batch_ask_once_and_count_together() {
    let (datapath, [feed, _], sent, tables) = datapath(Config { governor: GovernorMode::Classic, ..Config::default() });
    let put = |flow: u16, n: u32| (0..n).for_each(|tag| feed.lock().unwrap().push_back(packet(flow, tag)));
    put(1, 4);
    datapath.run_once(0);
    assert_eq!((datapath.flows().len(), tables.credited.lock().unwrap().0), (0, 4));
    put(2, 5);
    datapath.run_once(0);
    assert_eq!(datapath.flows().len(), 1, "five packets at once are enough");
    put(1, 1);
    datapath.run_once(0);
    assert_eq!(datapath.flows().len(), 2, "and four and one");
    assert_eq!(sent.lock().unwrap().len(), 10);
}

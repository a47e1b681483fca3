//! The walk, one fact a test, with tables that are functions.

#[path = "harness/follow.rs"]
mod follow;
mod harness;

use follow::follow;
use harness::*;
use sluice_action::{Action, FlowId, PortNo, UpcallResult};
use sluice_datapath::{Arm, Config, Datapath, EmcInsert, PacketOut, PortPolling, RxqAlgorithm, RxqAssignment};
use sluice_fate::{Counter, DropReason};
use sluice_flow::{PacketKey, layout};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Every megaflow is inserted into the exact match cache, and there is no other cache.
const EMC: Arm = Arm { emc: Some(EmcInsert::OneIn(1)), ..Arm::BARE };

fn output(port: u32) -> Action {
    Action::Output(PortNo(port))
}

/// A datapath of one resting PMD with test ports 1 to `n`, of one queue each.
fn datapath(n: u32, config: Config, tables: &FakeTables) -> (Datapath, Vec<Feed>, Vec<Sent>) {
    let pool = pool(4096);
    let datapath = Datapath::new(Config { max_megaflows: 1 << 16, seed: Some(1), ..config }).unwrap();
    let upcalls = tables.clone();
    datapath.set_upcalls(move |_| Box::new(upcalls.clone()));
    let (mut feeds, mut sents) = (Vec::new(), Vec::new());
    for number in 1..=n {
        let port = TestPort::new(1, 32, &pool);
        feeds.push(port.feeds[0].clone());
        sents.push(port.sent.clone());
        datapath.add_port(PortNo(number), Box::new(port)).unwrap();
    }
    (datapath, feeds, sents)
}

fn run(datapath: &Datapath) {
    for turn in 0..10_000 {
        if datapath.run_once(turn).exhausted {
            break;
        }
    }
    assert_eq!(datapath.totals().conserved(), Ok(()));
}

fn mask(spans: &[layout::Span]) -> PacketKey {
    let mut mask = PacketKey::ZERO;
    for span in [layout::IN_PORT, layout::RECIRC_ID].iter().chain(spans) {
        mask.set(*span, &[0xff; 16][..span.size]);
    }
    mask
}

fn take(sent: &Sent) -> Vec<Vec<u8>> {
    std::mem::take(&mut sent.lock().unwrap())
}

#[test]
fn the_first_packet_asks_and_the_others_follow_the_megaflow() {
    let tables = FakeTables::new(|_, _| follow(mask(&[layout::NW_DST]), [output(2)]));
    let (datapath, feeds, sents) = datapath(2, Config::default(), &tables);
    let packets: Vec<_> = (0..100).map(|i| udp([1, 1, 1, 1], [10, 0, 0, (i % 3) as u8], 1, 2, i)).collect();
    feeds[0].lock().unwrap().extend(packets.iter().cloned());
    run(&datapath);
    assert_eq!(take(&sents[1]), packets, "in order of arrival");
    let totals = datapath.totals();
    let hits = totals[Counter::EmcHits] + totals[Counter::SmcHits] + totals[Counter::MegaflowHits];
    assert_eq!((totals[Counter::Upcalls], hits), (3, 97));
    assert_eq!(*tables.credited.lock().unwrap(), (3, 3 * 46));
    let flows = datapath.flows();
    assert_eq!(flows.len(), 3);
    assert_eq!(flows.iter().map(|f| f.flow.stats.packets).sum::<u64>(), 97);
    assert!(flows.iter().all(|f| f.on_pmd(0).is_some() && f.flow.stats.used_ms.is_some()));
    assert_eq!(datapath.pmds()[0].megaflows, 3);
    assert_eq!(datapath.pmds()[0].subtables, 1);
}

#[test]
fn a_removed_megaflow_is_asked_for_again_and_its_count_is_exact() {
    let tables = FakeTables::new(|_, _| follow(mask(&[]), [output(2)]));
    let (datapath, feeds, sents) = datapath(2, Config { settings: EMC.into(), ..Config::default() }, &tables);
    for round in 0..5 {
        feeds[0].lock().unwrap().extend((0..10).map(|i| udp([1, 1, 1, 1], [2, 2, 2, 2], 1, 2, i)));
        run(&datapath);
        assert_eq!(take(&sents[1]).len(), 10);
        assert_eq!(datapath.totals()[Counter::Upcalls], round + 1);
        let store = datapath.store();
        let mut ids = Vec::new();
        store.for_each(&mut |flow| ids.push((flow.id, flow.stats.packets)));
        assert_eq!(ids, [(FlowId(0), 9)], "the id is used again");
        assert_eq!(store.remove(FlowId(0)).unwrap().packets, 9);
        assert_eq!(store.remove(FlowId(0)), None);
        store.settle(&mut |_, _| panic!("nothing was late"));
        (0..2000).for_each(|turn| assert_eq!(datapath.run_once(turn).fullest, 0));
        let pmd = &datapath.pmds()[0];
        assert_eq!((pmd.megaflows, pmd.subtables, pmd.emc.used), (0, 0, 0), "nothing is left of it");
    }
}

#[test]
fn several_outputs_copy_and_the_last_moves() {
    let tables = FakeTables::new(|_, _| {
        let tag = Action::PushVlan { tpid: 0x8100, tci: 0x1005 };
        follow(mask(&[]), [output(2), tag, output(3), Action::PopVlan, output(4), output(9)])
    });
    let (datapath, feeds, sents) = datapath(4, Config::default(), &tables);
    let packets: Vec<_> = (0..40).map(|i| udp([1, 1, 1, 1], [2, 2, 2, 2], 1, 2, i)).collect();
    feeds[0].lock().unwrap().extend(packets.iter().cloned());
    run(&datapath);
    assert_eq!(take(&sents[1]), packets);
    assert_eq!(take(&sents[3]), packets);
    let tagged = take(&sents[2]);
    assert!(tagged.iter().zip(&packets).all(|(t, p)| t[12..16] == [0x81, 0, 0, 5] && t[16..] == p[12..]));
    let totals = datapath.totals();
    assert_eq!((totals[Counter::Cloned], totals.dropped(DropReason::TxNoPort)), (120, 40));
}

#[test]
fn recirculated_packets_keep_their_place() {
    // Odd tags take a second pass; even ones do not. All leave by port 2.
    let tables = FakeTables::new(|key, bytes| {
        let odd = bytes[bytes.len() - 1] % 2 == 1;
        match (key.recirc_id(), odd) {
            (0, true) => follow(mask(&[layout::TP_SRC]), [Action::Recirc(7)]),
            (0, false) => follow(mask(&[layout::TP_SRC]), [output(2)]),
            (7, _) => follow(mask(&[]), [output(2), output(3)]),
            _ => UpcallResult::Failed(DropReason::UpcallLost),
        }
    });
    let (datapath, feeds, sents) = datapath(3, Config::default(), &tables);
    let packets: Vec<_> = (0..200).map(|i| udp([1, 1, 1, 1], [2, 2, 2, 2], (i % 2) as u16, 2, i)).collect();
    feeds[0].lock().unwrap().extend(packets.iter().cloned());
    run(&datapath);
    assert_eq!(take(&sents[1]), packets);
    assert_eq!(take(&sents[2]).len(), 100);
    assert_eq!(datapath.totals()[Counter::Passes], 300);
}

#[test]
fn recirculation_ends_by_name() {
    for (recirculations, passes) in [(Config::default().recirculations, 45), (6, 35), (0, 5)] {
        let tables = FakeTables::new(|key, _| follow(mask(&[]), [Action::Recirc(key.recirc_id() + 1)]));
        let (datapath, feeds, _) = datapath(1, Config { recirculations, ..Config::default() }, &tables);
        feeds[0].lock().unwrap().extend((0..5).map(|i| udp([1, 1, 1, 1], [2, 2, 2, 2], 1, 2, i)));
        run(&datapath);
        let totals = datapath.totals();
        assert_eq!((totals.dropped(DropReason::RecircDepth), totals[Counter::Passes]), (5, passes));
    }
}

/// The same holds for packets that are tracked each time, which stay in their batch.
#[test]
fn tracking_and_recirculating_ends_by_name() {
    for (recirculations, passes) in [(Config::default().recirculations, 45), (0, 5)] {
        let tables = FakeTables::new(|key, _| {
            let actions = [Action::Ct(Box::default()), Action::Recirc(key.recirc_id() + 1)];
            follow(mask(&[]), actions)
        });
        let (datapath, feeds, _) = datapath(1, Config { recirculations, ..Config::default() }, &tables);
        for _ in 0..2 {
            feeds[0].lock().unwrap().extend((0..5).map(|i| udp([1, 1, 1, 1], [2, 2, 2, 2], 1, 2, i)));
            run(&datapath);
        }
        let totals = datapath.totals();
        assert_eq!((totals.dropped(DropReason::RecircDepth), totals[Counter::Passes]), (10, 2 * passes));
    }
}

#[test]
fn each_drop_has_its_name() {
    let tables = FakeTables::new(|key, _| match key.number(layout::TP_SRC) {
        0 => follow(mask(&[layout::TP_SRC]), []),
        1 => follow(mask(&[layout::TP_SRC]), [Action::Drop]),
        2 => follow(mask(&[layout::TP_SRC]), [output(77)]),
        3 => follow(mask(&[layout::TP_SRC]), [Action::PopVlan, output(1)]),
        _ => UpcallResult::Failed(DropReason::TranslationLimit),
    });
    let (datapath, feeds, _) = datapath(1, Config::default(), &tables);
    for round in 0..20 {
        feeds[0].lock().unwrap().extend((0..5).map(|i| udp([1, 1, 1, 1], [2, 2, 2, 2], i, 2, round)));
        feeds[0].lock().unwrap().push_back(vec![0; 13]);
    }
    run(&datapath);
    let totals = datapath.totals();
    let dropped = |reason| totals.dropped(reason);
    assert_eq!(dropped(DropReason::Rules), 40);
    assert_eq!(dropped(DropReason::TxNoPort), 20);
    assert_eq!(dropped(DropReason::ActionMismatch), 20);
    assert_eq!(dropped(DropReason::TranslationLimit), 20);
    assert_eq!(dropped(DropReason::RxRunt), 20);
}

#[test]
fn trunc_clone_sample_and_length_do_what_they_say() {
    let tables = FakeTables::new(|_, _| {
        let inner: Arc<[Action]> = Arc::new([Action::PushVlan { tpid: 0x8100, tci: 0x1001 }, output(3)]);
        let never = Action::Sample { probability: 0, actions: inner.clone() };
        let always = Action::Sample { probability: u32::MAX, actions: inner.clone() };
        let by_len = Action::CheckPktLen { len: 45, greater: Arc::new([output(4)]), less_or_equal: Arc::new([]) };
        follow(mask(&[]), [Action::Trunc(20), output(2), Action::Clone(inner), never, always, by_len, output(2)])
    });
    let (datapath, feeds, sents) = datapath(4, Config::default(), &tables);
    let packet = udp([1, 1, 1, 1], [2, 2, 2, 2], 1, 2, 0);
    feeds[0].lock().unwrap().push_back(packet.clone());
    run(&datapath);
    assert_eq!(take(&sents[1]), [packet[..20].to_vec(), packet.clone()]);
    assert_eq!(take(&sents[2]).iter().map(Vec::len).collect::<Vec<_>>(), [50, 50]);
    assert_eq!(take(&sents[3]), [packet]);
}

fn tell_controller(continuation: bool) -> Action {
    Action::Controller { reason: 1, controller_id: 2, max_len: 30, cookie: 3, recirc_id: 4, continuation }
}

#[test]
fn a_packet_that_is_to_go_on_goes_to_the_controller_whole() {
    let tables = FakeTables::new(|_, _| follow(mask(&[]), [tell_controller(true)]));
    let (datapath, feeds, _) = datapath(1, Config::default(), &tables);
    let packet_ins = datapath.take_packet_ins().unwrap();
    let packet = udp([1, 1, 1, 1], [2, 2, 2, 2], 1, 2, 0);
    feeds[0].lock().unwrap().push_back(packet.clone());
    run(&datapath);
    let message = packet_ins.try_recv().unwrap();
    assert_eq!((message.bytes, message.continuation), (packet, true));
}

#[test]
fn a_controller_gets_what_was_asked_for_and_the_queue_is_bounded() {
    let tables = FakeTables::new(|_, _| {
        let tell = tell_controller(false);
        follow(mask(&[]), [Action::PushVlan { tpid: 0x8100, tci: 0x1001 }, tell.clone(), output(2), tell])
    });
    let (datapath, feeds, sents) = datapath(2, Config { packet_in_queue: 5, ..Config::default() }, &tables);
    let packet_ins = datapath.take_packet_ins().unwrap();
    assert!(datapath.take_packet_ins().is_none());
    feeds[0].lock().unwrap().extend((0..4).map(|i| udp([1, 1, 1, 1], [2, 2, 2, 2], 1, 2, i)));
    run(&datapath);
    assert_eq!(take(&sents[1]).len(), 4);
    let totals = datapath.totals();
    assert_eq!((totals[Counter::Delivered], totals.dropped(DropReason::ControllerQueue)), (5, 3));
    let message = packet_ins.try_recv().unwrap();
    assert_eq!((message.bytes.len(), message.total_len, message.cookie), (30, 50, 3));
    assert_eq!(message.key.number(layout::VLAN0_TCI), 0x1001, "the key is that of the packet as it is now");
}

#[test]
fn ports_come_and_go_while_others_work() {
    let tables = FakeTables::new(|_, _| follow(mask(&[]), [output(2)]));
    let (datapath, feeds, sents) = datapath(2, Config::default(), &tables);
    let offer = |n| {
        feeds[0].lock().unwrap().extend((0..n).map(|i| udp([1, 1, 1, 1], [2, 2, 2, 2], 1, 2, i)));
        run(&datapath);
    };
    offer(3);
    assert_eq!(take(&sents[1]).len(), 3);
    assert!(datapath.add_port(PortNo(2), Box::new(TestPort::new(1, 1, &pool(8)))).is_err());
    datapath.del_port(PortNo(2)).unwrap();
    assert!(datapath.del_port(PortNo(2)).is_err());
    offer(3);
    assert_eq!(datapath.totals().dropped(DropReason::TxNoPort), 3);
    let again = TestPort::new(1, 1, &pool(8));
    let sent = again.sent.clone();
    datapath.add_port(PortNo(2), Box::new(again)).unwrap();
    offer(4);
    assert_eq!(take(&sent).len(), 4);
}

#[test]
fn a_port_that_is_not_received_from_is_still_sent_to() {
    let tables = FakeTables::new(|key, _| {
        let to = if key.number(layout::IN_PORT) == 1 { 2 } else { 1 };
        follow(mask(&[]), [output(to)])
    });
    let (datapath, feeds, sents) = datapath(2, Config::default(), &tables);
    datapath.stop_receiving(PortNo(1)).unwrap();
    assert!(datapath.stop_receiving(PortNo(3)).is_err());
    for feed in &feeds {
        feed.lock().unwrap().extend((0..3).map(|i| udp([1, 1, 1, 1], [2, 2, 2, 2], 1, 2, i)));
    }
    run(&datapath);
    assert_eq!((take(&sents[0]).len(), take(&sents[1]).len(), feeds[0].lock().unwrap().len()), (3, 0, 3));
    datapath.del_port(PortNo(1)).unwrap();
}

#[test]
fn cleared_statistics_start_anew_while_the_counters_go_on() {
    let tables = FakeTables::new(|_, _| follow(mask(&[]), [output(2)]));
    let (datapath, feeds, _) = datapath(2, Config::default(), &tables);
    for _ in 0..2 {
        feeds[0].lock().unwrap().extend((0..7).map(|i| udp([1, 1, 1, 1], [2, 2, 2, 2], 1, 2, i)));
        run(&datapath);
        assert_eq!(datapath.pmds()[0].counters[Counter::Received], 7);
        datapath.clear_stats();
    }
    assert_eq!(datapath.totals()[Counter::Received], 14);
    assert_eq!(datapath.pmds()[0].counters[Counter::Received], 0);
}

#[test]
fn what_may_not_be_cached_is_asked_for_each_packet_and_what_just_cannot_be_once_a_batch() {
    let asked = Arc::new(AtomicUsize::new(0));
    let tables = FakeTables::new({
        let asked = asked.clone();
        move |key, _| {
            asked.fetch_add(1, Relaxed);
            let UpcallResult::Translated(mut translation) = follow(mask(&[]), [output(2)]) else { unreachable!() };
            translation.cacheable = key.in_port() == 1;
            translation.version = 0; // the tables have changed meanwhile: not installed
            UpcallResult::Translated(translation)
        }
    });
    let (datapath, feeds, sents) = datapath(3, Config::default(), &tables);
    for (port, times) in [(1, 1), (3, 32)] {
        feeds[port - 1].lock().unwrap().extend((0..32).map(|i| udp([1, 1, 1, 1], [2, 2, 2, 2], 1, 2, i)));
        run(&datapath);
        assert_eq!(take(&sents[1]).len(), 32);
        assert_eq!(asked.swap(0, Relaxed), times, "port {port}");
    }
    assert!(datapath.flows().is_empty());
    assert_eq!(datapath.totals()[Counter::Upcalls], 64);
    assert_eq!(tables.credited.lock().unwrap().0, 64);
}

#[test]
fn queues_are_spread_over_pmds_without_pinned_ones() {
    let pool = pool(64);
    let datapath = Datapath::new(Config { cores: vec![0, 1, 2], max_megaflows: 16, ..Config::default() }).unwrap();
    let port = |n_rxq| Box::new(TestPort::new(n_rxq, 32, &pool));
    let queues = |pmd: usize| -> Vec<_> {
        let mut queues: Vec<_> = datapath.pmds()[pmd].rxqs.iter().map(|q| (q.port.0, q.queue)).collect();
        queues.sort_unstable();
        queues
    };
    datapath.add_port(PortNo(1), port(4)).unwrap();
    assert_eq!([queues(0), queues(1), queues(2)], [vec![(1, 0)], vec![(1, 1)], vec![(1, 2), (1, 3)]]);
    let affinity = [(0, 1), (2, 1), (1, 77)].into();
    datapath.add_port_polled(PortNo(2), port(3), &PortPolling { name: "p", affinity: &affinity }).unwrap();
    assert_eq!(queues(1), [(2, 0), (2, 2)], "no other queues");
    assert_eq!([queues(0), queues(2)], [vec![(1, 0), (1, 3), (2, 1)], vec![(1, 1), (1, 2)]], "core 77 has no PMD");
    assert_eq!(datapath.pmds().iter().map(|pmd| pmd.is_isolated).collect::<Vec<_>>(), [false, true, false]);
    let shared = RxqAssignment { algorithm: RxqAlgorithm::Group, isolates: false };
    datapath.set_rxq_assignment(shared);
    assert_eq!([queues(0).len(), queues(1).len(), queues(2).len()], [3, 2, 2]);
    assert!(datapath.pmds().iter().all(|pmd| !pmd.is_isolated));
    datapath.del_port(PortNo(2)).unwrap();
    assert_eq!([queues(0).len(), queues(1).len(), queues(2).len()], [2, 1, 1]);
}

#[test]
fn a_packet_of_the_switch_itself_goes_where_its_actions_say() {
    let tables = FakeTables::new(|key, _| match key.recirc_id() {
        3 if key.number(layout::PKT_MARK) == 7 && key.in_port() == 1 => follow(mask(&[]), [output(2)]),
        _ => UpcallResult::Failed(DropReason::UpcallLost),
    });
    let (datapath, _, sents) = datapath(2, Config::default(), &tables);
    let packet = udp([1, 1, 1, 1], [2, 2, 2, 2], 1, 2, 0);
    let mut known = PacketKey::ZERO;
    known.set(layout::IN_PORT, &1u32.to_be_bytes());
    known.set(layout::PKT_MARK, &7u32.to_be_bytes());
    let out = |bytes: &[u8], actions: &[Action]| {
        datapath.execute(PacketOut {
            known,
            bytes: bytes.to_vec(),
            actions: actions.into(),
            pool: pool(8),
            charge: None,
        });
        run(&datapath);
    };
    out(&packet, &[output(1), output(2)]);
    out(&packet, &[Action::Recirc(3)]);
    out(&packet, &[]);
    out(&packet[..10], &[output(1)]);
    assert_eq!((take(&sents[0]), take(&sents[1])), (vec![packet.clone()], vec![packet.clone(), packet]));
    let totals = datapath.totals();
    assert_eq!((totals[Counter::Originated], totals[Counter::Received]), (4, 0));
    assert_eq!((totals.dropped(DropReason::Rules), totals.dropped(DropReason::RxRunt)), (1, 1));
}

#[test]
fn the_exact_match_cache_can_be_turned_off_and_on() {
    let tables = FakeTables::new(|_, _| follow(mask(&[]), [output(2)]));
    let (datapath, feeds, _) = datapath(2, Config { settings: EMC.into(), ..Config::default() }, &tables);
    let mut hits = 0;
    // The first batch's upcall inserts one entry, the next batch the others.
    for (arm, used, gained) in [(EMC, 10, 81), (Arm::BARE, 0, 0), (EMC, 10, 90)] {
        datapath.set_settings(arm.into()).unwrap();
        for _ in 0..10 {
            feeds[0].lock().unwrap().extend((0..10).map(|i| udp([1, 1, 1, 1], [2, 2, 2, i], 1, 2, 0)));
            run(&datapath);
        }
        let pmd = &datapath.pmds()[0];
        assert_eq!((pmd.emc.used, pmd.emc.entries), (used, if arm == EMC { 8192 } else { 0 }));
        assert_eq!(pmd.counters[Counter::EmcHits] - hits, gained);
        hits = pmd.counters[Counter::EmcHits];
    }
}

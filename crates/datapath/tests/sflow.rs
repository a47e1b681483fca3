//! Samples for sFlow: a share of the packets, whatever becomes of them, and no more than have room.

#[path = "harness/follow.rs"]
mod follow;
mod harness;

use follow::follow;
use harness::{FakeTables, Sent, TestPort, pool, udp};
use sluice_action::{Action, PortNo, SFlowAction, UpcallResult};
use sluice_datapath::{Config, Datapath, PacketSamples};
use sluice_fate::{Counter, DropReason};
use sluice_flow::{PacketKey, layout};
use sluice_sflow::Output;
use std::sync::Arc;
use std::time::Duration;

fn sflow(probability: u32) -> SFlowAction {
    SFlowAction {
        probability,
        header_len: 40,
        bridge: 3,
        meter: None,
        input: 11,
        output: Output(12),
        dst_tci: 0x3005,
        ingress_protocol: 0,
        ingress_port: 0,
        egress: None,
        labels: None,
    }
}

fn every_packet(actions: &Arc<[Action]>) -> UpcallResult {
    let mut mask = PacketKey::ZERO;
    [layout::IN_PORT, layout::RECIRC_ID].into_iter().for_each(|span| mask.set(span, &[0xff; 4]));
    follow(mask, actions.clone())
}

/// A datapath that has received `n` packets. Its tables answer every packet with these actions.
fn after(n: usize, actions: Vec<Action>) -> (Datapath, PacketSamples, Sent) {
    let datapath = Datapath::new(Config { seed: Some(1), ..Config::default() }).unwrap();
    let samples = datapath.take_packet_samples().unwrap();
    let actions: Arc<[Action]> = actions.into();
    let tables = FakeTables::new(move |_, _| every_packet(&actions));
    datapath.set_upcalls(move |_| Box::new(tables.clone()));
    let pool = pool(4096);
    let (from, to) = (TestPort::new(1, 32, &pool), TestPort::new(0, 32, &pool));
    let (feed, sent) = (from.feeds[0].clone(), to.sent.clone());
    datapath.add_port(PortNo(1), Box::new(from)).unwrap();
    datapath.add_port(PortNo(2), Box::new(to)).unwrap();
    for i in 0..n {
        feed.lock().unwrap().push_back(udp([1, 1, 1, 1], [2, 2, 2, 2], 7, 5, i as u32));
        if i % 32 == 31 {
            datapath.run_once(1);
        }
    }
    datapath.run_iterations(4, 1);
    (datapath, samples, sent)
}

#[test]
fn every_packet_is_sampled_and_goes_on() {
    let sampled = Arc::new(sflow(u32::MAX));
    let (datapath, samples, sent) = after(100, vec![Action::SFlow(Arc::clone(&sampled)), Action::Output(PortNo(2))]);
    let sent = sent.lock().unwrap();
    let arrivals = samples.receive(Duration::ZERO).unwrap();
    assert_eq!((sent.len(), arrivals.samples.len()), (100, 100));
    for (sample, frame) in arrivals.samples.iter().zip(&*sent) {
        assert_eq!((&sample.header[..], sample.frame_len as usize), (&frame[..40], frame.len()));
        assert_eq!((&sample.action, sample.src_tci, sample.ingress), (&sampled, 0, None));
    }
    let totals = datapath.totals();
    assert_eq!((totals[Counter::Cloned], totals[Counter::Sent]), (0, 100), "a sample is no copy");
}

#[test]
fn a_dropped_packet_is_sampled_and_keeps_its_fate() {
    let (datapath, samples, _) = after(10, vec![Action::SFlow(Arc::new(sflow(u32::MAX)))]);
    assert_eq!(samples.receive(Duration::ZERO).unwrap().samples.len(), 10);
    let totals = datapath.totals();
    assert_eq!((totals.dropped(DropReason::Rules), totals[Counter::Delivered]), (10, 0));
}

#[test]
fn what_finds_no_room_is_counted() {
    let (datapath, samples, sent) =
        after(400, vec![Action::SFlow(Arc::new(sflow(u32::MAX))), Action::Output(PortNo(2))]);
    assert_eq!(sent.lock().unwrap().len(), 400);
    let waited = samples.receive(Duration::ZERO).unwrap().samples.len();
    assert_eq!((waited, samples.take_dropped(3), samples.take_dropped(3)), (256, 144, 0));
    drop(datapath);
}

#[test]
fn about_the_share_is_sampled() {
    let actions = vec![Action::SFlow(Arc::new(sflow(u32::MAX / 16))), Action::Output(PortNo(2))];
    let (_datapath, samples, _) = after(3200, actions);
    let taken = samples.receive(Duration::ZERO).unwrap().samples.len();
    // 200 are expected, with a standard deviation of 14; the seed is fixed.
    assert!((130..=256).contains(&taken), "{taken} of 3200");
}

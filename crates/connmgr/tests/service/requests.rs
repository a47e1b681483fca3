//! Requests and their replies.

use crate::bench::{Bench, DATAPATH_ID, PACKET_MAX, mac};
use crate::client::{Client, all_flows};
use sluice_action::{Action, PortNo};
use sluice_connmgr::QueueCounters;
use sluice_conntrack::{Filter, TupleFilter};
use sluice_flow::{FieldId, Match, OfPort, PortNames};
use sluice_ofp::{FlowCommand, FlowMod, OfAction};
use sluice_openflow::message::connection::{BUNDLE_ATOMIC, BundleAdd, BundleControl, BundleStep};
use sluice_openflow::message::ct_flush::{CtFlush, CtTuple};
use sluice_openflow::message::meters::QUEUE_ALL;
use sluice_openflow::message::ports::{PortMod, config};
use sluice_openflow::message::stats::{StatsReply, StatsRequest};
use sluice_openflow::{Error, Message, PacketOut, Version};
use sluice_testkit::frame::udp4;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::SeqCst;

#[test]
fn every_version_is_spoken() {
    let bench = Bench::new();
    for version in Version::SPOKEN {
        let mut client = bench.client(version);
        let Message::FeaturesReply(features) = client.ask(&Message::FeaturesRequest) else { panic!("{version}") };
        assert_eq!((features.datapath_id, features.n_tables), (DATAPATH_ID, 254), "{version}");
        let names: Vec<_> = features.ports.iter().map(|port| port.name.as_str()).collect();
        // From OpenFlow 1.3 on ports are a statistic.
        let expected: &[&str] = if version < Version::V13 { &["p1", "p2"] } else { &[] };
        assert_eq!(names, expected, "{version}");
        assert_eq!(client.ask(&Message::EchoRequest(vec![1, 2])), Message::EchoReply(vec![1, 2]));
    }
}

#[test]
fn a_peer_of_an_unknown_version_is_told_and_left() {
    let bench = Bench::new();
    let mut stream = UnixStream::connect(bench.socket("mgmt")).unwrap();
    let only_version_9 = 1 << 9;
    stream.write_all(&Message::Hello(Some(only_version_9)).write(Version::V13, 9)).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let mut framer = sluice_openflow::Framer::default();
    framer.push(&bytes);
    let mut last = None;
    while let Some(message) = framer.next_message().unwrap() {
        last = Some(Message::read(message, false).unwrap().2);
    }
    assert!(matches!(last, Some(Message::Error(..))), "{last:?}");
}

#[test]
fn rules_are_added_changed_and_deleted() {
    let bench = Bench::new();
    for version in Version::SPOKEN {
        let mut client = bench.client(version);
        let before = bench.switch.revalidations_soon.load(SeqCst);
        client.add("in_port=1,actions=output:2");
        assert!(bench.switch.revalidations_soon.load(SeqCst) > before, "megaflows were not asked about");
        assert_eq!(client.flows(), ["in_port=1 output:2"], "{version}");
        client.change(FlowCommand::ModifyStrict, "in_port=1,actions=output:1,output:2");
        assert_eq!(client.flows(), ["in_port=1 output:1,output:2"], "{version}");
        client.change(FlowCommand::Delete, "");
        assert!(client.flows().is_empty(), "{version}");
    }
}

#[test]
fn queues_are_told_with_what_they_have_counted() {
    let bench = Bench::new();
    let counters = |tx_packets| QueueCounters { tx_packets, tx_bytes: 60, tx_errors: 2, age_ms: Some(1500) };
    let queues = [(0, counters(1)), (5, counters(3))];
    bench.switch.queues.lock().unwrap().insert(PortNo(12), queues.into());
    for version in Version::SPOKEN {
        let mut client = bench.client(version);
        let mut ask = |port, queue| match client.ask(&Message::StatsRequest(StatsRequest::Queues(port, queue), false)) {
            Message::StatsReply(StatsReply::Queues(queues), _) => {
                Ok(queues.iter().map(|q| (q.port.0, q.queue, q.packets, q.errors, q.duration_ns)).collect::<Vec<_>>())
            }
            other => Err(other),
        };
        let age_ns = if version < Version::V13 { 0 } else { 1_500_000_000 };
        let expected = [(2, 0, 1, 2, age_ns), (2, 5, 3, 2, age_ns)];
        assert_eq!(ask(None, QUEUE_ALL).unwrap(), expected, "{version}");
        assert_eq!(ask(Some(OfPort(2)), 5).unwrap(), expected[1..], "{version}");
        assert_eq!(ask(Some(OfPort(1)), QUEUE_ALL).unwrap(), [], "{version}");
        for (port, queue) in [(Some(OfPort(2)), 6), (None, 6), (Some(OfPort(9)), QUEUE_ALL)] {
            assert!(matches!(ask(port, queue), Err(Message::Error(..))), "{version}: {port:?}, queue {queue}");
        }
    }
}

#[test]
fn connections_are_flushed_by_zone_or_by_tuple() {
    let bench = Bench::new();
    let mut client = bench.client(Version::V15);
    let address = |last| Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped();
    let half = CtTuple { src: address(1), ..CtTuple::default() };
    let whole = CtTuple { dst: address(2), src_port: 5, dst_port: 6, ..half };
    let flush = |original| Message::CtFlush(Box::new(CtFlush { proto: 17, original, ..CtFlush::default() }));
    [Message::CtFlushZone(123), flush(half), flush(whole)].iter().for_each(|message| client.send(message));
    client.barrier();
    let [zone, half, whole] = &bench.switch.flushed.lock().unwrap()[..] else { panic!("three were asked for") };
    assert_eq!(*zone, Filter::zone(Some(123)));
    let mut first = [0; 16];
    first[..4].copy_from_slice(&[10, 0, 0, 1]);
    assert_eq!((half.zone, half.v6, half.proto), (None, Some(false), Some(17)));
    assert_eq!(half.original, TupleFilter { src: Some(first), ..TupleFilter::default() });
    // A whole tuple is that of one connection, in zone 0 if none is named.
    assert_eq!((whole.zone, whole.original.src_port, whole.original.dst_port), (Some(0), Some(5), Some(6)));
}

#[test]
fn statistics_wait_for_revalidation() {
    let bench = Bench::new();
    let mut client = bench.client(Version::V13);
    client.add("in_port=1,actions=output:2");
    client.add("in_port=2,actions=drop");
    let before = bench.switch.credits.load(SeqCst);
    let request = StatsRequest::Aggregate(Box::new(all_flows()));
    let Message::StatsReply(StatsReply::Aggregate(_, sum), false) = client.ask(&Message::StatsRequest(request, false))
    else {
        panic!("no sum")
    };
    assert_eq!((sum.flows, sum.packets), (2, 0));
    assert_eq!(bench.switch.credits.load(SeqCst), before + 1);
}

#[test]
fn a_refused_rule_leaves_the_connection_open() {
    let bench = Bench::new();
    let mut client = bench.client(Version::V13);
    assert_eq!(client.refused(&Client::flow_mod(FlowCommand::Add, "actions=group:7")), Error::ActionBadOutGroup);
    assert_eq!(client.refused(&Client::flow_mod(FlowCommand::Add, "table=254,actions=drop")), Error::RequestEperm);
    // Only a switch sends that.
    assert_eq!(client.refused(&Message::BarrierReply), Error::RequestBadType);
    assert!(client.flows().is_empty());
}

#[test]
fn ports_have_the_counters_of_their_devices() {
    let bench = Bench::new();
    let mut client = bench.client(Version::V14);
    let request = StatsRequest::Ports(Some(OfPort(2)));
    let Message::StatsReply(StatsReply::Ports(ports), false) = client.ask(&Message::StatsRequest(request, false))
    else {
        panic!("no ports")
    };
    let [port] = &ports[..] else { panic!("{ports:?}") };
    assert_eq!((port.port, port.rx_packets, port.tx_errors), (2, 200, 3));
    assert_eq!(port.custom, [("rx_missed".to_owned(), 7)]);
}

#[test]
fn a_port_mod_must_name_the_address_of_its_port() {
    let bench = Bench::new();
    let mut client = bench.client(Version::V13);
    let down =
        PortMod { port: OfPort(1), hw_addr: mac(1), config: config::PORT_DOWN, mask: config::PORT_DOWN, advertise: 0 };
    assert_eq!(client.refused(&Message::PortMod(PortMod { hw_addr: mac(2), ..down.clone() })), Error::PortModBadHwAddr);
    assert_eq!(client.refused(&Message::PortMod(PortMod { port: OfPort(9), ..down.clone() })), Error::PortModBadPort);
    client.send(&Message::PortMod(down));
    client.barrier();
    let ports = bench.ofproto.ports("br0").unwrap();
    assert_eq!(ports.iter().map(|port| port.down).collect::<Vec<_>>(), [true, false]);
}

/// A packet that leaves by a port of the bridge.
fn packet_out(data: Vec<u8>, port: u16) -> Message {
    let actions = vec![OfAction::Output { port: OfPort(port), max_len: 0 }];
    let metadata = Match::ANY.with(FieldId::InPort, OfPort::CONTROLLER.0.into());
    Message::PacketOut(Box::new(PacketOut { buffer_id: None, metadata, actions, data }))
}

#[test]
fn a_packet_out_leaves_by_the_datapath_s_port() {
    let bench = Bench::new();
    let mut client = bench.client(Version::V13);
    let frame = udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2);
    client.send(&packet_out(frame.clone(), 2));
    client.barrier();
    let sent = std::mem::take(&mut *bench.switch.sent.lock().unwrap());
    let [packet] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(packet.bytes, frame);
    assert_eq!(packet.actions[..], [Action::Output(PortNo(12))]);

    let mut long = frame;
    long.resize(PACKET_MAX + 1, 0);
    assert_eq!(client.refused(&packet_out(long, 2)), Error::RequestBadPacket);
    // Too short to be a packet: there is nothing to send.
    client.send(&packet_out(vec![1, 2, 3], 2));
    assert_eq!(client.unasked(), []);
    assert!(bench.switch.sent.lock().unwrap().is_empty());
}

#[test]
fn packet_outs_that_the_datapath_does_not_send_have_a_bound_and_leave_room_for_other_connections() {
    let bench = Bench::new();
    let (mut floods, mut other) = (bench.client(Version::V13), bench.client(Version::V13));
    let mut frame = udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2);
    frame.resize(PACKET_MAX, 0);
    let packet = packet_out(frame, 2);
    let memory = bench.service.packet_out_memory();
    memory.set_limit(256 << 10);
    // As many as fit, and two more: each of those is waited for.
    let most = (256 << 10) / PACKET_MAX;
    let refused = (0..most).find(|_| {
        floods.send(&packet);
        !floods.unasked().is_empty()
    });
    assert!(refused.is_some_and(|n| n > most / 2), "{refused:?} of {most}");
    assert_eq!(floods.refused(&packet), Error::RequestEperm);
    other.send(&packet);
    assert_eq!(other.unasked(), []);
    assert!(memory.usage().0 <= 256 << 10);

    // The datapath has sent them.
    bench.switch.sent.lock().unwrap().clear();
    assert_eq!(memory.usage().0, 0);
    floods.send(&packet);
    assert_eq!(floods.unasked(), []);
}

/// A bundle of flow-mods, up to its commit; the reply to that.
fn commit(client: &mut Client, id: u32, rules: &[&str]) -> Message {
    let control = |step| Message::BundleControl(BundleControl { id, step, is_reply: false, flags: BUNDLE_ATOMIC });
    let opened = client.ask(&control(BundleStep::Open));
    assert!(matches!(opened, Message::BundleControl(BundleControl { is_reply: true, .. })), "{opened:?}");
    for rule in rules {
        let message = Client::flow_mod(FlowCommand::Add, rule).write(client.version, 0);
        client.send(&Message::BundleAdd(BundleAdd { id, flags: BUNDLE_ATOMIC, message }));
    }
    assert!(client.flows().is_empty(), "the rules of an open bundle are seen");
    client.ask(&control(BundleStep::Commit))
}

#[test]
fn a_bundle_is_carried_out_whole_or_not_at_all() {
    let bench = Bench::new();
    let mut client = bench.client(Version::V14);
    let good = ["in_port=1,actions=output:2", "in_port=2,actions=output:1"];
    let bad = [good[0], "in_port=2,actions=group:9"];
    assert!(matches!(commit(&mut client, 1, &bad), Message::Error(..)));
    let errors = client.unasked();
    assert!(matches!(&errors[..], [Message::Error(..)]), "the message at fault is named: {errors:?}");
    assert!(client.flows().is_empty());
    let done = commit(&mut client, 2, &good);
    assert!(matches!(done, Message::BundleControl(BundleControl { is_reply: true, .. })), "{done:?}");
    assert_eq!(client.flows().len(), 2);
}

#[test]
fn many_flow_mods_are_carried_out_in_order() {
    let bench = Bench::new();
    let mut client = bench.client(Version::V13);
    // More than are applied together; the last one decides.
    for i in 0..300u32 {
        client.send(&Client::flow_mod(FlowCommand::Add, &format!("in_port=1,actions=set_field:{i}->reg0")));
    }
    let rule = FlowMod::parse("in_port=1,actions=set_field:299->reg0", FlowCommand::Add, &PortNames::NONE).unwrap();
    let expected = format!("in_port=1 {}", OfAction::display_list(&rule.actions, &PortNames::NONE));
    assert_eq!(client.flows(), [expected]);
}

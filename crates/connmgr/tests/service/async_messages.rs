//! What the switch tells its peers without being asked.

use crate::bench::{Bench, mac};
use sluice_flow::{Match, OfPort, PortNames};
use sluice_ofp::ofpact::PacketInReason;
use sluice_ofp::{FlowCommand, FlowRemovedReason, GroupCommand, GroupMod};
use sluice_openflow::message::connection::{AsyncKind, AsyncMasks};
use sluice_openflow::message::monitor::{FlowEvent, FlowUpdate, MonitorCommand, MonitorFlags, MonitorRequest};
use sluice_openflow::message::ports::{PortMod, PortReason, config};
use sluice_openflow::message::stats::{StatsReply, StatsRequest};
use sluice_openflow::{Message, PacketIn, Version};
use sluice_testkit::frame::udp4;

#[test]
fn ports_that_come_and_go_are_told() {
    let bench = Bench::new();
    for version in Version::SPOKEN {
        let mut client = bench.client(version);
        let mut silent = bench.client(version);
        client.want_async();
        bench.add_port(3);
        bench.service.publish_ports();
        bench.ofproto.set_port("br0", "p3", |port| port.up = false).unwrap();
        bench.service.run();
        bench.ofproto.remove_port("br0", "p3").unwrap();
        bench.service.publish_ports();
        // A port is live after it has come. OpenFlow 1.0 does not show that.
        let live = if version == Version::V10 { &[][..] } else { &[PortReason::Modify, PortReason::Modify] };
        let expected = [&[PortReason::Add][..], live, &[PortReason::Modify, PortReason::Delete]].concat();
        for expected in expected {
            let Message::PortStatus(status) = client.next_unasked() else { panic!("{version}: no port status") };
            assert_eq!((status.reason, status.desc.name.as_str(), status.desc.port), (expected, "p3", 3), "{version}");
        }
        assert_eq!(silent.unasked(), [], "{version}: a client that did not ask for messages");
    }
}

/// The next message, which must be a packet.
fn next_packet(client: &mut crate::client::Client) -> PacketIn {
    match client.next_unasked() {
        Message::PacketIn(packet) => *packet,
        other => panic!("no packet: {other:?}"),
    }
}

#[test]
fn packets_go_to_the_controllers_that_they_are_for() {
    let bench = Bench::new();
    let (mut first, mut second) = (bench.client(Version::V13), bench.client(Version::V13));
    first.want_async();
    second.want_async();
    second.send(&Message::SetControllerId(5));
    second.barrier();
    first.add("cookie=7,in_port=1,actions=controller(max_len=20)");
    first.add("in_port=2,actions=controller(id=5)");
    let frame = udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2);
    bench.receive(1, &frame);
    bench.receive(2, &frame);
    let packet = next_packet(&mut first);
    assert_eq!((packet.data.len(), packet.total_len as usize), (20, frame.len()));
    assert_eq!((packet.cookie, packet.reason, packet.table), (7, PacketInReason::Action, 0));
    assert_eq!(packet.metadata.field(sluice_flow::FieldId::InPort).0, 1);
    assert_eq!(next_packet(&mut second).data, frame);
    assert_eq!((first.unasked(), second.unasked()), (vec![], vec![]));
}

#[test]
fn misses_are_sent_while_a_controller_wants_them() {
    let bench = Bench::new();
    let frame = udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2);
    // Before OpenFlow 1.3, packets that no rule matches are for controllers.
    let mut client = bench.client(Version::V10);
    bench.receive(1, &frame);
    assert_eq!(client.unasked(), []);
    client.want_async();
    bench.receive(1, &frame);
    let packet = next_packet(&mut client);
    assert_eq!((packet.reason, packet.data), (PacketInReason::NoMatch, frame));
}

#[test]
fn removed_rules_are_told_with_their_reason() {
    let bench = Bench::new();
    for version in Version::SPOKEN {
        let mut client = bench.client(version);
        client.want_async();
        client.add("send_flow_rem,cookie=3,in_port=1,hard_timeout=2,actions=drop");
        client.add("send_flow_rem,in_port=2,actions=drop");
        client.add("priority=1,actions=drop");
        bench.advance(2500);
        let Message::FlowRemoved(expired) = client.next_unasked() else { panic!("{version}: nothing is told") };
        assert_eq!((expired.reason, expired.cookie), (FlowRemovedReason::HardTimeout, 3), "{version}");
        assert_eq!(expired.duration_ns, 2_500_000_000, "{version}");
        client.change(FlowCommand::Delete, "");
        let Message::FlowRemoved(deleted) = client.next_unasked() else { panic!("{version}: nothing is told") };
        assert_eq!((deleted.reason, deleted.matches.to_string()), (FlowRemovedReason::Delete, "in_port=2".into()));
        assert_eq!(client.unasked(), [], "{version}: a rule without send_flow_rem");
    }
}

fn monitor_request(id: u32) -> MonitorRequest {
    let flags = MonitorFlags { initial: true, added: true, removed: true, modified: true, actions: true, own: false };
    let command = MonitorCommand::Add;
    MonitorRequest { id, command, flags, out_port: None, out_group: None, table: None, matches: Match::ANY }
}

/// A monitor's updates, in short.
fn told(message: Message) -> Vec<String> {
    let Message::StatsReply(StatsReply::Updates(updates), false) = message else { panic!("{message:?}") };
    let update = |update| match update {
        FlowUpdate::Full(flow) => {
            let actions = sluice_ofp::OfAction::display_list(&flow.actions, &sluice_flow::PortNames::NONE);
            match flow.event {
                FlowEvent::Removed(reason) => format!("removed {}: {reason:?}", flow.matches),
                event => format!("{event:?} {}: {actions}", flow.matches),
            }
        }
        other => format!("{other:?}"),
    };
    updates.into_iter().map(update).collect()
}

#[test]
fn a_flow_monitor_follows_the_rules() {
    let bench = Bench::new();
    for version in Version::SPOKEN {
        let (mut busy, mut watcher) = (bench.client(version), bench.client(version));
        busy.add("in_port=1,actions=output:2");
        let request = Message::StatsRequest(StatsRequest::Monitors(vec![monitor_request(4)]), false);
        // Nicira's form, before OpenFlow 1.4, has no event for the rules that are there at the beginning.
        let initial = if version < Version::V14 { "Added" } else { "Initial" };
        assert_eq!(told(watcher.ask(&request)), [format!("{initial} in_port=1: output:2")], "{version}");
        busy.add("in_port=2,actions=output:1");
        assert_eq!(told(watcher.next_unasked()), ["Added in_port=2: output:1"], "{version}");
        busy.change(FlowCommand::ModifyStrict, "in_port=2,actions=drop");
        assert_eq!(told(watcher.next_unasked()), ["Modified in_port=2: drop"], "{version}");
        busy.change(FlowCommand::Delete, "in_port=2");
        assert_eq!(told(watcher.next_unasked()), ["removed in_port=2: Delete"], "{version}");
        // Its own change it hears of in short: by the transaction.
        watcher.add("in_port=1,actions=drop");
        let own = told(watcher.next_unasked());
        assert!(matches!(&own[..], [update] if update.starts_with("Abbreviated")), "{version}: {own:?}");
        if version < Version::V14 {
            watcher.send(&Message::MonitorCancel(4));
            watcher.barrier();
        } else {
            let end = MonitorRequest { command: MonitorCommand::Delete, ..monitor_request(4) };
            assert!(told(watcher.ask(&Message::StatsRequest(StatsRequest::Monitors(vec![end]), false))).is_empty());
        }
        busy.change(FlowCommand::Delete, "");
        assert_eq!(watcher.unasked(), [], "{version}: after the end of the monitor");
    }
}

#[test]
fn a_monitor_covers_only_what_it_asks_for() {
    let bench = Bench::new();
    let (mut busy, mut watcher) = (bench.client(Version::V14), bench.client(Version::V14));
    let request = MonitorRequest { out_port: Some(OfPort(2)), ..monitor_request(1) };
    let request = Message::StatsRequest(StatsRequest::Monitors(vec![request]), false);
    assert!(told(watcher.ask(&request)).is_empty());
    busy.add("in_port=1,actions=output:1");
    busy.add("in_port=2,actions=output:2");
    assert_eq!(told(watcher.next_unasked()), ["Added in_port=2: output:2"]);
    assert_eq!(watcher.unasked(), []);
}

#[test]
fn changes_of_groups_are_told_to_who_asks_for_them() {
    let bench = Bench::new();
    for version in Version::SPOKEN {
        let (mut busy, mut watcher) = (bench.client(version), bench.client(version));
        let mut masks = AsyncMasks::default();
        masks.0[AsyncKind::RequestForward as usize] = [Some(1); 2];
        watcher.send(&Message::SetAsync(masks));
        watcher.barrier();
        let group = GroupMod::parse("group_id=1,type=all", GroupCommand::Add, &PortNames::NONE).unwrap();
        busy.send(&Message::GroupMod(Box::new(group)));
        busy.barrier();
        let Message::RequestForward(inner) = watcher.next_unasked() else { panic!("{version}: nothing is told") };
        assert!(matches!(Message::read(&inner, false), Ok((_, _, Message::GroupMod(_)))), "{version}");
        assert_eq!(busy.unasked(), [], "{version}: its own change");
        let delete = GroupMod::parse("group_id=1", GroupCommand::Delete, &PortNames::NONE).unwrap();
        busy.send(&Message::GroupMod(Box::new(delete)));
        busy.barrier();
    }
}

#[test]
fn a_controller_hears_of_its_own_port_mods_from_openflow_1_5_on() {
    let bench = Bench::new();
    for version in Version::SPOKEN {
        let (mut busy, mut watcher) = (bench.client(version), bench.client(version));
        busy.want_async();
        watcher.want_async();
        let no_flood =
            PortMod { port: OfPort(1), hw_addr: mac(1), config: config::NO_FWD, mask: config::NO_FWD, advertise: 0 };
        busy.send(&Message::PortMod(no_flood.clone()));
        assert_eq!(busy.unasked().len(), usize::from(version >= Version::V15), "{version}");
        assert!(matches!(watcher.next_unasked(), Message::PortStatus(_)), "{version}");
        busy.send(&Message::PortMod(PortMod { config: 0, ..no_flood }));
        busy.barrier();
    }
}

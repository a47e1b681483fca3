use super::*;
use crate::PacketOut;
use crate::bundle::OTHERS_MAX;
use crate::message::connection::{BundleAdd, BundleStep};
use crate::message::flow_mod::FlowModMessage;
use sluice_fate::Limit;
use sluice_flow::Match;
use sluice_ofp::{FlowCommand, FlowMod};

fn open(version: Version) -> Session {
    let mut session = Session::new(Peer::Client, Version::all());
    session.push(&Message::Hello(Some(version.bit())).write(version, 1));
    assert_eq!(session.next_event(), Some(Event::Ready(version)));
    session.output().clear();
    session
}

/// The messages that wait to be sent.
fn sent(session: &mut Session) -> Vec<Message> {
    let mut framer = Framer::default();
    framer.push(&std::mem::take(session.output()));
    let mut all = Vec::new();
    while let Some(message) = framer.next_message().unwrap() {
        all.push(Message::read(message, false).unwrap().2);
    }
    all
}

#[test]
fn the_highest_common_version_is_spoken() {
    for (header, bitmap, want) in [
        (6, Some(0x72), Some(Version::V15)),
        (4, Some(0x12), Some(Version::V13)),
        (4, None, Some(Version::V13)),
        (1, None, Some(Version::V10)),
        (9, None, Some(Version::V15)),
        (2, None, Some(Version::V11)),
        (3, Some(0xc), Some(Version::V12)),
        (9, Some(0x201), None),
    ] {
        let mut hello = Message::Hello(bitmap).write(Version::V10, 1);
        hello[0] = header;
        let mut session = Session::new(Peer::Client, Version::all());
        session.output().clear();
        session.push(&hello);
        match want {
            Some(version) => assert_eq!(session.next_event(), Some(Event::Ready(version))),
            None => {
                assert_eq!(session.next_event(), Some(Event::Refused(Error::HelloIncompatible)));
                assert!(session.is_closed());
                let Message::Error(code, text) = &sent(&mut session)[0] else { panic!("no error was sent") };
                assert_eq!((code.class, code.code), (0, 0));
                let want = "We support version 0x06 and earlier, you support versions 0x00, 0x09, no common versions.";
                assert_eq!(std::str::from_utf8(text), Ok(want));
            }
        }
    }
}

#[test]
fn a_bridge_may_speak_fewer_versions() {
    let versions = Version::V10.bit() | Version::V13.bit();
    let mut session = Session::new(Peer::Client, versions);
    assert_eq!(sent(&mut session), [Message::Hello(Some(versions))]);
    session.push(&Message::Hello(Some(Version::all())).write(Version::V15, 1));
    assert_eq!(session.next_event(), Some(Event::Ready(Version::V13)));
    let mut session = Session::new(Peer::Client, versions);
    session.push(&Message::Hello(Some(Version::V14.bit())).write(Version::V14, 1));
    assert_eq!(session.next_event(), Some(Event::Refused(Error::HelloIncompatible)));
}

#[test]
fn echoes_are_answered_here_and_barriers_handed_on() {
    let mut session = open(Version::V13);
    session.push(&Message::EchoRequest(vec![1, 2, 3]).write(Version::V13, 7));
    session.push(&Message::BarrierRequest.write(Version::V13, 8));
    assert!(matches!(session.next_event(), Some(Event::Request(Request { xid: 8, .. }, Message::BarrierRequest))));
    assert_eq!(sent(&mut session), [Message::EchoReply(vec![1, 2, 3])]);
}

#[test]
fn another_version_ends_the_connection_with_an_error() {
    let mut session = open(Version::V13);
    session.push(&Message::BarrierRequest.write(Version::V14, 8));
    assert_eq!(session.next_event(), Some(Event::BadVersion(Version::V14 as u8)));
    assert_eq!(session.output()[0], Version::V14 as u8, "the error is in the message's version");
    assert!(matches!(sent(&mut session)[..], [Message::Error(..)]));
    session.push(&Message::EchoRequest(vec![1]).write(Version::V14, 9));
    assert_eq!((session.next_event(), session.is_closed()), (None, false));
    assert_eq!(sent(&mut session), [Message::EchoReply(vec![1])]);
}

#[test]
fn a_secondary_controller_changes_nothing() {
    let mut session = open(Version::V13);
    session.set_role(Role::Secondary);
    let flow = FlowMod::new(FlowCommand::Delete);
    let message =
        FlowModMessage { flow: Box::new(flow), buffer_id: None, format: Format::Standard, table_in_command: false };
    let message = Message::FlowMod(message).write(Version::V13, 3);
    session.push(&message);
    assert_eq!(session.next_event(), Some(Event::Refused(Error::RequestIsSecondary)));
    let [Message::Error(code, data)] = &sent(&mut session)[..] else { panic!("no error was sent") };
    assert_eq!((code.class, code.code), (1, 10));
    assert_eq!(*data, message);
}

#[test]
fn a_bundle_waits_for_its_commit() {
    let mut session = open(Version::V14);
    let control = |step, flags| BundleControl { id: 5, step, is_reply: false, flags };
    let say = |session: &mut Session, message: Message, xid| session.push(&message.write(Version::V14, xid));
    say(&mut session, Message::BundleControl(control(BundleStep::Open, 3)), 1);
    let flow = FlowMod::new(FlowCommand::Delete);
    let inner =
        FlowModMessage { flow: Box::new(flow), buffer_id: None, format: Format::Standard, table_in_command: false };
    let inner = Message::FlowMod(inner);
    let add = |xid| BundleAdd { id: 5, flags: 3, message: inner.write(Version::V14, xid) };
    say(&mut session, Message::BundleAdd(add(2)), 2);
    say(&mut session, Message::BundleAdd(add(9)), 3);
    say(&mut session, Message::BundleControl(control(BundleStep::Commit, 3)), 4);
    assert_eq!(session.next_event(), Some(Event::Refused(Error::BundleMsgBadXid)));
    let Some(Event::Commit(request, commit)) = session.next_event() else { panic!("no commit") };
    assert_eq!(request.xid, 4);
    assert_eq!(crate::bundled(&commit.messages, false).map(|(_, m)| m).collect::<Vec<_>>(), [inner]);
    say(&mut session, Message::BundleControl(control(BundleStep::Commit, 3)), 5);
    assert_eq!(session.next_event(), Some(Event::Refused(Error::BundleBadId)));
}

/// Packets and changes of ports are read before a bundle is carried out, so they are few; changes of rules are as many as
/// there is memory for.
#[test]
fn a_bundle_has_so_many_packets_at_most() {
    let mut session = open(Version::V14);
    let flow = FlowModMessage {
        flow: Box::new(FlowMod::new(FlowCommand::Delete)),
        buffer_id: None,
        format: Format::Standard,
        table_in_command: false,
    };
    let flow = Message::FlowMod(flow);
    let packet = PacketOut { buffer_id: None, metadata: Match::ANY, actions: Vec::new(), data: vec![0; 60] };
    let packet = Message::PacketOut(Box::new(packet));
    let mut add = |inner: &Message, xid| {
        let message = inner.write(Version::V14, xid);
        session.push(&Message::BundleAdd(BundleAdd { id: 5, flags: 3, message }).write(Version::V14, xid));
        session.next_event()
    };
    let before = Limit::BundledPackets.count();
    (0..OTHERS_MAX as u32).for_each(|xid| assert_eq!(add(&packet, xid), None));
    assert_eq!(add(&packet, 7), Some(Event::Refused(Error::BundleMsgTooMany)));
    assert!(Limit::BundledPackets.count() > before);
    (0..OTHERS_MAX as u32).for_each(|xid| assert_eq!(add(&flow, xid), None));
}

#[test]
fn an_idle_bundle_ends_with_an_error_about_what_opened_it() {
    let mut session = open(Version::V14);
    let control = |step| Message::BundleControl(BundleControl { id: 5, step, is_reply: false, flags: 2 });
    let opening = control(BundleStep::Open).write(Version::V14, 1);
    session.expire_bundles(1000, 400);
    session.push(&opening);
    assert_eq!(session.next_event(), None);
    let opened = BundleControl { id: 5, step: BundleStep::Open, is_reply: true, flags: 0 };
    assert_eq!(sent(&mut session), [Message::BundleControl(opened)]);
    assert_eq!(session.bundles_due_ms(400), Some(1400));
    session.expire_bundles(1399, 400);
    session.push(&control(BundleStep::Close).write(Version::V14, 2));
    assert_eq!((session.next_event(), sent(&mut session).len()), (None, 1));
    session.expire_bundles(1798, 400);
    assert_eq!(sent(&mut session), [], "closing it counts as use");
    session.expire_bundles(1799, 400);
    let [Message::Error(code, data)] = &sent(&mut session)[..] else { panic!("no error was sent") };
    assert_eq!((*code, data), (Error::BundleTimeout.code(Version::V14), &opening));
    assert_eq!(session.bundles_due_ms(400), None);
}

#[test]
fn table_254_is_refused_when_its_flow_mod_comes() {
    let mut session = open(Version::V14);
    let mut flow = FlowMod::new(FlowCommand::Add);
    flow.table = Some(N_TABLES);
    let inner =
        FlowModMessage { flow: Box::new(flow), buffer_id: None, format: Format::Standard, table_in_command: false };
    let inner = Message::FlowMod(inner).write(Version::V14, 3);
    session.push(&inner);
    assert_eq!(session.next_event(), Some(Event::Refused(Error::RequestEperm)));
    session.push(&Message::BundleAdd(BundleAdd { id: 5, flags: 2, message: inner }).write(Version::V14, 3));
    assert_eq!(session.next_event(), Some(Event::Refused(Error::RequestEperm)));
}

#[test]
fn a_client_that_says_which_messages_it_wants_gets_them() {
    let mut session = open(Version::V13);
    let mut masks = AsyncMasks::default();
    masks.0[AsyncKind::PacketIn as usize][0] = Some(1 << PacketInReason::Action as u32);
    session.push(&Message::SetAsync(masks).write(Version::V13, 1));
    assert_eq!(session.next_event(), None);
    // Before OpenFlow 1.4 all reasons of actions are one.
    for (reason, wanted) in
        [(PacketInReason::Action, true), (PacketInReason::PacketOut, true), (PacketInReason::NoMatch, false)]
    {
        assert_eq!(session.wants(AsyncKind::PacketIn, reason as u32), wanted, "{reason:?}");
    }
}

#[test]
fn a_client_hears_nothing_before_it_asks_for_packets() {
    let mut session = open(Version::V13);
    assert!(!session.wants(AsyncKind::PortStatus, 0));
    session.push(&Message::SetConfig(SwitchConfig { flags: 0, miss_send_len: 100 }).write(Version::V13, 1));
    assert!(matches!(session.next_event(), Some(Event::Request(_, Message::SetConfig(_)))));
    assert!(session.wants(AsyncKind::PortStatus, 0) && session.wants(AsyncKind::PacketIn, 1));
    assert!(!session.wants(AsyncKind::PacketIn, PacketInReason::InvalidTtl as u32));
}

#[test]
fn what_is_said_is_copied_in_order_while_somebody_wants_it() {
    let mut session = open(Version::V13);
    let echo = Message::EchoRequest(vec![1]).write(Version::V13, 7);
    session.push(&echo);
    assert_eq!(session.next_event(), None);
    assert!(session.take_copies().is_empty());
    session.copy(true);
    session.push(&echo);
    assert_eq!(session.next_event(), None);
    session.send(&Message::EchoRequest(Vec::new()));
    let expected = [
        echo,
        Message::EchoReply(vec![1]).write(Version::V13, 7),
        Message::EchoRequest(Vec::new()).write(Version::V13, 0),
    ];
    assert_eq!(session.take_copies(), expected.concat());
    session.copy(false);
    session.send(&Message::EchoRequest(Vec::new()));
    assert!(session.take_copies().is_empty());
}

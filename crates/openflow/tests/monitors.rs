//! Flow monitors' messages, written and read again in every version.

use proptest::prelude::*;
use sluice_flow::{Match, OfPort, PortNames};
use sluice_ofp::{FlowRemovedReason, OfAction};
use sluice_openflow::message::monitor::{
    FlowEvent, FlowUpdate, FlowUpdateFull, MonitorCommand, MonitorFlags, MonitorRequest,
};
use sluice_openflow::message::stats::{StatsReply, StatsRequest};
use sluice_openflow::{Error, Message, Version};

const MATCHES: &[&str] = &["", "in_port=1", "tcp,nw_src=10.0.0.0/8,tp_dst=80", "dl_vlan=5,metadata=0x7/0xff"];
const ACTIONS: &[&str] = &["drop", "output:1", "learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]),resubmit(,5)"];

fn trip(message: &Message, version: Version) -> Result<Message, Error> {
    let bytes = message.write(version, 5);
    Message::read(&bytes, false).map(|(.., message)| message)
}

fn a_match() -> impl Strategy<Value = Match> {
    prop::sample::select(MATCHES).prop_map(|text| Match::parse(text, &PortNames::NONE).unwrap())
}

fn request() -> impl Strategy<Value = MonitorRequest> {
    let flags = any::<[bool; 6]>().prop_map(|[initial, added, removed, modified, actions, own]| MonitorFlags {
        initial,
        added,
        removed,
        // It must tell of something.
        modified: modified || !added && !removed,
        actions,
        own,
    });
    (any::<u32>(), flags, prop::option::of(1u16..99), prop::option::of(0u8..254), a_match()).prop_map(
        |(id, flags, out_port, table, matches)| MonitorRequest {
            id,
            command: MonitorCommand::Add,
            flags,
            out_port: out_port.map(OfPort),
            out_group: None,
            table,
            matches,
        },
    )
}

fn news() -> impl Strategy<Value = FlowUpdateFull> {
    const EVENTS: &[FlowEvent] = &[
        FlowEvent::Added,
        FlowEvent::Modified,
        FlowEvent::Removed(FlowRemovedReason::IdleTimeout),
        FlowEvent::Removed(FlowRemovedReason::Eviction),
    ];
    let numbers = (any::<u8>(), any::<u16>(), any::<u64>(), any::<u16>(), any::<u16>());
    (prop::sample::select(EVENTS), numbers, a_match(), prop::sample::select(ACTIONS)).prop_map(
        |(event, (table, priority, cookie, idle_timeout, hard_timeout), matches, actions)| FlowUpdateFull {
            event,
            table,
            priority,
            cookie,
            idle_timeout,
            hard_timeout,
            matches,
            actions: OfAction::parse_list(actions, &PortNames::NONE).unwrap().into(),
        },
    )
}

proptest! {
    #[test]
    fn requests_and_updates(request in request(), news in news(), xid in any::<u32>(), group in 1u32..9) {
        for version in Version::SPOKEN {
            let mut requests = vec![request.clone(), request.clone()];
            let full = FlowUpdate::Full(Box::new(news.clone()));
            let mut updates = vec![full.clone(), FlowUpdate::Abbreviated(xid), full];
            if version >= Version::V14 {
                requests[1].out_group = Some(group);
                requests[1].command = MonitorCommand::Modify;
                let initial = FlowUpdateFull { event: FlowEvent::Initial, ..news.clone() };
                updates.extend([FlowUpdate::Full(Box::new(initial)), FlowUpdate::Paused, FlowUpdate::Resumed]);
            }
            let question = Message::StatsRequest(StatsRequest::Monitors(requests), false);
            prop_assert_eq!(trip(&question, version), Ok(question), "{}", version);
            let answer = Message::StatsReply(StatsReply::Updates(updates), true);
            prop_assert_eq!(trip(&answer, version), Ok(answer), "{}", version);
        }
    }
}

#[test]
fn before_openflow_1_4_there_are_messages_for_the_rest() {
    for version in [Version::V10, Version::V11, Version::V12, Version::V13] {
        for message in [Message::MonitorCancel(7), Message::MonitorPaused, Message::MonitorResumed] {
            assert_eq!(trip(&message, version), Ok(message), "{version}");
        }
    }
}

#[test]
fn a_monitor_that_tells_of_nothing_is_refused() {
    for version in Version::SPOKEN {
        let flags = MonitorFlags { initial: true, ..MonitorFlags::default() };
        let (command, matches) = (MonitorCommand::Add, Match::ANY);
        let request = MonitorRequest { id: 1, command, flags, out_port: None, out_group: None, table: None, matches };
        let question = Message::StatsRequest(StatsRequest::Monitors(vec![request]), false);
        assert_eq!(trip(&question, version), Err(Error::MonitorBadFlags), "{version}");
    }
}

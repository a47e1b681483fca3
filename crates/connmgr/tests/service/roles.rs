//! Roles of controllers.

use crate::bench::Bench;
use crate::client::Client;
use sluice_ofp::FlowCommand;
use sluice_openflow::message::connection::{Role, RoleMessage, RoleReason, RoleStatus};
use sluice_openflow::{Error, Format, Message, Version};

fn request(role: Role, generation: u64) -> Message {
    Message::RoleRequest(RoleMessage { format: Format::Standard, role: Some(role), generation: Some(generation) })
}

fn granted(client: &mut Client, role: Role, generation: u64) {
    match client.ask(&request(role, generation)) {
        Message::RoleReply(reply) => assert_eq!((reply.role, reply.generation), (Some(role), Some(generation))),
        other => panic!("{other:?}"),
    }
}

#[test]
fn there_is_one_primary_controller() {
    let bench = Bench::new();
    let (mut first, mut second) = (bench.client(Version::V14), bench.client(Version::V14));
    granted(&mut first, Role::Primary, 1);
    granted(&mut second, Role::Primary, 2);
    let demoted = RoleStatus { role: Role::Secondary, reason: RoleReason::PrimaryRequest, generation: Some(2) };
    assert_eq!(first.next_unasked(), Message::RoleStatus(demoted));
    let rule = Client::flow_mod(FlowCommand::Add, "actions=drop");
    assert_eq!(first.refused(&rule), Error::RequestIsSecondary);
    second.add("actions=drop");
    assert_eq!(first.flows(), second.flows());
}

#[test]
fn an_old_generation_is_refused() {
    let bench = Bench::new();
    let mut client = bench.client(Version::V13);
    granted(&mut client, Role::Secondary, 7);
    assert_eq!(client.refused(&request(Role::Primary, 6)), Error::RoleStale);
    granted(&mut client, Role::Primary, 7);
    // An equal controller has no generation to compare.
    let equal = RoleMessage { format: Format::Standard, role: Some(Role::Equal), generation: None };
    assert!(matches!(client.ask(&Message::RoleRequest(equal)), Message::RoleReply(_)));
}

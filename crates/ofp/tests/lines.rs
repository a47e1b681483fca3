//! Lines of dump-flows, and what errors say.

use sluice_flow::{OfPort, PortNames};
use sluice_ofp::text::{FlowLine, FlowLineStats};
use sluice_ofp::{FlowCommand, FlowMod};

fn flow(text: &str) -> FlowMod {
    FlowMod::parse(text, FlowCommand::Add, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The lines are those of a run of OVS 3.1.
#[test]
fn dump_flows_lines() {
    let stats = |duration_ms, idle_age| Some(FlowLineStats { duration_ms, idle_age, ..FlowLineStats::default() });
    let show = |text: &str, stats, ports: &PortNames| {
        let flow = flow(text);
        FlowLine { stats, ..flow.line() }.display(ports).to_string()
    };
    let tcp = "priority=10,tcp,nw_src=10.0.0.0/8,tp_dst=80,actions=load:5->NXM_NX_REG0[],resubmit(,1)";
    assert_eq!(
        show(tcp, stats(1406, Some(1)), &PortNames::NONE),
        "cookie=0x0, duration=1.406s, table=0, n_packets=0, n_bytes=0, idle_age=1, \
         priority=10,tcp,nw_src=10.0.0.0/8,tp_dst=80 actions=load:0x5->NXM_NX_REG0[],resubmit(,1)"
    );
    assert_eq!(
        show(tcp, None, &PortNames::NONE),
        "priority=10,tcp,nw_src=10.0.0.0/8,tp_dst=80 actions=load:0x5->NXM_NX_REG0[],resubmit(,1)"
    );
    let second = "cookie=0x12,idle_timeout=60,hard_timeout=600,table=1,actions=2";
    assert_eq!(
        show(second, stats(1379, Some(1)), &PortNames::NONE),
        "cookie=0x12, duration=1.379s, table=1, n_packets=0, n_bytes=0, idle_timeout=60, hard_timeout=600, \
         idle_age=1, actions=output:2"
    );
    let names = [("p2", OfPort(2))].into_iter().collect();
    assert_eq!(
        show(second, None, &names),
        "cookie=0x12, table=1, idle_timeout=60, hard_timeout=600, actions=output:p2"
    );
}

#[test]
fn bridge_dump_flows_lines() {
    let show = |text: &str| {
        let flow = flow(text);
        let stats = Some(FlowLineStats { duration_ms: 1999, ..FlowLineStats::default() });
        FlowLine { stats, ..flow.line() }.display_in_bridge().to_string()
    };
    assert_eq!(show("priority=0,actions=NORMAL"), "duration=1s, n_packets=0, n_bytes=0, priority=0,actions=NORMAL");
    assert_eq!(show("table=1,actions=2"), "table_id=1, duration=1s, n_packets=0, n_bytes=0, ,actions=output:2");
}

#[test]
fn errors_say_where_what_and_what_was_expected() {
    let error = |text: &str| FlowMod::parse_file(text, &PortNames::NONE).unwrap_err().to_string();
    assert_eq!(
        error("# flows\n\npriority=1 actions=1\n  ip,nw_src=10.0.0.256,actions=2\n"),
        "line 4, column 13: found \"10.0.0.256\", expected an IPv4 address"
    );
    assert_eq!(error("in_port=eth9 actions=1"), "line 1, column 9: found \"eth9\", expected a port number or name");
    assert_eq!(
        error("actions=1,frob"),
        "line 1, column 11: found \"frob\", expected an action, or the number or name of a port"
    );
    assert_eq!(error("tcp,tp_dst=80"), "line 1, column 14: found nothing, expected actions=… at the end");
    assert_eq!(
        error("ip,tcp_dst=80,actions=1"),
        "line 1, column 4: found tcp_dst in a match that does not say tcp or tcp6, expected tcp or tcp6 beside it"
    );
    assert_eq!(
        error("actions=set_field:80->tcp_dst"),
        "line 1, column 9: found set_field of tcp_dst where the match does not say tcp or tcp6, \
         expected tcp or tcp6 in the match"
    );
    assert_eq!(
        error("actions=clone(1,clone(2)"),
        "line 1, column 25: found nothing, expected a \")\" that closes the \"(\" before"
    );
    assert_eq!(
        error("dl_vlan=é,actions=1"),
        "line 1, column 9: found \"é\", expected a number of at most 16 bits, 0 to 65535"
    );
}

#[test]
fn nesting_is_bounded() {
    let nested = |n: usize| format!("actions={}1{}", "clone(".repeat(n), ")".repeat(n));
    assert!(FlowMod::parse(&nested(60), FlowCommand::Add, &PortNames::NONE).is_ok());
    let error = FlowMod::parse(&nested(100_000), FlowCommand::Add, &PortNames::NONE).unwrap_err();
    assert!(error.to_string().contains("64 deep"), "{error}");
}

#[test]
fn deletions_and_changes_have_their_own_settings() {
    let delete = FlowMod::parse("table=3,out_port=5,cookie=0x10/0xff,tcp", FlowCommand::Delete, &PortNames::NONE)
        .expect("a deletion");
    assert_eq!((delete.table, delete.out_port, delete.cookie, delete.cookie_mask), (Some(3), Some(OfPort(5)), 16, 255));
    let change = FlowMod::parse("ip actions=1", FlowCommand::Modify, &PortNames::NONE).expect("a change");
    assert_eq!((change.table, change.new_cookie, change.modify_cookie), (None, Some(0), false), "it adds, too");
    let refused = |text, command| FlowMod::parse(text, command, &PortNames::NONE).is_err();
    assert!(refused("priority=5", FlowCommand::Delete) && !refused("priority=5", FlowCommand::DeleteStrict));
    assert!(refused("cookie=5", FlowCommand::Delete) && refused("ip,actions=1", FlowCommand::Delete));
    assert!(refused("cookie=5/5,actions=1", FlowCommand::Add));
    let file = FlowMod::parse_file("delete table=1\nadd ip actions=1\nmodify_strict ip actions=2", &PortNames::NONE);
    let commands: Vec<_> = file.expect("three flows").iter().map(|f| f.command).collect();
    assert_eq!(commands, [FlowCommand::Delete, FlowCommand::Add, FlowCommand::ModifyStrict]);
}

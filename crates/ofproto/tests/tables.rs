//! Rules are added, modified and deleted as OpenFlow specifies.

use sluice_action::PortNo;
use sluice_flow::{FlowKey, Metadata, OfPort, PacketKey};
use sluice_flow::{PortNames, extract, layout};
use sluice_ofp::{FlowCommand, FlowMod, FlowRemovedReason, GroupCommand, GroupMod, OfAction};
use sluice_ofproto::{
    BridgeConfig, BundleChange, Error, FailMode, FlowModCounts, Ofproto, PacketOutRequest, PortConfig,
};

fn switch() -> Ofproto {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
    for n in 1..=4 {
        ofproto.add_port("br0", PortConfig::new(&format!("p{n}"), n, PortNo(n.into()))).unwrap();
    }
    ofproto
}

fn flow(command: FlowCommand, text: &str) -> FlowMod {
    FlowMod::parse(text, command, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn apply(ofproto: &Ofproto, command: FlowCommand, text: &str, now_ms: u64) -> Result<FlowModCounts, Error> {
    ofproto.flow_mod("br0", &flow(command, text), now_ms)
}

fn add(ofproto: &Ofproto, text: &str) {
    apply(ofproto, FlowCommand::Add, text, 1000).unwrap();
}

/// The rules as text, without what changes with time.
fn dump(ofproto: &Ofproto) -> Vec<String> {
    let rules = ofproto.rules("br0", &FlowMod::new(FlowCommand::Delete)).unwrap();
    let text = |entry: &sluice_ofproto::RuleEntry| {
        let rule = &entry.rule;
        let flow = FlowMod {
            table: Some(rule.table),
            priority: rule.openflow_priority().unwrap(),
            new_cookie: Some(rule.cookie),
            idle_timeout: rule.idle_timeout(),
            hard_timeout: rule.hard_timeout(),
            importance: rule.importance,
            matches: entry.matches.clone(),
            actions: rule.actions.to_vec(),
            ..FlowMod::new(FlowCommand::Add)
        };
        flow.to_string()
    };
    let mut lines: Vec<_> = rules.iter().map(text).collect();
    lines.sort();
    lines
}

/// The translation of an untagged packet of type 0x1234 from port 1, which is credited to the rules it matches.
fn send(ofproto: &Ofproto, now_ms: u64) -> Vec<sluice_action::Action> {
    use sluice_action::{Miss, Upcall, UpcallResult};
    let frame = [0x50, 0x54, 0, 0, 0, 7, 0x50, 0x54, 0, 0, 0, 5, 0x12, 0x34, 0, 0];
    let mut key = PacketKey::ZERO;
    extract(&frame, &Metadata::of_port(1), &mut key).unwrap();
    let mut upcall = ofproto.upcall();
    let UpcallResult::Translated(translation) = upcall.translate(&Miss { key: &key, bytes: &frame, now_ms }) else {
        panic!("port 1 is there")
    };
    upcall.credit(&translation.xcache, 1, 60, 0, now_ms);
    translation.actions.to_vec()
}

fn counts(ofproto: &Ofproto) -> Vec<(u64, u64)> {
    let rules = ofproto.rules("br0", &FlowMod::new(FlowCommand::Delete)).unwrap();
    rules.iter().map(|entry| (entry.rule.stats().packets, entry.rule.stats().bytes)).collect()
}

#[test]
fn an_equal_rule_is_replaced_and_counts_from_zero() {
    let ofproto = switch();
    add(&ofproto, "in_port=1,cookie=7 actions=output:2");
    send(&ofproto, 2000);
    assert_eq!(counts(&ofproto), [(1, 60)]);
    add(&ofproto, "in_port=1,cookie=8 actions=output:3");
    assert_eq!(dump(&ofproto), ["cookie=0x8, in_port=1 actions=output:3"]);
    assert_eq!(counts(&ofproto), [(0, 0)]);
}

#[test]
fn a_modified_rule_keeps_counters_timeouts_and_cookie() {
    let ofproto = switch();
    add(&ofproto, "in_port=1,cookie=7,idle_timeout=9 actions=output:2");
    send(&ofproto, 2000);
    let changed = apply(&ofproto, FlowCommand::Modify, "in_port=1 actions=output:3", 3000).unwrap();
    assert_eq!(changed, FlowModCounts { added: 0, modified: 1, deleted: 0 });
    assert_eq!(dump(&ofproto), ["cookie=0x7, idle_timeout=9, in_port=1 actions=output:3"]);
    assert_eq!(counts(&ofproto), [(1, 60)]);
    apply(&ofproto, FlowCommand::Modify, "in_port=1,cookie=9 actions=output:3", 3000).unwrap();
    assert_eq!(dump(&ofproto), ["cookie=0x9, idle_timeout=9, in_port=1 actions=output:3"]);
    apply(&ofproto, FlowCommand::Modify, "in_port=1,reset_counts actions=output:3", 3000).unwrap();
    assert_eq!(counts(&ofproto), [(0, 0)]);
}

#[test]
fn packets_of_a_megaflow_that_outlives_its_rule_count_on_the_modified_one() {
    use sluice_action::{Miss, Upcall, UpcallResult};
    let ofproto = switch();
    add(&ofproto, "in_port=1 actions=output:2");
    let mut key = PacketKey::ZERO;
    extract(&[0; 60], &Metadata::of_port(1), &mut key).unwrap();
    let mut upcall = ofproto.upcall();
    let UpcallResult::Translated(old) = upcall.translate(&Miss { key: &key, bytes: &[0; 60], now_ms: 0 }) else {
        panic!("port 1 is there")
    };
    apply(&ofproto, FlowCommand::Modify, "in_port=1 actions=output:3", 3000).unwrap();
    upcall.credit(&old.xcache, 3, 180, 0, 4000);
    assert_eq!(counts(&ofproto), [(3, 180)]);
}

#[test]
fn modifying_nothing_adds_unless_a_cookie_was_asked_for() {
    let ofproto = switch();
    apply(&ofproto, FlowCommand::Modify, "in_port=2 actions=output:3", 0).unwrap();
    apply(&ofproto, FlowCommand::Modify, "cookie=1/-1,in_port=3 actions=output:3", 0).unwrap();
    assert_eq!(dump(&ofproto), ["in_port=2 actions=output:3"]);
}

#[test]
fn loose_commands_take_what_is_within_strict_ones_the_very_rule() {
    let ofproto = switch();
    for text in [
        "priority=5,ip,nw_dst=10.0.0.0/8 actions=output:1",
        "priority=6,ip,nw_dst=10.1.0.0/16 actions=output:2",
        "table=3,priority=6,tcp,nw_dst=10.1.0.0/16 actions=output:2",
        "priority=6,arp actions=output:2",
    ] {
        add(&ofproto, text);
    }
    let changed = apply(&ofproto, FlowCommand::DeleteStrict, "priority=7,ip,nw_dst=10.1.0.0/16", 0).unwrap();
    assert_eq!(changed.deleted, 0);
    let changed = apply(&ofproto, FlowCommand::DeleteStrict, "priority=6,ip,nw_dst=10.1.0.0/16", 0).unwrap();
    assert_eq!(changed.deleted, 1);
    assert_eq!(apply(&ofproto, FlowCommand::Delete, "table=3,ip", 0).unwrap().deleted, 1);
    assert_eq!(apply(&ofproto, FlowCommand::Delete, "ip,nw_dst=10.0.0.0/8", 0).unwrap().deleted, 1);
    assert_eq!(dump(&ofproto), ["priority=6,arp actions=output:2"]);
}

#[test]
fn deletions_select_by_cookie_and_output() {
    let ofproto = switch();
    add(&ofproto, "cookie=0x11,in_port=1 actions=output:1,output:2");
    add(&ofproto, "cookie=0x12,in_port=2 actions=clone(output:3)");
    add(&ofproto, "cookie=0x22,in_port=3 actions=drop");
    add(&ofproto, "cookie=0x13,in_port=4 actions=enqueue:4:1");
    add(&ofproto, "cookie=0x14,table=1 actions=write_actions(output:4)");
    assert_eq!(apply(&ofproto, FlowCommand::Delete, "out_port=3", 0).unwrap().deleted, 1);
    assert_eq!(apply(&ofproto, FlowCommand::Delete, "out_port=4", 0).unwrap().deleted, 2);
    assert_eq!(apply(&ofproto, FlowCommand::Delete, "cookie=0x20/0xf0", 0).unwrap().deleted, 1);
    assert_eq!(dump(&ofproto), ["cookie=0x11, in_port=1 actions=output:1,output:2"]);
}

/// Rules that use a group anywhere in their actions are found by `out_group`, and deleted with the group.
#[test]
fn rules_go_with_their_groups() {
    let senders = ["group:1", "output:2,group:1", "clone(group:1)", "write_actions(group:1)"];
    for delete in [FlowCommand::Delete, FlowCommand::DeleteStrict] {
        let ofproto = switch();
        let group =
            GroupMod::parse("group_id=1,type=all,bucket=output:2", GroupCommand::Add, &PortNames::NONE).unwrap();
        ofproto.group_mod("br0", &group, 0).unwrap();
        for (table, actions) in senders.iter().enumerate() {
            add(&ofproto, &format!("table={table} actions={actions}"));
        }
        add(&ofproto, "table=9 actions=output:1");
        if delete == FlowCommand::Delete {
            assert_eq!(apply(&ofproto, delete, "out_group=2", 0).unwrap().deleted, 0);
            assert_eq!(apply(&ofproto, delete, "out_group=1", 0).unwrap().deleted, senders.len());
        } else {
            let gone = GroupMod::parse("group_id=1", GroupCommand::Delete, &PortNames::NONE).unwrap();
            ofproto.group_mod("br0", &gone, 0).unwrap();
        }
        assert_eq!(dump(&ofproto), ["table=9, actions=output:1"], "{delete:?}");
    }
}

#[test]
fn check_overlap_refuses_rules_of_one_priority_that_meet() {
    let ofproto = switch();
    add(&ofproto, "priority=5,ip,nw_dst=10.0.0.0/8 actions=output:1");
    let refused = apply(&ofproto, FlowCommand::Add, "check_overlap,priority=5,ip,nw_src=1.1.1.1 actions=drop", 0);
    assert_eq!(refused, Err(Error::Overlap { table: 0, priority: 5 }));
    apply(&ofproto, FlowCommand::Add, "check_overlap,priority=6,ip,nw_src=1.1.1.1 actions=drop", 0).unwrap();
    apply(&ofproto, FlowCommand::Add, "check_overlap,priority=5,arp actions=drop", 0).unwrap();
}

#[test]
fn a_bundle_changes_all_or_nothing_and_is_seen_at_once() {
    let ofproto = switch();
    add(&ofproto, "in_port=1 actions=output:2");
    let before = (dump(&ofproto), ofproto.epoch());
    let mut mods: Vec<FlowMod> = (0..1000)
        .map(|i| flow(FlowCommand::Add, &format!("table=1,reg0={i} actions=output:3")))
        .chain([flow(FlowCommand::Delete, "in_port=1")])
        .collect();
    mods.push(flow(FlowCommand::Add, "table=1 actions=drop"));
    mods.last_mut().unwrap().actions = vec![sluice_ofp::OfAction::Group(3)];
    let refused = ofproto.bundle("br0", &mods, 0).unwrap_err();
    assert_eq!(refused.to_string(), "flow 1002: group:3: there is no such group; add it before rules that name it");
    assert_eq!((dump(&ofproto), ofproto.epoch()), before);
    assert_eq!(send(&ofproto, 0), [sluice_action::Action::Output(PortNo(2))]);
    mods.pop();
    let changed = ofproto.bundle("br0", &mods, 0).unwrap();
    assert_eq!(changed, FlowModCounts { added: 1000, modified: 0, deleted: 1 });
    assert_eq!(ofproto.epoch(), before.1 + 1);
    assert_eq!(send(&ofproto, 0), []);
}

#[test]
fn a_bundle_sees_its_own_changes() {
    let ofproto = switch();
    let mods = [
        flow(FlowCommand::Add, "in_port=1 actions=output:2"),
        flow(FlowCommand::Modify, "in_port=1 actions=output:3"),
        flow(FlowCommand::Add, "in_port=2 actions=output:3"),
        flow(FlowCommand::Delete, "in_port=2"),
    ];
    ofproto.bundle("br0", &mods, 0).unwrap();
    assert_eq!(dump(&ofproto), ["in_port=1 actions=output:3"]);
}

#[test]
fn replacing_leaves_alone_what_is_there() {
    let ofproto = switch();
    add(&ofproto, "in_port=1 actions=output:2");
    add(&ofproto, "table=254,in_port=2 actions=output:2");
    add(&ofproto, "in_port=3 actions=output:2");
    send(&ofproto, 2000);
    let wanted = [
        flow(FlowCommand::Add, "in_port=1 actions=output:2"),
        flow(FlowCommand::Add, "in_port=3 actions=output:4"),
        flow(FlowCommand::Add, "in_port=4 actions=output:4"),
    ];
    let changed = ofproto.replace_flows("br0", &wanted, 3000).unwrap();
    assert_eq!(changed, FlowModCounts { added: 2, modified: 0, deleted: 1 });
    assert_eq!(
        dump(&ofproto),
        ["in_port=1 actions=output:2", "in_port=3 actions=output:4", "in_port=4 actions=output:4"]
    );
    assert_eq!(counts(&ofproto).into_iter().map(|(packets, _)| packets).sum::<u64>(), 1);
}

#[test]
fn timeouts_remove_rules_and_say_why() {
    let ofproto = switch();
    add(&ofproto, "in_port=1,idle_timeout=5,send_flow_rem actions=output:2");
    add(&ofproto, "in_port=2,hard_timeout=8,send_flow_rem actions=output:2");
    add(&ofproto, "in_port=3 actions=output:2");
    assert_eq!(ofproto.tick(6000).expired_rules, 0);
    send(&ofproto, 4000);
    assert_eq!(ofproto.tick(9000).expired_rules, 0);
    assert_eq!(ofproto.tick(9001).expired_rules, 2);
    let mut news: Vec<_> = ofproto.take_removed().into_iter().map(|r| (r.reason, r.stats.packets)).collect();
    news.sort_by_key(|(why, _)| *why as u8);
    assert_eq!(news, [(FlowRemovedReason::IdleTimeout, 1), (FlowRemovedReason::HardTimeout, 0)]);
    assert_eq!(dump(&ofproto), ["in_port=3 actions=output:2"]);
    assert_eq!(ofproto.removal_counts().idle_timeout, 1);
}

/// A packet-out that is processed by the tables as a packet from port 1.
fn packet() -> BundleChange {
    let (actions, length) = (vec![OfAction::Output { port: OfPort::TABLE, max_len: 0 }], 60);
    let mut key = FlowKey::ZERO;
    key.set_number(layout::IN_PORT, 1);
    BundleChange::Packet(Box::new(PacketOutRequest { key, actions, length }))
}

#[test]
fn a_packet_in_a_bundle_meets_the_tables_as_they_stand_at_its_place() {
    use sluice_action::Action::Output;
    let group = |command, text| BundleChange::Group(GroupMod::parse(text, command, &PortNames::NONE).unwrap());
    let rule = |command, text: &str| BundleChange::Flow(Box::new(flow(command, text)));
    let ofproto = switch();
    let mut changes = vec![
        packet(),
        rule(FlowCommand::Add, "in_port=1 actions=output:2"),
        packet(),
        group(GroupCommand::Add, "group_id=1,type=all,bucket=output:3"),
        rule(FlowCommand::Modify, "in_port=1 actions=group:1"),
        packet(),
        rule(FlowCommand::Delete, "in_port=1"),
        packet(),
        // Enough changes for the subtables to be sorted only at the end.
        rule(FlowCommand::Add, "priority=1 actions=output:3"),
    ];
    changes
        .extend((0..20).map(|i| rule(FlowCommand::Add, &format!("priority=9,in_port=1,reg{}=1 actions=drop", i % 16))));
    changes.push(packet());
    changes.push(rule(FlowCommand::Add, "in_port=3 actions=group:9"));
    // A refused bundle credits no packet.
    assert_eq!(ofproto.ordered_bundle("br0", changes.clone(), None, 0), Err((30, Error::BadOutGroup(9))));
    assert!(dump(&ofproto).is_empty());
    changes.pop();
    let (_, sent) = ofproto.ordered_bundle("br0", changes, None, 0).unwrap();
    let sent: Vec<_> = sent.iter().map(|packet| packet.actions.to_vec()).collect();
    let (to_2, to_3) = (vec![Output(PortNo(2))], vec![Output(PortNo(3))]);
    assert_eq!(sent, [vec![], to_2, to_3.clone(), vec![], to_3]);
    let counts = ofproto.rules("br0", &flow(FlowCommand::Delete, "")).unwrap();
    let hits: u64 = counts.iter().map(|entry| entry.rule.stats().packets).sum();
    assert_eq!(hits, 1, "of the rules that are left, the last packet met one");
}

#[test]
fn rules_and_groups_change_together_in_order_or_not_at_all() {
    let group = |command, text| BundleChange::Group(GroupMod::parse(text, command, &PortNames::NONE).unwrap());
    let rule = |command, text| BundleChange::Flow(Box::new(flow(command, text)));
    let (ofproto, add_rule, add_group) = (switch(), FlowCommand::Add, GroupCommand::Add);
    let epoch = ofproto.epoch();
    let mut changes = vec![
        group(add_group, "group_id=1,type=all,bucket=output:2"),
        rule(add_rule, "in_port=1 actions=group:1"),
        group(GroupCommand::InsertBucket, "group_id=1,command_bucket_id=last,bucket=output:3"),
        rule(add_rule, "in_port=2 actions=group:2"),
    ];
    // The last rule uses an unknown group.
    assert_eq!(ofproto.ordered_bundle("br0", changes.clone(), None, 0), Err((3, Error::BadOutGroup(2))));
    assert_eq!((dump(&ofproto).len(), ofproto.groups("br0").unwrap().len(), ofproto.epoch()), (0, 0, epoch));
    changes.pop();
    ofproto.ordered_bundle("br0", changes, None, 0).unwrap();
    assert_eq!(ofproto.epoch(), epoch + 1);
    use sluice_action::Action::Output;
    assert_eq!(send(&ofproto, 0), [Output(PortNo(2)), Output(PortNo(3))]);
    assert_eq!(ofproto.groups("br0").unwrap()[0].ref_count, 1);
    // Deleting a group deletes its rules, unless the bundle adds the group again for others.
    let swap = [
        group(GroupCommand::Delete, "group_id=1"),
        group(add_group, "group_id=1,type=indirect,bucket=output:3"),
        rule(add_rule, "in_port=1,priority=7 actions=group:1"),
    ];
    let changed = ofproto.ordered_bundle("br0", swap, None, 0).unwrap();
    assert_eq!(changed, (FlowModCounts { added: 1, modified: 0, deleted: 1 }, vec![]));
    assert_eq!(send(&ofproto, 0), [Output(PortNo(3))]);
}

#[test]
fn what_is_not_built_is_refused_by_name() {
    let ofproto = switch();
    let refused = apply(&ofproto, FlowCommand::Add, "dl_type=0x894f actions=dec_nsh_ttl", 0).unwrap_err().to_string();
    assert!(refused.ends_with("NSH is not built yet"), "{refused}");
    for text in [
        "dl_type=0x894f,nsh_mdtype=1 actions=drop",
        "dl_type=0x894f,nsh_mdtype=1,nsh_c2=0x1/0x1 actions=drop",
        "dl_type=0x894f actions=set_field:5->nsh_ttl",
        "dl_type=0x894f actions=clone(move:NXOXM_NSH_C1[]->NXM_NX_REG0[])",
    ] {
        let refused = apply(&ofproto, FlowCommand::Add, text, 0).unwrap_err().to_string();
        assert!(refused.ends_with("NSH is not built yet"), "{text}: {refused}");
    }
    for text in ["dp_hash=0/1 actions=drop", "recirc_id=5 actions=drop"] {
        let refused = apply(&ofproto, FlowCommand::Add, text, 0).unwrap_err();
        assert!(matches!(refused, Error::HiddenField(_)), "{text}: {refused}");
    }
    apply(&ofproto, FlowCommand::Add, "recirc_id=0 actions=drop", 0).unwrap();
    apply(&ofproto, FlowCommand::Delete, "", 0).unwrap();
    let mut back = flow(FlowCommand::Add, "table=5 actions=goto_table:6");
    back.table = Some(7);
    assert_eq!(ofproto.flow_mod("br0", &back, 0), Err(Error::GotoBackwards { table: 7, to: 6 }));
    assert_eq!(ofproto.flow_mod("br9", &back, 0), Err(Error::NoBridge("br9".to_owned())));
    assert_eq!(dump(&ofproto), <[&str; 0]>::default());
}

#[test]
fn a_standalone_bridge_begins_as_a_switch() {
    let ofproto = switch();
    let config = BridgeConfig { fail_mode: FailMode::Standalone, ..BridgeConfig::new("br1") };
    ofproto.add_bridge(config.clone(), 0).unwrap();
    let rules = ofproto.rules("br1", &FlowMod::new(FlowCommand::Delete)).unwrap();
    assert_eq!(rules.len(), 1);
    assert_eq!((rules[0].rule.priority, rules[0].rule.actions[0].to_string()), (0, "NORMAL".to_owned()));
    assert_eq!(ofproto.add_bridge(config, 0), Err(Error::BridgeExists("br1".to_owned())));
    assert_eq!(ofproto.list(), "br0\nbr1\n");
    ofproto.remove_bridge("br1").unwrap();
    assert_eq!(ofproto.list(), "br0\n");
}

#[test]
fn ports_have_one_name_and_one_number() {
    let ofproto = switch();
    let refused = |port: PortConfig| ofproto.add_port("br0", port).unwrap_err().to_string();
    assert_eq!(refused(PortConfig::new("p1", 9, PortNo(9))), "there is a port named \"p1\" already, in bridge \"br0\"");
    assert_eq!(refused(PortConfig::new("p9", 1, PortNo(9))), "bridge \"br0\" has port 1 already: \"p1\"");
    assert_eq!(refused(PortConfig::new("p9", 9, PortNo(1))), "port \"p9\": datapath port 1 is taken");
    assert!(refused(PortConfig::new("p9", 0, PortNo(9))).contains("expected 1 to 65279, or LOCAL"));
    ofproto.remove_port("br0", "p1").unwrap();
    ofproto.add_port("br0", PortConfig::new("p9", 1, PortNo(1))).unwrap();
}

#[test]
fn tables_count_searches() {
    let ofproto = switch();
    add(&ofproto, "in_port=1 actions=resubmit(,7)");
    send(&ofproto, 0);
    send(&ofproto, 0);
    let stats = ofproto.table_stats("br0").unwrap();
    let rows: Vec<_> = stats.iter().map(|t| (t.table, t.rules, t.matched, t.missed)).collect();
    assert_eq!(rows, [(0, 1, 2, 0), (7, 0, 0, 2)]);
}

/// Changes `rules` rules, and sees that no hold of the tables' lock changed more than its piece of them.
fn in_pieces<T>(ofproto: &Ofproto, rules: usize, change: impl FnOnce() -> T) -> T {
    const PIECE: u64 = 16;
    let before = ofproto.write_holds();
    let changed = change();
    let holds = ofproto.write_holds() - before;
    assert!(holds >= rules as u64 / PIECE, "{rules} rules were changed in {holds} holds");
    changed
}

const N: usize = 20_000;

/// A bridge with [`N`] rules that expire after ten seconds.
fn with_very_many_rules() -> (Ofproto, Vec<FlowMod>) {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
    let rule = |i: usize| format!("table=1,hard_timeout=10,ip,nw_dst=20.0.{}.{},actions=drop", i >> 8, i & 255);
    let rules: Vec<FlowMod> =
        (0..N).map(|i| FlowMod::parse(&rule(i), FlowCommand::Add, &PortNames::NONE).unwrap()).collect();
    ofproto.bundle("br0", &rules, 0).unwrap();
    (ofproto, rules)
}

fn count(ofproto: &Ofproto) -> usize {
    ofproto.table_stats("br0").unwrap().iter().map(|table| table.rules).sum()
}

#[test]
fn rules_that_expire_together_go_in_pieces_over_several_ticks() {
    let (ofproto, _) = with_very_many_rules();
    assert_eq!(ofproto.tick(10_000).expired_rules, 0);
    let expire = || (0..3).map(|_| ofproto.tick(10_001).expired_rules).collect();
    let expired: Vec<usize> = in_pieces(&ofproto, N, expire);
    assert_eq!((expired.iter().sum::<usize>(), expired[2]), (N, 0), "{expired:?}");
    assert!(expired[0] < N && count(&ofproto) == 0);
}

/// Rules that end together, and a deletion and a modification that select more rules than one hold of the lock changes:
/// all are done, each once, within a transaction or over several ticks.
#[test]
fn many_rules_are_changed_in_pieces() {
    let (ofproto, rules) = with_very_many_rules();
    let parse = |text: &str, command| FlowMod::parse(text, command, &PortNames::NONE).unwrap();
    // A bundle that ends with a refused change leaves all as it was, pieces too.
    let wide = [
        parse("table=1,actions=output:1", FlowCommand::Modify),
        parse("table=1", FlowCommand::Delete),
        parse("table=1,priority=7,actions=group:9", FlowCommand::Add),
    ];
    assert!(in_pieces(&ofproto, 3 * N, || ofproto.bundle("br0", &wide, 0).is_err()), "changed, deleted, undone");
    assert_eq!(count(&ofproto), N);
    let more: Vec<FlowMod> =
        rules.iter().map(|rule| FlowMod { priority: 9, ..rule.clone() }).chain([wide[2].clone()]).collect();
    assert!(in_pieces(&ofproto, N, || ofproto.bundle("br0", &more, 0).is_err()), "undone");
    assert_eq!(count(&ofproto), N);
    assert_eq!(in_pieces(&ofproto, N, || ofproto.bundle("br0", &wide[..1], 0).unwrap().modified), N);
    let refs: Vec<&FlowMod> = wide.iter().collect();
    // A modification and a deletion.
    let (counts, refused) = in_pieces(&ofproto, 2 * N, || ofproto.flow_mods("br0", &refs, None, 0).unwrap());
    assert_eq!((counts.modified, counts.deleted, refused.len(), refused[0].0), (N, N, 1, 2));
    assert_eq!(count(&ofproto), 0);
}

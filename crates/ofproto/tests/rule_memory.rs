//! The memory of rules and groups: its bound, and the shares of those who make them.

use proptest::prelude::*;
use sluice_action::{Miss, PortNo, Upcall, UpcallResult};
use sluice_fate::Limit;
use sluice_flow::{Metadata, PacketKey, PortNames, extract};
use sluice_ofp::{FlowCommand, FlowMod, GroupCommand, GroupMod};
use sluice_ofproto::{
    BridgeConfig, BundleChange, Error, FailMode, Ofproto, PortConfig, RULE_MEMORY, Requester, RuleOwner,
};
use sluice_testkit::frame;

fn switch(memory: usize) -> Ofproto {
    let ofproto = Ofproto::new();
    ofproto.rule_memory().set_limit(memory);
    for bridge in ["br0", "br1"] {
        ofproto.add_bridge(BridgeConfig::new(bridge), 0).unwrap();
    }
    for n in 1..=3 {
        ofproto.add_port("br0", PortConfig::new(&format!("p{n}"), n, PortNo(n.into()))).unwrap();
    }
    ofproto
}

fn flow(command: FlowCommand, text: &str) -> FlowMod {
    FlowMod::parse(text, command, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Adds rules of one owner until one is refused; returns how many there are.
fn fill(ofproto: &Ofproto, bridge: &str, owner: RuleOwner, priority: u16) -> u32 {
    let by = Some(Requester { connection: 1, xid: 1, owner });
    let accepted = (0..).find(|n| {
        let text = format!("priority={priority},ip,nw_src=10.{}.{}.1,actions=output:1", n >> 8, n & 255);
        let (_, refused) = ofproto.flow_mods(bridge, &[&flow(FlowCommand::Add, &text)], by, 0).unwrap();
        refused.iter().for_each(|(_, error)| assert_eq!(*error, Error::RuleMemory { table: 0 }));
        !refused.is_empty()
    });
    accepted.expect("the memory has a bound")
}

/// Without what removed rules still take.
fn used(ofproto: &Ofproto) -> usize {
    ofproto.free_removed();
    ofproto.rule_memory().usage().0
}

#[test]
fn one_that_fills_the_memory_leaves_a_part_for_each_other() {
    let ofproto = switch(1 << 20);
    let before = Limit::RuleMemory.count();
    let peers = fill(&ofproto, "br0", RuleOwner::Peers, 1);
    assert!(peers > 500 && Limit::RuleMemory.count() > before, "{peers}");
    let operator = fill(&ofproto, "br0", RuleOwner::Operator, 2);
    assert!(operator > peers / 20, "{operator} beside {peers}");
    assert!(used(&ofproto) <= 1 << 20);

    // All goes back.
    ofproto.remove_bridge("br0").unwrap();
    assert!(used(&ofproto) < 1 << 14, "{}", used(&ofproto));
    assert!(fill(&ofproto, "br1", RuleOwner::Controller(7), 3) > 500);
}

#[test]
fn what_a_change_has_removed_is_freed_after_it_and_before_the_next_change() {
    let ofproto = switch(1 << 20);
    let empty = used(&ofproto);
    let delete_all = || ofproto.flow_mods("br0", &[&flow(FlowCommand::Delete, "")], None, 0).unwrap();

    let rules = fill(&ofproto, "br0", RuleOwner::Operator, 1);
    assert_eq!(delete_all().0.deleted, rules as usize);
    let not_free_yet = ofproto.rule_memory().usage().0;
    assert!(not_free_yet > 1 << 19, "the requester need not wait for it: {not_free_yet}");
    assert_eq!(used(&ofproto), empty);

    assert_eq!(fill(&ofproto, "br0", RuleOwner::Operator, 1), rules);
    delete_all();
    assert_eq!(fill(&ofproto, "br0", RuleOwner::Operator, 1), rules, "the next change has all the room");

    delete_all();
    ofproto.tick(1000);
    assert_eq!(ofproto.rule_memory().usage().0, empty, "nobody else has freed it");
}

#[test]
fn a_bridge_whose_first_rule_has_no_room_is_not_there() {
    let ofproto = switch(1 << 20);
    ofproto.rule_memory().set_limit(0);
    let config = BridgeConfig { fail_mode: FailMode::Standalone, ..BridgeConfig::new("br2") };
    assert_eq!(ofproto.add_bridge(config.clone(), 0), Err(Error::RuleMemory { table: 0 }));
    assert!(!ofproto.has_bridge("br2"));
    ofproto.rule_memory().set_limit(1 << 20);
    ofproto.add_bridge(config, 0).unwrap();
}

#[test]
fn a_million_rules_of_one_controller_have_room_by_default() {
    let ofproto = switch(RULE_MEMORY);
    let by = Some(Requester { connection: 1, xid: 1, owner: RuleOwner::Controller(1) });
    let before = used(&ofproto);
    for n in 0..1000 {
        let matches = format!("tcp,dl_vlan=7,nw_src=10.0.{}.{},nw_dst=10.1.0.0/16,tp_dst={n}", n >> 8, n & 255);
        let text = format!("priority=7,{matches},actions=set_field:5->reg0,strip_vlan,resubmit(,1)");
        let (_, refused) = ofproto.flow_mods("br0", &[&flow(FlowCommand::Add, &text)], by, 0).unwrap();
        assert!(refused.is_empty());
    }
    // Its share ends where one for the next owner is left.
    assert!(
        (used(&ofproto) - before) * 1000 < RULE_MEMORY / 8 * 7 / 8 * 7,
        "{} a rule",
        (used(&ofproto) - before) / 1000
    );
}

#[test]
fn another_bridge_has_its_part() {
    let ofproto = switch(1 << 20);
    let first = fill(&ofproto, "br0", RuleOwner::Controller(1), 1);
    let [same, other] = [(RuleOwner::Controller(2), "br0"), (RuleOwner::Controller(1), "br1")]
        .map(|(owner, bridge)| fill(&ofproto, bridge, owner, 2));
    assert!(same > first / 40 && other + same > first / 20, "{same} and {other} beside {first}");
}

/// A packet from port `port` with address `n`.
fn teach(ofproto: &Ofproto, port: u32, n: u32) {
    let [.., a, b, c] = n.to_be_bytes();
    let bytes = frame::ethernet()
        .macs([2, port as u8, 0, a, b, c], [2, 0, 0, 0, 0, 9])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 9])
        .udp(1, 2)
        .build();
    let mut key = PacketKey::ZERO;
    extract(&bytes, &Metadata::of_port(port), &mut key).unwrap();
    let UpcallResult::Translated(translation) =
        ofproto.upcall().translate(&Miss { key: &key, bytes: &bytes, now_ms: 0 })
    else {
        panic!("the packet is translated");
    };
    ofproto.upcall().credit(&translation.xcache, 1, 60, 0, 0);
    ofproto.tick(0);
}

#[test]
fn packets_of_one_port_that_teach_rules_leave_room_for_those_of_another_and_for_the_operator() {
    let ofproto = switch(1 << 18);
    let learn = "actions=learn(table=1,NXM_OF_IN_PORT[],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])";
    ofproto.flow_mod("br0", &flow(FlowCommand::Add, learn), 0).unwrap();
    let learned = |port: u16| {
        let wanted = flow(FlowCommand::Delete, &format!("table=1,in_port={port}"));
        ofproto.rules("br0", &wanted).unwrap().len()
    };
    let before = Limit::RuleMemory.count();
    (0..600).for_each(|n| teach(&ofproto, 1, n));
    assert!(Limit::RuleMemory.count() > before, "the memory is not full");
    let full = learned(1);
    (0..50).for_each(|n| teach(&ofproto, 2, n));
    assert!(full > 50 && learned(2) > 5, "{full} and {}", learned(2));
    assert!(fill(&ofproto, "br0", RuleOwner::Operator, 5) > 5);
}

#[test]
fn a_full_memory_refuses_what_takes_more_and_nothing_else() {
    let ofproto = switch(1 << 19);
    let rule = |actions: &str| format!("priority=9,udp,actions={actions}");
    let add = |actions: &str| ofproto.flow_mod("br0", &flow(FlowCommand::Add, &rule(actions)), 0);
    let group = |text: &str, command| {
        let gm = GroupMod::parse(text, command, &PortNames::NONE).unwrap();
        ofproto.group_mod_of("br0", &gm, RuleOwner::Operator, 0)
    };
    add("output:2,output:3").unwrap();
    group("group_id=1,type=all,bucket=actions=output:1,bucket=actions=output:2", GroupCommand::Add).unwrap();
    let modify =
        |actions: &str| ofproto.flow_mod("br0", &flow(FlowCommand::Modify, &format!("udp,actions={actions}")), 0);
    fill(&ofproto, "br0", RuleOwner::Operator, 1);
    let full = used(&ofproto);

    // The same rule again, with as much or less.
    add("output:3,output:2").unwrap();
    add("output:3").unwrap();
    let long = vec!["output:1"; 300].join(",");
    assert_eq!(add(&long), Err(Error::RuleMemory { table: 0 }));
    modify("output:2").unwrap();
    assert_eq!(modify(&long), Err(Error::RuleMemory { table: 0 }));
    group("group_id=1,type=all,bucket=actions=output:3", GroupCommand::Modify).unwrap();
    let wide = format!("group_id=1,type=all{}", ",bucket=actions=output:1".repeat(99));
    assert_eq!(group(&wide, GroupCommand::Modify), Err(Error::GroupMemory(1)));
    assert_eq!(group(&wide.replace("id=1", "id=2"), GroupCommand::Add), Err(Error::GroupMemory(2)));
    assert!(used(&ofproto) <= full);

    // A bundle that is refused leaves nothing behind.
    let before = used(&ofproto);
    let texts: Vec<String> = (0..400).map(|n| format!("priority=7,tcp,tp_src={n},actions=drop")).collect();
    let changes = texts.iter().map(|text| BundleChange::Flow(Box::new(flow(FlowCommand::Add, text))));
    let (_, error) = ofproto.ordered_bundle("br0", changes, None, 0).unwrap_err();
    assert_eq!((error, used(&ofproto)), (Error::RuleMemory { table: 0 }, before));
    ofproto.flow_mod("br0", &flow(FlowCommand::Delete, ""), 0).unwrap();
    assert!(used(&ofproto) < 1 << 14);
}

#[test]
fn a_modification_of_many_rules_takes_its_actions_once() {
    let ofproto = switch(1 << 22);
    for n in 0..200 {
        let text = format!("priority=3,tcp,tp_src={n},actions=drop");
        ofproto.flow_mod("br0", &flow(FlowCommand::Add, &text), 0).unwrap();
    }
    let before = used(&ofproto);
    let long = vec!["output:1"; 1000].join(",");
    ofproto.flow_mod("br0", &flow(FlowCommand::Modify, &format!("tcp,actions={long}")), 0).unwrap();
    assert!((before + 20_000..before + 200_000).contains(&used(&ofproto)), "{before} and {}", used(&ofproto));
    ofproto.flow_mod("br0", &flow(FlowCommand::Modify, "tcp,actions=drop"), 0).unwrap();
    assert!(used(&ofproto) < before + 4096);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Whatever is added, modified, replaced, refused and deleted: without rules nothing is in use.
    #[test]
    fn all_that_is_taken_is_given_back(
        changes in prop::collection::vec((0u8..5, 0u8..6, 0u8..3, 1usize..40), 1..60),
        limit in prop::sample::select(vec![6_000usize, 20_000, 1 << 20]),
    ) {
        let ofproto = switch(1 << 20);
        let empty = used(&ofproto);
        ofproto.rule_memory().set_limit(limit);
        for (command, source, mask, outputs) in changes {
            let command = [
                FlowCommand::Add,
                FlowCommand::Add,
                FlowCommand::Modify,
                FlowCommand::ModifyStrict,
                FlowCommand::DeleteStrict,
            ][usize::from(command)];
            let matches = [format!("ip,nw_src=10.0.0.{source}"), format!("udp,tp_src={source}"), "arp".into()];
            let actions = if command == FlowCommand::DeleteStrict {
                String::new()
            } else {
                format!(",actions={}", vec!["output:1"; outputs].join(","))
            };
            let text = format!("{}{actions}", matches[usize::from(mask)]);
            let _ = ofproto.flow_mod("br0", &flow(command, &text), 0);
        }
        ofproto.rule_memory().set_limit(1 << 20);
        ofproto.flow_mod("br0", &flow(FlowCommand::Delete, ""), 0).unwrap();
        prop_assert!(used(&ofproto) <= empty, "{} and {empty}", used(&ofproto));
    }
}

//! Limits of translations.

use sluice_action::{Action, MegaflowMatch, Miss, PortNo, Translation, Upcall, UpcallResult};
use sluice_fate::{DropReason, Limit};
use sluice_flow::{Metadata, PacketKey, PortNames, extract};
use sluice_ofp::{FlowCommand, FlowMod, GroupCommand, GroupMod};
use sluice_ofproto::{BridgeConfig, Ofproto, PortConfig};
use sluice_testkit::frame;

fn switch(flows: &[&str]) -> Ofproto {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
    for n in 1..=4 {
        ofproto.add_port("br0", PortConfig::new(&format!("p{n}"), n, PortNo(n.into()))).unwrap();
    }
    for text in flows {
        let flow = FlowMod::parse(text, FlowCommand::Add, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"));
        ofproto.flow_mod("br0", &flow, 0).unwrap();
    }
    ofproto
}

fn key(bytes: &[u8], port: u32) -> PacketKey {
    let mut key = PacketKey::ZERO;
    extract(bytes, &Metadata::of_port(port), &mut key).unwrap();
    key
}

fn translate(ofproto: &Ofproto, bytes: &[u8]) -> Translation {
    let key = key(bytes, 1);
    match ofproto.upcall().translate(&Miss { key: &key, bytes, now_ms: 0 }) {
        UpcallResult::Translated(translation) => {
            // A packet that is sent teaches what it has to teach.
            ofproto.upcall().credit(&translation.xcache, 1, 60, 0, 0);
            translation
        }
        other => panic!("{other:?}"),
    }
}

fn udp(src: u8) -> Vec<u8> {
    frame::ethernet()
        .macs([2, 0, 0, 0, 0, src], [2, 0, 0, 0, 0, 9])
        .ipv4([10, 0, 0, src], [10, 0, 0, 9])
        .udp(1, 2)
        .build()
}

/// Groups 1 to `n`. Each one has `width` buckets that lead to the next; the last one is empty or outputs to port 2.
fn chain(n: u32, width: usize, end: &str) -> Ofproto {
    let ofproto = switch(&[]);
    for id in (1..=n).rev() {
        let bucket = if id == n { end.to_owned() } else { format!("group:{}", id + 1) };
        let buckets = vec![format!("bucket=actions={bucket}"); width].join(",");
        let text = format!("group_id={id},type=all,{buckets}");
        let group =
            GroupMod::parse(&text, GroupCommand::Add, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"));
        ofproto.group_mod("br0", &group, 0).unwrap();
    }
    let flow = FlowMod::parse("actions=group:1", FlowCommand::Add, &PortNames::NONE).unwrap();
    ofproto.flow_mod("br0", &flow, 0).unwrap();
    ofproto
}

#[test]
fn groups_within_groups_end_by_name() {
    let deep = |n| {
        let translation = translate(&chain(n, 1, "output:2"), &udp(1));
        (translation.actions.to_vec(), translation.no_output)
    };
    assert_eq!(deep(50).0, [Action::Output(PortNo(2))]);
    assert_eq!(deep(80), (vec![], DropReason::RecursionTooDeep), "as deep as resubmits may go");
}

#[test]
fn buckets_count_as_resubmits_do() {
    let wide = |n| translate(&chain(n, 2, "set_field:1->reg0"), &udp(1)).no_output;
    assert_eq!(wide(10), DropReason::Rules, "1023 groups");
    assert_eq!(wide(14), DropReason::TooManyResubmits, "16383 groups");
}

#[test]
fn a_learned_rule_outputs_to_ports_only() {
    let learn = |port: u32| {
        let actions = format!("load:{port}->NXM_NX_REG0[0..15],learn(table=1,output:NXM_NX_REG0[0..15])");
        let ofproto = switch(&[&format!("actions={actions}")]);
        translate(&ofproto, &udp(1));
        ofproto.tick(0);
        let learned = FlowMod { table: Some(1), ..FlowMod::new(FlowCommand::Delete) };
        let rules = ofproto.rules("br0", &learned).unwrap();
        rules.iter().map(|entry| entry.rule.actions.len()).collect::<Vec<_>>()
    };
    // Source: Open vSwitch lib/learn.c: below OFPP_MAX, and IN_PORT, FLOOD, ALL and LOCAL.
    for (port, allowed) in
        [(1, true), (0xfeff, true), (0xff00, false), (0xfff8, true), (0xfff9, false), (0xfffa, false)]
    {
        assert_eq!(learn(port), [usize::from(allowed)], "port {port:#x}");
    }
    for (port, allowed) in [(0xfffb, true), (0xfffc, true), (0xfffd, false), (0xfffe, true), (0xffff, false)] {
        assert_eq!(learn(port), [usize::from(allowed)], "port {port:#x}");
    }
}

/// Groups without loops still have more paths than any machine walks: each of 40 levels watches the next one twice, and
/// the last one watches a port that is not there. No group is live, so that every path is tried.
#[test]
fn the_liveness_of_groups_has_a_budget() {
    let ofproto = switch(&[]);
    for id in (1..=40).rev() {
        let watch = if id == 40 { "watch_port:4000".to_owned() } else { format!("watch_group:{}", id + 1) };
        let text = format!("group_id={id},type=ff,bucket={watch},actions=output:2,bucket={watch},actions=output:3");
        let group = GroupMod::parse(&text, GroupCommand::Add, &PortNames::NONE).unwrap();
        ofproto.group_mod("br0", &group, 0).unwrap();
    }
    let flow = FlowMod::parse("actions=group:1", FlowCommand::Add, &PortNames::NONE).unwrap();
    ofproto.flow_mod("br0", &flow, 0).unwrap();
    let translation = translate(&ofproto, &udp(1));
    assert_eq!((translation.actions.len(), translation.no_output), (0, DropReason::TranslationWork));
    let trace = ofproto.trace(&["br0", "in_port=1"], 0).unwrap();
    assert!(trace.contains("over 65536 steps of work") && trace.len() < 16 << 20, "{} bytes", trace.len());
}

/// Each resubmit is within the limits of Open vSwitch, and so is each rule; their product is not.
#[test]
fn long_rules_that_are_resubmitted_to_have_a_budget() {
    let long = format!("table=1,actions={}", ["set_field:1->reg0"; 2000].join(","));
    let many = |n| format!("table=0,actions={},output:2", vec!["resubmit(,1)"; n].join(","));
    let actions = |n| translate(&switch(&[&long, &many(n)]), &udp(1));
    assert_eq!(actions(30).actions[..], [Action::Output(PortNo(2))]);
    assert_eq!(actions(40).no_output, DropReason::TranslationWork);
}

/// One rule can make as many actions as it has, without any resubmit that would check their bytes.
#[test]
fn actions_that_are_too_long_for_a_megaflow_are_not_cached() {
    let rule = |zones: usize| {
        let zones: Vec<_> = (1..=zones).map(|zone| format!("ct(commit,zone={zone})")).collect();
        switch(&[&format!("udp,actions={},output:4", zones.join(","))])
    };
    let short = translate(&rule(600), &udp(1));
    assert!(short.cacheable && short.actions.len() == 601);
    let before = Limit::ActionList.count();
    let long = translate(&rule(2700), &udp(1));
    assert!(!long.cacheable && long.actions.len() == 2701 && Limit::ActionList.count() > before);
    // The same in a clone, in a list of its own.
    let inner = (1..=2700).map(|zone| format!("ct(commit,zone={zone})")).collect::<Vec<_>>().join(",");
    let ofproto = switch(&[&format!("udp,actions=clone({inner},output:2),output:4")]);
    assert!(!translate(&ofproto, &udp(1)).cacheable);
}

/// The action set grows with each resubmit, and each `clone` copies it.
#[test]
fn action_sets_that_grow_have_a_budget() {
    let write = format!("table=1,actions=write_actions({})", ["set_field:1->reg0"; 500].join(","));
    let rule = format!("table=0,actions={}", ["resubmit(,1),clone(ct_clear,output:2)"; 60].join(","));
    assert_eq!(translate(&switch(&[&write, &rule]), &udp(1)).no_output, DropReason::TranslationWork);
}

/// The number of packets of the rules in a table.
fn packets(ofproto: &Ofproto, table: u8) -> u64 {
    let wanted = FlowMod { table: Some(table), ..FlowMod::new(FlowCommand::Delete) };
    ofproto.rules("br0", &wanted).unwrap().iter().map(|entry| entry.rule.stats().packets).sum()
}

/// A megaflow's memory does not grow with the number of searches: those that say the same are merged.
#[test]
fn thousands_of_searches_take_little_memory() {
    let into = |table: u8, n: usize| vec![format!("resubmit(,{table})"); n].join(",");
    let wide = switch(&[
        &format!("table=0,udp,actions={}", into(1, 63)),
        &format!("table=1,udp,actions={}", into(2, 63)),
        "table=2,udp,actions=output:2",
    ]);
    let translation = translate(&wide, &udp(1));
    assert!(translation.xcache.0.bytes() < 2048, "{} bytes", translation.xcache.0.bytes());
    assert_eq!((packets(&wide, 1), packets(&wide, 2)), (63, 63 * 63), "each search counts");
}

/// Each search has a key of its own, with eight registers that were written.
#[test]
fn thousands_of_searches_with_other_keys_take_little_memory() {
    let loads: Vec<_> = (0..8).map(|reg| format!("load:0x7777->NXM_NX_REG{reg}[]")).collect();
    let searches = (0..1000).map(|n| format!("load:{n}->NXM_NX_REG9[],resubmit(,1)")).collect::<Vec<_>>().join(",");
    let rule = format!("table=0,udp,actions={},{searches},output:2", loads.join(","));
    let ofproto = switch(&[&rule, "table=1,udp,actions=load:1->NXM_NX_REG10[]"]);
    let translation = translate(&ofproto, &udp(1));
    assert_eq!(translation.actions[..], [Action::Output(PortNo(2))]);
    assert!(translation.xcache.0.bytes() < 16 << 10, "{} bytes", translation.xcache.0.bytes());
    assert_eq!(packets(&ofproto, 1), 1000);
}

/// Two packets are translated before the rule that the first one learns is added. The limit still holds.
#[test]
fn a_limit_on_learning_holds_when_it_is_done() {
    let ofproto =
        switch(&["actions=learn(table=1,cookie=9,limit=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])"]);
    (1..4).for_each(|src| drop(translate(&ofproto, &udp(src))));
    ofproto.tick(0);
    let learned = FlowMod { table: Some(1), ..FlowMod::new(FlowCommand::Delete) };
    assert_eq!(ofproto.rules("br0", &learned).unwrap().len(), 1);
}

/// A label popped for a copy is pushed again with its value, so the megaflow matches that label.
#[test]
fn a_label_that_is_pushed_back_is_matched() {
    let ofproto = switch(&["mpls actions=clone(pop_mpls:0x0800,output:2),output:3"]);
    let labelled =
        |label, tc| frame::ethernet().mpls(label, tc, 64).ipv4([10, 0, 0, 1], [10, 0, 0, 9]).udp(1, 2).build();
    let first = translate(&ofproto, &labelled(100, 0));
    let pushes =
        |translation: &Translation| translation.actions.iter().any(|action| matches!(action, Action::PushMpls { .. }));
    let megaflow = MegaflowMatch::new(first.mask, &key(&labelled(100, 0), 1));
    for other in [labelled(101, 0), labelled(100, 5)] {
        let shares = megaflow.contains(&key(&other, 1));
        assert!(!(shares && pushes(&first)), "it would be given the label of another: {:?}", first.actions);
        assert!(!shares || translate(&ofproto, &other).actions == first.actions);
    }
}

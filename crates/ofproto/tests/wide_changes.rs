//! Requests that concern many groups, meters or teachers, and many rules: they cost the sum, not the product.

use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod, GroupCommand, GroupMod, MeterCommand, MeterMod};
use sluice_ofproto::{BridgeConfig, BundleChange, Ofproto};
use std::time::{Duration, Instant};

/// Groups, meters or teachers.
const MANY: usize = 11_000;

/// Rules.
const RULES: usize = 12_000;

/// If each of [`MANY`] looked at all rules, it would take eleven thousand times as long as one that does. It takes some two
/// hundred times as long, since to delete a rule takes longer than to look at it.
const FACTOR_MAX: u32 = 2000;

fn flow(text: &str, command: FlowCommand) -> FlowMod {
    FlowMod::parse(text, command, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn group(text: &str, command: GroupCommand) -> GroupMod {
    GroupMod::parse(text, command, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// A bridge with rules in table 1 that have these actions.
fn bridge(ofproto: &Ofproto, actions: impl Fn(usize) -> String) {
    let rule = |i: usize| format!("table=1,ip,nw_dst=20.0.{}.{},actions={}", i >> 8, i & 255, actions(i));
    let rules: Vec<FlowMod> = (0..RULES).map(|i| flow(&rule(i), FlowCommand::Add)).collect();
    ofproto.bundle("br0", &rules, 0).unwrap();
}

fn switch() -> Ofproto {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
    ofproto
}

fn rules(ofproto: &Ofproto) -> usize {
    ofproto.table_stats("br0").unwrap().iter().map(|table| table.rules).sum()
}

#[expect(clippy::disallowed_methods, reason = "the test measures real time")]
fn took(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

/// As [`took`], for a change of `rules` rules: no hold of the tables' lock changes more than its piece of them.
fn took_in_pieces(ofproto: &Ofproto, rules: usize, work: impl FnOnce()) -> Duration {
    const PIECE: u64 = 16;
    let before = ofproto.write_holds();
    let took = took(work);
    let holds = ofproto.write_holds() - before;
    assert!(holds >= rules as u64 / PIECE, "{rules} rules were changed in {holds} holds");
    took
}

fn add_groups(ofproto: &Ofproto) {
    let add = |i| BundleChange::Group(group(&format!("group_id={i},type=all,bucket=output:1"), GroupCommand::Add));
    ofproto.ordered_bundle("br0", (1..=MANY).map(add), None, 0).unwrap();
}

/// The rules of a table that loses all of them are hidden in pieces, and then removed together; those of other tables one by
/// one. What comes afterwards finds nothing of them.
#[test]
fn a_table_that_loses_all_its_rules_is_emptied_at_once() {
    let ofproto = switch();
    bridge(&ofproto, |_| "output:1".to_owned());
    for text in ["table=2,priority=1,cookie=7,actions=output:1", "table=2,priority=2,actions=output:2"] {
        ofproto.flow_mod("br0", &flow(text, FlowCommand::Add), 0).unwrap();
    }
    let others: Vec<FlowMod> = (0..40)
        .map(|i| {
            flow(&format!("table=3,priority=9,hard_timeout=5,ip,nw_src=10.0.0.{i},actions=drop"), FlowCommand::Add)
        })
        .collect();
    ofproto.bundle("br0", &others, 0).unwrap();
    let before = ofproto.write_holds();
    let mut delete = vec![flow("table=1", FlowCommand::Delete), flow("table=3,ip", FlowCommand::Delete)];
    delete.push(flow("table=2,cookie=7/-1", FlowCommand::Delete));
    let counts = ofproto.bundle("br0", &delete, 0).unwrap();
    let holds = ofproto.write_holds() - before;
    assert_eq!((counts.deleted, rules(&ofproto)), (RULES + 41, 1));
    assert!(holds < RULES as u64 / 16 + 20, "{holds} holds");
    // New rules get the places of old ones, and keep to their own timeouts.
    bridge(&ofproto, |_| "output:3".to_owned());
    ofproto.tick(60_000);
    assert_eq!(rules(&ofproto), RULES + 1);
    assert_eq!(ofproto.rules("br0", &flow("table=1,ip,nw_dst=20.0.1.1", FlowCommand::Delete)).unwrap().len(), 1);
}

#[test]
fn many_groups_are_deleted_with_many_rules() {
    let delete =
        |ofproto: &Ofproto, text: &str| ofproto.group_mod("br0", &group(text, GroupCommand::Delete), 0).unwrap();
    let ofproto = switch();
    add_groups(&ofproto);
    bridge(&ofproto, |i| format!("group:{}", i % (MANY - 1) + 1));
    // No rule uses the last group.
    let one = took(|| assert_eq!(delete(&ofproto, &format!("group_id={MANY}")).deleted, 0));
    let all = took_in_pieces(&ofproto, RULES, || assert_eq!(delete(&ofproto, "").deleted, RULES));
    assert!(all < one * FACTOR_MAX, "{all:?}, and one {one:?}");
    assert_eq!((rules(&ofproto), ofproto.groups("br0").unwrap().len()), (0, 0));
}

#[test]
fn rules_of_a_group_that_comes_back_in_a_bundle_go_and_later_ones_stay() {
    let ofproto = switch();
    add_groups(&ofproto);
    bridge(&ofproto, |_| "group:7".to_owned());
    let rule = |text| BundleChange::Flow(Box::new(flow(text, FlowCommand::Add)));
    let changes = [
        rule("table=2,priority=1,actions=group:7"),
        BundleChange::Group(group("group_id=7", GroupCommand::Delete)),
        BundleChange::Group(group("group_id=7,type=all,bucket=output:2", GroupCommand::Add)),
        rule("table=2,priority=2,actions=group:7"),
    ];
    // A refused change at the end undoes all.
    let refused = changes.iter().cloned().chain([rule("actions=group:999999")]);
    assert_eq!(ofproto.ordered_bundle("br0", refused, None, 0).unwrap_err().0, changes.len());
    assert_eq!(rules(&ofproto), RULES);
    let (counts, _) = ofproto.ordered_bundle("br0", changes, None, 0).unwrap();
    assert_eq!((counts.deleted, rules(&ofproto)), (RULES + 1, 1));
}

#[test]
fn many_meters_are_listed_and_deleted_with_many_rules() {
    let ofproto = switch();
    let meter = |text: &str, command| ofproto.meter_mod("br0", &MeterMod::parse(text, command).unwrap(), 0).unwrap();
    (1..=MANY).for_each(|i| meter(&format!("meter={i},kbps,bands=type=drop rate=900"), MeterCommand::Add));
    bridge(&ofproto, |i| format!("meter:{},output:1", i % (MANY - 1) + 1));
    let one = took(|| meter(&format!("meter={MANY}"), MeterCommand::Delete));
    let listed = took(|| {
        let counts = ofproto.meters("br0").unwrap();
        assert_eq!((counts.len(), counts[0].flow_count), (MANY - 1, (RULES / (MANY - 1)) as u32 + 1));
    });
    let all = took_in_pieces(&ofproto, RULES, || meter("meter=all", MeterCommand::Delete));
    assert!(listed < one * FACTOR_MAX && all < one * FACTOR_MAX, "{listed:?} and {all:?}, and one {one:?}");
    assert_eq!((rules(&ofproto), ofproto.meters("br0").unwrap().len()), (0, 0));
}

#[test]
fn many_teachers_go_with_all_that_they_have_taught() {
    let teach = |cookies: usize| {
        let ofproto = switch();
        let teacher = |i: usize| {
            let learn =
                format!("learn(table=1,delete_learned,cookie={:#x},NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])", i % cookies);
            flow(&format!("priority={},in_port={},actions={learn}", i % 60_000, i / 60_000), FlowCommand::Add)
        };
        ofproto.bundle("br0", &(0..MANY).map(teacher).collect::<Vec<_>>(), 0).unwrap();
        let taught = |i: usize| {
            let text = format!("table=1,cookie={:#x},ip,nw_dst=20.0.{}.{},actions=drop", i % cookies, i >> 8, i & 255);
            flow(&text, FlowCommand::Add)
        };
        ofproto.bundle("br0", &(0..RULES).map(taught).collect::<Vec<_>>(), 0).unwrap();
        let delete = flow("table=0", FlowCommand::Delete);
        let gone = MANY + RULES;
        let took = took_in_pieces(&ofproto, gone, || {
            assert_eq!(ofproto.flow_mod("br0", &delete, 0).unwrap().deleted, gone);
        });
        assert_eq!(rules(&ofproto), 0);
        took
    };
    let (one, all) = (teach(1), teach(MANY));
    assert!(all < one * 20, "{all:?}, and with one cookie {one:?}");
}

/// More rules than are looked through at a time, in two tables, some of which name a group twice.
#[test]
fn users_of_groups_are_counted_in_pieces() {
    let ofproto = switch();
    for id in [7, 8] {
        let one = group(&format!("group_id={id},type=all,bucket=output:1"), GroupCommand::Add);
        ofproto.group_mod("br0", &one, 0).unwrap();
    }
    let rules: Vec<_> = (0..10_000)
        .map(|i| {
            let (table, twice) = (i % 2, if i % 3 == 0 { ",group:7" } else { "" });
            flow(&format!("table={table},udp,tp_src={i},actions=group:7{twice}"), FlowCommand::Add)
        })
        .collect();
    ofproto.bundle("br0", &rules, 0).unwrap();
    let users: Vec<_> = ofproto.groups("br0").unwrap().iter().map(|group| (group.id, group.ref_count)).collect();
    assert_eq!(users, [(7, 10_000), (8, 0)]);
}

/// A controller that adds groups one by one keeps the writer's lock for each as long as for the first ones.
#[test]
fn a_group_costs_as_much_among_many_as_among_few() {
    let ofproto = switch();
    let change = |id: usize| {
        let add = group(&format!("group_id={id},type=all,bucket=output:1"), GroupCommand::AddOrModify);
        ofproto.group_mod("br0", &add, 0).unwrap();
    };
    (1..100).for_each(change);
    let few = (0..5).map(|_| took(|| (1..100).for_each(change))).min().unwrap();
    let add = |i| BundleChange::Group(group(&format!("group_id={i},type=all,bucket=output:1"), GroupCommand::Add));
    ofproto.ordered_bundle("br0", (100..50_000).map(add), None, 0).unwrap();
    let many = (0..5).map(|_| took(|| (1..100).for_each(change))).min().unwrap();
    assert!(many < few * 20, "{many:?} among many, {few:?} among few");
}

/// Bridges that come and go with their meters give the numbers of these back.
#[test]
fn bridges_that_go_give_their_meters_back() {
    let ofproto = Ofproto::new();
    for round in 0..70 {
        ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
        for meter in 1..=4000 {
            let add = format!("meter={meter},kbps,band=type=drop,rate=9");
            let add = MeterMod::parse(&add, MeterCommand::Add).unwrap();
            ofproto.meter_mod("br0", &add, 0).unwrap_or_else(|error| panic!("round {round}, meter {meter}: {error}"));
        }
        ofproto.remove_bridge("br0").unwrap();
    }
}

/// A controller that adds and deletes groups and meters over and over keeps the changes of others waiting no longer where its
/// bridge has very many rules than where it has few.
#[test]
fn groups_and_meters_that_come_and_go_search_no_rules() {
    let took_with = |rules: usize| {
        let ofproto = switch();
        let others: Vec<_> =
            (0..rules).map(|n| flow(&format!("table=3,reg0={n},actions=output:1"), FlowCommand::Add)).collect();
        ofproto.bundle("br0", &others, 0).unwrap();
        let change =
            |text: &str, command| ofproto.meter_mod("br0", &MeterMod::parse(text, command).unwrap(), 0).unwrap();
        let flood = || {
            for id in 1..50 {
                let one = format!("group_id={id},type=all,bucket=output:1");
                ofproto.group_mod("br0", &group(&one, GroupCommand::Add), 0).unwrap();
                change(&format!("meter={id},kbps,band=type=drop,rate=9"), MeterCommand::Add);
                let user = format!("table=4,actions=meter:{id},group:{id}");
                ofproto.flow_mod("br0", &flow(&user, FlowCommand::Add), 0).unwrap();
                let before = self::rules(&ofproto);
                match id % 2 {
                    0 => ofproto
                        .group_mod("br0", &group(&format!("group_id={id}"), GroupCommand::Delete), 0)
                        .map(drop)
                        .unwrap(),
                    _ => change(&format!("meter={id}"), MeterCommand::Delete),
                }
                assert_eq!(self::rules(&ofproto), before - 1, "the user goes with it");
                ofproto.group_mod("br0", &group("", GroupCommand::Delete), 0).unwrap();
                change("meter=all", MeterCommand::Delete);
            }
        };
        (0..3).map(|_| took(flood)).min().unwrap()
    };
    let (few, many) = (took_with(10), took_with(100_000));
    assert!(many < few * 20, "{many:?} beside many rules, {few:?} beside few");
}

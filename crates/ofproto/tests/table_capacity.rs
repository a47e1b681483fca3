//! Tables with a limit: refused rules, evicted rules, vacancy events.

use sluice_fate::Limit;
use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod, FlowRemovedReason};
use sluice_ofproto::{BridgeConfig, Error, Ofproto, TableConfig, TableSettings, VacancyReason, VacancyThresholds};

const TABLE: u8 = 3;

fn switch(rules: usize, evicts: bool) -> Ofproto {
    let ofproto = Ofproto::new();
    let tables = vec![TableConfig { flow_limit: Some(rules), evicts, ..TableConfig::new(TABLE) }];
    ofproto.add_bridge(BridgeConfig { tables, ..BridgeConfig::new("br0") }, 0).unwrap();
    ofproto
}

fn flow(command: FlowCommand, text: &str) -> FlowMod {
    FlowMod::parse(&format!("table={TABLE},{text}"), command, &PortNames::NONE).unwrap()
}

fn add(ofproto: &Ofproto, text: &str, now_ms: u64) -> Result<(), Error> {
    ofproto.flow_mod("br0", &flow(FlowCommand::Add, &format!("{text},actions=drop")), now_ms).map(drop)
}

/// The priorities of the table's rules.
fn priorities(ofproto: &Ofproto) -> Vec<u32> {
    let rules = ofproto.rules("br0", &FlowMod::new(FlowCommand::Delete)).unwrap();
    let mut all: Vec<_> = rules.iter().map(|entry| entry.rule.priority).collect();
    all.sort_unstable();
    all
}

fn let_it_evict(ofproto: &Ofproto) {
    ofproto.set_table("br0", Some(TABLE), &TableSettings { evicts: Some(true), ..TableSettings::default() }).unwrap();
}

const FULL: Error = Error::TableFull { table: TABLE, limit: 2 };

#[test]
fn a_full_table_refuses_what_is_new_and_nothing_else() {
    let ofproto = switch(2, false);
    add(&ofproto, "priority=1,idle_timeout=5", 0).unwrap();
    add(&ofproto, "priority=2", 0).unwrap();
    assert_eq!(add(&ofproto, "priority=3", 0), Err(FULL));
    add(&ofproto, "priority=2", 0).unwrap();
    let modified = flow(FlowCommand::Modify, "actions=output:1");
    assert_eq!(ofproto.flow_mod("br0", &modified, 0).unwrap().modified, 2);
    // Other tables are not full.
    ofproto
        .flow_mod("br0", &FlowMod::parse("table=4,actions=drop", FlowCommand::Add, &PortNames::NONE).unwrap(), 0)
        .unwrap();
    ofproto.flow_mod("br0", &flow(FlowCommand::DeleteStrict, "priority=1"), 0).unwrap();
    add(&ofproto, "priority=3", 0).unwrap();
    // An expired rule frees its place.
    ofproto.flow_mod("br0", &flow(FlowCommand::Delete, ""), 0).unwrap();
    add(&ofproto, "priority=1,hard_timeout=1", 0).unwrap();
    add(&ofproto, "priority=2", 0).unwrap();
    ofproto.tick(1001);
    add(&ofproto, "priority=3", 1001).unwrap();
}

#[test]
fn the_least_important_is_evicted_and_of_those_the_one_that_ends_first() {
    for said_by_controller in [false, true] {
        let ofproto = switch(4, !said_by_controller);
        if said_by_controller {
            let_it_evict(&ofproto);
        }
        add(&ofproto, "priority=1", 0).unwrap();
        add(&ofproto, "priority=2,importance=7,hard_timeout=1", 0).unwrap();
        add(&ofproto, "priority=3,importance=1,idle_timeout=90", 0).unwrap();
        add(&ofproto, "priority=4,importance=1,hard_timeout=80,send_flow_rem", 0).unwrap();
        add(&ofproto, "priority=5,importance=2,hard_timeout=9", 0).unwrap();
        assert_eq!(priorities(&ofproto), [1, 2, 3, 5]);
        let removed = ofproto.take_removed();
        assert_eq!(
            removed.iter().map(|r| (r.rule.priority, r.reason)).collect::<Vec<_>>(),
            [(4, FlowRemovedReason::Eviction)]
        );
        // A rule added since the order was made can be evicted, too.
        add(&ofproto, "priority=6,hard_timeout=99", 0).unwrap();
        assert_eq!(priorities(&ofproto), [1, 2, 5, 6]);
        add(&ofproto, "priority=7", 0).unwrap();
        assert_eq!(priorities(&ofproto), [1, 2, 5, 7]);
        add(&ofproto, "priority=8", 5000).unwrap();
        add(&ofproto, "priority=9", 5000).unwrap();
        assert_eq!(priorities(&ofproto), [1, 7, 8, 9]);
        // Only rules with a timeout are evicted.
        assert_eq!(add(&ofproto, "priority=10", 9000), Err(Error::TableFull { table: TABLE, limit: 4 }));
    }
}

#[test]
fn a_bundle_that_fails_has_evicted_nothing() {
    let ofproto = switch(2, true);
    add(&ofproto, "priority=1,idle_timeout=5", 0).unwrap();
    add(&ofproto, "priority=2,idle_timeout=6", 0).unwrap();
    let news = ["priority=3,actions=drop", "priority=4,actions=drop", "priority=5,actions=drop"];
    let news = news.map(|text| flow(FlowCommand::Add, text));
    assert_eq!(ofproto.bundle("br0", &news, 0), Err(Error::InBundle { index: 3, error: Box::new(FULL) }));
    assert_eq!(priorities(&ofproto), [1, 2]);
    // It does not count for the limit, and the rules that it would have evicted can still be evicted.
    ofproto.bundle("br0", &news[..2], 0).unwrap();
    assert_eq!(priorities(&ofproto), [3, 4]);
}

#[test]
fn marks_are_told_once_each_way() {
    let ofproto = switch(10, false);
    let thresholds = VacancyThresholds { down: 30, up: 60 };
    ofproto
        .set_table("br0", Some(TABLE), &TableSettings { vacancy: Some((true, thresholds)), ..TableSettings::default() })
        .unwrap();
    let told = |ofproto: &Ofproto| {
        ofproto.take_vacancy_events().iter().map(|event| (event.reason, event.table.vacancy)).collect::<Vec<_>>()
    };
    (1..=7).for_each(|i| add(&ofproto, &format!("priority={i}"), 0).unwrap());
    assert_eq!(told(&ofproto), []);
    (8..=10).for_each(|i| add(&ofproto, &format!("priority={i}"), 0).unwrap());
    assert_eq!(told(&ofproto), [(VacancyReason::Down, 20)]);
    let gone = |i| ofproto.flow_mod("br0", &FlowMod { priority: i, ..flow(FlowCommand::DeleteStrict, "") }, 0).unwrap();
    (1..=6).for_each(|i| assert_eq!(gone(i).deleted, 1));
    assert_eq!(told(&ofproto), []);
    (7..=10).for_each(|i| assert_eq!(gone(i).deleted, 1));
    assert_eq!(told(&ofproto), [(VacancyReason::Up, 70)]);
    assert!(ofproto.table_descs("br0").unwrap().iter().all(|table| table.vacancy == 100));
}

/// A table that fills and empties all the time, while nobody takes the events: the newest are kept.
#[test]
fn events_that_nobody_takes_are_bounded() {
    const BOUND: usize = 1024;
    let ofproto = switch(1, false);
    let thresholds = VacancyThresholds { down: 30, up: 60 };
    let settings = TableSettings { vacancy: Some((true, thresholds)), ..TableSettings::default() };
    ofproto.set_table("br0", Some(TABLE), &settings).unwrap();
    let before = Limit::VacancyEvents.count();
    for _ in 0..BOUND {
        add(&ofproto, "priority=1", 0).unwrap();
        ofproto.flow_mod("br0", &FlowMod { priority: 1, ..flow(FlowCommand::DeleteStrict, "") }, 0).unwrap();
    }
    let events = ofproto.take_vacancy_events();
    assert_eq!((events.len(), events.last().map(|event| event.reason)), (BOUND, Some(VacancyReason::Up)));
    assert_eq!(Limit::VacancyEvents.count(), before + BOUND as u64);
}

#[test]
fn a_lower_limit_evicts_what_is_too_much() {
    let ofproto = switch(4, true);
    for priority in 1..=4 {
        add(&ofproto, &format!("priority={priority},idle_timeout={}", 10 - priority), 0).unwrap();
    }
    let smaller = TableConfig { flow_limit: Some(2), evicts: true, ..TableConfig::new(TABLE) };
    ofproto.configure_tables("br0", &[smaller], 0).unwrap();
    assert_eq!(priorities(&ofproto), [1, 2], "those that expire first have gone");
    let named = TableConfig { name: "main".into(), ..TableConfig::new(0) };
    ofproto.configure_tables("br0", &[named], 0).unwrap();
    let descs = ofproto.table_descs("br0").unwrap();
    assert_eq!((descs[0].name.as_str(), descs[usize::from(TABLE)].limit), ("main", None));
    (5..9).for_each(|priority| add(&ofproto, &format!("priority={priority}"), 0).unwrap());
}

#[test]
fn the_largest_group_is_evicted_from() {
    let ofproto = switch(4, true);
    let groups = vec![sluice_flow::SubField::whole(sluice_flow::FieldId::InPort)];
    let fair = TableConfig { flow_limit: Some(4), evicts: true, groups, ..TableConfig::new(TABLE) };
    ofproto.configure_tables("br0", &[fair], 0).unwrap();
    // Port 1 has one rule, the first to expire; port 2 has three.
    for (priority, port, timeout) in [(1, 1, 1), (2, 2, 7), (3, 2, 8), (4, 2, 9)] {
        add(&ofproto, &format!("priority={priority},in_port={port},idle_timeout={timeout}"), 0).unwrap();
    }
    add(&ofproto, "priority=5,in_port=1,idle_timeout=20", 0).unwrap();
    assert_eq!(priorities(&ofproto), [1, 3, 4, 5]);
}

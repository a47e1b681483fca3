//! Megaflows are found by what they depend on: a change finds all that it affects, and looks at few others.

use super::changes::{TO_GROUPS, TableChange, answer, change_group, table_changes};
use super::*;
use sluice_action::{AffectedFlow, FlowDump, FlowId, FlowMemory, FlowModification, FlowStats, XcacheHandle};

/// The plain twin: a store that asks every megaflow, whatever the index of dependencies has found.
struct AsksAll(Arc<MegaflowTable>);

impl MegaflowStore for AsksAll {
    fn suspend(&self, _: Option<&[FlowId]>, affected: &mut AffectedFlow<'_>) -> usize {
        self.0.suspend(None, affected)
    }

    fn take_fresh(&self, visit: &mut dyn FnMut(FlowId, &PacketKey, &XcacheHandle)) {
        self.0.take_fresh(visit);
    }

    fn for_each(&self, visit: &mut dyn FnMut(&FlowDump<'_>)) {
        self.0.for_each(visit);
    }

    fn resume(&self, id: FlowId, is_current: &mut dyn FnMut() -> bool) -> bool {
        self.0.resume(id, is_current)
    }

    fn capacity(&self) -> usize {
        self.0.capacity()
    }

    fn memory(&self) -> &Arc<FlowMemory> {
        self.0.memory()
    }

    fn remove(&self, id: FlowId) -> Option<FlowStats> {
        self.0.remove(id)
    }

    fn remove_same(&self, id: FlowId, xcache: &XcacheHandle) -> Option<FlowStats> {
        self.0.remove_same(id, xcache)
    }

    fn modify(&self, id: FlowId, xcache: &XcacheHandle, modification: &mut FlowModification<'_>) -> Option<FlowStats> {
        self.0.modify(id, xcache, modification)
    }

    fn settle(&self, visit: &mut dyn FnMut(&XcacheHandle, FlowStats)) {
        self.0.settle(visit);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

fn table() -> MegaflowTable {
    MegaflowTable::new(1 << 14, &HashKey::from_seed(1)).unwrap()
}

fn install(ofproto: &Ofproto, table: &MegaflowTable, keys: &[PacketKey]) {
    for key in keys {
        if let Some(translation) = answer(ofproto, key).filter(|translation| translation.cacheable) {
            table.install(0, key, &translation, 0, |_| true, |_, _, _| ());
        }
    }
}

/// The megaflows, and which of them are suspended.
fn statuses(store: &dyn MegaflowStore) -> Vec<(FlowId, bool)> {
    let mut all = Vec::new();
    store.for_each(&mut |flow| all.push((flow.id, flow.is_suspended)));
    all
}

proptest! {
    /// The same changes suspend the same megaflows, found by dependency or by asking all. Each change comes several
    /// times, so that masks get an index; some megaflows are deleted, modified and installed again in between.
    #[test]
    fn a_change_finds_what_a_scan_finds(
        flows in flows([ACTIONS, MORE_ACTIONS, TO_GROUPS].concat()),
        packets in prop::collection::vec((frames(), 1..=PORTS, prop::collection::vec(changes(), 4)), 6),
        table_changes in table_changes([ACTIONS, MORE_ACTIONS, TO_GROUPS].concat()),
        revalidates in prop::collection::vec(any::<bool>(), 24),
    ) {
        let spread = |flow: FlowMod| FlowMod { priority: flow.priority * 10, ..flow };
        let flows: Vec<_> = flows.into_iter().map(spread).collect();
        let [indexed, scanned] = [(); 2].map(|()| {
            let ofproto = switch(&[]);
            [1, 2].into_iter().for_each(|id| change_group(&ofproto, id, "type=all,bucket=output:1"));
            ofproto.bundle("br0", &flows, 0).unwrap();
            ofproto
        });
        let (found, all) = (Arc::new(table()), Arc::new(AsksAll(Arc::new(table()))));
        indexed.set_store(found.clone());
        scanned.set_store(all.clone());
        let mut keys = Vec::new();
        for (frame, port, variants) in packets {
            for changes in std::iter::once(Vec::new()).chain(variants) {
                let mut frame = frame.clone();
                changes.iter().for_each(|change| change.apply(&mut frame));
                keys.extend(key_of(&frame, port));
            }
        }
        for (i, revalidates) in revalidates.into_iter().enumerate().take(3 * table_changes.len()) {
            install(&indexed, &found, &keys);
            install(&scanned, &all.0, &keys);
            let at = i % table_changes.len();
            for ofproto in [&indexed, &scanned] {
                table_changes[at].make(ofproto, &flows, at as u16);
            }
            // The third time round, what a change has added goes.
            if i >= 2 * table_changes.len() && let TableChange::Add(flow, _) = &table_changes[at] {
                let gone = FlowMod { command: FlowCommand::Delete, actions: Vec::new(), ..(**flow).clone() };
                [&indexed, &scanned].into_iter().for_each(|ofproto| _ = ofproto.flow_mod("br0", &gone, 0).unwrap());
            }
            prop_assert_eq!(statuses(&*found), statuses(&*all));
            if revalidates {
                let done = indexed.revalidate(&*found, 0, u64::MAX);
                prop_assert_eq!(done, scanned.revalidate(&*all, 0, u64::MAX));
            }
        }
        prop_assert!(indexed.visited_megaflows() <= scanned.visited_megaflows());
    }
}

/// Megaflows of as many stations, which send to each other through rules of table 1, as rules that packets teach.
const STATIONS: u64 = 4000;

fn station(i: u64) -> String {
    format!("02:00:00:00:{:02x}:{:02x}", i >> 8, i & 255)
}

fn flow_mod(text: &str) -> FlowMod {
    FlowMod::parse(text, FlowCommand::Add, &PortNames::NONE).unwrap()
}

fn rule_of(i: u64, port: u16) -> FlowMod {
    flow_mod(&format!("table=1,dl_dst={},actions=output:{port}", station(i)))
}

/// A switch with a megaflow for each station, and their table, which the switch sees as `store` makes of it.
fn stations(store: impl FnOnce(Arc<MegaflowTable>) -> Arc<dyn MegaflowStore>) -> (Ofproto, Arc<MegaflowTable>) {
    let mut rules = vec![flow_mod("actions=resubmit(,1)"), flow_mod("table=1,priority=0,actions=output:4")];
    rules.extend((0..STATIONS / 2).map(|i| rule_of(i, 2)));
    let ofproto = switch(&rules);
    let table = Arc::new(table());
    ofproto.set_store(store(table.clone()));
    let frame = |i: u64| {
        let mut frame = i.to_be_bytes()[2..].to_vec();
        frame[0] = 2;
        frame.extend([2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        frame.resize(42, 0);
        frame
    };
    let keys: Vec<PacketKey> = (0..STATIONS).map(|i| key_of(&frame(i), 1).unwrap()).collect();
    install(&ofproto, &table, &keys);
    (ofproto, table)
}

/// How many megaflows a change is compared with.
fn visits(ofproto: &Ofproto, change: impl FnOnce(&Ofproto)) -> u64 {
    let before = ofproto.visited_megaflows();
    change(ofproto);
    ofproto.visited_megaflows() - before
}

#[test]
fn rules_that_packets_teach_cost_the_megaflows_of_their_address() {
    let (ofproto, table) = stations(|table| table);
    assert_eq!(table.len() as u64, STATIONS);
    let learn = |i| visits(&ofproto, |ofproto| _ = ofproto.flow_mod("br0", &rule_of(i, 3), 0).unwrap());
    // The first one asks all that searched the table; the second one finds that the mask keeps changing.
    assert_eq!([learn(3000), learn(3001), learn(3002), learn(7), learn(9000)], [STATIONS, 1, 1, 1, 0]);
    ofproto.revalidate(&*table, 0, u64::MAX);
    assert_eq!([learn(3001), learn(8), learn(9001)], [1, 1, 0], "modified ones are found again");
    let batch: Vec<FlowMod> = (3100..3200).map(|i| rule_of(i, 3)).collect();
    assert_eq!(visits(&ofproto, |ofproto| _ = ofproto.bundle("br0", &batch, 0).unwrap()), 100);
    // What has gone is not asked.
    let others = flow_mod("table=1,in_port=1,dl_src=02:00:00:00:00:01,actions=drop");
    ofproto.flow_mod("br0", &others, 0).unwrap();
    assert_eq!(table.len() as u64, STATIONS);
    ofproto.purge(&*table);
    assert_eq!((learn(3002), learn(3003)), (0, 0));
}

#[test]
fn ports_groups_and_addresses_cost_the_megaflows_that_looked_them_up() {
    let (ofproto, _) = stations(|table| table);
    let port =
        |name: &str| visits(&ofproto, |ofproto| ofproto.set_port("br0", name, |port| port.no_flood = true).unwrap());
    assert_eq!([port("p3"), port("p2"), port("p4")], [0, STATIONS / 2, STATIONS / 2]);
    assert_eq!(visits(&ofproto, |ofproto| change_group(ofproto, 1, "type=all,bucket=output:3")), 0);
    let mac = |ofproto: &Ofproto| _ = ofproto.fdb_add("br0", "p2", "0", &station(1)).unwrap();
    assert_eq!(visits(&ofproto, mac), 0);
    assert_eq!(visits(&ofproto, |ofproto| _ = ofproto.flow_mod("br0", &flow_mod("table=9,actions=drop"), 0)), 0);
}

/// What the same changes cost without the index: all megaflows, but for those that are suspended already.
#[test]
fn a_scan_costs_all_megaflows_each_time() {
    let (ofproto, _) = stations(|table| Arc::new(AsksAll(table)));
    let learn = |i| visits(&ofproto, |ofproto| _ = ofproto.flow_mod("br0", &rule_of(i, 3), 0).unwrap());
    assert_eq!([learn(3000), learn(3001), learn(3002)], [STATIONS, STATIONS - 1, STATIONS - 2]);
    let port = |ofproto: &Ofproto| ofproto.set_port("br0", "p3", |port| port.no_flood = true).unwrap();
    assert_eq!(visits(&ofproto, port), STATIONS - 3);
}

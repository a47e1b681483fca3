//! Megaflows stay correct, and every packet counts for every rule it matched.

use sluice_action::{
    Action, AffectedFlow, FlowDump, FlowId, FlowMemory, FlowModification, FlowStats, MegaflowMatch, MegaflowStore,
    Miss, PortNo, Translation, Upcall, UpcallResult, XcacheHandle,
};
use sluice_fate::DropReason;
use sluice_flow::{Metadata, OfPort, PacketKey, PortNames, extract};
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{BridgeConfig, DEFAULT_MAX_IDLE_MS, Ofproto, PortConfig, RevalidateStats};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Capacity of [`Store`].
const CAPACITY: usize = 64;

/// A megaflow store without a datapath.
#[derive(Default)]
struct Store(Mutex<Inside>, Arc<FlowMemory>);

#[derive(Default)]
struct Inside {
    next: u32,
    flows: BTreeMap<FlowId, (MegaflowMatch, Translation, FlowStats)>,
    /// What modified flows carried before.
    earlier: BTreeMap<FlowId, FlowStats>,
    suspended: BTreeSet<FlowId>,
    /// Flows that became live since `take_fresh` asked.
    fresh: BTreeSet<FlowId>,
    /// Packets that come during the removal of a flow.
    late: Vec<(XcacheHandle, FlowStats)>,
}

impl Store {
    fn install(&self, key: &PacketKey, translation: Translation, now_ms: u64) -> FlowId {
        let mut inside = self.0.lock().unwrap();
        inside.next += 1;
        let id = FlowId(inside.next);
        let stats = FlowStats { created_ms: now_ms, ..FlowStats::default() };
        inside.fresh.insert(id);
        inside.flows.insert(id, (MegaflowMatch::new(translation.mask, key), translation, stats));
        id
    }

    fn is_suspended(&self, id: FlowId) -> bool {
        self.0.lock().unwrap().suspended.contains(&id)
    }

    fn carry(&self, id: FlowId, packets: u64, tcp_flags: u16, now_ms: u64) {
        let mut inside = self.0.lock().unwrap();
        let stats = &mut inside.flows.get_mut(&id).expect("it is there").2;
        stats.packets += packets;
        stats.bytes += packets * 60;
        stats.tcp_flags |= tcp_flags;
        stats.used_ms = Some(now_ms);
    }
}

impl MegaflowStore for Store {
    fn for_each(&self, visit: &mut dyn FnMut(&FlowDump<'_>)) {
        let (flows, suspended, earlier) = {
            let inside = self.0.lock().unwrap();
            (inside.flows.clone(), inside.suspended.clone(), inside.earlier.clone())
        };
        for (id, (matches, translation, stats)) in &flows {
            let Translation { actions, no_output, xcache, .. } = translation;
            let (mask, no_output, stats) = (&matches.mask, *no_output, *stats);
            let (is_suspended, earlier) = (suspended.contains(id), earlier.get(id).copied().unwrap_or_default());
            let bytes = xcache.0.bytes();
            visit(&FlowDump { id: *id, mask, actions, no_output, xcache, stats, earlier, is_suspended, bytes });
        }
    }

    fn suspend(&self, among: Option<&[FlowId]>, affected: &mut AffectedFlow<'_>) -> usize {
        let Inside { flows, suspended, .. } = &mut *self.0.lock().unwrap();
        let asked = flows.iter().filter(|(id, _)| among.is_none_or(|ids| ids.contains(id)));
        let affected = asked.filter(|(id, (matches, told, _))| affected(**id, &matches.mask, &told.xcache));
        let before = suspended.len();
        suspended.extend(affected.map(|(id, _)| *id));
        suspended.len() - before
    }

    fn take_fresh(&self, visit: &mut dyn FnMut(FlowId, &PacketKey, &XcacheHandle)) {
        let Inside { flows, fresh, .. } = &mut *self.0.lock().unwrap();
        for id in std::mem::take(fresh) {
            let Some((matches, translation, _)) = flows.get(&id) else { continue };
            visit(id, &matches.mask, &translation.xcache);
        }
    }

    fn resume(&self, id: FlowId, is_current: &mut dyn FnMut() -> bool) -> bool {
        let is_current = is_current();
        let inside = &mut *self.0.lock().unwrap();
        let resumed = is_current && inside.suspended.remove(&id);
        inside.fresh.extend(resumed.then_some(id));
        resumed
    }

    fn capacity(&self) -> usize {
        CAPACITY
    }

    fn memory(&self) -> &Arc<FlowMemory> {
        &self.1
    }

    fn remove_same(&self, id: FlowId, _: &XcacheHandle) -> Option<FlowStats> {
        self.remove(id)
    }

    fn remove(&self, id: FlowId) -> Option<FlowStats> {
        let mut inside = self.0.lock().unwrap();
        let (_, translation, stats) = inside.flows.remove(&id)?;
        inside.suspended.remove(&id);
        let late = FlowStats { packets: 2, bytes: 120, used_ms: stats.used_ms, ..FlowStats::default() };
        inside.late.push((translation.xcache, late));
        Some(stats)
    }

    fn modify(&self, id: FlowId, _: &XcacheHandle, modification: &mut FlowModification<'_>) -> Option<FlowStats> {
        if !(modification.is_current)() {
            return None;
        }
        let inside = &mut *self.0.lock().unwrap();
        let (_, translation, stats) = inside.flows.get_mut(&id)?;
        *translation = modification.translation.clone();
        inside.suspended.remove(&id);
        inside.fresh.insert(id);
        let carried = std::mem::replace(stats, FlowStats { created_ms: stats.created_ms, ..FlowStats::default() });
        inside.earlier.insert(id, carried);
        Some(carried)
    }

    fn settle(&self, visit: &mut dyn FnMut(&XcacheHandle, FlowStats)) {
        let late = std::mem::take(&mut self.0.lock().unwrap().late);
        late.iter().for_each(|(xcache, stats)| visit(xcache, *stats));
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().flows.len()
    }
}

fn switch(flows: &[&str]) -> Ofproto {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
    for n in 1..=4 {
        ofproto.add_port("br0", PortConfig::new(&format!("p{n}"), n, PortNo(n.into()))).unwrap();
    }
    flows.iter().for_each(|text| change(&ofproto, FlowCommand::Add, text));
    ofproto
}

/// A store in which the switch's changes suspend megaflows.
fn store_of(ofproto: &Ofproto) -> Arc<Store> {
    let store = Arc::new(Store::default());
    ofproto.set_store(store.clone());
    store
}

fn change(ofproto: &Ofproto, command: FlowCommand, text: &str) {
    let flow = FlowMod::parse(text, command, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"));
    ofproto.flow_mod("br0", &flow, 0).unwrap();
}

/// A TCP packet between two addresses.
fn packet(port: u32, src: u8, dst: u8) -> (PacketKey, Vec<u8>) {
    let frame = sluice_testkit::frame::ethernet()
        .macs([0x50, 0x54, 0, 0, 0, src], [0x50, 0x54, 0, 0, 0, dst])
        .ipv4([10, 0, 0, src], [10, 0, 0, dst])
        .udp(1000, 80)
        .build();
    let mut key = PacketKey::ZERO;
    extract(&frame, &Metadata::of_port(port), &mut key).unwrap();
    (key, frame)
}

fn translate(ofproto: &Ofproto, (key, frame): &(PacketKey, Vec<u8>), now_ms: u64) -> Translation {
    let mut upcall = ofproto.upcall();
    match upcall.translate(&Miss { key, bytes: frame, now_ms }) {
        UpcallResult::Translated(translation) => {
            upcall.credit(&translation.xcache, 1, 60, 0, now_ms);
            translation
        }
        other => panic!("{other:?}"),
    }
}

fn miss(ofproto: &Ofproto, store: &Store, packet: &(PacketKey, Vec<u8>), now_ms: u64) -> FlowId {
    let translation = translate(ofproto, packet, now_ms);
    store.install(&packet.0, translation, now_ms)
}

/// Packets of each rule, by its first output.
fn packets(ofproto: &Ofproto) -> BTreeMap<String, u64> {
    let rules = ofproto.rules("br0", &FlowMod::new(FlowCommand::Delete)).unwrap();
    rules.iter().map(|entry| (entry.rule.actions[0].to_string(), entry.rule.stats().packets)).collect()
}

fn outputs(translation: &Translation) -> Vec<u32> {
    let ports = translation.actions.iter().filter_map(|a| match a {
        Action::Output(port) => Some(port.0),
        _ => None,
    });
    ports.collect()
}

#[test]
fn every_packet_counts_on_every_rule_it_met() {
    let ofproto = switch(&["in_port=1 actions=resubmit(,1)", "table=1 actions=output:2"]);
    let store = store_of(&ofproto);
    let id = miss(&ofproto, &store, &packet(1, 1, 2), 1000);
    store.carry(id, 10, 0, 2000);
    ofproto.revalidate(&*store, 2500, DEFAULT_MAX_IDLE_MS);
    store.carry(id, 5, 0, 3000);
    ofproto.revalidate(&*store, 3500, DEFAULT_MAX_IDLE_MS);
    ofproto.revalidate(&*store, 3600, DEFAULT_MAX_IDLE_MS);
    let want = BTreeMap::from([("resubmit(,1)".to_owned(), 16), ("output:2".to_owned(), 16)]);
    assert_eq!(packets(&ofproto), want);
    // Removal credits the packets since the last dump and those that come during it.
    store.carry(id, 4, 0, 4000);
    assert_eq!(ofproto.purge(&*store), 1);
    let want = BTreeMap::from([("resubmit(,1)".to_owned(), 22), ("output:2".to_owned(), 22)]);
    assert_eq!(packets(&ofproto), want);
}

#[test]
fn crediting_translates_nothing_and_deletes_nothing() {
    let ofproto = switch(&["in_port=1 actions=output:2", "in_port=3 actions=output:4"]);
    let store = store_of(&ofproto);
    let (stays, changed) = (miss(&ofproto, &store, &packet(1, 1, 2), 0), miss(&ofproto, &store, &packet(3, 1, 2), 0));
    change(&ofproto, FlowCommand::Modify, "in_port=3 actions=output:1");
    [stays, changed].into_iter().for_each(|id| store.carry(id, 10, 0, 2000));
    assert_eq!(ofproto.credit_megaflows(&*store), 2);
    assert!(store.is_suspended(changed) && store.len() == 2);
    let counted = packets(&ofproto);
    assert_eq!(counted["output:2"], 11);
    // Nothing counts twice, whichever pass comes next.
    store.carry(stays, 1, 0, 2100);
    ofproto.credit_megaflows(&*store);
    ofproto.revalidate(&*store, 2200, DEFAULT_MAX_IDLE_MS);
    ofproto.credit_megaflows(&*store);
    assert_eq!(packets(&ofproto)["output:2"], 12);
    assert!(!store.is_suspended(changed));
}

#[test]
fn idle_megaflows_go() {
    let ofproto = switch(&["actions=output:2"]);
    let store = store_of(&ofproto);
    let unused = miss(&ofproto, &store, &packet(1, 1, 2), 1000);
    let used = miss(&ofproto, &store, &packet(3, 1, 2), 1000);
    store.carry(used, 1, 0, 5000);
    assert_eq!(ofproto.revalidate(&*store, 11_000, DEFAULT_MAX_IDLE_MS).idle, 0);
    let done = ofproto.revalidate(&*store, 11_001, DEFAULT_MAX_IDLE_MS);
    assert_eq!(done, RevalidateStats { dumped: 2, idle: 1, ..RevalidateStats::default() });
    assert_eq!(store.remove(unused), None);
    assert_eq!(ofproto.revalidate(&*store, 15_001, DEFAULT_MAX_IDLE_MS).idle, 1);
}

#[test]
fn the_least_recently_used_go_if_memory_is_short() {
    let ofproto = switch(&["priority=2,udp,tp_dst=99,nw_dst=10.0.0.9 actions=drop", "in_port=1 actions=output:2"]);
    let store = store_of(&ofproto);
    let ids: Vec<_> = (1..=16).map(|dst| miss(&ofproto, &store, &packet(1, 1, dst), 0)).collect();
    ids.iter().enumerate().for_each(|(i, id)| store.carry(*id, 1, 0, 1000 - i as u64));
    // They are in the index of dependencies from the first dump on.
    ofproto.revalidate(&*store, 0, DEFAULT_MAX_IDLE_MS);
    let used = store.memory().used();
    assert!(used > 16 * 100, "their xlate caches are charged: {used}");
    store.memory().set_limit(used);
    let done = ofproto.revalidate(&*store, 1000, DEFAULT_MAX_IDLE_MS);
    assert!((3..=5).contains(&done.evicted), "a quarter of them: {}", done.evicted);
    assert!(store.remove(ids[15]).is_none() && store.remove(ids[0]).is_some(), "the one that was used last stays");
    drop(store.0.lock().unwrap().late.drain(..));
    assert!(store.memory().used() < used * 13 / 16);
}

#[test]
fn a_change_elsewhere_keeps_a_megaflow_one_that_matters_does_not() {
    let ofproto = switch(&["in_port=1 actions=output:2", "in_port=3 actions=output:2"]);
    let store = store_of(&ofproto);
    miss(&ofproto, &store, &packet(1, 1, 2), 0);
    miss(&ofproto, &store, &packet(3, 1, 2), 0);
    change(&ofproto, FlowCommand::Add, "in_port=4 actions=output:1");
    let done = ofproto.revalidate(&*store, 1000, DEFAULT_MAX_IDLE_MS);
    assert_eq!(done, RevalidateStats { dumped: 2, ..RevalidateStats::default() }, "neither searched with that port");
    change(&ofproto, FlowCommand::Add, "in_port=1 actions=output:4");
    let done = ofproto.revalidate(&*store, 1000, DEFAULT_MAX_IDLE_MS);
    assert_eq!((done.translated, done.modified, done.changed), (1, 1, 0));
    // The same packets get the same answer, so the megaflow is resumed.
    change(&ofproto, FlowCommand::Add, "priority=9,in_port=3,udp,tp_dst=99 actions=drop");
    change(&ofproto, FlowCommand::Delete, "in_port=3,udp,tp_dst=99");
    let done = ofproto.revalidate(&*store, 1000, DEFAULT_MAX_IDLE_MS);
    assert_eq!((done.translated, done.modified, done.changed), (1, 0, 0));
    assert_eq!(ofproto.revalidate(&*store, 1000, DEFAULT_MAX_IDLE_MS).translated, 0, "nothing has changed since");
}

#[test]
fn a_modified_megaflow_credits_each_rule_with_its_own_packets_and_is_idle_by_its_last() {
    let ofproto = switch(&["in_port=1 actions=output:2"]);
    let store = store_of(&ofproto);
    let id = miss(&ofproto, &store, &packet(1, 1, 2), 0);
    store.carry(id, 3, 0, 9_000);
    change(&ofproto, FlowCommand::Add, "priority=60000,in_port=1 actions=output:3");
    assert_eq!(ofproto.revalidate(&*store, 9_100, DEFAULT_MAX_IDLE_MS).modified, 1);
    assert!(!store.is_suspended(id));
    // Installed more than the idle timeout ago and not used since the modification, but before.
    assert_eq!(ofproto.revalidate(&*store, 15_000, DEFAULT_MAX_IDLE_MS).idle, 0);
    store.carry(id, 2, 0, 16_000);
    ofproto.revalidate(&*store, 16_100, DEFAULT_MAX_IDLE_MS);
    assert_eq!(packets(&ofproto), BTreeMap::from([("output:2".to_owned(), 4), ("output:3".to_owned(), 2)]));
    assert_eq!(ofproto.revalidate(&*store, 26_001, DEFAULT_MAX_IDLE_MS).idle, 1);
}

#[test]
fn a_megaflow_that_has_become_too_wide_goes() {
    let ofproto = switch(&["priority=1 actions=output:2"]);
    let store = store_of(&ofproto);
    miss(&ofproto, &store, &packet(1, 1, 2), 0);
    // The packet that made it still goes to port 2, but others that the megaflow matches do not.
    change(&ofproto, FlowCommand::Add, "priority=2,dl_src=50:54:00:00:00:09 actions=output:3");
    assert_eq!(ofproto.revalidate(&*store, 0, DEFAULT_MAX_IDLE_MS).changed, 1);
}

/// The packets are dropped before and after, but the drop reason changes, and it is counted.
#[test]
fn a_megaflow_whose_packets_end_for_another_reason_is_modified() {
    let ofproto = switch(&["table=0,actions=resubmit(,1)", "table=1,actions=drop"]);
    let store = store_of(&ofproto);
    miss(&ofproto, &store, &packet(1, 1, 2), 0);
    change(&ofproto, FlowCommand::Modify, "table=1,actions=resubmit(,0)");
    let done = ofproto.revalidate(&*store, 0, DEFAULT_MAX_IDLE_MS);
    assert_eq!((done.modified, translate(&ofproto, &packet(1, 1, 2), 0).no_output), (1, DropReason::RecursionTooDeep));
}

#[test]
fn after_a_rule_was_replaced_its_successor_is_credited() {
    let ofproto = switch(&["in_port=1 actions=output:2"]);
    let store = store_of(&ofproto);
    let id = miss(&ofproto, &store, &packet(1, 1, 2), 0);
    store.carry(id, 3, 0, 100);
    change(&ofproto, FlowCommand::Delete, "in_port=1");
    change(&ofproto, FlowCommand::Add, "in_port=1 actions=output:2");
    let done = ofproto.revalidate(&*store, 200, DEFAULT_MAX_IDLE_MS);
    assert_eq!((done.modified, done.changed), (0, 0));
    assert_eq!(packets(&ofproto)["output:2"], 0, "these three were the old rule's");
    store.carry(id, 2, 0, 300);
    ofproto.revalidate(&*store, 400, DEFAULT_MAX_IDLE_MS);
    assert_eq!(packets(&ofproto)["output:2"], 2);
}

#[test]
fn a_translation_older_than_the_tables_is_not_current() {
    let ofproto = switch(&["actions=output:2"]);
    let translation = translate(&ofproto, &packet(1, 1, 2), 0);
    assert!(ofproto.upcall().is_current(translation.version));
    change(&ofproto, FlowCommand::Add, "in_port=4 actions=drop");
    assert!(!ofproto.upcall().is_current(translation.version));
}

#[test]
fn stations_are_learned_move_and_age_with_their_megaflows() {
    let ofproto = switch(&["actions=NORMAL"]);
    let store = store_of(&ofproto);
    let flood = miss(&ofproto, &store, &packet(1, 1, 2), 1000);
    ofproto.tick(1000);
    assert_eq!(outputs(&translate(&ofproto, &packet(2, 2, 1), 1000)), [1]);
    ofproto.tick(1000);
    // The flood of the first packet is no longer right.
    assert_eq!(ofproto.revalidate(&*store, 2000, DEFAULT_MAX_IDLE_MS).modified, 1);
    assert!(store.remove(flood).is_some());
    let known = miss(&ofproto, &store, &packet(1, 1, 2), 2000);
    let back = miss(&ofproto, &store, &packet(2, 2, 1), 2000);
    // Traffic in the megaflows refreshes the MAC entries long after the upcalls.
    for second in (10..600).step_by(5) {
        store.carry(known, 1, 0, second * 1000);
        store.carry(back, 1, 0, second * 1000);
        ofproto.revalidate(&*store, second * 1000, DEFAULT_MAX_IDLE_MS);
        ofproto.tick(second * 1000);
    }
    let table = ofproto.fdb_show("br0", 597_000).unwrap();
    let rows = "    1     0  50:54:00:00:00:01    2\n    2     0  50:54:00:00:00:02    2\n";
    assert_eq!(table, format!(" port  VLAN  MAC                Age\n{rows}"));
    // It moves; megaflows to its old port are suspended at once.
    translate(&ofproto, &packet(3, 1, 2), 598_000);
    ofproto.tick(598_000);
    assert_eq!(outputs(&translate(&ofproto, &packet(2, 2, 1), 598_000)), [3]);
    let stats = ofproto.fdb_stats_show("br0").unwrap();
    assert!(stats.contains("Total number of port moved MAC entries  : 1\n"), "{stats}");
    assert!(stats.contains("Total number of expired MAC entries     : 0\n"), "{stats}");
    ofproto.tick(1_000_000);
    assert_eq!(ofproto.fdb_show("br0", 1_000_000).unwrap().lines().count(), 1, "both have aged out");
}

#[test]
fn a_station_is_where_its_packet_showed_it_last() {
    let ofproto = switch(&["in_port=1 actions=NORMAL,load:2->NXM_OF_IN_PORT[],NORMAL", "priority=1 actions=NORMAL"]);
    for second in 1..4 {
        translate(&ofproto, &packet(1, 1, 2), second * 1000);
        ofproto.tick(second * 1000);
        assert_eq!(outputs(&translate(&ofproto, &packet(3, 3, 1), second * 1000)), [2], "after packet {second}");
    }
}

#[test]
fn static_stations_stay() {
    let ofproto = switch(&["actions=NORMAL"]);
    assert_eq!(ofproto.fdb_add("br0", "p3", "0", "50:54:00:00:00:01").unwrap(), "");
    translate(&ofproto, &packet(1, 1, 2), 0);
    ofproto.tick(1_000_000);
    assert_eq!(outputs(&translate(&ofproto, &packet(2, 2, 1), 0)), [3]);
    assert!(ofproto.fdb_show("br0", 0).unwrap().contains("    3     0  50:54:00:00:00:01  static\n"));
    let note = ofproto.fdb_add("br0", "p4", "0", "50:54:00:00:00:01").unwrap();
    assert_eq!(note, "Overriding already existing static entry on 3\n");
    assert_eq!(ofproto.fdb_del("br0", "0", "50:54:00:00:00:01").unwrap(), "");
    assert!(ofproto.fdb_del("br0", "0", "50:54:00:00:00:01").is_err());
    assert_eq!(ofproto.fdb_flush(Some("br0")).unwrap(), "table successfully flushed");
    assert_eq!(ofproto.fdb_show("br1", 0).unwrap_err(), "no such bridge");
}

#[test]
fn rules_are_learned_refreshed_and_deleted_with_their_teacher() {
    let learn = "in_port=1 actions=learn(table=1,hard_timeout=10,cookie=0x9,delete_learned,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],\
                 output:NXM_OF_IN_PORT[]),output:2";
    let ofproto = switch(&[learn, "in_port=2 actions=resubmit(,1)"]);
    let store = store_of(&ofproto);
    let teacher = miss(&ofproto, &store, &packet(1, 1, 2), 1000);
    assert_eq!(ofproto.tick(1000).effects, 1);
    assert_eq!(outputs(&translate(&ofproto, &packet(2, 2, 1), 1000)), [1]);
    // Packets in the megaflow refresh the learned rule.
    store.carry(teacher, 1, 0, 9000);
    ofproto.revalidate(&*store, 9000, DEFAULT_MAX_IDLE_MS);
    assert_eq!(ofproto.tick(12_000).expired_rules, 0);
    assert_eq!(ofproto.tick(19_001).expired_rules, 1);
    // And they learn it again after its removal.
    store.carry(teacher, 1, 0, 19_500);
    ofproto.revalidate(&*store, 19_500, DEFAULT_MAX_IDLE_MS);
    assert_eq!(outputs(&translate(&ofproto, &packet(2, 2, 1), 19_500)), [1]);
    change(&ofproto, FlowCommand::Delete, "in_port=1");
    assert_eq!(outputs(&translate(&ofproto, &packet(2, 2, 1), 19_500)), <[u32; 0]>::default());
}

#[test]
fn a_limit_stops_learning_and_says_so() {
    let learn = "actions=learn(table=1,cookie=0x9,limit=2,result_dst=NXM_NX_REG0[0],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],\
                 output:NXM_OF_IN_PORT[]),resubmit(,2)";
    let ofproto = switch(&[learn, "table=2,reg0=1 actions=output:2", "table=2,reg0=0 actions=output:3"]);
    for (src, want) in [(1, 2), (2, 2), (3, 3), (1, 2)] {
        assert_eq!(outputs(&translate(&ofproto, &packet(1, src, 9), 0)), [want], "station {src}");
        ofproto.tick(0);
    }
    let learned = FlowMod { table: Some(1), ..FlowMod::new(FlowCommand::Delete) };
    assert_eq!(ofproto.rules("br0", &learned).unwrap().len(), 2);
}

#[test]
fn what_a_packet_has_just_taught_counts_for_the_limit() {
    let first = "learn(table=1,priority=7,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])";
    let second = "learn(table=1,limit=1,result_dst=NXM_NX_REG0[0],NXM_OF_IN_PORT[],output:NXM_OF_IN_PORT[])";
    let told = ["table=2,reg0=1 actions=output:2", "table=2,reg0=0 actions=output:3"];
    for (actions, want) in [(format!("{first},{second}"), 3), (format!("{second},{second}"), 2)] {
        let ofproto = switch(&[&format!("actions={actions},resubmit(,2)"), told[0], told[1]]);
        assert_eq!(outputs(&translate(&ofproto, &packet(1, 1, 9), 0)), [want], "{actions}");
    }
}

#[test]
fn a_limit_is_asked_again_when_a_learned_rule_goes() {
    let learn = "actions=learn(table=1,hard_timeout=2,limit=1,result_dst=NXM_NX_REG0[0],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],\
                 output:NXM_OF_IN_PORT[]),resubmit(,2)";
    let ofproto = switch(&[learn, "table=2,reg0=1 actions=output:2", "table=2,reg0=0 actions=output:3"]);
    let store = store_of(&ofproto);
    miss(&ofproto, &store, &packet(1, 1, 9), 1000);
    ofproto.tick(1000);
    let refused = miss(&ofproto, &store, &packet(1, 2, 9), 1500);
    assert!(!store.is_suspended(refused));
    assert_eq!(ofproto.tick(3001).expired_rules, 1);
    assert!(store.is_suspended(refused), "there is room now");
    assert_eq!(outputs(&translate(&ofproto, &packet(1, 2, 9), 3001)), [2]);
}

#[test]
fn a_closing_connection_lowers_timeouts() {
    let ofproto = switch(&["tcp actions=fin_timeout(idle_timeout=5),output:2"]);
    let frame = sluice_testkit::frame::ethernet().ipv4([1; 4], [2; 4]).tcp(1, 2).build();
    let mut key = PacketKey::ZERO;
    extract(&frame, &Metadata::of_port(1), &mut key).unwrap();
    let store = store_of(&ofproto);
    let id = miss(&ofproto, &store, &(key, frame), 1000);
    store.carry(id, 1, 0x10, 2000);
    ofproto.revalidate(&*store, 2000, DEFAULT_MAX_IDLE_MS);
    ofproto.tick(2000);
    let timeout = || ofproto.rules("br0", &FlowMod::new(FlowCommand::Delete)).unwrap()[0].rule.idle_timeout();
    assert_eq!(timeout(), 0);
    store.carry(id, 1, 0x11, 3000);
    ofproto.revalidate(&*store, 3000, DEFAULT_MAX_IDLE_MS);
    assert_eq!(timeout(), 5);
    assert_eq!(ofproto.tick(8001).expired_rules, 1);
}

#[test]
fn without_megaflows_every_field_is_matched() {
    let ofproto = switch(&["actions=output:2"]);
    let store = store_of(&ofproto);
    let (one, other) = (packet(1, 1, 2), packet(1, 1, 3));
    let wide = translate(&ofproto, &one, 0);
    assert!(MegaflowMatch::new(wide.mask, &one.0).contains(&other.0));
    ofproto.enable_megaflows(false);
    let exact = translate(&ofproto, &one, 0);
    assert!(MegaflowMatch::new(exact.mask, &one.0).contains(&one.0));
    assert!(!MegaflowMatch::new(exact.mask, &one.0).contains(&other.0));
    // They are kept: no bit outside their masks decides.
    miss(&ofproto, &store, &one, 0);
    ofproto.enable_megaflows(true);
    assert_eq!(ofproto.revalidate(&*store, 0, DEFAULT_MAX_IDLE_MS).changed, 0);
}

#[test]
fn tables_that_are_being_restored_answer_no_packet() {
    let ofproto = switch(&["actions=output:2"]);
    let (key, frame) = packet(1, 1, 2);
    ofproto.set_flow_restore_wait(true);
    let fate = ofproto.upcall().translate(&Miss { key: &key, bytes: &frame, now_ms: 0 });
    assert!(matches!(fate, UpcallResult::Failed(DropReason::UpcallLost)), "{fate:?}");
    ofproto.set_flow_restore_wait(false);
    assert_eq!(outputs(&translate(&ofproto, &(key, frame), 0)), [2]);
}

#[test]
fn forty_choices_are_not_two_to_the_fortieth_translations() {
    let choices = ["check_pkt_larger(100)->NXM_NX_REG0[0]"; 40].join(",");
    let ofproto = switch(&[&format!("actions={choices},output:2")]);
    // It ends where the list of actions would become too long. The test is that it ends.
    assert_eq!(translate(&ofproto, &packet(1, 1, 2), 0).actions.len(), 1);
}

#[test]
fn the_deepest_translation_fits_a_thread_of_the_usual_size() {
    // Every table leads to the next through clones, the last one to the first: as deep as the limits allow.
    let ofproto = switch(&[]);
    let flows: Vec<_> = (0..=254)
        .map(|table| {
            let text = format!("table={table},actions=clone(resubmit(,{})),output:2", (table + 1) % 255);
            FlowMod::parse(&text, FlowCommand::Add, &PortNames::NONE).unwrap()
        })
        .collect();
    ofproto.bundle("br0", &flows, 0).unwrap();
    let run = std::thread::Builder::new().stack_size(2 << 20).spawn(move || translate(&ofproto, &packet(1, 1, 2), 0));
    assert_eq!(outputs(&run.unwrap().join().unwrap()), <[u32; 0]>::default(), "too many resubmits: dropped");
}

#[test]
fn labels_that_go_bring_the_packet_round_again() {
    let ofproto = switch(&["mpls,mpls_label=5 actions=pop_mpls:0x0800,dec_ttl,output:2"]);
    let frame = sluice_testkit::frame::ethernet().mpls(5, 0, 64).ipv4([1; 4], [2; 4]).udp(1, 2);
    let mut key = PacketKey::ZERO;
    extract(&frame.build(), &Metadata::of_port(1), &mut key).unwrap();
    let first = translate(&ofproto, &(key, Vec::new()), 0);
    let [Action::PopMpls { ethertype: 0x0800 }, Action::Recirc(id)] = first.actions[..] else {
        panic!("{:?}", first.actions)
    };
    let inner = sluice_testkit::frame::ethernet().ipv4([1; 4], [2; 4]).ttl(9).udp(1, 2).build();
    let mut key = PacketKey::ZERO;
    extract(&inner, &Metadata::of_port(1), &mut key).unwrap();
    key.set(sluice_flow::layout::RECIRC_ID, &id.to_be_bytes());
    let second = translate(&ofproto, &(key, inner), 0);
    assert_eq!(outputs(&second), [2]);
    assert!(matches!(second.actions[0], Action::Set { .. }), "{:?}", second.actions);
    // The rule counts the packets of both passes.
    assert_eq!(packets(&ofproto)["pop_mpls:0x0800"], 1);
    // The id stays while an xlate cache holds it; then it expires. Ids in use are looked at once a second.
    ofproto.tick(1_000_000);
    assert!(!second.actions.is_empty());
    drop((first, second));
    ofproto.tick(1_001_000);
    key.set(sluice_flow::layout::RECIRC_ID, &id.to_be_bytes());
    assert_eq!(outputs(&translate(&ofproto, &(key, Vec::new()), 1_000_000)), <[u32; 0]>::default());
}

#[test]
fn packets_count_for_the_patch_ports_that_they_cross() {
    let ofproto = switch(&["actions=output:9"]);
    ofproto.add_bridge(BridgeConfig::new("br1"), 0).unwrap();
    ofproto.add_port("br0", PortConfig::patch("there", 9, "back")).unwrap();
    ofproto.add_port("br1", PortConfig::patch("back", 1, "there")).unwrap();
    let stats = |bridge, port| {
        let stats = ofproto.vport_stats(bridge, OfPort(port)).unwrap();
        [stats.rx_packets, stats.rx_bytes, stats.tx_packets, stats.tx_bytes]
    };
    let store = store_of(&ofproto);
    let id = miss(&ofproto, &store, &packet(1, 1, 2), 0);
    store.carry(id, 4, 0, 100);
    ofproto.revalidate(&*store, 200, DEFAULT_MAX_IDLE_MS);
    assert_eq!((stats("br0", 9), stats("br1", 1)), ([0, 0, 5, 300], [5, 300, 0, 0]));
    assert_eq!(ofproto.vport_stats("br0", OfPort(1)), None);
}

#[test]
fn a_learned_value_of_more_than_64_bits_is_loaded_in_parts() {
    let learn = "actions=learn(table=1,load:0x20010db885a308d313198a2e03707348->NXM_NX_XXREG0[])";
    let ofproto = switch(&[learn]);
    translate(&ofproto, &packet(1, 1, 2), 0);
    ofproto.tick(0);
    let rules = ofproto.rules("br0", &FlowMod::new(FlowCommand::Delete)).unwrap();
    let learned = rules.iter().find(|entry| entry.rule.table == 1).expect("a rule is learned");
    let actions: Vec<String> = learned.rule.actions.iter().map(ToString::to_string).collect();
    let parts = ["load:0x13198a2e03707348->NXM_NX_XXREG0[0..63]", "load:0x20010db885a308d3->NXM_NX_XXREG0[64..127]"];
    assert_eq!(actions, parts);
}

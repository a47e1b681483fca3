//! Megaflows that a change does not suspend are as right as if they had been translated again.

use super::*;
use sluice_ofp::{GroupCommand, GroupMod};

/// A change that translations depend on.
#[derive(Clone, Debug)]
pub(crate) enum TableChange {
    /// Adds a rule, with that many of higher priority.
    Add(Box<FlowMod>, Index),
    /// Deletes one of the first rules.
    Delete(Index),
    /// Sets or clears `no_flood` of a port.
    Flood(u16, bool),
    /// Changes `down` or `no_receive` of a port.
    Down(u16, bool),
    NoReceive(u16, bool),
    /// Changes the VLAN of a port, which flushes its MAC entries.
    Vlan(u16, u16),
    /// Removes or adds a port.
    Port(u16),
    /// Adds, modifies or deletes a group.
    Group(u32, &'static str),
    /// Adds a static MAC entry.
    Station(u16, &'static str),
}

pub(crate) fn table_changes(actions: Vec<&'static str>) -> impl Strategy<Value = Vec<TableChange>> {
    let station = select(vec!["02:00:00:00:00:01", "00:00:00:00:00:00", "02:00:00:00:00:02"]);
    let change = prop_oneof![
        4 => (flows(actions), any::<Index>())
            .prop_map(|(flows, at)| flows.into_iter().next().map(|flow| TableChange::Add(Box::new(flow), at))),
        3 => any::<Index>().prop_map(|at| Some(TableChange::Delete(at))),
        1 => (1..=PORTS, any::<bool>()).prop_map(|(port, no)| Some(TableChange::Flood(port, no))),
        1 => (1..=PORTS, any::<bool>()).prop_map(|(port, down)| Some(TableChange::Down(port, down))),
        1 => (1..=PORTS, any::<bool>()).prop_map(|(port, no)| Some(TableChange::NoReceive(port, no))),
        1 => (1..=PORTS, 0..6u16).prop_map(|(port, vlan)| Some(TableChange::Vlan(port, vlan))),
        1 => (1..=PORTS).prop_map(|port| Some(TableChange::Port(port))),
        2 => (1..3u32, select(GROUPS.to_vec())).prop_map(|(id, group)| Some(TableChange::Group(id, group))),
        1 => (1..=PORTS, station).prop_map(|(port, mac)| Some(TableChange::Station(port, mac))),
    ];
    prop::collection::vec(change, 1..8).prop_map(|changes| changes.into_iter().flatten().collect())
}

impl TableChange {
    pub(crate) fn make(&self, ofproto: &Ofproto, flows: &[FlowMod], number: u16) {
        match self {
            TableChange::Add(flow, at) => {
                let priority = at.index(flows.len() + 1) as u16 * 10 + 1 + number;
                // A rule may use an unknown group.
                _ = ofproto.flow_mod("br0", &FlowMod { priority, ..(**flow).clone() }, 0);
            }
            TableChange::Delete(at) => {
                let Some(flow) = flows.get(at.index(flows.len().max(1))) else { return };
                let gone = FlowMod { command: FlowCommand::DeleteStrict, ..flow.clone() };
                ofproto.flow_mod("br0", &gone, 0).unwrap();
            }
            TableChange::Flood(port, no) => {
                _ = ofproto.set_port("br0", &format!("p{port}"), |port| port.no_flood = *no);
            }
            TableChange::Down(port, down) => {
                _ = ofproto.set_port("br0", &format!("p{port}"), |port| (port.down, port.up) = (*down, !*down));
            }
            TableChange::NoReceive(port, no) => {
                _ = ofproto.set_port("br0", &format!("p{port}"), |port| port.no_receive = *no);
            }
            TableChange::Vlan(port, vlan) => {
                let vlan = VlanMode::of(Some(*vlan).filter(|vlan| *vlan != 0), &[]);
                _ = ofproto.set_port("br0", &format!("p{port}"), |port| port.vlan = vlan);
            }
            TableChange::Port(port) => {
                let name = format!("p{port}");
                if ofproto.remove_port("br0", &name).is_err() {
                    ofproto.add_port("br0", PortConfig::new(&name, *port, PortNo((*port).into()))).unwrap();
                }
            }
            TableChange::Group(id, group) => change_group(ofproto, *id, group),
            TableChange::Station(port, mac) => _ = ofproto.fdb_add("br0", &format!("p{port}"), "0", mac),
        }
    }
}

/// Actions that depend on groups and ports.
pub(crate) const TO_GROUPS: &[&str] = &[
    "group:1",
    "group:1",
    "group:2",
    "group:2",
    "flood",
    "all",
    "NORMAL",
    "bundle(symmetric_l4,0,active_backup,ofport,slaves:1,2,3)",
    "bundle_load(symmetric_l4,0,hrw,ofport,NXM_NX_REG0[0..15],slaves:1,2,3)",
];

/// The translation of a packet; nothing if its port does not exist.
pub(crate) fn answer(ofproto: &Ofproto, key: &PacketKey) -> Option<Translation> {
    match ofproto.upcall().translate(&Miss { key, bytes: &[], now_ms: 0 }) {
        UpcallResult::Translated(translation) => Some(translation),
        UpcallResult::Failed(_) | UpcallResult::Busy => None,
    }
}

/// Configurations of groups; the empty one deletes the group.
const GROUPS: &[&str] = &[
    "",
    "type=all,bucket=output:1,bucket=output:2",
    "type=indirect,bucket=output:3",
    "type=ff,bucket=watch_port:1,output:2,bucket=watch_port:2,output:1",
    "type=ff,bucket=watch_group:1,output:2,bucket=watch_port:3,output:4",
    "type=select,selection_method=hash,fields(nw_dst),bucket=output:1,bucket=weight:3,output:2",
];

pub(crate) fn change_group(ofproto: &Ofproto, id: u32, group: &str) {
    let (command, rest) = match group {
        "" => (GroupCommand::Delete, String::new()),
        _ => (GroupCommand::AddOrModify, format!(",{group}")),
    };
    let change = GroupMod::parse(&format!("group_id={id}{rest}"), command, &PortNames::default()).unwrap();
    // A group may not watch itself or an unknown group.
    _ = ofproto.group_mod("br0", &change, 0);
}

/// Whether every live megaflow treats each of these packets as its own translation does.
fn check_all(ofproto: &Ofproto, table: &MegaflowTable, packets: &[PacketKey]) -> Result<(), TestCaseError> {
    let mut live = Vec::new();
    table.for_each(&mut |flow| {
        if !flow.is_suspended {
            let maker = packet_of(flow.xcache).expect("the tables made it");
            live.push((sluice_action::MegaflowMatch::new(*flow.mask, &maker), flow.actions.clone()));
        }
    });
    for (matched, actions) in live {
        for key in packets.iter().filter(|key| matched.contains(key)) {
            let own = answer(ofproto, key);
            prop_assert!(own.is_some(), "{:?} has come by a port that is not there", key);
            let Some(own) = own else { continue };
            let (mut got, mut want) = (Vec::new(), Vec::new());
            effects(&actions, &mut table_key(key), &mut got);
            effects(&own.actions, &mut table_key(key), &mut want);
            prop_assert_eq!(got, want, "{:?}\n{:?}\n{:?}\nof {:?}", actions, own.actions, matched, key);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    /// Megaflows that a change does not suspend, and resumed ones, are as right as if they had been translated again.
    #[test]
    fn a_change_suspends_every_megaflow_that_it_makes_wrong(
        flows in flows([ACTIONS, MORE_ACTIONS, TO_GROUPS].concat()),
        packets in prop::collection::vec((frames(), 1..=PORTS, prop::collection::vec(changes(), 6)), 6),
        table_changes in table_changes([ACTIONS, MORE_ACTIONS, TO_GROUPS].concat()),
    ) {
        let spread = |flow: FlowMod| FlowMod { priority: flow.priority * 10, ..flow };
        let flows: Vec<_> = flows.into_iter().map(spread).collect();
        let ofproto = switch(&[]);
        [1, 2].into_iter().for_each(|id| change_group(&ofproto, id, GROUPS[1]));
        ofproto.bundle("br0", &flows, 0).unwrap();
        let table = Arc::new(MegaflowTable::new(4096, &HashKey::from_seed(1)).unwrap());
        ofproto.set_store(table.clone());
        let mut keys = Vec::new();
        for (frame, port, variants) in packets {
            for changes in std::iter::once(Vec::new()).chain(variants) {
                let mut frame = frame.clone();
                changes.iter().for_each(|change| change.apply(&mut frame));
                keys.extend(key_of(&frame, port));
            }
        }
        for (number, change) in (0..).zip(table_changes) {
            for key in &keys {
                if let Some(translation) = answer(&ofproto, key).filter(|translation| translation.cacheable) {
                    table.install(0, key, &translation, 0, |_| true, |_, _, _| ());
                }
            }
            change.make(&ofproto, &flows, number);
            check_all(&ofproto, &table, &keys)?;
            ofproto.revalidate(&*table, 0, u64::MAX);
            table.for_each(&mut |flow| assert!(!flow.is_suspended, "resumed or removed"));
            check_all(&ofproto, &table, &keys)?;
        }
    }
}

/// The megaflows that a change suspends, of four: from port 1 to port 2, from 1 through group 1, from 3 to a known MAC
/// address, from 4 to all ports.
fn suspended(change: impl FnOnce(&Ofproto)) -> Vec<usize> {
    let flows = [
        "in_port=1,udp,tp_dst=1,actions=output:2",
        "in_port=1,udp,tp_dst=2,actions=group:1",
        "in_port=3,actions=NORMAL",
        "in_port=4,actions=all",
        "table=7,actions=drop",
    ];
    let flows: Vec<_> =
        flows.iter().map(|text| FlowMod::parse(text, FlowCommand::Add, &PortNames::NONE).unwrap()).collect();
    let ofproto = switch(&[]);
    [1, 2].into_iter().for_each(|id| change_group(&ofproto, id, "type=all,bucket=output:3"));
    ofproto.bundle("br0", &flows, 0).unwrap();
    ofproto.fdb_add("br0", "p1", "0", "02:00:00:00:00:02").unwrap();
    let table = Arc::new(MegaflowTable::new(16, &HashKey::from_seed(1)).unwrap());
    ofproto.set_store(table.clone());
    let frame = |port: u16| {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        frame.extend([1, 1, 1, 1, 2, 2, 2, 2, 0, 9, 0, port as u8, 0, 8, 0, 0]);
        frame
    };
    let keys = [(1, 1), (2, 1), (1, 3), (1, 4)].map(|(to, port)| key_of(&frame(to), port).unwrap());
    for key in &keys {
        table.install(0, key, &answer(&ofproto, key).unwrap(), 0, |_| true, |_, _, _| ());
    }
    change(&ofproto);
    let mut suspended = Vec::new();
    table.for_each(&mut |flow| suspended.extend(flow.is_suspended.then_some(flow.id.0 as usize)));
    suspended.sort_unstable();
    suspended
}

#[test]
fn a_change_leaves_alone_what_has_not_asked_for_it() {
    let flow = |text: &str| {
        let flow = FlowMod::parse(text, FlowCommand::Add, &PortNames::NONE).unwrap();
        suspended(move |ofproto| _ = ofproto.flow_mod("br0", &flow, 0).unwrap())
    };
    assert_eq!(flow("priority=9,udp,tp_dst=1,actions=drop"), [0, 2, 3], "what it may match");
    assert_eq!(flow("priority=9,in_port=2,udp,actions=drop"), [0; 0]);
    assert_eq!(flow("table=7,udp,actions=drop"), [0; 0], "a table that nobody visited");
    let port =
        |name: &'static str| suspended(move |ofproto| ofproto.set_port("br0", name, |port| port.down = true).unwrap());
    assert_eq!(port("p2"), [0, 3], "sent there, or everywhere");
    assert_eq!(port("p1"), [0, 1, 2, 3], "received there, or sent there by NORMAL");
    assert_eq!(port("p4"), [3]);
    assert_eq!(suspended(|ofproto| ofproto.remove_port("br0", "p2").unwrap()), [0, 3]);
    assert_eq!(suspended(|ofproto| ofproto.add_port("br0", PortConfig::new("p9", 9, PortNo(9))).unwrap()), [3]);
    let group = |id| suspended(move |ofproto| change_group(ofproto, id, "type=all,bucket=output:2"));
    assert_eq!((group(1), group(2)), (vec![1], vec![]));
    let station = |mac: &'static str| suspended(move |ofproto| _ = ofproto.fdb_add("br0", "p2", "0", mac).unwrap());
    assert_eq!((station("02:00:00:00:00:02"), station("02:00:00:00:00:03")), (vec![2], vec![]));
    assert_eq!(suspended(|ofproto| _ = ofproto.fdb_flush(Some("br0")).unwrap()), [0, 1, 2, 3]);
}

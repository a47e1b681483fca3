//! Bonds: what comes in by their members, what leaves by them, and which megaflows another member affects; as
//! `ofproto/trace` tells it.

use sluice_action::PortNo;
use sluice_bond::{Admission, BUCKETS, Balance, Verdict};
use sluice_flow::{OfPort, PortNames};
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{BondBalance, BondState, BridgeConfig, Ofproto, PortConfig};

const ACCEPT: Admission = Admission { unicast: Verdict::Accept, multicast: Verdict::Accept };
const MOVED: Admission = Admission { unicast: Verdict::DropIfMoved, multicast: Verdict::DropIfMoved };
const BACKUP: Admission = Admission { unicast: Verdict::Drop, multicast: Verdict::Drop };

const STATION: &str = "50:54:00:00:00:05";
const OTHER: &str = "50:54:00:00:00:07";
const BROADCAST: &str = "ff:ff:ff:ff:ff:ff";

/// Bridge br0 with p1 to p4, which forwards by NORMAL.
fn switch() -> Ofproto {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig { datapath_type: "dummy".into(), ..BridgeConfig::new("br0") }, 0).unwrap();
    for number in 1..=4 {
        let name = format!("p{number}");
        ofproto.add_port("br0", PortConfig::new(&name, number, PortNo(number.into()))).unwrap();
    }
    let rule = FlowMod::parse("actions=NORMAL", FlowCommand::Add, &PortNames::NONE).unwrap();
    ofproto.flow_mod("br0", &rule, 0).unwrap();
    ofproto
}

/// A bond of p1 and p2, whose buckets all have that member.
fn bond(by: Balance, admissions: [Admission; 2], member: u16) -> BondState {
    BondState {
        name: "bond0".into(),
        members: vec![(OfPort(1), admissions[0]), (OfPort(2), admissions[1])],
        balance: BondBalance { by, hash_basis: 0, lb_output: false, carries: true },
        buckets: Box::new([OfPort(member); BUCKETS]),
    }
}

fn trace(ofproto: &Ofproto, in_port: u16, src: &str, dst: &str) -> String {
    let packet =
        format!("in_port({in_port}),eth(src={src},dst={dst}),eth_type(0x0800),ipv4(proto=17),udp(src=1,dst=2)");
    ofproto.trace(&["ovs-dummy", &packet], 0).unwrap()
}

/// The datapath actions.
fn actions(ofproto: &Ofproto, in_port: u16, src: &str, dst: &str) -> String {
    let text = trace(ofproto, in_port, src, dst);
    text.split_once("Datapath actions: ").unwrap().1.lines().next().unwrap().to_owned()
}

#[test]
fn a_flood_has_one_copy_for_a_bond_and_none_for_the_one_it_came_by() {
    let ofproto = switch();
    assert_eq!(actions(&ofproto, 3, STATION, BROADCAST), "1,2,4");
    ofproto.set_bond("br0", bond(Balance::Active, [ACCEPT, BACKUP], 1), 0).unwrap();
    assert_eq!(actions(&ofproto, 3, STATION, BROADCAST), "1,4");
    assert_eq!(actions(&ofproto, 1, STATION, BROADCAST), "3,4");
    assert_eq!(actions(&ofproto, 2, STATION, BROADCAST), "drop");
    ofproto.remove_bond("br0", "bond0");
    assert_eq!(actions(&ofproto, 3, STATION, BROADCAST), "1,2,4");
}

#[test]
fn a_failover_shows_without_another_translation() {
    let ofproto = switch();
    let table = ofproto.set_bond("br0", bond(Balance::Active, [ACCEPT, BACKUP], 1), 0).unwrap();
    assert_eq!(table.port(200), Some(PortNo(1)));
    let again = ofproto.set_bond("br0", bond(Balance::Active, [BACKUP, ACCEPT], 2), 0).unwrap();
    assert!(std::sync::Arc::ptr_eq(&table, &again), "megaflows name the table");
    assert_eq!((table.port(0), table.port(200)), (Some(PortNo(2)), Some(PortNo(2))));
    assert_eq!(actions(&ofproto, 3, STATION, BROADCAST), "2,4");
    // A port that a controller closes carries nothing.
    ofproto.set_port("br0", "p2", |port| port.no_forward = true).unwrap();
    assert_eq!(table.port(0), None);
    assert_eq!(actions(&ofproto, 3, STATION, BROADCAST), "drop,4");
}

#[test]
fn stations_behind_a_bond_are_behind_its_lead() {
    let ofproto = switch();
    ofproto.set_bond("br0", bond(Balance::Source, [MOVED, MOVED], 2), 0).unwrap();
    ofproto.fdb_add("br0", "p1", "0", STATION).unwrap();
    assert_eq!(actions(&ofproto, 3, OTHER, STATION), "2");
    assert_eq!(ofproto.learned_elsewhere("br0", OfPort(2)), []);
    // By whichever member: its own packets do not go back.
    assert!(trace(&ofproto, 2, OTHER, STATION).contains("learned port is input port, dropping"));
}

#[test]
fn what_came_back_by_another_member_is_dropped_unless_its_station_has_moved() {
    let ofproto = switch();
    ofproto.set_bond("br0", bond(Balance::Source, [MOVED, MOVED], 1), 0).unwrap();
    ofproto.fdb_add("br0", "p3", "0", STATION).unwrap();
    assert!(trace(&ofproto, 2, STATION, OTHER).contains("SLB bond thinks this packet looped back, dropping"));
    assert_eq!(actions(&ofproto, 2, OTHER, BROADCAST), "3,4");
    let arp = |sip: &str, tip: &str| {
        let packet = format!(
            "in_port(2),eth(src={STATION},dst={BROADCAST}),eth_type(0x0806),arp(sip={sip},tip={tip},op=1,sha={STATION},\
             tha=00:00:00:00:00:00)"
        );
        ofproto.trace(&["ovs-dummy", &packet], 0).unwrap()
    };
    assert!(arp("10.0.0.1", "10.0.0.2").contains("looped back"));
    assert!(!arp("10.0.0.1", "10.0.0.1").contains("looped back"), "gratuitous ARP");
}

#[test]
fn by_connection_the_datapath_chooses() {
    let ofproto = switch();
    let mut state = bond(Balance::Connection, [ACCEPT, ACCEPT], 2);
    let table = ofproto.set_bond("br0", state.clone(), 0).unwrap();
    let id = table.id();
    assert_eq!(actions(&ofproto, 3, STATION, BROADCAST), format!("hash(hash_l4(0)),recirc({id:#x}),4"));
    let second = format!("recirc_id({id:#x}),dp_hash(0x7),in_port(3),eth(src={STATION},dst={OTHER}),eth_type(0x0800)");
    let text = ofproto.trace(&["ovs-dummy", &second], 0).unwrap();
    assert!(text.contains("dp_hash=0x7/0xff") && text.ends_with("Datapath actions: 2"), "{text}");
    state.balance.lb_output = true;
    ofproto.set_bond("br0", state.clone(), 0).unwrap();
    assert_eq!(actions(&ofproto, 3, STATION, BROADCAST), format!("lb_output({id}),4"));
    state.balance.carries = false;
    ofproto.set_bond("br0", state, 0).unwrap();
    assert_eq!(actions(&ofproto, 3, STATION, BROADCAST), "4");
}

#[test]
fn lacp_is_taken_from_the_ports_that_speak_it() {
    let ofproto = switch();
    ofproto.set_port("br0", "p1", |port| port.lacp = true).unwrap();
    let packet = |port: u16| {
        let text = format!("in_port({port}),eth(src={STATION},dst=01:80:c2:00:00:02),eth_type(0x8809)");
        ofproto.trace(&["ovs-dummy", &text], 0).unwrap()
    };
    let text = packet(1);
    assert!(text.contains("Datapath actions: userspace(pid=0,slow_path(lacp))"), "{text}");
    assert!(text.ends_with("because it:\n  - Consists of LACP packets.\n"), "{text}");
    assert!(packet(2).contains("packet has reserved destination MAC, dropping"));
}

/// Members that are no ports of the datapath are chosen when packets are translated.
#[test]
fn patch_ports_can_be_members() {
    let ofproto = switch();
    ofproto.add_bridge(BridgeConfig { datapath_type: "dummy".into(), ..BridgeConfig::new("br1") }, 0).unwrap();
    for (name, number, peer, there) in [("a", 11, "b", 21), ("c", 12, "d", 22)] {
        ofproto.add_port("br0", PortConfig::patch(name, number, peer)).unwrap();
        ofproto.add_port("br1", PortConfig::patch(peer, there, name)).unwrap();
        let rule = format!("in_port={there},actions=output:{}", there + 100);
        ofproto
            .add_port("br1", PortConfig::new(&format!("q{there}"), there + 100, PortNo(u32::from(there) + 100)))
            .unwrap();
        let rule = FlowMod::parse(&rule, FlowCommand::Add, &PortNames::NONE).unwrap();
        ofproto.flow_mod("br1", &rule, 0).unwrap();
    }
    let mut state = bond(Balance::Connection, [ACCEPT, ACCEPT], 11);
    state.members = vec![(OfPort(11), ACCEPT), (OfPort(12), ACCEPT)];
    ofproto.set_bond("br0", state.clone(), 0).unwrap();
    assert_eq!(actions(&ofproto, 3, STATION, BROADCAST), "1,2,4,121");
    let epoch = ofproto.epoch();
    state.buckets = Box::new([OfPort(12); BUCKETS]);
    ofproto.set_bond("br0", state, 0).unwrap();
    assert_ne!(ofproto.epoch(), epoch, "megaflows hear of it");
    assert_eq!(actions(&ofproto, 3, STATION, BROADCAST), "1,2,4,122");
}

//! Bonds of a switch under load: what a failover and a rebalancing cost. No thread of it runs.

use sluice_bond::{Config, Mode, bucket_of_source};
use sluice_datapath::GovernorMode;
use sluice_fate::Counter;
use sluice_port::dummy::DummyDevice;
use sluice_vswitch::{Bridge, Bundle, DatapathSettings, DesiredState, Port, Source, Sources, Switch};
use std::collections::BTreeMap;
use std::sync::Arc;

const BRIDGE: &str = "br0";
/// Stations that send by port `in`, each a megaflow.
const STATIONS: u16 = 1000;
/// The station behind the bond.
const SERVER: [u8; 6] = [0x50, 0x54, 0, 0, 0, 1];
/// The length of frames, bytes.
const LEN: usize = 1000;

struct Rig {
    switch: Arc<Switch>,
    devices: BTreeMap<String, Arc<DummyDevice>>,
}

fn station(n: u16) -> [u8; 6] {
    let [a, b] = n.to_be_bytes();
    [0x50, 0x54, 0, 1, a, b]
}

fn frame(src: [u8; 6], dst: [u8; 6]) -> Vec<u8> {
    let mut frame = [&dst[..], &src, &[0x88, 0xb5]].concat();
    frame.resize(LEN, 0);
    frame
}

impl Rig {
    /// Ports a, b and c are a bond, and `in` is none.
    fn new(config: Config) -> Rig {
        let port = |name: &str| Port::new(name, "dummy");
        let members = ["a", "b", "c"].map(str::to_owned).to_vec();
        let bond = Bundle { name: "bond0".into(), members, bond: Some(config), lacp: None };
        let sources = Sources { rules: Some(Source::new("rules", "actions=NORMAL")), ..Sources::default() };
        let ports = ["a", "b", "c", "in"].map(port).to_vec();
        let bridge = Bridge { ports, bundles: vec![bond], sources, ..Bridge::new(BRIDGE) };
        // Each flow is installed at its first packet: the governor would follow some, by what misses cost on a busy machine.
        let datapath = DatapathSettings { governor: GovernorMode::Off, ..DatapathSettings::default() };
        let state = DesiredState { pmd_cores: vec![0], datapath, bridges: vec![bridge], ..DesiredState::default() };
        let switch = Switch::prepare(&state).unwrap();
        let devices = switch.datapath().dummies().into_iter().map(|device| (device.name().to_owned(), device));
        let rig = Rig { devices: devices.collect(), switch };
        rig.devices.values().for_each(|device| device.set_admin_state(true));
        rig.follow_links();
        // The server is learned to be behind the bond.
        let active = rig.switch.bundle_status().active_members["bond0"];
        assert_ne!(active, [0; 6], "a member is active");
        rig.receive("a", frame(SERVER, [0xff; 6]));
        rig.switch.tick();
        rig
    }

    /// Lets the bond know what links are.
    fn follow_links(&self) {
        self.switch.watch_ports();
        self.switch.sync_bundles();
    }

    fn receive(&self, port: &str, frame: Vec<u8>) {
        self.devices[port].receive(0, frame);
        while self.switch.datapath().run_once(self.switch.now_ms()).fullest > 0 {}
    }

    /// Each station sends a frame to the server.
    fn all_send(&self) {
        (0..STATIONS).for_each(|n| self.receive("in", frame(station(n), SERVER)));
    }

    /// What the members have sent.
    fn sent(&self) -> [u64; 3] {
        let reports = self.switch.datapath().ports();
        let numbers = self.switch.port_status().remove(BRIDGE).unwrap();
        ["a", "b", "c"].map(|name| {
            let number = numbers.iter().find(|port| port.name == name).unwrap().number.unwrap();
            reports.iter().find(|report| report.number == number).unwrap().stats.tx_packets
        })
    }

    fn upcalls(&self) -> u64 {
        self.switch.totals()[Counter::Upcalls]
    }
}

fn since(now: [u64; 3], before: [u64; 3]) -> [u64; 3] {
    std::array::from_fn(|i| now[i] - before[i])
}

/// A member fails while a thousand stations send: what was sent before the switch heard of it is lost, nothing else. No
/// megaflow comes, goes or is translated again.
#[test]
fn a_failover_changes_a_table_and_no_megaflow() {
    for mode in [Mode::ActiveBackup, Mode::BalanceSlb] {
        let rig = Rig::new(Config { mode, rebalance_interval_ms: 0, ..Config::default() });
        rig.all_send();
        let start = rig.sent();
        rig.all_send();
        let shares = since(rig.sent(), start);
        assert_eq!(shares.iter().sum::<u64>(), u64::from(STATIONS));
        let used = shares.iter().filter(|share| **share > 0).count();
        assert_eq!(used, if mode == Mode::ActiveBackup { 1 } else { 3 }, "{mode:?}: {shares:?}");
        let megaflows = rig.switch.usage().megaflows;
        assert!(megaflows >= usize::from(STATIONS));
        let (upcalls, visited) = (rig.upcalls(), rig.switch.ofproto().visited_megaflows());

        let failed = shares.iter().position(|share| *share > 0).unwrap();
        let name = ["a", "b", "c"][failed];
        rig.devices[name].set_admin_state(false);
        let before = rig.sent();
        rig.all_send();
        let lost = since(rig.sent(), before)[failed];
        assert_eq!(lost, shares[failed], "what goes to the dead link before anybody has seen it");
        rig.follow_links();
        let before = rig.sent();
        rig.all_send();
        let after = since(rig.sent(), before);
        assert_eq!((after[failed], after.iter().sum::<u64>()), (0, u64::from(STATIONS)), "{mode:?}: nothing is lost");

        assert_eq!(rig.switch.usage().megaflows, megaflows);
        assert_eq!(rig.upcalls(), upcalls, "no packet was translated");
        // That of the server's frame came in by the member: each change of the member concerns it.
        let compared = rig.switch.ofproto().visited_megaflows() - visited;
        assert!(compared <= 4, "{compared} of {megaflows} megaflows were compared with the changes");
    }
}

/// Two stations send much by one member: one of them moves, and megaflows stay.
#[test]
fn rebalancing_moves_the_load_that_was_measured() {
    let rig = Rig::new(Config { mode: Mode::BalanceSlb, rebalance_interval_ms: 1000, ..Config::default() });
    let member = |n: u16| {
        let before = rig.sent();
        rig.receive("in", frame(station(n), SERVER));
        since(rig.sent(), before).iter().position(|packets| *packets == 1).unwrap()
    };
    let bucket = |n: u16| bucket_of_source(station(n), 0, 0);
    let mate = (1..STATIONS).find(|n| bucket(*n) != bucket(0) && member(*n) == member(0)).unwrap();
    for _ in 0..1000 {
        rig.receive("in", frame(station(0), SERVER));
        rig.receive("in", frame(station(mate), SERVER));
    }
    let upcalls = rig.upcalls();
    rig.switch.quiesce();
    sluice_clock::stop();
    sluice_clock::warp(2000);
    rig.switch.sync_bundles();
    assert_ne!(member(0), member(mate), "{}", rig.switch.show_bonds(None).unwrap());
    assert_eq!(rig.upcalls(), upcalls, "no packet was translated");
    let text = rig.switch.show_bonds(Some("bond0")).unwrap();
    let load = format!("hash {}: ", bucket(0));
    assert!(text.contains(&load), "what it carried is shown: {text}");
}

//! How many VLAN tags are read of a packet changes while there is traffic. No thread of the switch runs.

use sluice_datapath::GovernorMode;
use sluice_flow::VlanLimit;
use sluice_port::dummy::DummyDevice;
use sluice_testkit::frame::ethernet;
use sluice_vswitch::{Bridge, DatapathSettings, DesiredState, Port, Source, Sources, Switch};
use std::sync::Arc;

/// With two tags, of which the inner one is 7, the second table drops.
const RULES: &str = "dl_vlan=5,actions=strip_vlan,resubmit(,1)\n\
                     table=1,priority=1,dl_vlan=7,actions=drop\ntable=1,priority=0,actions=output:2";

fn state(tags: u64) -> DesiredState {
    let sources = Sources { rules: Some(Source::new("rules", RULES)), ..Sources::default() };
    let ports = ["p1", "p2"].map(|name| Port::new(name, "dummy")).to_vec();
    let vlan_limit = VlanLimit::from_setting(tags);
    let datapath = DatapathSettings { governor: GovernorMode::Off, vlan_limit, ..DatapathSettings::default() };
    let bridge = Bridge { ports, sources, ..Bridge::new("br0") };
    DesiredState { pmd_cores: vec![0], datapath, bridges: vec![bridge], ..DesiredState::default() }
}

fn tagged(tags: &[u16]) -> Vec<u8> {
    let frame = tags.iter().fold(ethernet(), |frame, tag| frame.vlan(*tag));
    frame.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build()
}

struct Rig {
    switch: Arc<Switch>,
    devices: Vec<Arc<DummyDevice>>,
}

impl Rig {
    fn new(tags: u64) -> Rig {
        let switch = Switch::prepare(&state(tags)).unwrap();
        let devices = switch.datapath().dummies();
        devices.iter().for_each(|device| device.set_admin_state(true));
        Rig { switch, devices }
    }

    /// Whether a packet that comes by the first port leaves by the second.
    fn forwards(&self, tags: &[u16]) -> bool {
        let sent = || {
            let ports = self.switch.port_status().remove("br0").unwrap();
            let number = ports.iter().find(|port| port.name == "p2").unwrap().number;
            let reports = self.switch.datapath().ports();
            reports.iter().find(|report| Some(report.number) == number).unwrap().stats.tx_packets
        };
        let before = sent();
        let first = self.devices.iter().find(|device| device.name() == "p1").unwrap();
        first.receive(0, tagged(tags));
        while self.switch.datapath().run_once(self.switch.now_ms()).fullest > 0 {}
        sent() > before
    }
}

#[test]
fn megaflows_of_another_limit_answer_no_packet() {
    for (before, after) in [(1, 2), (2, 1)] {
        let rig = Rig::new(before);
        assert!(rig.forwards(&[5]) && rig.forwards(&[5]), "{before} tags");
        // A tag behind the limit is not read, so no rule can match it.
        assert_eq!(rig.forwards(&[5, 7]), before == 1, "{before} tags");
        assert!(rig.switch.reconfigure(&state(after)).unwrap().iter().all(|outcome| outcome.error.is_none()));
        rig.switch.tick();
        assert_eq!(rig.forwards(&[5, 7]), after == 1, "{before} tags, then {after}");
        assert!(rig.forwards(&[5]), "{before} tags, then {after}");
    }
}

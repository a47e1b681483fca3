//! Flows that OpenFlow neither shows nor changes.

use sluice_action::PortNo;
use sluice_flow::{Match, PortNames};
use sluice_ofp::{FlowCommand, FlowMod, OfAction};
use sluice_ofproto::{BridgeConfig, HiddenFlow, Ofproto, PortConfig, TableConfig};

const BRIDGE: &str = "br0";

fn hidden(matches: &str, priority: u32) -> HiddenFlow {
    let matches = Match::parse(matches, &PortNames::NONE).unwrap();
    HiddenFlow { matches, priority, actions: vec![OfAction::Output { port: sluice_flow::OfPort(1), max_len: 0 }] }
}

fn flow_mod(ofproto: &Ofproto, command: FlowCommand, text: &str) {
    let fm = FlowMod::parse(text, command, &PortNames::NONE).unwrap();
    ofproto.flow_mod(BRIDGE, &fm, 0).unwrap();
}

fn shown(ofproto: &Ofproto) -> Vec<u32> {
    let rules = ofproto.rules(BRIDGE, &FlowMod::new(FlowCommand::Delete)).unwrap();
    rules.iter().map(|entry| entry.rule.priority).collect()
}

/// The priority of the rule that a packet meets first.
fn met(ofproto: &Ofproto, packet: &str) -> String {
    let trace = ofproto.trace(&["--plain", BRIDGE, packet], 0).unwrap();
    let line = trace.lines().find(|line| line.trim_start().starts_with("0.")).unwrap().to_owned();
    line.rsplit_once("priority ").map_or(line.clone(), |(_, priority)| priority.to_owned())
}

fn switch() -> Ofproto {
    let ofproto = Ofproto::new();
    let tables = vec![TableConfig { flow_limit: Some(10), ..TableConfig::new(0) }];
    ofproto.add_bridge(BridgeConfig { tables, ..BridgeConfig::new(BRIDGE) }, 0).unwrap();
    ofproto
}

#[test]
fn they_come_before_all_others_and_only_their_owner_changes_them() {
    let ofproto = switch();
    let flows = [hidden("arp", 180_001), hidden("tcp,tp_dst=6653", 180_007)];
    ofproto.change_hidden_flows(BRIDGE, &[], &flows, 0).unwrap();
    flow_mod(&ofproto, FlowCommand::Add, "priority=65535,actions=drop");
    assert_eq!(met(&ofproto, "arp"), "180001");
    assert_eq!(met(&ofproto, "tcp,tp_dst=6653"), "180007");
    assert_eq!(met(&ofproto, "udp"), "65535");
    assert_eq!(shown(&ofproto), [65535]);
    assert_eq!(ofproto.table_stats(BRIDGE).unwrap()[0].rules, 1);
    for command in [FlowCommand::Delete, FlowCommand::Modify] {
        flow_mod(&ofproto, command, if command == FlowCommand::Delete { "" } else { "actions=drop" });
    }
    ofproto.replace_flows(BRIDGE, &[], 0).unwrap();
    assert_eq!(shown(&ofproto), [0; 0]);
    let hidden = |ofproto: &Ofproto| -> Vec<_> {
        ofproto.hidden_rules(BRIDGE).unwrap().iter().map(|entry| entry.rule.priority).collect()
    };
    assert_eq!(hidden(&ofproto), [180_001, 180_007]);
    ofproto.change_hidden_flows(BRIDGE, &flows[..1], &[], 0).unwrap();
    assert_eq!(hidden(&ofproto), [180_007]);
    ofproto.change_hidden_flows(BRIDGE, &flows[1..], &[], 0).unwrap();
    assert_eq!((hidden(&ofproto).len(), ofproto.table_stats(BRIDGE).unwrap().len()), (0, 0));
}

#[test]
fn a_dhcp_reply_reaches_the_local_port_of_a_bridge_with_controllers_in_its_network() {
    let ofproto = switch();
    for (name, number, datapath) in [(BRIDGE, 65534, 100), ("p1", 1, 1)] {
        ofproto.add_port(BRIDGE, PortConfig::new(name, number, PortNo(datapath))).unwrap();
    }
    flow_mod(&ofproto, FlowCommand::Add, "udp,tp_dst=69,actions=LOCAL");
    let actions = |packet: &str| {
        let trace = ofproto.trace(&["--plain", BRIDGE, packet], 0).unwrap();
        let line = trace.lines().find_map(|line| line.strip_prefix("Datapath actions: "));
        line.unwrap().to_owned()
    };
    let reply = "in_port=1,udp,tp_src=67,tp_dst=68";
    assert_eq!(actions(reply), "drop");
    ofproto.set_in_band(BRIDGE, true).unwrap();
    assert_eq!(actions(reply), "100");
    assert_eq!(actions("in_port=1,udp,tp_src=68,tp_dst=67"), "drop");
    // Once is enough.
    flow_mod(&ofproto, FlowCommand::Add, "udp,tp_dst=68,actions=LOCAL");
    assert_eq!(actions(reply), "100");
    ofproto.set_in_band(BRIDGE, false).unwrap();
    flow_mod(&ofproto, FlowCommand::Delete, "udp,tp_dst=68");
    assert_eq!(actions(reply), "drop");
}

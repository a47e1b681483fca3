//! BFD: which packets a port's session takes, which fields that looks at, and what a session that is down means for
//! groups; as `ofproto/trace` tells it.

use sluice_action::PortNo;
use sluice_bfd::Config;
use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod, GroupCommand, GroupMod};
use sluice_ofproto::{BridgeConfig, Ofproto, PortConfig};
use std::sync::Arc;

const TO_SESSION: &str = "userspace(pid=0,slow_path(bfd))";

/// Bridge br0 with p1, which has a session, p2, and a patch port 3 to port 4 of br1, which has one, too.
fn switch(config: Config) -> Ofproto {
    let ofproto = Ofproto::new();
    let session = Some(Arc::new(config));
    for name in ["br0", "br1"] {
        ofproto.add_bridge(BridgeConfig { datapath_type: "dummy".into(), ..BridgeConfig::new(name) }, 0).unwrap();
    }
    let p1 = PortConfig { bfd: session.clone(), ..PortConfig::new("p1", 1, PortNo(1)) };
    ofproto.add_port("br0", p1).unwrap();
    ofproto.add_port("br0", PortConfig::new("p2", 2, PortNo(2))).unwrap();
    ofproto.add_port("br0", PortConfig::patch("p3", 3, "p4")).unwrap();
    ofproto.add_port("br1", PortConfig { bfd: session, ..PortConfig::patch("p4", 4, "p3") }).unwrap();
    ofproto
}

fn add_rule(ofproto: &Ofproto, rule: &str) {
    let rule = FlowMod::parse(rule, FlowCommand::Add, &PortNames::NONE).unwrap();
    ofproto.flow_mod("br0", &rule, 0).unwrap();
}

/// The megaflow and the datapath actions of a UDP packet, and the rest of the trace behind them.
fn trace(ofproto: &Ofproto, in_port: u16, nw_dst: &str, tp_dst: u16) -> [String; 3] {
    let packet = format!(
        "in_port({in_port}),eth(src=50:54:00:00:00:05,dst=00:23:20:00:00:01),eth_type(0x0800),\
         ipv4(src=169.254.1.1,dst={nw_dst},proto=17,tos=0,ttl=255,frag=no),udp(src=49152,dst={tp_dst})"
    );
    let text = ofproto.trace(&["ovs-dummy", &packet], 0).unwrap();
    let (_, text) = text.split_once("Megaflow: ").unwrap();
    let (megaflow, text) = text.split_once("\nDatapath actions: ").unwrap();
    let (actions, rest) = text.split_once('\n').unwrap_or((text, ""));
    [megaflow, actions, rest].map(str::to_owned)
}

#[test]
fn a_session_takes_its_packets_whatever_the_rules_say() {
    let ofproto = switch(Config::default());
    add_rule(&ofproto, "in_port=1,actions=output:2");
    let [megaflow, actions, rest] = trace(&ofproto, 1, "169.254.1.0", 3784);
    assert_eq!(actions, TO_SESSION);
    assert_eq!(rest, "This flow is handled by the userspace slow path because it:\n  - Consists of BFD packets.\n");
    assert!(megaflow.contains("udp,in_port=1,") && megaflow.ends_with("tp_dst=3784"), "{megaflow}");
    let [megaflow, actions, rest] = trace(&ofproto, 1, "169.254.1.0", 53);
    assert_eq!((actions.as_str(), rest.as_str()), ("2", ""));
    assert!(megaflow.ends_with("tp_dst=53"), "others must not share the megaflow: {megaflow}");
    add_rule(&ofproto, "in_port=2,actions=output:1");
    assert_eq!(trace(&ofproto, 2, "169.254.1.0", 3784)[1], "1", "a port without a session forwards them");
}

#[test]
fn a_session_behind_a_patch_port_takes_them_as_well() {
    let ofproto = switch(Config::default());
    add_rule(&ofproto, "in_port=2,actions=output:3,output:1");
    assert_eq!(trace(&ofproto, 2, "169.254.1.0", 3784)[1], format!("{TO_SESSION},1"));
    assert_eq!(trace(&ofproto, 2, "169.254.1.0", 53)[1], "1");
}

#[test]
fn an_address_of_its_own_leaves_other_sessions_packets_alone() {
    let ofproto = switch(Config { src_ip: [10, 0, 0, 1].into(), ..Config::default() });
    add_rule(&ofproto, "in_port=1,actions=output:2");
    let [megaflow, actions, _] = trace(&ofproto, 1, "10.0.0.1", 3784);
    assert_eq!(actions, TO_SESSION);
    assert!(megaflow.contains("nw_dst=10.0.0.1"), "{megaflow}");
    let [megaflow, actions, _] = trace(&ofproto, 1, "10.0.0.2", 3784);
    assert_eq!(actions, "2");
    assert!(megaflow.contains("nw_dst=10.0.0.2"), "the session's packets must not share it: {megaflow}");
}

#[test]
fn an_ethernet_address_of_its_own_is_asked_for_first() {
    let ofproto = switch(Config { remote_dst_mac: Some([0, 0x23, 0x20, 0, 0, 2]), ..Config::default() });
    add_rule(&ofproto, "in_port=1,actions=output:2");
    let [megaflow, actions, _] = trace(&ofproto, 1, "169.254.1.0", 3784);
    assert_eq!(actions, "2");
    assert!(megaflow.contains("dl_dst=00:23:20:00:00:01") && !megaflow.contains("tp_dst"), "{megaflow}");
}

#[test]
fn a_fast_failover_group_leaves_a_port_whose_session_is_down() {
    let ofproto = switch(Config::default());
    let group = "group_id=1,type=ff,bucket=watch_port:1,actions=output:1,bucket=watch_port:3,actions=output:3";
    let group = GroupMod::parse(group, GroupCommand::Add, &PortNames::NONE).unwrap();
    ofproto.group_mod("br0", &group, 0).unwrap();
    add_rule(&ofproto, "in_port=2,actions=group:1");
    assert_eq!(trace(&ofproto, 2, "169.254.1.0", 53)[1], "1");
    let epoch = ofproto.epoch();
    ofproto.set_port("br0", "p1", |port| port.bfd_down = true).unwrap();
    assert_ne!(ofproto.epoch(), epoch, "megaflows hear of it");
    assert_eq!(trace(&ofproto, 2, "169.254.1.0", 3784)[1], TO_SESSION, "by the patch port");
    ofproto.set_port("br0", "p1", |port| port.bfd_down = false).unwrap();
    assert_eq!(trace(&ofproto, 2, "169.254.1.0", 53)[1], "1");
}

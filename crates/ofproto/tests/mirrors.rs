//! Mirrors: which copies leave where, as `ofproto/trace` tells it.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use sluice_action::PortNo;
use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{
    BridgeConfig, MirrorConfig, MirrorOutput, MirrorPorts, NormalSettings, Ofproto, PortConfig, VlanMode,
};
use std::collections::BTreeSet;

const PACKET: &str = "eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),\
                      ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=0,ttl=128,frag=no),tcp(src=8,dst=9)";

/// A bridge with ports p1 to p5 and these rules.
fn switch(rules: &[&str]) -> Ofproto {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig { datapath_type: "dummy".into(), ..BridgeConfig::new("br0") }, 0).unwrap();
    for number in 1..=5 {
        let port = PortConfig::new(&format!("p{number}"), number, PortNo(number.into()));
        ofproto.add_port("br0", port).unwrap();
    }
    for rule in rules {
        let rule = FlowMod::parse(rule, FlowCommand::Add, &PortNames::NONE).unwrap();
        ofproto.flow_mod("br0", &rule, 0).unwrap();
    }
    ofproto
}

fn named(ports: &[u16]) -> MirrorPorts {
    MirrorPorts::Named(ports.iter().map(|n| format!("p{n}")).collect())
}

fn mirror(id: &str, received: &[u16], sent: &[u16], output: MirrorOutput) -> MirrorConfig {
    let (sources, destinations) = (named(received), named(sent));
    MirrorConfig { id: id.into(), name: id.into(), sources, destinations, vlans: BTreeSet::new(), output, snaplen: 0 }
}

fn to(port: u16) -> MirrorOutput {
    MirrorOutput::Port(format!("p{port}"))
}

/// The datapath actions for a packet from a port.
fn actions(ofproto: &Ofproto, in_port: u16) -> String {
    let text = ofproto.trace(&["ovs-dummy", &format!("in_port({in_port}),{PACKET}")], 0).unwrap();
    text.lines().last().and_then(|line| line.strip_prefix("Datapath actions: ")).unwrap_or(&text).to_owned()
}

#[test]
fn a_copy_of_a_copy_goes_to_another_mirror_once() {
    let ofproto = switch(&["in_port=1,actions=2"]);
    // What p3 sends, the copies of the first, is copied, too; and p4 does not copy back to p3.
    let mirrors = [mirror("a", &[1], &[], to(3)), mirror("b", &[], &[3], to(4)), mirror("c", &[], &[4], to(3))];
    ofproto.set_mirrors("br0", &mirrors).unwrap();
    assert_eq!(actions(&ofproto, 1), "3,4,2");
}

#[test]
fn packets_of_an_output_port_are_dropped_and_normal_leaves_it_out() {
    let ofproto = switch(&["actions=NORMAL"]);
    assert_eq!(actions(&ofproto, 1), "2,3,4,5");
    let selected = MirrorConfig { sources: MirrorPorts::All, ..mirror("a", &[], &[], to(5)) };
    ofproto.set_mirrors("br0", &[selected]).unwrap();
    assert_eq!(actions(&ofproto, 1), "5,2,3,4");
    assert_eq!(actions(&ofproto, 5), "drop");
    // Its counters, and the copies, are gone with the mirror.
    assert!(ofproto.mirror_stats("br0", "a").is_some());
    ofproto.set_mirrors("br0", &[]).unwrap();
    assert_eq!((actions(&ofproto, 1).as_str(), ofproto.mirror_stats("br0", "a")), ("2,3,4,5", None));
}

#[test]
fn a_mirror_waits_for_its_ports() {
    let ofproto = switch(&["in_port=1,actions=2"]);
    ofproto.set_mirrors("br0", &[mirror("a", &[6], &[1, 2], to(7))]).unwrap();
    assert_eq!(actions(&ofproto, 1), "2");
    ofproto.add_port("br0", PortConfig::new("p7", 7, PortNo(7))).unwrap();
    assert_eq!(actions(&ofproto, 1), "2,7");
    ofproto.remove_port("br0", "p7").unwrap();
    assert_eq!(actions(&ofproto, 1), "2");
}

#[test]
fn copies_are_cut_and_what_follows_is_not() {
    let ofproto = switch(&["in_port=1,actions=2,3"]);
    let cut = |snaplen| MirrorConfig { snaplen, ..mirror("a", &[1], &[], to(4)) };
    ofproto.set_mirrors("br0", &[cut(100)]).unwrap();
    assert_eq!(actions(&ofproto, 1), "trunc(100),4,2,3");
    ofproto.set_mirrors("br0", &[cut(u16::MAX)]).unwrap();
    assert_eq!(actions(&ofproto, 1), "4,2,3");
    // What is to be cut cannot leave by a patch port.
    ofproto.add_port("br0", PortConfig::patch("p6", 6, "elsewhere")).unwrap();
    ofproto.set_mirrors("br0", &[MirrorConfig { output: to(6), ..cut(100) }]).unwrap();
    let text = ofproto.trace(&["ovs-dummy", &format!("in_port(1),{PACKET}")], 0).unwrap();
    assert!(text.contains("Mirror truncate to ODPP_NONE, skipping output"), "{text}");
}

#[test]
fn a_mirror_of_a_vlan_takes_its_packets_only_and_one_to_a_vlan_tags_them() {
    let ofproto = switch(&["in_port=1,actions=2"]);
    ofproto.set_port("br0", "p1", |port| port.vlan = VlanMode::Access(7)).unwrap();
    let of_vlan = |vlan: u16| MirrorConfig { vlans: [vlan].into(), ..mirror("a", &[1], &[], MirrorOutput::Vlan(9)) };
    ofproto.set_mirrors("br0", &[of_vlan(8)]).unwrap();
    assert_eq!(actions(&ofproto, 1), "2");
    ofproto.set_mirrors("br0", &[of_vlan(7)]).unwrap();
    assert_eq!(actions(&ofproto, 1), "push_vlan(vid=9,pcp=0),2,3,4,5,pop_vlan,2");
}

#[test]
fn nothing_is_learned_in_a_vlan_that_is_flooded() {
    let ofproto = switch(&["actions=NORMAL"]);
    let learned = |vlan: &str| {
        ofproto.fdb_add("br0", "p2", vlan, "50:54:00:00:00:07").unwrap();
        actions(&ofproto, 1)
    };
    assert_eq!(learned("0"), "2");
    let flood_vlans = [0].into();
    ofproto.set_normal("br0", NormalSettings { flood_vlans, ..NormalSettings::default() }).unwrap();
    assert_eq!(actions(&ofproto, 1), "2,3,4,5");
    ofproto.set_normal("br0", NormalSettings::default()).unwrap();
    assert_eq!(actions(&ofproto, 1), "2");
}

/// The ports of a list of outputs.
fn ports_of(actions: &str) -> Vec<u16> {
    if actions == "drop" { Vec::new() } else { actions.split(',').map(|port| port.parse().unwrap()).collect() }
}

proptest! {
    /// Every port gets what the rule sends it and one copy more, if a mirror with that output saw the packet: at the input
    /// port, or at a port that sent it.
    #[test]
    fn each_output_gets_one_copy_of_what_its_mirrors_see(
        sent in vec(2..=5u16, 0..4),
        drawn in vec((btree_set(1..=5u16, 0..4), btree_set(1..=5u16, 0..4), 2..=5u16), 0..6),
    ) {
        let rule = match &sent[..] {
            [] => "in_port=1,actions=drop".to_owned(),
            _ => format!("in_port=1,actions={}", sent.iter().map(u16::to_string).collect::<Vec<_>>().join(",")),
        };
        let ofproto = switch(&[&rule]);
        let mirrors: Vec<_> = drawn.iter().enumerate().map(|(n, (received, sent, output))| {
            let list = |ports: &BTreeSet<u16>| ports.iter().copied().collect::<Vec<_>>();
            mirror(&n.to_string(), &list(received), &list(sent), to(*output))
        }).collect();
        ofproto.set_mirrors("br0", &mirrors).unwrap();
        let mut outputs: BTreeSet<u16> = BTreeSet::new();
        loop {
            let seen = |(received, by, _): &&(BTreeSet<u16>, BTreeSet<u16>, u16)| {
                received.contains(&1) || by.iter().any(|port| sent.contains(port) || outputs.contains(port))
            };
            let more: BTreeSet<u16> = drawn.iter().filter(seen).map(|(_, _, output)| *output).collect();
            if more == outputs {
                break;
            }
            outputs = more;
        }
        let mut expected: Vec<u16> = sent.iter().copied().chain(outputs).collect();
        let mut found = ports_of(&actions(&ofproto, 1));
        expected.sort_unstable();
        found.sort_unstable();
        prop_assert_eq!(found, expected);
    }
}

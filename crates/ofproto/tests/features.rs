//! What translation does with features that the datapath may not use, and what ports and packets' tags forbid.

use sluice_action::{Action, Miss, PortNo, Upcall, UpcallResult};
use sluice_flow::{Metadata, PacketKey, PortNames, VlanLimit, extract};
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{BridgeConfig, NormalSettings, Ofproto, PortConfig};
use sluice_testkit::frame::ethernet;

fn switch(flow: &str) -> Ofproto {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
    for n in 1..=3 {
        ofproto.add_port("br0", PortConfig::new(&format!("p{n}"), n, PortNo(n.into()))).unwrap();
    }
    let flow = FlowMod::parse(flow, FlowCommand::Add, &PortNames::NONE).unwrap();
    ofproto.flow_mod("br0", &flow, 0).unwrap();
    ofproto
}

/// The actions for a packet of 60 bytes that port 1 receives, and whether they may become a megaflow's.
fn translated(ofproto: &Ofproto) -> (Vec<Action>, bool) {
    let frame = ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(&[0; 18]).build();
    let mut key = PacketKey::ZERO;
    extract(&frame, &Metadata::of_port(1), &mut key).unwrap();
    match ofproto.upcall().translate(&Miss { key: &key, bytes: &frame, now_ms: 0 }) {
        UpcallResult::Translated(translation) => (translation.actions.to_vec(), translation.cacheable),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_clone_becomes_a_sample_of_all_packets_or_nothing() {
    let ofproto = switch("ip,actions=clone(ct(commit),output:2),output:3");
    assert!(matches!(translated(&ofproto).0[..], [Action::Clone(_), Action::Output(PortNo(3))]));
    ofproto.set_feature("clone", "false").unwrap();
    let all = |action: &Action| matches!(action, Action::Sample { probability: u32::MAX, .. });
    assert!(all(&translated(&ofproto).0[0]));
    ofproto.set_feature("sample_nesting", "2").unwrap();
    assert_eq!(translated(&ofproto).0, [Action::Output(PortNo(3))]);
}

#[test]
fn without_the_datapaths_help_each_packet_is_measured() {
    let ofproto = switch("actions=check_pkt_larger(59)->reg0[0],output:reg0[0..15]");
    assert!(matches!(translated(&ofproto), (actions, true) if matches!(actions[..], [Action::CheckPktLen { .. }])));
    ofproto.set_feature("check_pkt_len", "false").unwrap();
    // Port 1, which the register names if the packet is longer, is where it came from.
    assert_eq!(translated(&ofproto), (vec![], false));
    let trace = ofproto.trace(&["br0", "in_port=1"], 0).unwrap();
    let slow = "\nThis flow is handled by the userspace slow path because it:\n  - Uses action(s) not supported by datapath.\n";
    assert!(trace.ends_with(slow), "{trace}");
}

#[test]
fn protected_ports_do_not_talk_to_each_other() {
    let ofproto = switch("actions=NORMAL");
    let protect = |name: &str| ofproto.set_port("br0", name, |port| port.is_protected = true).unwrap();
    let outputs = |ports: &[u32]| ports.iter().map(|n| Action::Output(PortNo(*n))).collect::<Vec<_>>();
    protect("p1");
    assert_eq!(translated(&ofproto).0, outputs(&[2, 3]));
    protect("p2");
    assert_eq!(translated(&ofproto).0, outputs(&[3]));
}

#[test]
fn a_trace_reads_as_many_tags_as_the_datapath() {
    let ofproto = switch("actions=drop");
    let frame = ethernet().tag(0x88a8, 5).tag(0x8100, 6).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
    let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let datapath_flow = "in_port(1),eth_type(0x88a8),vlan(vid=5,pcp=0),encap(eth_type(0x8100),vlan(vid=6,pcp=0),\
                         encap(eth_type(0x0800),ipv4(src=10.0.0.1)))";
    let first_lines = || {
        let of_packet = ofproto.trace(&["br0", "in_port=1", &hex], 0).unwrap();
        let of_flow = ofproto.trace(&[datapath_flow], 0).unwrap();
        [of_packet, of_flow].map(|text| text.lines().next().unwrap_or_default().to_owned())
    };
    for line in first_lines() {
        assert!(line.contains("dl_vlan=5") && line.contains("dl_type=0x8100") && !line.contains("nw_src"), "{line}");
    }
    ofproto.set_feature("ct_clear", "false").unwrap();
    ofproto.set_vlan_limit(VlanLimit::MAX);
    for line in first_lines() {
        assert!(line.contains("dl_vlan1=6") && line.contains("nw_src=10.0.0.1"), "{line}");
    }
    assert!(ofproto.features().show().contains("Max VLAN headers: 2\n"));
    let clear = ofproto.features().show_both(Some("ct_clear")).unwrap();
    assert!(clear.contains("false"), "what a command has changed stays: {clear}");
}

#[test]
fn reserved_destinations_are_forwarded_if_the_bridge_is_told_so() {
    let ofproto = switch("actions=NORMAL");
    let trace = || ofproto.trace(&["br0", "in_port=1,dl_dst=01:80:c2:00:00:00"], 0).unwrap();
    assert!(trace().contains("packet has reserved destination MAC, dropping"));
    ofproto.set_normal("br0", NormalSettings { forward_bpdu: true, ..NormalSettings::default() }).unwrap();
    assert!(trace().ends_with("Datapath actions: 2,3"), "{}", trace());
}

#[test]
fn the_database_is_told_numbers_and_truths() {
    let all: Vec<_> = Ofproto::new().features().capabilities().collect();
    let of = |name| all.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_str());
    assert_eq!([of("max_hash_alg"), of("sample_nesting"), of("ct_flush")], [Some("1"), Some("true"), Some("true")]);
}

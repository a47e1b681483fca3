//! What translations say of packets that are sampled for sFlow.

use sluice_action::{Action, DatapathPortNames, Miss, PortNo, Upcall, UpcallResult, show_actions};
use sluice_flow::{Metadata, PacketKey, PortNames, extract};
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{BridgeConfig, Ofproto, PortConfig, SFlowSettings};
use sluice_testkit::frame::ethernet;

const SAMPLED: u32 = u32::MAX / 4;

fn switch(flow: &str) -> Ofproto {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
    for n in 1..=3 {
        ofproto.add_port("br0", PortConfig::new(&format!("p{n}"), n, PortNo(n.into()))).unwrap();
    }
    ofproto.flow_mod("br0", &FlowMod::parse(flow, FlowCommand::Add, &PortNames::NONE).unwrap(), 0).unwrap();
    ofproto
}

/// Ports 1 and 2 have indexes, port 3 has none.
fn settings(probability: u32) -> SFlowSettings {
    let ifindexes = [(PortNo(1), 101), (PortNo(2), 102)].into();
    SFlowSettings { probability, header_len: 128, ifindexes }
}

fn text(ofproto: &Ofproto) -> String {
    let frame = ethernet().tag(0x8100, 0x6007).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
    let mut key = PacketKey::ZERO;
    extract(&frame, &Metadata::of_port(1), &mut key).unwrap();
    match ofproto.upcall().translate(&Miss { key: &key, bytes: &frame, now_ms: 0 }) {
        UpcallResult::Translated(translation) => {
            show_actions(&translation.actions, &DatapathPortNames::default()).to_string()
        }
        other => panic!("{other:?}"),
    }
}

fn sampled(flow: &str, probability: u32) -> String {
    let ofproto = switch(flow);
    let without = text(&ofproto);
    ofproto.set_sflow("br0", Some(settings(probability))).unwrap();
    let with = text(&ofproto);
    ofproto.set_sflow("br0", None).unwrap();
    assert_eq!(text(&ofproto), without);
    with
}

#[test]
fn the_sample_comes_first_and_says_where_packets_go() {
    let of = |flow| sampled(flow, SAMPLED);
    let sample = |to: &str| format!("sample(sample=25.0%,actions(userspace(pid=0,sFlow({to}),actions)))");
    assert_eq!(of("actions=output:2"), format!("{},2", sample("vid=7,pcp=3,output=102")));
    assert_eq!(of("actions=output:3"), format!("{},3", sample("vid=7,pcp=3,output=2147483649")));
    assert_eq!(of("actions=output:2,output:3"), format!("{},2,3", sample("vid=7,pcp=3,output=2147483650")));
    assert_eq!(of("actions=drop"), sample("vid=7,pcp=3,output=1073742080"));
    assert_eq!(of("actions=strip_vlan,output:2"), format!("{},pop_vlan,2", sample("vid=0,pcp=0,output=102")));
}

#[test]
fn all_packets_need_no_sample_around_them() {
    let all = sampled("actions=output:2", u32::MAX);
    assert_eq!(all, "userspace(pid=0,sFlow(vid=7,pcp=3,output=102),actions),2");
}

#[test]
fn a_sample_does_not_depend_on_labels_that_the_mask_leaves_open() {
    let ofproto = switch("actions=push_mpls:0x8847,output:2");
    ofproto.set_sflow("br0", Some(settings(SAMPLED))).unwrap();
    let frame = ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
    let mut key = PacketKey::ZERO;
    extract(&frame, &Metadata::of_port(1), &mut key).unwrap();
    let UpcallResult::Translated(translation) =
        ofproto.upcall().translate(&Miss { key: &key, bytes: &frame, now_ms: 0 })
    else {
        panic!("no translation")
    };
    let Action::SFlow(sflow) = &translation.actions[0] else { panic!("no sample: {:?}", translation.actions) };
    let change = sflow.labels.clone().unwrap();
    let pushed = change.after(&[]);
    assert_eq!(pushed.len(), 1);
    assert_eq!(change.after(&[5, 6]), [pushed[0], 5, 6], "the labels are read of each packet");
    assert_eq!(change.after(&[5, 6, 7]), [0; 0], "more than a sample tells of");
}

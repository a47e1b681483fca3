//! A port that uses up recirculation ids: others keep their share, and no drop outlives the shortage.

use sluice_action::{Action, Miss, PortNo, Translation, Upcall, UpcallResult};
use sluice_fate::{DropReason, Limit};
use sluice_flow::{Metadata, PacketKey, PortNames, extract};
use sluice_ofp::{FlowCommand, FlowMod, GroupCommand, GroupMod};
use sluice_ofproto::{BridgeConfig, Ofproto, PortConfig, UpcallHandle};
use sluice_testkit::frame;

/// More states than there are ids.
const STATES: u32 = 270_000;

fn switch(flow: &str) -> Ofproto {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
    for n in 1..=3 {
        ofproto.add_port("br0", PortConfig::new(&format!("p{n}"), n, PortNo(n.into()))).unwrap();
    }
    let group = "group_id=1,type=select,selection_method=dp_hash,bucket=output:2,bucket=output:3";
    ofproto.group_mod("br0", &GroupMod::parse(group, GroupCommand::Add, &PortNames::NONE).unwrap(), 0).unwrap();
    let flow = FlowMod::parse(flow, FlowCommand::Add, &PortNames::NONE).unwrap();
    ofproto.flow_mod("br0", &flow, 0).unwrap();
    ofproto
}

fn translate(upcall: &mut UpcallHandle, port: u32, source: u32, now_ms: u64) -> Translation {
    let [a, b, c, d] = source.to_be_bytes();
    let bytes = frame::ethernet()
        .macs([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9])
        .ipv4([a, b, c, d], [10, 0, 0, 9])
        .udp(1, 2)
        .build();
    let mut key = PacketKey::ZERO;
    extract(&bytes, &Metadata::of_port(port), &mut key).unwrap();
    match upcall.translate(&Miss { key: &key, bytes: &bytes, now_ms }) {
        UpcallResult::Translated(translation) => translation,
        other => panic!("{other:?}"),
    }
}

fn recirculates(translation: &Translation) -> bool {
    translation.actions.iter().any(Action::recirculates)
}

/// The source goes into a register, or onto the stack, from where nothing shows in the megaflow's actions.
#[test]
fn a_port_that_takes_all_ids_leaves_others_theirs() {
    ids_run_out(switch, &["move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],ct(table=1)", "push:NXM_OF_IP_SRC[],ct(table=1)"]);
}

/// No `ct`: a group that the datapath hashes for, and a label that goes, recirculate too.
#[test]
fn ids_that_groups_and_labels_take_have_the_same_shares() {
    let source = "move:NXM_OF_IP_SRC[]->NXM_NX_REG0[]";
    let label = format!("{source},push_mpls:0x8847,pop_mpls:0x0800,dec_ttl,output:2");
    ids_run_out(switch, &[&format!("{source},group:1"), &label]);
}

/// The rules that take ids are those of another bridge, behind a patch port: a failure there does not end this bridge's
/// pipeline, and is a shortage all the same.
#[test]
fn ids_that_a_bridge_behind_a_patch_port_takes_have_the_same_shares() {
    let across = |flow: &str| {
        let ofproto = switch("actions=output:9");
        ofproto.add_bridge(BridgeConfig::new("br1"), 0).unwrap();
        ofproto.add_port("br0", PortConfig::patch("to-br1", 9, "to-br0")).unwrap();
        ofproto.add_port("br1", PortConfig::patch("to-br0", 9, "to-br1")).unwrap();
        let flow = FlowMod::parse(flow, FlowCommand::Add, &PortNames::NONE).unwrap();
        ofproto.flow_mod("br1", &flow, 0).unwrap();
        ofproto
    };
    ids_run_out(across, &["move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],ct(table=1)"]);
}

fn ids_run_out(switch: impl Fn(&str) -> Ofproto, actions: &[&str]) {
    for copy in actions {
        let ofproto = switch(&format!("ip,actions={copy}"));
        let mut upcall = ofproto.upcall();
        let before = Limit::RecircIds.count();
        // The megaflows hold their ids, as long as their packets come.
        let mut attack: Vec<Translation> = (0..STATES).map(|i| translate(&mut upcall, 1, 0x100_0000 + i, 0)).collect();
        let last = attack.last().unwrap();
        assert_eq!(
            (recirculates(last), last.cacheable, last.no_output),
            (false, false, DropReason::RecircIds),
            "{copy}"
        );
        assert!(Limit::RecircIds.count() > before);
        // The known flows of the port keep theirs; the flows of others, old and new, have room.
        assert!(recirculates(&translate(&mut upcall, 1, 0x100_0000, 0)));
        attack.truncate(229_376);
        ofproto.tick(20_000);
        ofproto.tick(21_000);
        for port in [2, 3] {
            assert!((0..1000).all(|i| recirculates(&translate(&mut upcall, port, i, 21_000))), "{copy}");
        }
        // The attack ends, and the port itself is served again.
        drop(attack);
        for now_ms in (32_000..36_000).step_by(100) {
            ofproto.tick(now_ms);
        }
        let again = translate(&mut upcall, 1, 0x900_0000, 36_000);
        assert!(recirculates(&again) && again.cacheable, "{copy}");
    }
}

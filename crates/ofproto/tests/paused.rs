//! A paused packet is resumed with the rest of its rules, its registers and its stack.

use sluice_action::{Action, Miss, PortNo, Translation, Upcall, UpcallResult};
use sluice_flow::{FieldId, PacketKey, PortNames, layout};
use sluice_ofp::{FlowCommand, FlowMod, Stretch};
use sluice_ofproto::{BridgeConfig, Ofproto, PortConfig, ResumeRequest};

fn switch(flows: &[&str]) -> Ofproto {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
    for i in 1..=4 {
        ofproto.add_port("br0", PortConfig::new(&format!("p{i}"), i, PortNo(i.into()))).unwrap();
    }
    for text in flows {
        let flow = FlowMod::parse(text, FlowCommand::Add, &PortNames::NONE).unwrap();
        ofproto.flow_mod("br0", &flow, 0).unwrap();
    }
    ofproto
}

fn packet() -> PacketKey {
    let mut key = PacketKey::ZERO;
    key.set(layout::IN_PORT, &1u32.to_be_bytes());
    key.set(layout::DL_TYPE, &[0x12, 0x34]);
    key
}

/// The translation of a packet.
fn translate(ofproto: &Ofproto, key: &PacketKey) -> Translation {
    match ofproto.upcall().translate(&Miss { key, bytes: &[], now_ms: 0 }) {
        UpcallResult::Translated(translation) => translation,
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_goes_on_where_it_stopped() {
    let ofproto = switch(&[
        "table=0,cookie=5,actions=set_field:7->reg1,push:NXM_NX_REG1[],resubmit(,1),output:2,pop:NXM_NX_REG2[],output:NXM_NX_REG2[0..15]",
        "table=1,cookie=6,actions=set_field:3->reg3,controller(pause,userdata=0a),resubmit(,2)",
        "table=2,reg1=9,actions=output:4",
    ]);
    let key = packet();
    let translated = translate(&ofproto, &key);
    let [Action::Controller { recirc_id, continuation: true, .. }] = translated.actions[..] else {
        panic!("it does not pause: {:?}", translated.actions)
    };
    let told = ofproto.controller_packet(&key, recirc_id, true, 0).unwrap();
    let mut paused = told.paused.clone().unwrap();
    assert_eq!((told.userdata.as_slice(), told.metadata.field(FieldId::Reg3)), (&[0x0a][..], (3, 0xffff_ffff)));
    let numbers: Vec<_> = paused.actions.iter().map(|Stretch { table, cookie, .. }| (*table, *cookie)).collect();
    assert_eq!((numbers, &paused.stack[..], paused.datapath_port), (vec![(0, 0), (0, 5)], &[(7.into(), 4)][..], 1));
    // The controller changes a register, which changes the last output.
    let mut metadata = told.metadata;
    metadata.set(FieldId::Reg1, 9);
    paused.stack[0].0 = 3.into();
    let resumed = ofproto.resume("br0", &ResumeRequest::new(&key, &metadata, paused, 60), 0).unwrap();
    let outputs: Vec<_> = resumed.actions.iter().cloned().collect();
    assert_eq!(outputs, [4, 2, 3].map(|port| Action::Output(PortNo(port))));
    assert_eq!(resumed.known.in_port(), 1);
}

#[test]
fn nothing_is_left_behind_the_last_action_and_no_table_is_searched_again() {
    let ofproto = switch(&["actions=output:2,controller(pause)"]);
    let key = packet();
    let translated = translate(&ofproto, &key);
    let [Action::Output(PortNo(2)), Action::Controller { recirc_id, .. }] = translated.actions[..] else {
        panic!("it does not pause: {:?}", translated.actions)
    };
    let told = ofproto.controller_packet(&key, recirc_id, true, 0).unwrap();
    let packet = ResumeRequest::new(&key, &told.metadata, told.paused.unwrap(), 60);
    assert_eq!(ofproto.resume("br0", &packet, 0).unwrap().actions[..], []);
    assert!(ofproto.resume("br1", &packet, 0).is_err(), "a bridge that is not there");
}

//! Options of Geneve as the datapath has them: read by the mapping of the bridge, matched, hashed and dropped.

use super::{actions, trace, with_options};
use sluice_action::{
    Action, DatapathPortNames, Miss, PortNo, Translation, Upcall, UpcallResult, agree_under, show_flow,
};
use sluice_fate::DropReason;
use sluice_flow::geneve::OptionKind;
use sluice_flow::{Metadata, PacketKey, PortNames, TunnelKey, extract, tunnel_flags};
use sluice_ofp::{FlowCommand, FlowMod, GroupCommand, GroupMod};
use sluice_ofproto::Ofproto;
use std::net::Ipv4Addr;

/// The key of a packet with these options that came by the tunnel.
fn with_raw_options(list: &[u8]) -> (PacketKey, Vec<u8>) {
    let frame = sluice_testkit::frame::ethernet().ipv4([1; 4], [2; 4]).udp(1, 2).build();
    let mut key = PacketKey::ZERO;
    extract(&frame, &Metadata::of_port(6081), &mut key).unwrap();
    let address = |text: &str| text.parse::<Ipv4Addr>().unwrap().to_ipv6_mapped().to_bits();
    let (src, dst) = (address("1.1.2.92"), address("1.1.2.88"));
    TunnelKey { id: 5, src, dst, flags: tunnel_flags::KEY, ttl: 64, ..TunnelKey::default() }.put(&mut key);
    key.put_options(list);
    (key, frame)
}

fn translate_options(ofproto: &Ofproto, list: &[u8]) -> (PacketKey, Translation) {
    let (key, frame) = with_raw_options(list);
    match ofproto.upcall().translate(&Miss { key: &key, bytes: &frame, now_ms: 0 }) {
        UpcallResult::Translated(translation) => (key, translation),
        fate => panic!("{fate:?}"),
    }
}

fn option(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[1, 2, kind, (value.len() / 4) as u8], value].concat()
}

#[test]
fn options_with_a_wrong_length_and_critical_ones_without_a_field_are_dropped_by_a_megaflow_of_their_own() {
    let ofproto = with_options(true, &["actions=9"]);
    let good = [option(0x80, &[0, 0, 0, 1]), option(3, &[7; 124])].concat();
    let (good_key, sent) = translate_options(&ofproto, &good);
    assert_eq!(sent.actions.iter().collect::<Vec<_>>(), [&Action::Output(PortNo(9))]);
    let (plain_key, plain) = translate_options(&ofproto, &[]);
    assert_eq!(plain.actions, sent.actions);
    for bad in
        [option(0x80, &[0; 8]), option(0x81, &[]), [option(0x80, &[0, 0, 0, 1]), option(0x83, &[7; 124])].concat()]
    {
        let (key, dropped) = translate_options(&ofproto, &bad);
        assert!(dropped.actions.is_empty() && dropped.no_output == DropReason::TunnelPop, "{dropped:?}");
        for (others, mask) in [(&good_key, &sent.mask), (&plain_key, &plain.mask)] {
            assert!(!agree_under(mask, others, &key) && !agree_under(&dropped.mask, others, &key));
        }
    }
}

#[test]
fn a_megaflow_has_the_bits_of_options_that_rules_look_at() {
    let ofproto = with_options(true, &["tun_metadata0=0xb/0xf,actions=9"]);
    let list = |value: u8, unknown: u8| [option(3, &[unknown; 60]), option(0x80, &[0, 0, 0, value])].concat();
    let (key, translation) = translate_options(&ofproto, &list(0x1b, 9));
    let names = DatapathPortNames::default();
    let text = show_flow(&key, &translation.mask, false, &names).to_string();
    assert!(text.contains("geneve({class=0x102,type=0x3,len=60}{class=0x102,type=0x80,len=4,0x1b/0xf})"), "{text}");
    for (other, is_same) in [(list(0x2b, 8), true), (list(0x1c, 9), false), (list(0x1b, 9)[64..].to_vec(), false)] {
        assert_eq!(agree_under(&translation.mask, &key, &with_raw_options(&other).0), is_same);
    }
}

/// Each bridge has a mapping of its own, and a changed one concerns every megaflow.
#[test]
fn a_changed_mapping_reads_the_same_bytes_otherwise() {
    let ofproto = with_options(true, &[]);
    let list = option(1, &[0, 0, 0, 9, 0, 0, 0, 9]);
    let add = |rule: &str| {
        let rule = FlowMod::parse(rule, FlowCommand::Add, &PortNames::NONE).unwrap();
        ofproto.flow_mod("br0", &rule, 0)
    };
    add("tun_metadata1=0x900000009,actions=9").unwrap();
    assert_eq!(translate_options(&ofproto, &list).1.actions.len(), 1);
    let before = ofproto.epoch();
    let kind = |kind, length| OptionKind { class: 0x102, kind, length };
    ofproto.map_tunnel_options("br0", &[(63, kind(1, 8))]);
    assert!(ofproto.epoch() > before);
    assert!(translate_options(&ofproto, &list).1.actions.is_empty());
    add("tun_metadata63=0x900000009,actions=9").unwrap();
    assert_eq!(translate_options(&ofproto, &list).1.actions.len(), 1);
}

#[test]
fn values_of_many_words_are_matched_moved_pushed_and_learned() {
    let ofproto = with_options(false, &[]);
    let kind = |kind, length| OptionKind { class: 0x102, kind, length };
    ofproto.map_tunnel_options("br0", &[(5, kind(5, 124)), (6, kind(6, 124))]);
    let value = format!("0x{}", "ab".repeat(123) + "cd");
    let rules = [
        format!(
            "priority=9,in_port=9,actions=set_field:{value}->tun_metadata5,move:tun_metadata5[0..991]->tun_metadata6[0..991],resubmit(,1)"
        ),
        "table=1,actions=push:tun_metadata5[8..991],pop:tun_metadata6[0..983],load:0xee->tun_metadata6[984..991],\
         learn(table=2,tun_metadata5[],load:tun_metadata6[]->tun_metadata5[]),7"
            .to_owned(),
        format!("priority=8,tun_metadata5={value},actions=9"),
    ];
    for rule in &rules {
        let parsed = FlowMod::parse(rule, FlowCommand::Add, &PortNames::NONE).unwrap();
        ofproto.flow_mod("br0", &parsed, 0).unwrap();
    }
    let sent = actions(&ofproto, "in_port(9)", 0);
    let shifted = format!("0xee{}", "ab".repeat(123));
    let options = format!("{{class=0x102,type=0x5,len=124,{value}}}{{class=0x102,type=0x6,len=124,{shifted}}}");
    assert!(sent.contains(&format!("geneve({options})")), "{sent}");
    let bytes = [vec![0xab; 123], vec![0xcd]].concat();
    assert_eq!(translate_options(&ofproto, &option(5, &bytes)).1.actions.len(), 1);
    assert!(translate_options(&ofproto, &option(5, &[0xab; 124])).1.actions.is_empty());
}

/// The last byte of an option of 124, the first, and that it is there, choose the bucket and stand in the megaflow.
#[test]
fn a_select_group_hashes_all_bytes_of_an_option() {
    let ofproto = with_options(true, &[]);
    ofproto.map_tunnel_options("br0", &[(5, OptionKind { class: 0x102, kind: 5, length: 124 })]);
    let buckets: String = (0..8).map(|i| format!(",bucket=load:{i}->reg0,resubmit(,1)")).collect();
    let group = format!("group_id=1,type=select,selection_method=hash,fields(tun_metadata5){buckets}");
    ofproto.group_mod("br0", &GroupMod::parse(&group, GroupCommand::Add, &PortNames::NONE).unwrap(), 0).unwrap();
    let rules = (0..8).map(|i| format!("table=1,reg0={i},actions=set_field:{}->pkt_mark,9", i + 1));
    for rule in rules.chain(["actions=group:1".to_owned()]) {
        ofproto.flow_mod("br0", &FlowMod::parse(&rule, FlowCommand::Add, &PortNames::NONE).unwrap(), 0).unwrap();
    }
    let chosen = |list: &[u8]| translate_options(&ofproto, list).1;
    let with = |at: usize, byte: u8| {
        let mut value = [0; 124];
        value[at] = byte;
        option(5, &value)
    };
    for at in [0, 60, 107, 123] {
        let mut answers: Vec<String> = (0..32).map(|byte| format!("{:?}", chosen(&with(at, byte)).actions)).collect();
        answers.sort();
        answers.dedup();
        assert!(answers.len() > 3, "byte {at}: {answers:?}");
    }
    let (zeros, mask) = (with_raw_options(&with(0, 0)).0, chosen(&with(0, 0)).mask);
    assert!([0, 60, 107, 123].iter().all(|at| !agree_under(&mask, &zeros, &with_raw_options(&with(*at, 1)).0)));
    assert!(agree_under(&chosen(&[]).mask, &with_raw_options(&[]).0, &with_raw_options(&[]).0));
}

/// Open vSwitch refuses it in the same words.
#[test]
fn a_trace_of_options_that_do_not_fit_says_so() {
    let ofproto = with_options(true, &["actions=9"]);
    let of = |options: &str| {
        let tunnel = "tunnel(tun_id=0x5,src=1.1.2.92,dst=1.1.2.88,ttl=64,geneve(OPTIONS),flags(key)),in_port(6081)";
        trace(&ofproto, &tunnel.replace("OPTIONS", options), 0)
    };
    for unfit in ["{class=0x102,type=0x80,len=8,0x1b}", "{class=0x102,type=0x81,len=4,0x1b}"] {
        assert_eq!(of(unfit).unwrap_err(), "Failed to parse Geneve options");
    }
    assert!(of("{class=0x102,type=0x1f,len=4,0x1b}").is_ok(), "nobody needs to know it");
}

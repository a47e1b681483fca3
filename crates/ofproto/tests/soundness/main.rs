//! Every packet that matches a megaflow is treated as the tables specify.
//!
//! Random tables and packets. The reference is `sluice_oracle::pipeline`, which knows neither masks nor datapath
//! actions. A packet is translated. Then packets that differ from it in a byte or two are tried: for those that its
//! megaflow matches, the megaflow's actions must do what the oracle expects of the tables.

mod changes;
mod dependencies;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use sluice_action::{Action, Header, MegaflowStore, Miss, PortNo, Translation, Upcall, UpcallResult};
use sluice_flow::{FlowKey, Metadata, OfPort, PacketKey, PortNames, VlanLimit, extract, layout};
use sluice_flow_cache::MegaflowTable;
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{BridgeConfig, Ofproto, PortConfig, VlanMode, packet_of};
use sluice_oracle::pipeline::{Pipeline, Sent, as_sent};
use sluice_oracle::{LinearClassifier, LinearRule};
use sluice_simd::HashKey;
use sluice_testkit::arbitrary::frames;
use std::sync::Arc;

const PORTS: u16 = 4;

const MATCHES: &[&str] = &[
    "in_port=1",
    "in_port=2",
    "dl_src=02:00:00:00:00:01",
    "dl_dst=ff:ff:ff:ff:ff:ff",
    "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00",
    "ip",
    "ip",
    "ip",
    "ipv6",
    "ipv6",
    "arp",
    "tcp",
    "tcp",
    "udp",
    "tcp6",
    "udp6",
    "icmp",
    "icmp6",
    "sctp",
    "nw_src=10.0.0.0/8",
    "nw_src=10.0.0.1",
    "nw_dst=10.0.0.2",
    "nw_dst=128.0.0.0/1",
    "nw_dst=0.0.0.1/0.0.0.255",
    "tp_dst=80",
    "tp_dst=0/0xff00",
    "tp_src=53",
    "tp_src=0x1bb/0xfff",
    "vlan_tci=0",
    "dl_vlan=5",
    "vlan_tci=0x1000/0x1000",
    "dl_vlan_pcp=7",
    "ip_frag=yes",
    "ip_frag=later",
    "ip_frag=not_later",
    "reg0=1",
    "reg0=0/1",
    "reg0=0x5/0xff",
    "metadata=1",
    "tcp_flags=+syn",
    "tcp_flags=-ack",
    "nw_ttl=64",
    "nw_ttl=1",
    "nw_tos=16",
    "nw_ecn=1",
    "ipv6_src=fd00::/8",
    "ipv6_dst=fd01::7",
    "ipv6_label=0",
    "arp_op=1",
    "arp_spa=10.0.0.1",
    "actset_output=2",
    "icmp_type=8",
    "mpls_label=3",
    "mpls_bos=1",
];

const ACTIONS: &[&str] = &[
    "output:1",
    "output:2",
    "output:3",
    "output:9",
    "in_port",
    "flood",
    "all",
    "controller",
    "resubmit(,1)",
    "resubmit(,2)",
    "resubmit(,3)",
    "resubmit(2,1)",
    "resubmit(,0)",
    "mod_dl_src:02:00:00:00:00:01",
    "mod_dl_dst:00:00:00:00:00:00",
    "mod_nw_src:10.0.0.1",
    "mod_nw_dst:1.2.3.4",
    "mod_nw_tos:16",
    "set_field:9->nw_ttl",
    "mod_tp_src:8",
    "mod_tp_dst:80",
    "dec_ttl",
    "dec_ttl",
    "strip_vlan",
    "strip_vlan",
    "mod_vlan_vid:5",
    "mod_vlan_pcp:3",
    "push_vlan:0x8100",
    "push_vlan:0x88a8",
    "load:1->NXM_NX_REG0[]",
    "load:1->NXM_NX_REG0[0]",
    "load:3->NXM_NX_REG0[0..15]",
    "move:NXM_OF_ETH_SRC[0..15]->NXM_NX_REG0[0..15]",
    "move:NXM_NX_REG0[0..15]->NXM_OF_ETH_DST[0..15]",
    "move:NXM_OF_VLAN_TCI[]->NXM_NX_REG0[0..15]",
    "move:NXM_NX_REG0[0..15]->NXM_OF_VLAN_TCI[]",
    "load:0->NXM_OF_VLAN_TCI[]",
    "load:0x1005->NXM_OF_VLAN_TCI[]",
    "load:1->NXM_OF_VLAN_TCI[12]",
    "push:NXM_OF_ETH_SRC[]",
    "pop:NXM_OF_ETH_DST[]",
    "push:NXM_OF_IP_SRC[]",
    "pop:NXM_OF_IP_DST[]",
    "output:NXM_NX_REG0[0..15]",
    "set_field:10.0.0.9/255.0.0.255->ip_src",
    "set_field:fd00::1->ipv6_dst",
    "set_field:7->ipv6_label",
    "set_field:443->tcp_dst",
    "set_field:1.1.1.1->arp_tpa",
    "set_field:2->arp_op",
    "load:5->NXM_NX_PKT_MARK[]",
    "move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[]",
    "move:NXM_OF_IP_TOS[]->NXM_NX_REG0[0..7]",
    "set_field:0x1/0x1->metadata",
    "exit",
    "clone(mod_dl_src:00:00:00:00:00:07,output:2,resubmit(,3))",
    "clone(strip_vlan,output:1)",
    "write_actions(set_field:00:00:00:00:00:05->eth_src,output:2)",
    "write_actions(pop_vlan,output:3)",
    "write_actions(output:1)",
    "set_field:3->in_port",
    "load:0->NXM_OF_IP_SRC[]",
];

/// Actions that the oracle does not implement.
const MORE_ACTIONS: &[&str] = &[
    "NORMAL",
    "NORMAL",
    "push_mpls:0x8847",
    "push_mpls:0x8847",
    "pop_mpls:0x0800",
    "pop_mpls:0x8847",
    "dec_mpls_ttl",
    "set_field:5->mpls_label",
    "set_field:3->mpls_tc",
    "load:5->OXM_OF_MPLS_LABEL[]",
    "output(port=2,max_len=64)",
    "check_pkt_larger(100)->NXM_NX_REG0[0]",
    "multipath(symmetric_l4,0,modulo_n,4,0,NXM_NX_REG0[0..15])",
    "multipath(symmetric_l3l4,0,hrw,4,0,NXM_NX_REG0[0..15])",
    "multipath(symmetric_l3l4+udp,0,hrw,4,0,NXM_NX_REG0[])",
    "multipath(eth_src,0,modulo_n,4,0,NXM_NX_REG0[0..15])",
    "multipath(nw_src,0,modulo_n,4,0,NXM_NX_REG0[0..15])",
    "bundle(symmetric_l4,0,hrw,ofport,slaves:1,2,3)",
    "fin_timeout(idle_timeout=3)",
    "set_queue:2",
    "enqueue:3:1",
    "learn(table=3,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])",
    "note:01",
    "output:NXM_NX_REG0[]",
    "clone(pop_mpls:0x0800,output:1)",
    "clone(output(port=2,max_len=64),strip_vlan,output:3)",
    "write_actions(push_mpls:0x8847,output:2)",
    "resubmit(,2)",
    "set_field:0x7->reg1",
    "exit",
];

/// Flows of random matches and actions; those that do not parse are left out.
fn flows(actions: Vec<&'static str>) -> impl Strategy<Value = Vec<FlowMod>> {
    let matches = prop::collection::vec(select(MATCHES), 0..4);
    let actions = prop::collection::vec(select(actions), 1..5);
    let flow = (0..4u8, matches, actions).prop_map(|(table, matches, actions)| {
        let text = format!("table={table},{} actions={}", matches.join(","), actions.join(","));
        FlowMod::parse(&text, FlowCommand::Add, &PortNames::NONE).ok()
    });
    prop::collection::vec(flow, 1..60).prop_map(|flows| {
        let distinct = flows.into_iter().flatten().zip(1..);
        // Priorities are unique: otherwise it is undefined which of two rules wins.
        distinct.map(|(flow, priority)| FlowMod { priority, ..flow }).collect()
    })
}

/// A change of a frame.
#[derive(Clone, Debug)]
enum Change {
    /// Changes a byte.
    Byte(Index, u8),
    /// Adds a tag, outside or inside the others.
    Tag { tpid: u16, tci: u16, inner: bool },
    /// Removes the outer tag.
    Untag,
    /// Changes flags and offset of an IPv4 fragment.
    Fragment(u16),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let byte = prop_oneof![any::<u8>(), select(vec![0, 1, 2, 4, 6, 8, 16, 17, 58, 64, 80, 132])];
    let change = prop_oneof![
        6 => (any::<Index>(), byte).prop_map(|(at, value)| Change::Byte(at, value)),
        1 => (select(vec![0x8100, 0x88a8]), select(vec![0, 5, 0xe005, 0x1005]), any::<bool>())
            .prop_map(|(tpid, tci, inner)| Change::Tag { tpid, tci, inner }),
        1 => Just(Change::Untag),
        2 => select(vec![0, 0x4000, 0x2000, 0x2001, 1]).prop_map(Change::Fragment),
    ];
    prop::collection::vec(change, 1..3)
}

fn tags_of(frame: &[u8]) -> usize {
    let is_tag = |i: &usize| matches!(frame.get(12 + 4 * i..14 + 4 * i), Some([0x81, 0] | [0x88, 0xa8]));
    (0..3).take_while(is_tag).count()
}

impl Change {
    fn apply(&self, frame: &mut Vec<u8>) {
        let tags = tags_of(frame);
        match self {
            Change::Byte(at, value) => {
                let at = at.index(frame.len().min(80));
                frame[at] = *value;
            }
            Change::Tag { tpid, tci, inner } => {
                let at = if *inner { 12 + 4 * tags } else { 12 };
                let [a, b] = tpid.to_be_bytes();
                let [c, d] = tci.to_be_bytes();
                frame.splice(at..at, [a, b, c, d]);
            }
            Change::Untag if tags > 0 => _ = frame.drain(12..16),
            Change::Untag => {}
            Change::Fragment(value) => {
                let ip = 14 + 4 * tags;
                if let [0x08, 0x00] = frame[ip - 2..ip] {
                    frame[ip + 6..ip + 8].copy_from_slice(&value.to_be_bytes());
                }
            }
        }
    }
}

fn key_of(frame: &[u8], port: u16) -> Option<PacketKey> {
    let mut key = PacketKey::ZERO;
    extract(frame, &Metadata::of_port(port.into()), &mut key).ok()?;
    // Protocol 0 means "no header", as in OVS; the oracle does not implement that.
    let is_network = matches!(key.number(layout::DL_TYPE), 0x0800 | 0x86dd | 0x0806 | 0x8035);
    (!is_network || key.number(layout::NW_PROTO) != 0).then_some(key)
}

fn oracle(flows: &[FlowMod]) -> Pipeline {
    let mut pipeline = Pipeline { ports: (1..=PORTS).map(OfPort).collect(), ..Pipeline::default() };
    for flow in flows {
        let table: &mut LinearClassifier<_> = pipeline.tables.entry(flow.table.unwrap_or(0)).or_default();
        table.insert(LinearRule {
            matching: flow.matches.clone(),
            priority: flow.priority.into(),
            add_version: 0,
            remove_version: u64::MAX,
            clauses: Vec::new(),
            payload: flow.actions.clone(),
        });
    }
    pipeline
}

fn switch(flows: &[FlowMod]) -> Ofproto {
    let ofproto = Ofproto::new();
    // The keys of these tests have two tags.
    ofproto.set_vlan_limit(VlanLimit::MAX);
    ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
    for n in 1..=PORTS {
        ofproto.add_port("br0", PortConfig::new(&format!("p{n}"), n, PortNo(n.into()))).unwrap();
    }
    ofproto.bundle("br0", flows, 0).unwrap();
    ofproto
}

/// The complete effect of datapath actions on a packet: everything that leaves.
fn effects(actions: &[Action], key: &mut FlowKey, out: &mut Vec<String>) {
    for action in actions {
        match action {
            Action::Output(_) | Action::Controller { .. } | Action::Recirc(_) => {
                out.push(format!("{action:?} of {:?}", as_sent(key)));
            }
            Action::Trunc(_) => out.push(format!("{action:?}")),
            Action::PushMpls { .. } | Action::PopMpls { .. } => out.push(format!("{action:?} at {:?}", as_sent(key))),
            // Labels beyond this are not tracked.
            Action::Set { header: Header::Mpls | Header::SkbPriority, .. } => out.push(format!("{action:?}")),
            Action::Clone(nested) => effects(nested, &mut key.clone(), out),
            Action::CheckPktLen { len, greater, less_or_equal } => {
                out.push(format!("longer than {len}:"));
                effects(greater, &mut key.clone(), out);
                out.push("else:".to_owned());
                effects(less_or_equal, &mut key.clone(), out);
            }
            _ => execute(std::slice::from_ref(action), key, &mut Vec::new()),
        }
    }
}

/// The effect of datapath actions on a packet's key.
fn execute(actions: &[Action], key: &mut FlowKey, sent: &mut Vec<Sent>) {
    for action in actions {
        match action {
            Action::Output(port) => sent.push(Sent { port: OfPort(port.0 as u16), key: as_sent(key) }),
            Action::Controller { .. } => sent.push(Sent { port: OfPort::CONTROLLER, key: as_sent(key) }),
            Action::Set { fields, .. } => {
                for field in fields {
                    let bytes = key.get_mut(field.span);
                    for (i, byte) in bytes.iter_mut().enumerate() {
                        *byte = *byte & !field.mask[i] | field.value[i];
                    }
                }
            }
            Action::PushVlan { tpid, tci } => {
                let outer = [layout::VLAN0_TPID, layout::VLAN0_TCI].map(|span| key.number(span));
                key.set_number(layout::VLAN1_TPID, outer[0]);
                key.set_number(layout::VLAN1_TCI, outer[1]);
                key.set_number(layout::VLAN0_TPID, (*tpid).into());
                key.set_number(layout::VLAN0_TCI, (*tci).into());
            }
            Action::PopVlan => {
                let inner = [layout::VLAN1_TPID, layout::VLAN1_TCI].map(|span| key.number(span));
                assert!(key.number(layout::VLAN0_TCI) & 0x1000 != 0, "there is a tag to pop");
                key.set_number(layout::VLAN0_TPID, inner[0]);
                key.set_number(layout::VLAN0_TCI, inner[1]);
                key.set_number(layout::VLAN1_TPID, 0);
                key.set_number(layout::VLAN1_TCI, 0);
            }
            Action::Clone(nested) => execute(nested, &mut key.clone(), sent),
            Action::Drop => {}
            other => panic!("{other:?} was not expected"),
        }
    }
}

fn translate(ofproto: &Ofproto, key: &PacketKey) -> Translation {
    match ofproto.upcall().translate(&Miss { key, bytes: &[], now_ms: 0 }) {
        UpcallResult::Translated(translation) => translation,
        other => panic!("{other:?}"),
    }
}

/// The tables' key of a packet.
fn table_key(key: &PacketKey) -> FlowKey {
    FlowKey::of_packet(key)
}

fn check(pipeline: &Pipeline, translation: &Translation, key: &PacketKey) -> Result<(), TestCaseError> {
    let mut got = Vec::new();
    execute(&translation.actions, &mut table_key(key), &mut got);
    let want = pipeline.run(&table_key(key)).unwrap_or_default();
    prop_assert_eq!(&got, &want, "{:?}\nactions {:?}\nmask {:?}", key, translation.actions, translation.mask);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn what_matches_a_megaflow_gets_what_the_tables_say(
        flows in flows(ACTIONS.to_vec()),
        packets in prop::collection::vec((frames(), 1..=PORTS, prop::collection::vec(changes(), 16)), 8),
    ) {
        let (pipeline, ofproto) = (oracle(&flows), switch(&flows));
        for (frame, port, changes) in packets {
            let Some(key) = key_of(&frame, port) else { continue };
            let translation = translate(&ofproto, &key);
            check(&pipeline, &translation, &key)?;
            let flow = sluice_action::MegaflowMatch::new(translation.mask, &key);
            prop_assert!(flow.contains(&key));
            for changes in changes {
                let mut other = frame.clone();
                changes.iter().for_each(|change| change.apply(&mut other));
                let Some(other) = key_of(&other, port) else { continue };
                if flow.contains(&other) {
                    check(&pipeline, &translation, &other)?;
                }
            }
        }
    }

    /// The same for every action, with the switch itself as the reference: a megaflow's actions must have the same
    /// effect on each of its packets as the packet's own translation.
    #[test]
    fn what_matches_a_megaflow_gets_what_its_own_translation_says(
        flows in flows([ACTIONS, MORE_ACTIONS, MORE_ACTIONS].concat()),
        packets in prop::collection::vec((frames(), 1..=PORTS, prop::collection::vec(changes(), 16)), 8),
    ) {
        let ofproto = switch(&flows);
        let vlans = [VlanMode::of(None, &[5, 10]), VlanMode::of(Some(5), &[])];
        let native = VlanMode::NativeUntagged { vlan: 5, trunks: None };
        for (port, vlan) in [("p1", vlans[0].clone()), ("p2", vlans[1].clone()), ("p3", native)] {
            ofproto.set_port("br0", port, |p| p.vlan = vlan).unwrap();
        }
        ofproto.fdb_add("br0", "p2", "5", "02:00:00:00:00:01").unwrap();
        ofproto.fdb_add("br0", "p4", "0", "02:00:00:00:00:02").unwrap();
        for (frame, port, changes) in packets {
            let Some(key) = key_of(&frame, port) else { continue };
            let translation = translate(&ofproto, &key);
            let flow = sluice_action::MegaflowMatch::new(translation.mask, &key);
            for changes in changes {
                let mut other = frame.clone();
                changes.iter().for_each(|change| change.apply(&mut other));
                let Some(other) = key_of(&other, port) else { continue };
                if flow.contains(&other) {
                    let own = translate(&ofproto, &other);
                    let (mut got, mut want) = (Vec::new(), Vec::new());
                    effects(&translation.actions, &mut table_key(&other), &mut got);
                    effects(&own.actions, &mut table_key(&other), &mut want);
                    prop_assert_eq!(got, want, "{:?}\n{:?}\nmask {:?}\nof {:?}", translation.actions, own.actions, translation.mask, key);
                }
            }
        }
    }
}

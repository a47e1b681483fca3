//! Further ways into weaknesses that this crate has mended: addresses, groups and translations that go round.

use sluice_action::{Action, Miss, PortNo, Translation, Upcall, UpcallResult};
use sluice_fate::{DropReason, Limit};
use sluice_flow::{FlowKey, Metadata, PacketKey, PortNames, extract};
use sluice_ofp::{FlowCommand, FlowMod, GroupCommand, GroupMod};
use sluice_ofproto::{BridgeConfig, BundleChange, Error, Ofproto, PacketOutRequest, PortConfig};
use sluice_testkit::frame;
use std::time::{Duration, Instant};

/// A gateway, whose address is static at port 1.
const GATEWAY: [u8; 6] = [2, 0xaa, 0, 0, 0, 1];
const HOST: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn switch(flow: &str) -> Ofproto {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
    for n in 1..=3 {
        ofproto.add_port("br0", PortConfig::new(&format!("p{n}"), n, PortNo(n.into()))).unwrap();
    }
    add(&ofproto, flow);
    ofproto
}

fn add(ofproto: &Ofproto, flow: &str) {
    let flow = FlowMod::parse(flow, FlowCommand::Add, &PortNames::NONE).unwrap();
    ofproto.flow_mod("br0", &flow, 0).unwrap();
}

fn send(ofproto: &Ofproto, port: u32, bytes: &[u8]) -> Translation {
    let mut key = PacketKey::ZERO;
    extract(bytes, &Metadata::of_port(port), &mut key).unwrap();
    let mut upcall = ofproto.upcall();
    match upcall.translate(&Miss { key: &key, bytes, now_ms: 0 }) {
        UpcallResult::Translated(translation) => {
            upcall.credit(&translation.xcache, 1, 60, 0, 0);
            translation
        }
        other => panic!("{other:?}"),
    }
}

/// Gratuitous ARP, requests and replies, that claims the gateway's address in every VLAN, from a port that fills the
/// table besides. The gateway keeps its address in the VLANs in which it is static.
#[test]
fn gratuitous_arp_in_all_vlans_takes_no_static_address() {
    const STATIC: [u16; 3] = [1, 7, 4094];
    let ofproto = switch("actions=NORMAL");
    STATIC.iter().for_each(|vlan| _ = ofproto.fdb_add("br0", "p1", &vlan.to_string(), "02:aa:00:00:00:01").unwrap());
    for round in 0..3u8 {
        for vlan in 1..4095u16 {
            let (op, dst) = if round == 1 { (2, HOST) } else { (1, [0xff; 6]) };
            let claims = frame::ethernet().macs(GATEWAY, dst).vlan(vlan);
            send(&ofproto, 2, &claims.arp(op, GATEWAY, [10, 0, 0, 1], [0; 6], [10, 0, 0, 1]).build());
            let [high, low] = vlan.to_be_bytes();
            let fills = frame::ethernet().macs([2, 1, round, 0, high, low], dst).vlan(vlan);
            send(&ofproto, 2, &fills.ipv4([1; 4], [2; 4]).udp(1, 2).build());
            if vlan % 1000 == 0 {
                ofproto.tick(0);
            }
        }
        ofproto.tick(0);
    }
    let rows = ofproto.fdb_show("br0", 0).unwrap();
    assert_eq!(rows.lines().filter(|row| row.ends_with("static") && row.starts_with("    1 ")).count(), STATIC.len());
    assert!(rows.lines().count() > 8000, "the table was filled");
    for vlan in STATIC {
        let to_gateway = frame::ethernet().macs(HOST, GATEWAY).vlan(vlan).ipv4([1; 4], [2; 4]).udp(1, 2).build();
        assert_eq!(send(&ofproto, 3, &to_gateway).actions[..], [Action::Output(PortNo(1))], "VLAN {vlan}");
    }
}

fn group(text: &str, command: GroupCommand) -> BundleChange {
    BundleChange::Group(GroupMod::parse(text, command, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}")))
}

/// A ring that only the last change of a bundle closes, by a modification, an addition or a bucket: the bundle is refused
/// as a whole, and a packet is translated as before.
#[test]
fn a_ring_of_groups_that_a_bundle_closes_is_refused_with_all_of_it() {
    use GroupCommand::{Add, Delete, InsertBucket, Modify};
    let watches = |id: u32, other: u32| {
        format!("group_id={id},type=ff,bucket=watch_port:3,output:3,bucket=watch_group:{other},output:2")
    };
    let end = "group_id=3,type=ff,bucket=watch_port:2,output:2";
    let chain = || vec![group(&watches(1, 2), Add), group(&watches(2, 3), Add), group(end, Add)];
    let bucket = "group_id=3,command_bucket_id=last,bucket=watch_group:1,output:1";
    let endings: [&dyn Fn() -> Vec<BundleChange>; 3] = [
        &|| vec![group(&watches(3, 1), Modify)],
        &|| vec![group("group_id=2", Delete), group(&watches(3, 1), Modify), group(&watches(2, 3), Add)],
        &|| vec![group(bucket, InsertBucket)],
    ];
    for (n, ending) in endings.iter().enumerate() {
        let ofproto = switch("actions=drop");
        // All in one bundle, and the ending in a bundle of its own.
        let whole: Vec<_> = chain().into_iter().chain(ending()).collect();
        let last = whole.len() - 1;
        let (at, error) = ofproto.ordered_bundle("br0", whole, None, 0).unwrap_err();
        assert!(at == last && matches!(error, Error::GroupLoop(_)), "ending {n}: {error} at {at}");
        assert_eq!(ofproto.groups("br0").unwrap().len(), 0);
        ofproto.ordered_bundle("br0", chain(), None, 0).unwrap();
        assert!(ofproto.ordered_bundle("br0", ending(), None, 0).is_err());
        let udp = frame::ethernet().macs(HOST, GATEWAY).ipv4([1; 4], [2; 4]).udp(1, 2).build();
        add(&ofproto, "actions=group:1");
        assert_eq!(send(&ofproto, 1, &udp).actions[..], [Action::Output(PortNo(3))], "ending {n}");
    }
}

/// Groups whose buckets lead to one another go round until a limit names the drop; so do groups and tables by turns, in
/// clones, and with a choice by the packet's length in each turn.
#[test]
fn groups_and_tables_that_lead_to_one_another_end_by_name() {
    let nest = |inner: &str| format!("{}{inner}{}", "clone(".repeat(20), ")".repeat(20));
    let choice = "check_pkt_larger(10)->NXM_NX_REG0[0]";
    for (rule, first, second) in [
        ("group:1", "group:2", "group:1"),
        ("group:1", "group:2", "resubmit(,0)"),
        (&nest("group:1"), "resubmit(,0)", "drop"),
        (&nest(&format!("{choice},group:1")), "group:2", "resubmit(,0)"),
    ] {
        let ofproto = switch("actions=drop");
        for (id, actions) in [(2, second), (1, first)] {
            let bucket = format!("bucket=actions={actions}");
            let text = format!("group_id={id},type=all,{bucket},{bucket}");
            ofproto.ordered_bundle("br0", [group(&text, GroupCommand::Add)], None, 0).unwrap();
        }
        add(&ofproto, &format!("actions={rule}"));
        let udp = frame::ethernet().macs(HOST, GATEWAY).ipv4([1; 4], [2; 4]).udp(1, 2).build();
        let translation = send(&ofproto, 1, &udp);
        let ends = [DropReason::RecursionTooDeep, DropReason::TooManyResubmits, DropReason::TranslationWork];
        assert!(ends.contains(&translation.no_output), "{rule}, {first}: {:?}", translation.no_output);
        assert!(translation.actions.is_empty(), "{rule}, {first}: {:?}", translation.actions);
    }
}

/// A ring of bridges: each floods into the next by groups of two kinds whose buckets watch ports and other groups, and by
/// NORMAL. One packet ends by name, whatever it has gone through; so does a trace of it.
#[test]
fn bridges_that_flood_one_another_by_groups_end_by_name() {
    const RING: u16 = 4;
    const SELECT: &str = "select,selection_method=hash,fields(ip_src)";
    for (kind, flood) in [("all", "group:1"), (SELECT, "group:1"), ("ff", "group:1"), ("all", "group:1,NORMAL")] {
        let ofproto = Ofproto::new();
        for n in 0..RING {
            ofproto.add_bridge(BridgeConfig::new(&format!("br{n}")), 0).unwrap();
        }
        for n in 0..RING {
            let (name, next) = (format!("br{n}"), (n + 1) % RING);
            ofproto.add_port(&name, PortConfig::new(&format!("p{n}"), 9, PortNo(u32::from(n) + 1))).unwrap();
            // Both ways, several times.
            for way in 0..4 {
                let (out, back) = (format!("o{n}{way}"), format!("i{next}{way}"));
                ofproto.add_port(&name, PortConfig::patch(&out, 20 + way, &back)).unwrap();
                ofproto.add_port(&format!("br{next}"), PortConfig::patch(&back, 30 + way, &out)).unwrap();
            }
            // Groups 2 to 60 watch one another in a chain, and group 1 sends to patch ports that are watched with them.
            let chain = (2..60u32).rev().map(|id| {
                let watch = if id == 59 { "watch_port:20".to_owned() } else { format!("watch_group:{}", id + 1) };
                group(&format!("group_id={id},type=ff,bucket={watch},actions=drop"), GroupCommand::Add)
            });
            let watches = |port: u16| match kind {
                "all" => String::new(),
                SELECT => "weight:1,watch_group:2,".to_owned(),
                _ => format!("watch_port:{port},watch_group:2,"),
            };
            let bucket = |port: u16| format!("bucket={}actions=output:{port}", watches(port));
            let buckets: Vec<_> = (20..24).chain(30..34).map(bucket).collect();
            let first = group(&format!("group_id=1,type={kind},{}", buckets.join(",")), GroupCommand::Add);
            ofproto.ordered_bundle(&name, chain.chain([first]), None, 0).unwrap();
            let rule = FlowMod::parse(&format!("actions={flood}"), FlowCommand::Add, &PortNames::NONE).unwrap();
            ofproto.flow_mod(&name, &rule, 0).unwrap();
        }
        let udp = frame::ethernet().macs(HOST, GATEWAY).ipv4([1; 4], [2; 4]).udp(1, 2).build();
        let translation = send(&ofproto, 1, &udp);
        let ends = [DropReason::RecursionTooDeep, DropReason::TooManyResubmits, DropReason::TranslationWork];
        assert!(ends.contains(&translation.no_output), "{kind}, {flood}: {:?}", translation.no_output);
        let trace = ofproto.trace(&["br0", "in_port=9,udp"], 0).unwrap();
        assert!(trace.len() < 8 << 20, "{kind}, {flood}: a trace of {} bytes", trace.len());
    }
}

/// Rules that packets teach and that take their own teacher's place, whose end deletes what they have taught, over and
/// over: no tick grows the tables, and when all rules are gone so is the memory that they took.
#[test]
fn rules_that_teach_and_delete_their_teachers_leave_nothing_behind() {
    let again = "learn(table=0,priority=9,delete_learned,cookie=7,idle_timeout=10,NXM_OF_ETH_SRC[],load:1->NXM_NX_REG1[]),\
        learn(table=0,priority=8,delete_learned,cookie=8,hard_timeout=1,limit=50,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])";
    let ofproto = switch("priority=1,actions=drop");
    let empty = ofproto.rule_memory().usage().0;
    add(&ofproto, &format!("priority=9,cookie=7,actions={again}"));
    add(&ofproto, &format!("priority=8,cookie=8,actions={again}"));
    let mut most = 0;
    for tick in 0..30u32 {
        for source in 0..200u32 {
            let [_, _, high, low] = (source * 7 + tick).to_be_bytes();
            let udp = frame::ethernet().macs([2, 0, 0, 7, high, low], HOST).ipv4([1; 4], [2; 4]).udp(1, 2).build();
            send(&ofproto, 1 + source % 3, &udp);
        }
        ofproto.tick(u64::from(tick) * 500);
        most = most.max(ofproto.table_stats("br0").unwrap().iter().map(|table| table.rules).sum());
    }
    assert!(most > 50 && most < 5000, "{most} rules at most");
    ofproto.flow_mod("br0", &FlowMod::new(FlowCommand::Delete), 20_000).unwrap();
    ofproto.tick(100_000);
    assert_eq!(ofproto.table_stats("br0").unwrap().iter().map(|table| table.rules).sum::<usize>(), 0);
    assert!(ofproto.rule_memory().usage().0 <= empty, "{} bytes are left", ofproto.rule_memory().usage().0);
}

/// Groups of groups, by resubmits, with a `learn` for each of their buckets. The limit of a rule that is taught
/// is compared with those that the same packet has taught before, so a packet that teaches many pays for each of them.
#[test]
fn rules_that_buckets_teach_take_bounded_work() {
    let learn = "learn(table=9,cookie=5,limit=60000,idle_timeout=9,NXM_NX_REG0[],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])";
    let free = "learn(table=9,cookie=5,idle_timeout=9,NXM_NX_REG0[],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])";
    for (one, outer, is_too_much) in [(learn, 20, true), (learn, 1, false), (free, 200, true), (free, 5, false)] {
        let ofproto = switch("actions=drop");
        let inner: String = (0..40).map(|n| format!(",bucket=actions=load:{n}->NXM_NX_REG1[],resubmit(,2)")).collect();
        let calls: String = (0..outer).map(|n| format!(",bucket=actions=load:{n}->NXM_NX_REG2[],group:2")).collect();
        for text in
            [format!("group_id=2,type=all{inner}"), format!("group_id=1,type=all{calls},bucket=actions=output:2")]
        {
            ofproto.ordered_bundle("br0", [group(&text, GroupCommand::Add)], None, 0).unwrap();
        }
        add(&ofproto, "actions=group:1");
        let number = "move:NXM_NX_REG1[0..15]->NXM_NX_REG0[0..15],move:NXM_NX_REG2[0..15]->NXM_NX_REG0[16..31]";
        add(&ofproto, &format!("table=2,actions={number},{one}"));
        let udp = frame::ethernet().macs(HOST, GATEWAY).ipv4([1; 4], [2; 4]).udp(1, 2).build();
        let translation = send(&ofproto, 1, &udp);
        ofproto.tick(1);
        let taught = ofproto.table_stats("br0").unwrap().iter().find(|t| t.table == 9).map_or(0, |t| t.rules);
        if is_too_much {
            let ends = [DropReason::TooManyResubmits, DropReason::TranslationWork];
            assert!(ends.contains(&translation.no_output), "{:?}: {one} in {outer}", translation.no_output);
            // With a limit they cost the square of their number.
            let most = if one == learn { 400 } else { 7300 };
            assert!(taught < most, "{taught}: {one} in {outer}");
        } else {
            assert_eq!((translation.actions.len(), taught), (1, 40 * outer), "{one} in {outer}");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the test measures time")]
fn time_of(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

/// A `learn` with a limit into a table of very many rules: a packet that misses does not look through them.
#[test]
fn a_limit_in_a_table_of_very_many_rules_costs_a_packet_no_search() {
    let took = |rules: u32| {
        let learn = "learn(table=9,cookie=5,limit=3,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])";
        let ofproto = switch(&format!("actions={learn},output:2"));
        let other =
            |n| FlowMod::parse(&format!("table=9,cookie=6,reg0={n},actions=drop"), FlowCommand::Add, &PortNames::NONE);
        let others: Vec<_> = (0..rules).map(|n| other(n).unwrap()).collect();
        ofproto.bundle("br0", &others, 0).unwrap();
        let packets: Vec<_> = (0..100u8)
            .map(|n| frame::ethernet().macs([2, 0, 0, 0, 1, n], GATEWAY).ipv4([1; 4], [2; 4]).udp(1, 2).build())
            .collect();
        let best = (0..5).map(|_| time_of(|| packets.iter().for_each(|bytes| drop(send(&ofproto, 1, bytes)))));
        let best = best.min().unwrap();
        ofproto.tick(1);
        let taught = ofproto.table_stats("br0").unwrap().iter().find(|t| t.table == 9).map_or(0, |t| t.rules);
        assert_eq!(taught, rules as usize + 3, "the limit holds");
        best
    };
    let (few, many) = (took(100), took(100_000));
    assert!(many < few * 50, "{many:?} in a table of many rules, {few:?} in one of few");
}

/// `ct` in each bucket of groups of groups, in zones and with registers of their own: each is a state under a recirculation
/// id. One packet takes a bounded number of them, and another one the same.
#[test]
fn connections_tracked_in_buckets_take_bounded_work_and_few_ids() {
    let ofproto = switch("actions=drop");
    let outer: String = (0..200).map(|n| format!(",bucket=actions=load:{n}->NXM_NX_REG2[],group:2")).collect();
    let inner: String =
        (0..200).map(|n| format!(",bucket=actions=load:{n}->NXM_NX_REG1[],ct(commit,table=3,zone={n})")).collect();
    for text in [format!("group_id=2,type=all{inner}"), format!("group_id=1,type=all{outer}")] {
        ofproto.ordered_bundle("br0", [group(&text, GroupCommand::Add)], None, 0).unwrap();
    }
    add(&ofproto, "actions=group:1");
    let udp = frame::ethernet().macs(HOST, GATEWAY).ipv4([1; 4], [2; 4]).udp(1, 2).build();
    let ids: Vec<usize> = (0..3).map(|_| (send(&ofproto, 1, &udp).actions.len(), ofproto.recirc_usage().0).1).collect();
    assert!(ids[0] > 100 && ids[0] < ofproto.recirc_usage().1 / 16, "{ids:?}");
    assert_eq!(ids, [ids[0]; 3], "equal states have one id");
    let long = ofproto.trace(&["br0", "in_port=1,udp"], 0).unwrap();
    assert!(long.len() < 64 << 20, "a trace of {} bytes", long.len());
}

/// Packets among the changes of a bundle are kept translated until all of it is carried out: a bundle of small ones that a
/// group makes large is refused, with all that it has changed.
#[test]
fn packets_of_a_bundle_take_bounded_memory() {
    let ofproto = switch("actions=drop");
    let buckets: String =
        (0..1000).map(|n| format!(",bucket=actions=set_field:{n}->udp_src,output:{}", 2 + n % 2)).collect();
    ofproto
        .ordered_bundle("br0", [group(&format!("group_id=1,type=all{buckets}"), GroupCommand::Add)], None, 0)
        .unwrap();
    let udp = frame::ethernet().macs(HOST, GATEWAY).ipv4([1; 4], [2; 4]).udp(1, 2).build();
    let mut key = PacketKey::ZERO;
    extract(&udp, &Metadata::of_port(1), &mut key).unwrap();
    let rule = FlowMod::parse("table=5,actions=group:1", FlowCommand::Add, &PortNames::NONE).unwrap();
    let packet = PacketOutRequest { key: FlowKey::of_packet(&key), actions: rule.actions.clone(), length: 60 };
    let bundle = |packets: usize| {
        let packets = (0..packets).map(|_| BundleChange::Packet(Box::new(packet.clone())));
        let changes = [BundleChange::Flow(Box::new(rule.clone()))].into_iter().chain(packets);
        ofproto.ordered_bundle("br0", changes, None, 0)
    };
    let before = Limit::BundledPackets.count();
    let Err((index, Error::BundledPackets(most))) = bundle(1000) else { panic!("it was carried out") };
    assert!(index > 50 && index < 300, "{index}");
    assert!(Limit::BundledPackets.count() > before && most == 1 << 18);
    assert_eq!(ofproto.select("br0", &FlowMod::new(FlowCommand::Delete)).unwrap().len(), 1, "nothing of it stays");
    let (_, packets) = bundle(20).unwrap();
    assert!(packets.len() == 20 && packets[0].actions.len() >= 1000, "{}", packets[0].actions.len());
}

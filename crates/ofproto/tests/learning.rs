//! Storms of learned rules: one transaction and one announcement a batch, with the result of one by one.

use sluice_action::{Miss, PortNo, Upcall, UpcallResult};
use sluice_fate::Limit;
use sluice_flow::{Metadata, PacketKey, PortNames, extract};
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{BridgeConfig, Ofproto, PortConfig};
use sluice_testkit::frame::{self, FrameBuilder};

fn switch(bridges: u16, flow: &str) -> Ofproto {
    let ofproto = Ofproto::new();
    for b in 0..bridges {
        let name = format!("br{b}");
        ofproto.add_bridge(BridgeConfig::new(&name), 0).unwrap();
        for n in 1..=2 {
            let port = PortConfig::new(&format!("p{b}{n}"), n, PortNo(u32::from(10 * b + n)));
            ofproto.add_port(&name, port).unwrap();
        }
        ofproto.flow_mod(&name, &FlowMod::parse(flow, FlowCommand::Add, &PortNames::NONE).unwrap(), 0).unwrap();
    }
    ofproto
}

/// A packet from that source, with its effects queued.
fn packet(ofproto: &Ofproto, port: u32, source: u32, now_ms: u64) {
    let udp = |frame: FrameBuilder| frame.ipv4([1; 4], [2; 4]).udp(1, 2);
    send(ofproto, port, &udp(from(source)).build(), 0, now_ms);
}

fn from(source: u32) -> FrameBuilder {
    let [a, b, c, d] = source.to_be_bytes();
    frame::ethernet().macs([2, 1, a, b, c, d], [2, 0, 0, 0, 0, 9])
}

/// Translates and credits a packet with these flags of TCP.
fn send(ofproto: &Ofproto, port: u32, bytes: &[u8], tcp_flags: u16, now_ms: u64) {
    let mut key = PacketKey::ZERO;
    extract(bytes, &Metadata::of_port(port), &mut key).unwrap();
    let mut upcall = ofproto.upcall();
    let UpcallResult::Translated(translation) = upcall.translate(&Miss { key: &key, bytes, now_ms }) else {
        panic!("no translation")
    };
    upcall.credit(&translation.xcache, 1, 60, tcp_flags, now_ms);
}

/// The learned rules of a bridge, as text.
fn learned(ofproto: &Ofproto, bridge: &str) -> Vec<String> {
    let all = FlowMod { table: Some(1), ..FlowMod::new(FlowCommand::Delete) };
    let rules = ofproto.rules(bridge, &all).unwrap();
    rules.iter().map(|entry| format!("{:?}", entry.rule.actions)).collect()
}

const BY_SOURCE: &str =
    "actions=learn(table=1,idle_timeout=60,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])";

#[test]
fn a_batch_is_announced_once_for_each_bridge() {
    let ofproto = switch(2, BY_SOURCE);
    // The bridges take turns, so that a batch mixes them; some sources come twice.
    for i in 0..3000 {
        packet(&ofproto, 1 + 10 * (i % 2), i / 2 % 1000, 0);
    }
    let epoch = ofproto.epoch();
    ofproto.tick(0);
    assert!(ofproto.epoch() <= epoch + 2, "{} announcements", ofproto.epoch() - epoch);
    assert_eq!((learned(&ofproto, "br0").len(), learned(&ofproto, "br1").len()), (1000, 1000));
    // What is known is only kept young: nothing depends on that.
    for i in 0..1000 {
        packet(&ofproto, 1, i, 50_000);
    }
    let epoch = ofproto.epoch();
    ofproto.tick(50_000);
    assert_eq!(ofproto.epoch(), epoch);
}

/// An address that moves within a batch is where it was last; limits hold within a batch, too.
#[test]
fn effects_of_a_batch_are_done_in_order() {
    let ofproto = switch(1, BY_SOURCE);
    for port in [1, 2, 1, 1, 2] {
        packet(&ofproto, port, 7, 0);
    }
    ofproto.tick(0);
    let at_two = learned(&ofproto, "br0");
    // Known where it is, gone and back.
    [2, 1, 2].into_iter().for_each(|port| packet(&ofproto, port, 7, 2000));
    ofproto.tick(2000);
    assert_eq!((at_two.len(), learned(&ofproto, "br0")), (1, at_two));
    let limited = "actions=learn(table=1,limit=5,cookie=3,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])";
    let ofproto = switch(1, limited);
    (0..100).for_each(|i| packet(&ofproto, 1, i, 0));
    ofproto.tick(0);
    assert_eq!(learned(&ofproto, "br0").len(), 5);
}

/// Effects wait up to the queue's bound and are lost beyond it; what is lost is caused again by the next packet.
#[test]
fn effects_beyond_the_bound_are_lost_until_their_next_packet() {
    const BOUND: u64 = 4096;
    let ofproto = switch(1, BY_SOURCE);
    let before = Limit::Effects.count();
    (0..10_000).for_each(|i| packet(&ofproto, 1, i, 0));
    assert!(Limit::Effects.count() >= before + 10_000 - BOUND);
    let stats = ofproto.effects();
    assert_eq!((stats.queued, stats.lost), (BOUND, 10_000 - BOUND));
    ofproto.tick(0);
    assert_eq!(learned(&ofproto, "br0").len(), BOUND as usize);
    packet(&ofproto, 1, 9_999, 1000);
    ofproto.tick(1000);
    assert_eq!(learned(&ofproto, "br0").len(), BOUND as usize + 1);
}

/// A port whose sources are all new fills its part of the queue; what other ports teach is learned in the same tick.
#[test]
fn a_port_that_floods_leaves_others_their_effects() {
    let ofproto = switch(1, BY_SOURCE);
    (0..10_000).for_each(|i| packet(&ofproto, 1, i, 0));
    (0..100).for_each(|i| packet(&ofproto, 2, 20_000 + i, 0));
    ofproto.tick(0);
    let of_two = |rule: &&String| rule.contains("OfPort(2)");
    assert_eq!(learned(&ofproto, "br0").iter().filter(of_two).count(), 100, "{}", learned(&ofproto, "br0")[0]);
    // As many as before when all has been taken.
    (0..10_000).for_each(|i| packet(&ofproto, 1, 30_000 + i, 0));
    ofproto.tick(0);
    assert_eq!(learned(&ofproto, "br0").len(), 2 * 4096 + 100);
}

/// Connections that begin and end at once, thousands in a batch: each teaches a rule and lowers its teacher's timeouts,
/// and the teacher takes along all that it has taught. Announcements go by batches and pieces, not by packets.
#[test]
fn closing_connections_and_a_teacher_that_goes_cost_announcements_by_batch() {
    let taught = "learn(table=1,delete_learned,cookie=5,idle_timeout=60,fin_idle_timeout=2,\
        NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])";
    let ofproto = switch(1, &format!("tcp,actions=fin_timeout(idle_timeout=30),{taught}"));
    let (syn, fin) = (0x02, 0x11);
    for batch in 0..3 {
        let epoch = ofproto.epoch();
        for i in 0..1000 {
            let tcp = from(1000 * batch + i).ipv4([1; 4], [2; 4]).tcp(1, 2);
            send(&ofproto, 1, &tcp.build(), syn, 0);
            send(&ofproto, 1, &tcp.build(), fin, 0);
        }
        ofproto.tick(0);
        assert!(ofproto.epoch() <= epoch + 2, "{} announcements of a batch", ofproto.epoch() - epoch);
        assert_eq!((learned(&ofproto, "br0").len(), ofproto.effects().lost), (1000 * (batch as usize + 1), 0));
    }
    let epoch = ofproto.epoch();
    let teacher = FlowMod { table: Some(0), ..FlowMod::new(FlowCommand::Delete) };
    assert_eq!(ofproto.flow_mod("br0", &teacher, 0).unwrap().deleted, 3001);
    assert!(ofproto.epoch() <= epoch + 1 + 3001 / 256 + 1, "{} announcements", ofproto.epoch() - epoch);
}

//! Headers of tunnels in the walk: what is pushed, popped, and dropped by name.

#[path = "harness/follow.rs"]
mod follow;
mod harness;

use follow::follow;
use harness::*;
use sluice_action::{Action, PortNo, TunnelPush};
use sluice_datapath::{Config, Datapath};
use sluice_fate::{Counter, DropReason};
use sluice_flow::geneve::{GeneveOption, OptionKind};
use sluice_flow::{Mac, PacketKey, TunnelKey, layout, tunnel_flags};
use sluice_tunnel::header::{OuterLink, PerPacket, TunnelHeader};
use sluice_tunnel::{TunnelKind, parse};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const BACKEND: PortNo = PortNo(9);
/// Sizes of Ethernet, IPv4, UDP and Geneve's header.
const IP_AT: usize = 14;
const UDP_AT: usize = IP_AT + 20;
const GENEVE_AT: usize = UDP_AT + 8;

const KNOWN: OptionKind = OptionKind { class: 0x102, kind: 0x80, length: 4 };

fn option(kind: OptionKind) -> GeneveOption {
    GeneveOption::new(kind, 7.into())
}

/// The header of a Geneve tunnel with a checksum.
fn header(options: &[GeneveOption]) -> TunnelHeader {
    let given = [("remote_ip", "10.9.0.2"), ("key", "5"), ("csum", "true")];
    let given = given.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let config = parse("t", TunnelKind::Geneve, &given).unwrap().config;
    let src: Ipv6Addr = Ipv4Addr::new(10, 9, 0, 1).to_ipv6_mapped();
    let dst = Ipv4Addr::new(10, 9, 0, 2).to_ipv6_mapped().to_bits();
    let flags = tunnel_flags::KEY | tunnel_flags::CSUM;
    let key = TunnelKey { id: 5, src: src.to_bits(), dst, flags, ttl: 64, tp_dst: 6081, ..TunnelKey::default() };
    TunnelHeader::build(&config, &key, options, &OuterLink { link_dst: [2; 6], link_src: [4; 6], src }).unwrap()
}

fn encapsulated(options: &[GeneveOption], frame: &[u8]) -> Vec<u8> {
    let header = header(options);
    let mut packet = [header.bytes(), frame].concat();
    header.complete(&mut packet, PerPacket { source_port: 40_000, ..PerPacket::default() }).unwrap();
    packet
}

fn push() -> Action {
    Action::TunnelPush(Arc::new(TunnelPush { backend: BACKEND, header: header(&[]), out_port: PortNo(100) }))
}

fn pop() -> Action {
    Action::TunnelPop { backend: BACKEND, kind: TunnelKind::Geneve }
}

/// A datapath with ports 1 and 2, and what its tables answer.
fn datapath(rule: impl Fn(&PacketKey) -> Vec<Action> + Send + Sync + 'static) -> (Datapath, Feed, Sent) {
    let mut mask = PacketKey::ZERO;
    [layout::IN_PORT, layout::RECIRC_ID].iter().for_each(|span| mask.set(*span, &[0xff; 4]));
    let tables = FakeTables::new(move |key, _| follow(mask, rule(key)));
    let datapath = Datapath::new(Config { max_megaflows: 1 << 10, seed: Some(1), ..Config::default() }).unwrap();
    datapath.set_upcalls(move |_| Box::new(tables.clone()));
    let pool = pool(256);
    let [one, two] = [(); 2].map(|()| TestPort::new(1, 32, &pool));
    let (feed, sent) = (one.feeds[0].clone(), two.sent.clone());
    datapath.add_port(PortNo(1), Box::new(one)).unwrap();
    datapath.add_port(PortNo(2), Box::new(two)).unwrap();
    (datapath, feed, sent)
}

fn run(datapath: &Datapath, feed: &Feed, packets: &[Vec<u8>]) {
    feed.lock().unwrap().extend(packets.iter().cloned());
    while !datapath.run_once(0).exhausted {}
    assert_eq!(datapath.totals().conserved(), Ok(()));
}

fn inner() -> Vec<u8> {
    udp([1, 1, 1, 1], [2, 2, 2, 2], 1, 2, 3)
}

/// A good packet of a tunnel, or what a bad peer makes of it.
fn decapsulate(packet: Vec<u8>) -> (Vec<Vec<u8>>, u64) {
    let (datapath, feed, sent) = datapath(|key| match key.in_port() {
        1 => vec![pop()],
        _ => vec![Action::Output(PortNo(2))],
    });
    run(&datapath, &feed, &[packet]);
    let sent = std::mem::take(&mut *sent.lock().unwrap());
    (sent, datapath.totals().dropped(DropReason::TunnelPop))
}

#[test]
fn a_bad_peers_packets_are_dropped_by_name() {
    assert_eq!(decapsulate(encapsulated(&[option(KNOWN)], &inner())), (vec![inner()], 0));
    let broken = |at: usize, value: u8| {
        let mut packet = encapsulated(&[option(KNOWN)], &inner());
        // Without a checksum, lest that be what is wrong.
        packet[UDP_AT + 6..UDP_AT + 8].fill(0);
        packet[at] = value;
        packet
    };
    let good = encapsulated(&[option(KNOWN)], &inner());
    let mut wrong_sum = good.clone();
    *wrong_sum.last_mut().unwrap() ^= 1;
    let bad = [
        ("a wrong version", broken(GENEVE_AT, 0x42)),
        ("a wrong IPv4 checksum", broken(IP_AT + 8, 63)),
        ("a wrong length of UDP", broken(UDP_AT + 5, 9)),
        ("a wrong checksum of UDP", wrong_sum),
        ("a protocol that is not Ethernet", broken(GENEVE_AT + 3, 0)),
        ("options behind the packet's end", broken(GENEVE_AT, 0x3f)),
        ("an option behind the others' end", broken(GENEVE_AT + 8 + 3, 9)),
        ("a packet that is cut", good[..good.len() - 1].to_vec()),
        ("an inner frame without Ethernet", encapsulated(&[], &[0; 13])),
    ];
    for (what, packet) in bad {
        assert_eq!(decapsulate(packet), (vec![], 1), "{what}");
    }
    let long = encapsulated(&[option(OptionKind { kind: 1, length: 124, ..KNOWN })], &inner());
    assert_eq!(decapsulate(long), (vec![inner()], 0), "which options are known, rules say");
}

/// A packet without an Ethernet header, in a GRE header.
fn bare(payload_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = [&[2; 6][..], &[4; 6], &[8, 0]].concat();
    let mut ip = vec![0x45, 0, 0, 24 + payload.len() as u8, 0, 0, 0, 0, 64, 47, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
    let sum = sluice_packet::checksum::internet(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(ip);
    packet.extend([0, 0]);
    packet.extend(payload_type.to_be_bytes());
    packet.extend(payload);
    packet
}

#[test]
fn a_packet_without_ethernet_gets_addresses_and_loses_them_again() {
    let (src, dst) = (Mac([6; 6]), Mac([8; 6]));
    let (datapath, feed, sent) = datapath(move |key| {
        let (payload, ethernet) = (key.number(layout::TUN_PAYLOAD), key.get(layout::DL_DST));
        match (key.in_port(), key.recirc_id()) {
            (1, _) => vec![Action::TunnelPop { backend: BACKEND, kind: TunnelKind::Gre }],
            (9, 0) => {
                assert_eq!((payload, ethernet), (u64::from(layout::PAYLOAD_BARE), &[0; 6][..]));
                assert_eq!((key.number(layout::DL_TYPE), key.number(layout::TP_DST)), (0x0800, 2));
                vec![Action::PushEth { src, dst }, Action::Recirc(7)]
            }
            (9, 7) => {
                assert_eq!((payload, ethernet), (u64::from(layout::PAYLOAD_WITH_ETHERNET), &dst.0[..]));
                vec![Action::Output(PortNo(2)), Action::PopEth, bare_push(), Action::Output(PortNo(2))]
            }
            other => panic!("{other:?}"),
        }
    });
    let ip = inner()[IP_AT..].to_vec();
    run(&datapath, &feed, &[bare(0x0800, &ip)]);
    let sent = sent.lock().unwrap();
    assert_eq!(sent[0], [&dst.0[..], &src.0, &[8, 0], &ip].concat());
    assert_eq!(sent[1], bare(0x0800, &ip));
    let (datapath, feed, _) = self::datapath(|_| vec![Action::TunnelPop { backend: BACKEND, kind: TunnelKind::Gre }]);
    run(&datapath, &feed, &[bare(0x8100, &[0; 60]), bare(0x0005, &[0; 60])]);
    assert_eq!(datapath.totals().dropped(DropReason::TunnelPop), 2, "a tag without addresses, and a length");
}

/// Pushes the header that [`bare`] has.
fn bare_push() -> Action {
    let given = [("remote_ip", "10.9.0.2"), ("df_default", "false"), ("packet_type", "legacy_l3")];
    let given = given.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let config = parse("t", TunnelKind::Gre, &given).unwrap().config;
    let src: Ipv6Addr = Ipv4Addr::new(10, 9, 0, 1).to_ipv6_mapped();
    let dst = Ipv4Addr::new(10, 9, 0, 2).to_ipv6_mapped().to_bits();
    let key = TunnelKey { src: src.to_bits(), dst, ttl: 64, payload_type: 0x0800, ..TunnelKey::default() };
    let link = OuterLink { link_dst: [2; 6], link_src: [4; 6], src };
    let header = TunnelHeader::build(&config, &key, &[], &link).unwrap();
    Action::TunnelPush(Arc::new(TunnelPush { backend: BACKEND, header, out_port: PortNo(100) }))
}

#[test]
fn actions_behind_a_push_see_the_outer_packet() {
    let (datapath, feed, sent) = datapath(|key| match (key.recirc_id(), key.number(layout::TP_DST)) {
        (0, 2) => vec![push(), Action::Recirc(7)],
        (7, 6081) => vec![Action::Output(PortNo(2))],
        _ => vec![],
    });
    run(&datapath, &feed, &[inner(), inner()]);
    let sent = sent.lock().unwrap();
    assert_eq!(sent.len(), 2);
    for packet in &*sent {
        assert_eq!(packet[header(&[]).bytes().len()..], inner());
        assert_eq!(packet[UDP_AT + 2..UDP_AT + 4], 6081_u16.to_be_bytes());
    }
}

/// A batch whose packets all lose a header, or all get one and leave, does so in place. With another action in front each packet goes
/// through the list of actions for itself: the plain twin.
#[test]
fn batches_in_place_are_what_packets_one_by_one_are() {
    let frame = |i: u16| udp([1, 1, 1, i as u8], [2, 2, 2, 2], i, 2, 3);
    let is_broken = |i: u16| matches!(i, 0 | 6 | 7 | 30 | 31 | 39);
    let packets: Vec<Vec<u8>> = (0..40)
        .map(|i| {
            let mut packet = encapsulated(&[option(KNOWN)], &frame(i));
            if is_broken(i) {
                packet[GENEVE_AT] = 0x42;
            }
            packet
        })
        .collect();
    let forward = |one_by_one: [bool; 2]| {
        let with = |one: bool, list: Vec<Action>| if one { [vec![Action::CtClear], list].concat() } else { list };
        let (datapath, feed, sent) = datapath(move |key| match key.in_port() {
            1 => with(one_by_one[0], vec![pop()]),
            _ => with(one_by_one[1], vec![push(), Action::Output(PortNo(2))]),
        });
        // The first makes the megaflows.
        run(&datapath, &feed, &packets[1..2]);
        run(&datapath, &feed, &packets);
        let dropped = datapath.totals().dropped(DropReason::TunnelPop);
        let mut sent = std::mem::take(&mut *sent.lock().unwrap());
        sent.remove(0);
        (sent, dropped)
    };
    let (sent, dropped) = forward([true, true]);
    let good: Vec<u16> = (0..40).filter(|i| !is_broken(*i)).collect();
    assert_eq!((sent.len(), dropped), (good.len(), 6));
    for (packet, i) in sent.iter().zip(good) {
        assert_eq!(packet[header(&[]).bytes().len()..], frame(i));
    }
    for in_place in [[false, true], [true, false], [false, false]] {
        assert_eq!(forward(in_place), (sent.clone(), 6), "{in_place:?}");
    }
}

/// A buffer has 128 free bytes in front of a received packet; a header with all options that fit takes more than 300.
#[test]
fn a_header_that_is_longer_than_the_headroom_is_pushed() {
    let long = [1, 2].map(|kind| option(OptionKind { kind, length: 120, ..KNOWN }));
    let size = header(&long).bytes().len();
    assert!(size > 290, "{size}");
    for in_front in [None, Some(Action::CtClear)] {
        let header = header(&long);
        let push = Action::TunnelPush(Arc::new(TunnelPush { backend: BACKEND, header, out_port: PortNo(100) }));
        let list: Vec<Action> = in_front.into_iter().chain([push, Action::Output(PortNo(2))]).collect();
        let (datapath, feed, sent) = datapath(move |_| list.clone());
        let frames: Vec<Vec<u8>> = (0..100).map(|i| udp([1, 1, 1, 1], [2, 2, 2, 2], i, 2, 3)).collect();
        run(&datapath, &feed, &frames);
        let sent = sent.lock().unwrap();
        assert_eq!(sent.iter().map(|packet| packet[size..].to_vec()).collect::<Vec<_>>(), frames);
        assert_eq!(datapath.totals().dropped(DropReason::NoHeadroom), 0);
    }
}

#[test]
fn a_loop_through_tunnels_ends() {
    let (datapath, feed, sent) = datapath(|_| vec![push(), pop()]);
    run(&datapath, &feed, &[inner()]);
    assert!(sent.lock().unwrap().is_empty());
    let totals = datapath.totals();
    assert_eq!((totals.dropped(DropReason::RecircDepth), totals[Counter::Sent]), (1, 0));
}

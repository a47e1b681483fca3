//! UDP, ICMP and all others; commit, zones, mark, label, force, clear.

use crate::scene::*;
use sluice_conntrack::{CachedConn, Checksums, ConnCache, Ct, CtInput, CtOutcome, CtPacket, Masked, clear, ct_state};
use sluice_flow::{Metadata, PacketKey, VlanLimit, extract, layout};
use sluice_testkit::pool::TestPool;

#[test]
fn udp_is_new_until_answered_and_then_established() {
    for is_v6 in [false, true] {
        let mut scene = Scene::new();
        let there = udp(is_v6, (1, CLIENT), (2, SERVER));
        let back = udp(is_v6, (2, SERVER), (1, CLIENT));
        assert_eq!(scene.pass(&there, &track()).state(), "new|trk");
        assert_eq!(scene.pass(&back, &track()).state(), "new|trk", "nothing was committed");
        let seen = scene.pass(&there, &commit());
        assert_eq!((seen.outcome, seen.state().as_str()), (CtOutcome::Committed, "new|trk"));
        assert_eq!(scene.pass(&there, &track()).state(), "new|trk");
        assert_eq!(scene.pass(&back, &track()).state(), "est|rpl|trk");
        let seen = scene.pass(&there, &track());
        assert_eq!((seen.outcome, seen.state().as_str()), (CtOutcome::Tracked, "est|trk"));
        assert_eq!(scene.ct.connections(), 1);
    }
}

#[test]
fn the_original_tuple_is_that_of_the_first_packet_in_both_directions() {
    let mut scene = Scene::new();
    scene.pass(&udp(false, (1, CLIENT), (2, SERVER)), &commit());
    let seen = scene.pass(&udp(false, (2, SERVER), (1, CLIENT)), &track());
    assert_eq!(seen.key.get(layout::CT_SRC)[..4], [10, 0, 0, 1]);
    assert_eq!(seen.key.get(layout::CT_DST)[..4], [10, 0, 0, 2]);
    assert_eq!(seen.number(layout::CT_TP_SRC), u64::from(CLIENT));
    assert_eq!(seen.number(layout::CT_TP_DST), u64::from(SERVER));
    assert_eq!((seen.number(layout::CT_NW_PROTO), seen.number(layout::CT_IS_IPV6)), (17, 0));
    let seen = scene.pass(&ip(true, 1, 2).icmpv6(128, 0).build(), &track());
    assert_eq!((seen.number(layout::CT_TP_SRC), seen.number(layout::CT_TP_DST)), (128, 0));
    assert_eq!((seen.number(layout::CT_NW_PROTO), seen.number(layout::CT_IS_IPV6)), (58, 1));
    assert_eq!(seen.key.get(layout::CT_SRC), v6(1));
}

#[test]
fn echo_is_new_until_answered_and_an_answer_begins_nothing() {
    for (is_v6, [ask, tell]) in [(false, [8, 0]), (true, [128, 129]), (false, [13, 14]), (false, [15, 16])] {
        let mut scene = Scene::new();
        let build = |src, dst, kind| {
            let frame = ip(is_v6, src, dst);
            if is_v6 { frame.icmpv6(kind, 0).build() } else { frame.icmp(kind, 0).build() }
        };
        assert_eq!(scene.pass(&build(2, 1, tell), &commit()).state(), "inv|trk");
        assert_eq!(scene.pass(&build(1, 2, ask), &commit()).state(), "new|trk");
        assert_eq!(scene.pass(&build(1, 2, ask), &track()).state(), "new|trk");
        assert_eq!(scene.pass(&build(2, 1, tell), &track()).state(), "est|rpl|trk");
        assert_eq!(scene.pass(&build(1, 2, ask), &track()).state(), "est|trk");
    }
}

#[test]
fn sctp_and_others_are_told_apart_by_addresses_only() {
    let mut scene = Scene::new();
    scene.pass(&ip(false, 1, 2).sctp(5, 6).payload(&[0; 8]).build(), &commit());
    let other_ports = ip(false, 2, 1).sctp(9, 9).payload(&[0; 8]).build();
    assert_eq!(scene.pass(&other_ports, &track()).state(), "est|rpl|trk");
    scene.pass(&ip(false, 1, 2).proto(47).payload(&[0; 8]).build(), &commit());
    assert_eq!(
        scene.dump(false),
        [
            "47,orig=(src=10.0.0.1,dst=10.0.0.2,sport=0,dport=0),reply=(src=10.0.0.2,dst=10.0.0.1,sport=0,dport=0)",
            "sctp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=0,dport=0),reply=(src=10.0.0.2,dst=10.0.0.1,sport=0,dport=0)"
        ]
    );
}

#[test]
fn what_has_no_connection_is_invalid() {
    let mut broken_sum = udp(false, (1, 5), (2, 6));
    *broken_sum.last_mut().expect("bytes") ^= 1;
    let mut broken_ip = udp(false, (1, 5), (2, 6));
    broken_ip[14 + 8] ^= 1;
    let packets = [
        ip(false, 1, 2).fragment(0, true).udp(5, 6).payload(&[0; 16]).build(),
        ip(false, 1, 2).fragment(3, false).payload(&[0; 16]).build(),
        ip(true, 1, 2).fragment(0, true).udp(5, 6).payload(&[0; 16]).build(),
        udp(false, (1, 0), (2, 6)),
        udp(false, (1, 5), (2, 0)),
        ip(false, 1, 2).icmp(8, 1).build(),
        ip(false, 1, 2).icmp(9, 0).build(),
        ip(true, 1, 2).icmpv6(135, 0).payload(&[0; 16]).build(),
        sluice_testkit::frame::ethernet().arp(1, [2; 6], [10, 0, 0, 1], [0; 6], [10, 0, 0, 2]).build(),
        broken_sum.clone(),
        broken_ip,
    ];
    let mut scene = Scene::new();
    for bytes in packets {
        let seen = scene.pass(&bytes, &commit());
        assert_eq!((seen.outcome, seen.state().as_str()), (CtOutcome::Invalid, "inv|trk"), "{bytes:02x?}");
        assert_eq!(seen.number(layout::CT_NW_PROTO), 0);
    }
    assert_eq!(scene.ct.connections(), 0);
    // A checksum known to be good is not verified; one reported as bad is believed.
    let mut pool = TestPool::new();
    for (checksums, outcome) in [(Checksums::Good, CtOutcome::Committed), (Checksums::Bad, CtOutcome::Invalid)] {
        let (mut packet, mut key) = (pool.packet(&broken_sum), PacketKey::ZERO);
        extract(packet.bytes(), &Metadata::of_port(1), &mut key).unwrap();
        let input = CtInput { checksums, ..CtInput::default() };
        assert_eq!(
            scene.ct.execute(
                &mut ConnCache::new(0),
                CtPacket { packet: &mut packet, key: &mut key, cached: &mut CachedConn::default() },
                &commit(),
                &input
            ),
            outcome
        );
        pool.take_bytes(packet);
    }
    let no_sum = ip(false, 1, 2).udp(5, 7).no_checksum().payload(b"x").build();
    assert_eq!(scene.pass(&no_sum, &track()).state(), "new|trk");
}

#[test]
fn zones_do_not_know_each_other_and_state_ends_at_their_border() {
    let mut scene = Scene::new();
    let zone = |zone, commit| Ct { zone, commit, ..Ct::default() };
    let there = udp(false, (1, CLIENT), (2, SERVER));
    let back = udp(false, (2, SERVER), (1, CLIENT));
    scene.pass(&there, &zone(1, true));
    assert_eq!(scene.pass(&back, &zone(2, false)).state(), "new|trk");
    assert_eq!(scene.pass(&back, &zone(1, false)).state(), "est|rpl|trk");
    let seen = scene.passes(&back, &[zone(1, false), zone(2, false)]);
    assert_eq!((seen.state().as_str(), seen.number(layout::CT_ZONE)), ("new|trk", 2));
    assert_eq!(scene.dump(false).len(), 1);
    assert!(scene.dump(false)[0].ends_with(",zone=1"));
}

#[test]
fn a_second_pass_in_a_zone_counts_the_packet_once() {
    let mut scene = Scene::new();
    let there = udp(false, (1, CLIENT), (2, SERVER));
    let back = udp(false, (2, SERVER), (1, CLIENT));
    assert_eq!(scene.passes(&there, &[track(), commit(), track()]).state(), "new|trk");
    assert_eq!(scene.passes(&back, &[track(), track()]).state(), "est|rpl|trk");
    // A TCP connection picked up in the middle: with a second count it would be established at once.
    let ack = sluice_testkit::frame::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2, 0x10);
    assert_eq!(scene.passes(&ack, &[commit(), track()]).state(), "new|trk");
}

#[test]
fn mark_and_label_are_set_by_mask_and_kept() {
    let mut scene = Scene::new();
    let there = udp(true, (1, CLIENT), (2, SERVER));
    let back = udp(true, (2, SERVER), (1, CLIENT));
    let set = |mark, mark_mask, label, label_mask| Ct {
        mark: Some(Masked { value: mark, mask: mark_mask }),
        label: Some(Masked { value: label, mask: label_mask }),
        ..commit()
    };
    let seen = scene.pass(&there, &set(0x1234, 0xffff, 1 << 127, 1 << 127));
    assert_eq!(seen.number(layout::CT_MARK), 0x1234);
    assert_eq!(seen.key.get(layout::CT_LABEL)[0], 0x80);
    let seen = scene.pass(&back, &set(0x0f00, 0x0f00, 7, 0xff));
    assert_eq!(seen.number(layout::CT_MARK), 0x1f34);
    let seen = scene.pass(&there, &track());
    assert_eq!(seen.number(layout::CT_MARK), 0x1f34);
    assert_eq!((seen.key.get(layout::CT_LABEL)[0], seen.key.get(layout::CT_LABEL)[15]), (0x80, 7));
    assert!(scene.dump(false)[0].ends_with(",mark=7988,labels=0x80000000000000000000000000000007"));
    // Without a connection there is nothing to mark.
    let seen = scene.pass(&udp(true, (1, 9), (2, 9)), &Ct { commit: false, ..set(1, 1, 1, 1) });
    assert_eq!(seen.number(layout::CT_MARK), 0);
}

#[test]
fn force_in_the_reply_direction_begins_anew() {
    let mut scene = Scene::new();
    let force = Ct { force: true, ..Ct::default() };
    let there = udp(false, (1, CLIENT), (2, SERVER));
    let back = udp(false, (2, SERVER), (1, CLIENT));
    scene.pass(&there, &commit());
    assert_eq!(scene.pass(&there, &force).outcome, CtOutcome::Tracked);
    let seen = scene.pass(&back, &force);
    assert_eq!((seen.outcome, seen.state().as_str()), (CtOutcome::Committed, "new|trk"));
    assert_eq!(scene.pass(&there, &track()).state(), "est|rpl|trk");
    assert_eq!(scene.dump(false).len(), 1);
    scene.now_ms += 60_000;
    scene.expire();
    assert_eq!(scene.ct.connections(), 0, "both are counted off, the forced-out one once");
}

#[test]
fn clearing_leaves_a_packet_as_if_never_tracked() {
    let mut scene = Scene::new();
    let bytes = udp(true, (1, CLIENT), (2, SERVER));
    let mut seen = scene.pass(&bytes, &Ct { mark: Some(Masked { value: 5, mask: !0 }), ..commit() });
    assert!(seen.has(ct_state::TRACKED));
    clear(&mut seen.key);
    for span in [layout::CT_STATE, layout::CT_ZONE, layout::CT_MARK, layout::CT_NW_PROTO, layout::CT_IS_IPV6] {
        assert_eq!(seen.number(span), 0);
    }
    assert_eq!(seen.key.get(layout::CT_SRC), [0; 16]);
}

/// With a VLAN limit of 1 the type behind the first of two tags is that of a tag: no IP header is there to be tracked.
#[test]
fn an_ip_header_behind_a_tag_that_is_not_read_is_not_tracked() {
    let bytes = sluice_testkit::frame::ethernet().vlan(5).vlan(6).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
    let scene = Scene::new();
    let mut pool = TestPool::new();
    for (setting, outcome) in [(1, CtOutcome::Invalid), (2, CtOutcome::Committed)] {
        let (mut packet, mut key) = (pool.packet(&bytes), PacketKey::ZERO);
        let metadata = Metadata::of_port(1).with_vlan_limit(VlanLimit::from_setting(setting));
        extract(packet.bytes(), &metadata, &mut key).unwrap();
        let to = CtPacket { packet: &mut packet, key: &mut key, cached: &mut CachedConn::default() };
        assert_eq!(scene.ct.execute(&mut ConnCache::new(0), to, &commit(), &CtInput::default()), outcome);
        pool.take_bytes(packet);
    }
}

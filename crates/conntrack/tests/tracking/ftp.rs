//! FTP over NAT: the announced address is translated, sequence numbers follow, the data connection is related.

use crate::scene::*;
use crate::tcp::{ACK, SYN, Segment, Sender, segment};
use sluice_conntrack::{Ct, CtOutcome, Helper, Masked, NatSpec, NatTarget};
use sluice_fate::Limit;
use sluice_flow::layout;
use sluice_packet::headers::be32;

const CONTROL: (u8, u16) = (2, 21);

fn frame(segment: Segment<'_>) -> Vec<u8> {
    segment.frame_between((1, CLIENT), CONTROL)
}

fn request(target: Option<NatTarget>, addr: [u8; 16]) -> Ct {
    let nat = NatSpec { target, addrs: (addr, addr), ..NatSpec::default() };
    Ct { helper: Some(Helper::Ftp), nat: Some(nat), mark: Some(Masked { value: 5, mask: !0 }), ..commit() }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[l4_at(bytes) + 20..]).into_owned()
}

/// Sequence and acknowledgement number.
fn numbers(bytes: &[u8]) -> (u32, u32) {
    let l4 = l4_at(bytes);
    (be32(bytes, l4 + 4).expect("TCP"), be32(bytes, l4 + 8).expect("TCP"))
}

/// The server's frames come to the translated address.
fn from_server(segment: Segment<'_>, to: [u8; 4]) -> Vec<u8> {
    let mut bytes = frame(segment);
    let layers = sluice_packet::Layers::of(&bytes).expect("a frame");
    sluice_packet::edit::set(&mut bytes, &layers, sluice_packet::edit::Field::Ipv4Dst, &to, &[0xff; 4]).expect("IPv4");
    bytes
}

/// A control connection with the client behind 192.0.2.`last`, after the handshake.
fn control_connection(last: u8) -> Scene {
    let mut scene = Scene::new();
    let to = [192, 0, 2, last];
    scene.pass(&frame(segment(Sender::Client, SYN, 1000, 0, b"")), &request(Some(NatTarget::Src), v4(last)));
    let seen = scene.pass(&from_server(segment(Sender::Server, SYN | ACK, 5000, 1001, b""), to), &untranslate());
    assert_eq!(seen.state(), "est|rpl|trk|dnat");
    scene.pass(&frame(segment(Sender::Client, ACK, 1001, 5001, b"")), &untranslate());
    scene
}

#[test]
fn active_mode_through_source_nat() {
    // The new text is longer than, as long as, and shorter than `10,0,0,1`, the last for a client that writes zeros.
    for (last, grown) in [(222, 3), (9, 1)] {
        let mut scene = control_connection(last);
        let to = [192, 0, 2, last];
        let command = b"PORT 10,0,0,1,4,1\r\n";
        let sent = segment(Sender::Client, ACK, 1001, 5001, command);
        let seen = scene.pass(&frame(sent), &untranslate());
        assert_eq!(text(&seen.bytes), format!("PORT 192,0,2,{last},4,1\r\n"));
        assert_eq!((seen.state().as_str(), numbers(&seen.bytes)), ("est|trk|snat", (1001, 5001)));
        // The server has got more than the client has sent.
        let end = 1001 + command.len() as u32;
        let reply = segment(Sender::Server, ACK, 5001, end + grown, b"200 ok\r\n");
        let seen = scene.pass(&from_server(reply, to), &untranslate());
        assert_eq!((seen.state().as_str(), numbers(&seen.bytes)), ("est|rpl|trk|dnat", (5001, end)));
        let next = segment(Sender::Client, ACK, end, 5009, b"LIST\r\n");
        let seen = scene.pass(&frame(next), &untranslate());
        assert_eq!((seen.state().as_str(), numbers(&seen.bytes)), ("est|trk|snat", (end + grown, 5009)));
        // The data connection comes from the server to the translated address.
        let data = ip(false, 2, 1).tcp(20, 1025).tcp_flags(SYN).build();
        let mut data_to_nat = data.clone();
        let layers = sluice_packet::Layers::of(&data).expect("a frame");
        let field = sluice_packet::edit::Field::Ipv4Dst;
        sluice_packet::edit::set(&mut data_to_nat, &layers, field, &to, &[0xff; 4]).expect("IPv4");
        let seen = scene.pass(&data_to_nat, &track());
        assert_eq!((seen.state().as_str(), seen.number(layout::CT_MARK)), ("new|rel|trk", 5));
        let seen = scene.pass(&data_to_nat, &Ct { commit: true, ..untranslate() });
        assert_eq!((seen.state().as_str(), &seen.bytes), ("new|rel|trk|dnat", &data));
        assert_eq!(seen.number(layout::CT_TP_DST), 21, "its original tuple is the control connection's");
        let answer = ip(false, 1, 2).tcp(1025, 20).tcp_flags(SYN | ACK).build();
        let mut acked = answer.clone();
        acked.copy_from_slice(&segment_of_data(answer));
        let seen = scene.pass(&acked, &untranslate());
        assert_eq!(seen.state(), "est|rel|rpl|trk|snat");
        assert_eq!(seen.bytes[26..30], to);
        assert!(scene.dump(true).iter().any(|line| line.contains(",parent=(src=10.0.0.1,dst=10.0.0.2,")));
        assert!(scene.dump(false).iter().any(|line| line.ends_with(",helper=ftp")));
    }
}

/// A SYN-ACK that acknowledges a SYN of number zero.
fn segment_of_data(frame: Vec<u8>) -> Vec<u8> {
    let mut out = Segment { ack: 1, ..segment(Sender::Client, SYN | ACK, 0, 1, b"") }.frame_between((1, 1025), (2, 20));
    out.truncate(frame.len());
    out
}

#[test]
fn passive_mode_and_extended_commands_without_nat() {
    let mut scene = Scene::new();
    let helped = Ct { helper: Some(Helper::Ftp), ..commit() };
    let plain = Ct { helper: Some(Helper::Ftp), ..track() };
    scene.pass(&frame(segment(Sender::Client, SYN, 1000, 0, b"")), &helped);
    scene.pass(&frame(segment(Sender::Server, SYN | ACK, 5000, 1001, b"")), &plain);
    scene.pass(&frame(segment(Sender::Client, ACK, 1001, 5001, b"")), &plain);
    let told = frame(segment(Sender::Server, ACK, 5001, 1001, b"227 Entering Passive Mode (10,0,0,2,195,80).\r\n"));
    let seen = scene.pass(&told, &plain);
    assert_eq!((seen.state().as_str(), &seen.bytes), ("est|rpl|trk", &told));
    let data = |port| ip(false, 1, 2).tcp(33333, port).tcp_flags(SYN).build();
    assert_eq!(scene.pass(&data(50000), &commit()).state(), "new|rel|trk");
    assert_eq!(scene.pass(&data(50001), &commit()).state(), "new|trk");
    // An announcement of another host's address is invalid and expects nothing.
    let lie = frame(segment(Sender::Server, ACK, 5049, 1001, b"227 Entering Passive Mode (10,0,0,9,1,1).\r\n"));
    assert!(scene.pass(&lie, &plain).is_invalid());
    // When the control connection goes, so does what it announced.
    scene.ct.flush(&sluice_conntrack::Filter::default());
    assert_eq!(scene.pass(&data(50000), &commit()).state(), "new|trk");
}

#[test]
fn extended_active_mode_over_ipv6() {
    let mut scene = Scene::new();
    let helped = Ct { helper: Some(Helper::Ftp), ..commit() };
    let to_server = |payload: &[u8]| ip(true, 1, 2).tcp(CLIENT, 21).payload(payload).build();
    scene.pass(&to_server(b"x"), &helped);
    assert_eq!(scene.pass(&answer(&to_server(b"x")), &helped).state(), "est|rpl|trk");
    assert_eq!(scene.pass(&to_server(b"EPRT |2|fc00::1|1025|\r\n"), &helped).state(), "est|trk");
    let data = ip(true, 2, 1).tcp(20, 1025).tcp_flags(SYN).build();
    assert_eq!(scene.pass(&data, &commit()).state(), "new|rel|trk");
}

#[test]
fn tftp_expects_its_data() {
    let mut scene = Scene::new();
    let helped = Ct { helper: Some(Helper::Tftp), ..commit() };
    scene.pass(&udp(false, (1, CLIENT), (2, 69)), &helped);
    assert_eq!(scene.pass(&udp(false, (2, 3333), (1, CLIENT)), &commit()).state(), "new|rel|trk");
}

/// Requests from other ports, each a control connection of its own, in many zones: together they announce more than the
/// table holds, and none has more than one. FTP clients in other zones are served, whether they announced before or after.
#[test]
fn tftp_requests_in_many_zones_leave_an_ftp_client_its_own() {
    const ZONES: u16 = 40;
    const OF_ZONE: u16 = 500;
    let zoned = |zone, helper| Ct { zone, helper: Some(helper), ..commit() };
    let mut scene = Scene::new();
    let client = |scene: &mut Scene, last: u8, zone: u16| {
        let to_server = |data: &[u8]| ip(true, last, 2).tcp(CLIENT, 21).payload(data).build();
        let helped = zoned(zone, Helper::Ftp);
        scene.pass(&to_server(b"x"), &helped);
        scene.pass(&answer(&to_server(b"x")), &helped);
        scene.pass(&to_server(format!("EPRT |2|fc00::{last}|1025|\r\n").as_bytes()), &helped);
    };
    let is_served = |scene: &mut Scene, last: u8, zone: u16| {
        let data = ip(true, 2, last).tcp(20, 1025).tcp_flags(SYN).build();
        scene.pass(&data, &Ct { zone, ..commit() }).state() == "new|rel|trk"
    };
    client(&mut scene, 4, ZONES + 7);
    let before = Limit::Expectations.count();
    for zone in 0..ZONES {
        (0..OF_ZONE).for_each(|n| _ = scene.pass(&udp(false, (1, 2000 + n), (2, 69)), &zoned(zone, Helper::Tftp)));
    }
    assert!(Limit::Expectations.count() - before > 3000, "the table was full");
    client(&mut scene, 5, ZONES + 8);
    assert!(is_served(&mut scene, 4, ZONES + 7) && is_served(&mut scene, 5, ZONES + 8));
    // Those zones lose their oldest.
    let mut is_expected = |zone, n| {
        let data = udp(false, (2, 3333), (1, 2000 + n));
        scene.pass(&data, &Ct { zone, ..commit() }).state() == "new|rel|trk"
    };
    assert!(!is_expected(0, 0) && is_expected(0, OF_ZONE - 1) && is_expected(ZONES - 1, OF_ZONE - 1));
}

#[test]
fn what_the_helper_called_invalid_stays_so() {
    // The command names another host than the packet's sender, and is sent a second time through the fast path.
    let command = ip(false, 2, 1).tcp(1, 69).tcp_flags(0x14).payload(b"PORT 10,0,0,1,4,1\r\n").build();
    let helped = Ct { force: true, nat: Some(NatSpec::default()), helper: Some(Helper::Ftp), ..commit() };
    for forgetful in [false, true] {
        let mut scene = Scene::new();
        scene.forgetful = forgetful;
        assert_eq!(scene.passes(&command, &[helped.clone(), Ct::default()]).outcome, CtOutcome::Invalid);
    }
}

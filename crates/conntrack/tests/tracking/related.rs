//! ICMP errors about packets of a connection.

use crate::scene::*;
use sluice_conntrack::{Ct, NatSpec, NatTarget};
use sluice_packet::Layers;

/// An error from host `from` to `to` about the packet in a frame, of which it carries `carried` bytes from IP on.
fn error_about(is_v6: bool, from: [u8; 16], to: [u8; 16], bytes: &[u8], carried: usize) -> Vec<u8> {
    let l3 = Layers::of(bytes).expect("a frame").l3;
    let inside = &bytes[l3..(l3 + carried).min(bytes.len())];
    let frame = sluice_testkit::frame::ethernet();
    match is_v6 {
        true => frame.ipv6(from, to).icmpv6(1, 4).payload(inside).build(),
        false => {
            let first = |addr: [u8; 16]| [addr[0], addr[1], addr[2], addr[3]];
            frame.ipv4(first(from), first(to)).icmp(3, 3).payload(inside).build()
        }
    }
}

fn host(is_v6: bool, last: u8) -> [u8; 16] {
    if is_v6 { v6(last) } else { [10, 0, 0, last, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] }
}

#[test]
fn an_error_is_related_in_the_direction_it_goes() {
    for is_v6 in [false, true] {
        let mut scene = Scene::new();
        let there = udp(is_v6, (1, CLIENT), (2, SERVER));
        // About an unknown connection.
        let to_client = error_about(is_v6, host(is_v6, 2), host(is_v6, 1), &there, 100);
        assert_eq!(scene.pass(&to_client, &commit()).state(), "inv|trk");
        scene.pass(&there, &commit());
        assert_eq!(scene.pass(&to_client, &track()).state(), "rel|rpl|trk");
        let by_router = error_about(is_v6, host(is_v6, 77), host(is_v6, 1), &there, 100);
        assert_eq!(scene.pass(&by_router, &track()).state(), "rel|rpl|trk");
        let to_server = error_about(is_v6, host(is_v6, 1), host(is_v6, 2), &answer(&there), 100);
        assert_eq!(scene.pass(&to_server, &track()).state(), "rel|trk");
        // It does not move the state on, and goes to the sender of the packet inside.
        assert_eq!(scene.pass(&there, &track()).state(), "new|trk");
        let to_stranger = error_about(is_v6, host(is_v6, 77), host(is_v6, 3), &there, 100);
        assert_eq!(scene.pass(&to_stranger, &track()).state(), "inv|trk");
    }
}

#[test]
fn an_ipv4_error_need_carry_eight_bytes_only() {
    let mut scene = Scene::new();
    let there = ip(false, 1, 2).tcp(CLIENT, SERVER).tcp_flags(2).build();
    scene.pass(&there, &commit());
    for (carried, state) in [(28, "rel|rpl|trk"), (27, "inv|trk"), (10, "inv|trk")] {
        let error = error_about(false, host(false, 2), host(false, 1), &there, carried);
        assert_eq!(scene.pass(&error, &track()).state(), state, "{carried} bytes");
    }
}

#[test]
fn an_error_about_a_translated_packet_arrives_as_one_about_the_packet_sent() {
    for is_v6 in [false, true] {
        for target in [NatTarget::Src, NatTarget::Dst] {
            for is_tcp in [false, true] {
                let mut scene = Scene::new();
                let addr = host(is_v6, 99);
                let spec = NatSpec {
                    target: Some(target),
                    addrs: (addr, addr),
                    ports: Some((7000, 7000)),
                    ..NatSpec::default()
                };
                let there = match is_tcp {
                    true => ip(is_v6, 1, 2).tcp(CLIENT, SERVER).tcp_flags(2).build(),
                    false => udp(is_v6, (1, CLIENT), (2, SERVER)),
                };
                let translated = scene.pass(&there, &Ct { nat: Some(spec), ..commit() });
                assert!(checksums_are_right(&translated.bytes));
                // The packet's receiver reports the error, which must look as if it were about the packet sent.
                let (reached, seen_from) = match target {
                    NatTarget::Src => (host(is_v6, 2), addr),
                    NatTarget::Dst => (addr, host(is_v6, 1)),
                };
                let error = error_about(is_v6, reached, seen_from, &translated.bytes, 200);
                let seen = scene.pass(&error, &untranslate());
                assert_eq!(seen.bytes, error_about(is_v6, host(is_v6, 2), host(is_v6, 1), &there, 200));
                let nat = if target == NatTarget::Src { "rel|rpl|trk|dnat" } else { "rel|rpl|trk|snat" };
                assert_eq!(seen.state(), nat);
            }
        }
    }
}

#[test]
fn an_error_about_a_ping_is_related() {
    let mut scene = Scene::new();
    let ping = ip(false, 1, 2).icmp(8, 0).payload(b"ping").build();
    scene.pass(&ping, &commit());
    let error = error_about(false, host(false, 9), host(false, 1), &ping, 28);
    assert_eq!(scene.pass(&error, &track()).state(), "rel|rpl|trk");
    // An error about an error belongs to nothing.
    let error = error_about(
        false,
        host(false, 9),
        host(false, 1),
        &error_about(false, host(false, 1), host(false, 2), &ping, 28),
        60,
    );
    assert_eq!(scene.pass(&error, &track()).state(), "inv|trk");
}

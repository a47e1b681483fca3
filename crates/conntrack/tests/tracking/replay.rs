//! Which packets can be replayed, and which cannot.

use crate::scene::*;
use crate::tcp::{ACK, SYN, Segment, Sender, segment};
use sluice_conntrack::{Ct, Helper, Masked, NatSpec, NatTarget};

/// Client and server have exchanged UDP packets, translated as the request demands.
fn talk(begin: &Ct) -> (Scene, Vec<u8>, Vec<u8>) {
    let mut scene = Scene::new();
    let there = udp(false, (1, CLIENT), (2, SERVER));
    let translated = scene.pass(&there, begin).bytes;
    let back = answer(&translated);
    assert!(scene.pass(&back, &untranslate()).state().starts_with("est"));
    (scene, there, back)
}

#[test]
fn what_only_follows_a_connection_stands() {
    let (mut scene, there, back) = talk(&commit());
    for request in [track(), commit(), untranslate(), Ct { helper: Some(Helper::Ftp), ..track() }] {
        assert!(scene.can_replay(&there, &request), "{request:?}");
        assert!(scene.can_replay(&back, &request), "{request:?}");
    }
    assert!(!scene.can_replay(&there, &Ct { zone: 3, ..track() }), "it has no connection there");
    assert!(!scene.can_replay(&udp(false, (3, CLIENT), (2, SERVER)), &track()), "it has none at all");
}

#[test]
fn what_changes_a_connection_does_not() {
    let (mut scene, there, _) = talk(&commit());
    for request in [
        Ct { force: true, ..commit() },
        Ct { mark: Some(Masked { value: 5, mask: !0 }), ..commit() },
        Ct { label: Some(Masked { value: 5, mask: !0 }), ..commit() },
        Ct { helper: Some(Helper::Tftp), ..track() },
    ] {
        assert!(!scene.can_replay(&there, &request), "{request:?}");
    }
}

/// Even if the translation keeps the address: the state says that there is one.
#[test]
fn translated_packets_stand() {
    let mut own = [0; 16];
    own[..4].copy_from_slice(&[10, 0, 0, 1]);
    let own = NatSpec { target: Some(NatTarget::Src), addrs: (own, own), ..NatSpec::default() };
    let own = Ct { nat: Some(own), ..commit() };
    for begin in [nat(NatTarget::Src, (9, 9), None), nat(NatTarget::Dst, (9, 9), None), own] {
        let (mut scene, there, back) = talk(&begin);
        for request in [untranslate(), track()] {
            assert!(scene.can_replay(&there, &request), "{begin:?} {request:?}");
            assert!(scene.can_replay(&back, &request), "{begin:?} {request:?}");
        }
    }
}

/// A helper reads the packets that came to its port, whatever port they leave for.
#[test]
fn packets_that_came_to_a_helpers_port_do_not() {
    let mut scene = Scene::new();
    let there = udp(false, (1, CLIENT), (2, 69));
    let translated = scene.pass(&there, &nat(NatTarget::Dst, (9, 9), Some((6969, 6969)))).bytes;
    let back = answer(&translated);
    assert!(scene.pass(&back, &untranslate()).state().starts_with("est"));
    assert!(!scene.can_replay(&there, &untranslate()));
    assert!(scene.can_replay(&back, &untranslate()));
}

#[test]
fn control_connections_and_other_protocols_do_not() {
    let mut scene = Scene::new();
    let handshake = |client: (u8, u16), server: (u8, u16), scene: &mut Scene| {
        let frame = |segment: Segment<'_>| segment.frame_between(client, server);
        scene.pass(&frame(segment(Sender::Client, SYN, 1000, 0, b"")), &commit());
        scene.pass(&frame(segment(Sender::Server, SYN | ACK, 5000, 1001, b"")), &commit());
        frame(segment(Sender::Client, ACK, 1001, 5001, b""))
    };
    let plain = handshake((1, CLIENT), (2, SERVER), &mut scene);
    assert!(scene.can_replay(&plain, &track()));
    assert!(!scene.can_replay(&plain, &Ct { helper: Some(Helper::Ftp), ..track() }), "FTP on another port");
    let wild = segment(Sender::Client, ACK, 0x7000_0000, 5001, b"far off").frame();
    assert!(!scene.can_replay(&wild, &track()), "off the window: invalid");
    let ftp = handshake((1, CLIENT), (2, 21), &mut scene);
    assert!(!scene.can_replay(&ftp, &track()));
    let ping = ip(false, 1, 2).icmp(8, 0).payload(b"abcdefgh").build();
    scene.pass(&ping, &commit());
    assert!(!scene.can_replay(&ping, &track()));
}

//! Source and destination NAT, there and back.

use crate::scene::*;
use sluice_conntrack::{CommitError, Ct, CtOutcome, Filter, NatSpec, NatTarget};
use sluice_packet::Layers;
use std::collections::HashSet;

/// Addresses and ports of a packet.
fn ends(bytes: &[u8]) -> (Vec<u8>, u16, Vec<u8>, u16) {
    let layers = Layers::of(bytes).expect("a frame");
    let (l3, l4) = (layers.l3, l4_at(bytes));
    let (at, size) = if layers.ip.expect("an IP packet").v6 { (l3 + 8, 16) } else { (l3 + 12, 4) };
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    (bytes[at..at + size].to_vec(), port(l4), bytes[at + size..at + 2 * size].to_vec(), port(l4 + 2))
}

/// Sends a packet, has what arrives answered, and checks that the answer arrives as one to the packet sent.
fn round_trip(scene: &mut Scene, there: &[u8], request: &Ct) -> Vec<u8> {
    let seen = scene.pass(there, request);
    assert_eq!(seen.outcome, CtOutcome::Committed);
    let state = match request.nat.as_ref().and_then(|spec| spec.target) {
        Some(NatTarget::Src) => ("new|trk|snat", "est|rpl|trk|dnat", "est|trk|snat"),
        _ => ("new|trk|dnat", "est|rpl|trk|snat", "est|trk|dnat"),
    };
    assert_eq!(seen.state(), state.0);
    let back = scene.pass(&answer(&seen.bytes), &Ct { zone: request.zone, ..untranslate() });
    assert_eq!(back.state(), state.1);
    assert_eq!(back.bytes, answer(there), "the answer is not to the packet sent");
    let again = scene.pass(there, &Ct { zone: request.zone, ..untranslate() });
    assert_eq!((again.state().as_str(), &again.bytes), (state.2, &seen.bytes));
    seen.bytes
}

#[test]
fn both_families_and_protocols_round_trip() {
    for target in [NatTarget::Src, NatTarget::Dst] {
        for ports in [None, Some((5000, 5999))] {
            for is_v6 in [false, true] {
                let mut scene = Scene::new();
                let addr = if is_v6 { v6(0x99) } else { v4(9) };
                let spec = NatSpec { target: Some(target), addrs: (addr, addr), ports, ..NatSpec::default() };
                let request = Ct { zone: 3, nat: Some(spec), ..commit() };
                let tcp = ip(is_v6, 1, 2).tcp(CLIENT, SERVER).payload(b"odd").build();
                for there in [udp(is_v6, (1, CLIENT), (2, SERVER)), tcp] {
                    let (src, src_port, dst, dst_port) = ends(&round_trip(&mut scene, &there, &request));
                    let (new, port, own) = match target {
                        NatTarget::Src => (src, src_port, CLIENT),
                        NatTarget::Dst => (dst, dst_port, SERVER),
                    };
                    assert_eq!(new, addr[..new.len()]);
                    assert!(if ports.is_some() { (5000..=5999).contains(&port) } else { port == own });
                }
            }
        }
    }
}

#[test]
fn clients_of_one_port_get_ports_of_their_own_and_answers_find_them() {
    let mut scene = Scene::new();
    let request = nat(NatTarget::Src, (9, 9), None);
    let mut used = HashSet::new();
    for client in 1..=40 {
        let translated = round_trip(&mut scene, &udp(false, (client, CLIENT), (200, SERVER)), &request);
        assert!(used.insert(ends(&translated)), "a tuple was given twice");
    }
    assert_eq!(scene.ct.connections(), 40);
}

#[test]
fn a_range_gives_all_its_ports_and_then_says_so() {
    let mut scene = Scene::new();
    let request = nat(NatTarget::Src, (9, 9), Some((6000, 6003)));
    for client in 1..=4 {
        assert_eq!(scene.pass(&udp(false, (client, CLIENT), (200, SERVER)), &request).outcome, CtOutcome::Committed);
    }
    let there = udp(false, (5, CLIENT), (200, SERVER));
    let seen = scene.pass(&there, &request);
    assert_eq!(seen.outcome, CtOutcome::NotCommitted(CommitError::NatExhausted));
    assert_eq!((seen.state().as_str(), &seen.bytes), ("new|trk", &there));
    assert_eq!(scene.ct.connections(), 4, "what was refused is not counted");
    // To another server the same ports are free.
    assert_eq!(scene.pass(&udp(false, (5, CLIENT), (201, SERVER)), &request).outcome, CtOutcome::Committed);
    // A port comes back when its connection has ended.
    scene.now_ms += 61_000;
    assert_eq!(scene.pass(&there, &request).outcome, CtOutcome::Committed);
}

#[test]
fn a_translated_packet_is_found_again_on_its_next_pass() {
    let mut scene = Scene::new();
    let there = udp(false, (1, CLIENT), (2, SERVER));
    let dnat = nat(NatTarget::Dst, (9, 9), Some((8080, 8080)));
    let seen = scene.passes(&there, &[dnat.clone(), track()]);
    assert_eq!(seen.state(), "new|trk|dnat");
    let back = scene.passes(&answer(&seen.bytes), &[untranslate(), track()]);
    assert_eq!((back.state().as_str(), &back.bytes), ("est|rpl|trk|snat", &answer(&there)));
    // In another zone it is another packet, and may be translated again: both ways through two zones.
    let snat = Ct { zone: 5, ..nat(NatTarget::Src, (7, 7), None) };
    let both = scene.passes(&there, &[untranslate(), snat]);
    assert_eq!(both.state(), "new|trk|snat");
    assert_eq!(ends(&both.bytes), (v4(7)[..4].to_vec(), CLIENT, v4(9)[..4].to_vec(), 8080));
    let back = scene.passes(&answer(&both.bytes), &[Ct { zone: 5, ..untranslate() }, untranslate()]);
    assert_eq!(back.bytes, answer(&there));
}

#[test]
fn nat_without_a_target_translates_nothing_new() {
    let mut scene = Scene::new();
    let there = udp(false, (1, CLIENT), (2, SERVER));
    let seen = scene.pass(&there, &Ct { commit: true, ..untranslate() });
    assert_eq!((seen.state().as_str(), &seen.bytes), ("new|trk", &there));
    assert_eq!(scene.pass(&answer(&there), &untranslate()).state(), "est|rpl|trk");
}

#[test]
fn source_nat_to_ones_own_address_only_moves_clashing_ports() {
    let mut scene = Scene::new();
    let own = NatSpec { target: Some(NatTarget::Src), ..NatSpec::default() };
    let request = Ct { nat: Some(own), ..commit() };
    let there = udp(false, (1, CLIENT), (2, SERVER));
    assert_eq!(round_trip(&mut scene, &there, &request), there);
}

#[test]
fn ping_is_translated_by_address() {
    for (is_v6, kinds) in [(false, [8, 0]), (true, [128, 129])] {
        let mut scene = Scene::new();
        let build = |src, dst, kind| {
            let frame = ip(is_v6, src, dst);
            if is_v6 {
                frame.icmpv6(kind, 0).payload(b"ping!").build()
            } else {
                frame.icmp(kind, 0).payload(b"ping!").build()
            }
        };
        let addr = if is_v6 { v6(0x99) } else { [10, 0, 0, 0x99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] };
        let spec = NatSpec { target: Some(NatTarget::Src), addrs: (addr, addr), ..NatSpec::default() };
        let seen = scene.pass(&build(1, 2, kinds[0]), &Ct { nat: Some(spec.clone()), ..commit() });
        assert_eq!(seen.bytes, build(0x99, 2, kinds[0]));
        let back = scene.pass(&build(2, 0x99, kinds[1]), &untranslate());
        assert_eq!((back.state().as_str(), &back.bytes), ("est|rpl|trk|dnat", &build(2, 1, kinds[1])));
        // Identifiers are not translated, so a second client with the same one finds the tuple taken.
        let seen = scene.pass(&build(3, 2, kinds[0]), &Ct { nat: Some(spec), ..commit() });
        assert_eq!(seen.outcome, CtOutcome::NotCommitted(CommitError::NatExhausted));
    }
}

#[test]
fn flushing_a_translated_connection_frees_both_tuples() {
    let mut scene = Scene::new();
    let request = nat(NatTarget::Src, (9, 9), Some((6000, 6000)));
    let there = udp(false, (1, CLIENT), (2, SERVER));
    for _ in 0..3 {
        let seen = scene.pass(&there, &request);
        assert_eq!(seen.outcome, CtOutcome::Committed);
        assert_eq!(scene.ct.flush(&Filter::default()), 1);
        assert_eq!(scene.pass(&answer(&seen.bytes), &untranslate()).state(), "new|trk");
    }
    assert_eq!(scene.ct.connections(), 0);
}

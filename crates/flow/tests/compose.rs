//! Packets made of flows: extraction reads the flow again, and lengths and checksums are those of a built frame.

use proptest::prelude::*;
use sluice_flow::layout as at;
use sluice_flow::{FlowKey, Metadata, PacketKey, compose, compose_of_size, extract};
use sluice_packet::checksum;
use sluice_packet::headers::ethertype;
use sluice_testkit::arbitrary::packets;
use sluice_testkit::frame;

fn key_of(packet: &[u8]) -> Option<FlowKey> {
    let mut key = PacketKey::ZERO;
    extract(packet, &Metadata::of_port(9), &mut key).ok()?;
    Some(FlowKey::of_packet(&key))
}

/// The same frame with IPv4 identification 0, which no key has.
fn without_id(mut frame: Vec<u8>) -> Vec<u8> {
    if let Some(l3) = (0..frame.len()).find(|at| frame[*at..].starts_with(&[8, 0, 0x45])).map(|at| at + 2) {
        frame[l3 + 4..l3 + 6].fill(0);
        frame[l3 + 10..l3 + 12].fill(0);
        let sum = checksum::internet(&frame[l3..l3 + 20]);
        frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

fn payload(size: usize) -> Vec<u8> {
    (0..size).map(|i| i as u8).collect()
}

/// Whether extraction reads more of such a packet than the key tells: options that are there with a zero address.
fn is_neighbour_discovery(key: &FlowKey) -> bool {
    key.number(at::NW_PROTO) == 58 && matches!(key.number(at::TP_SRC), 135 | 136)
}

/// Whether a packet of this flow can be made: no IPv6 extension headers, no label stack deeper than the key, no
/// ARP operation but request and reply.
fn is_composable(key: &FlowKey) -> bool {
    match key.number(at::DL_TYPE) as u16 {
        _ if is_neighbour_discovery(key) => false,
        ethertype::IPV6 => key.number(at::NW_FRAG) == 0,
        ethertype::ARP | ethertype::RARP => matches!(key.number(at::NW_PROTO), 1 | 2),
        other if ethertype::is_mpls(other) => {
            [at::MPLS0, at::MPLS1, at::MPLS2].iter().any(|lse| key.number(*lse) & 0x100 != 0)
        }
        ethertype::NSH => false,
        // A tag behind the two that a key has.
        other => !ethertype::is_vlan(other),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn extraction_reads_the_flow_again(packet in packets(), size in 0usize..100) {
        let Some(key) = key_of(&packet).filter(is_composable) else { return Ok(()) };
        prop_assert_eq!(key_of(&compose(&key, size)), Some(key.clone()), "{:02x?}", packet);
        let minimal = compose(&key, 0).len();
        let expanded = compose_of_size(&key, minimal + size).unwrap();
        prop_assert_eq!(expanded.len(), minimal + size);
        prop_assert_eq!(key_of(&expanded), Some(key.clone()));
        prop_assert_eq!(compose_of_size(&key, minimal - 1), None);
    }
}

#[test]
fn packets_are_those_that_one_would_build() {
    let (a4, b4, a6, b6) = ([10, 0, 0, 1], [10, 0, 0, 2], [0xfe; 16], [0x20; 16]);
    let mac = [2, 0, 0, 0, 0, 9];
    let frames = [
        frame::ethernet().ipv4(a4, b4).udp(1000, 2000).payload(&payload(64)),
        frame::ethernet().vlan(5).vlan(6).ipv4(a4, b4).udp(1000, 2000).payload(&payload(64)),
        frame::ethernet().ipv4(a4, b4).icmp(8, 0).payload(&payload(64)),
        frame::ethernet().ipv4(a4, b4).icmp(3, 1),
        frame::ethernet().ipv4(a4, b4).igmp(0x11, 20, [224, 0, 0, 3]),
        frame::ethernet().ipv6(a6, b6).label(7).tos(4).udp(1, 2).payload(&payload(64)),
        frame::ethernet().ipv6(a6, b6).icmpv6(128, 0).payload(&payload(64)),
        frame::ethernet().ipv6(a6, b6).neighbour_solicit(b6).nd_option(1, mac),
        frame::ethernet().ipv6(a6, b6).neighbour_advert(0, b6).nd_option(2, mac),
        frame::ethernet().arp(1, mac, a4, [0; 6], b4),
        frame::ethernet().mpls(3, 0, 9).mpls(4, 1, 8),
    ];
    for built in frames.map(|frame| without_id(frame.build())) {
        let key = key_of(&built).unwrap();
        assert_eq!(compose(&key, 64), built, "{key:?}");
    }
}

#[test]
fn segments_that_open_or_end_a_connection_have_no_payload() {
    let (src, dst) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    for (flags, expected) in [(0x010, 64), (0x012, 0), (0x011, 0), (0x004, 0)] {
        let key = key_of(&frame::ethernet().ipv4(src, dst).tcp(1000, 2000).tcp_flags(flags).build()).unwrap();
        let packet = compose(&key, 64);
        assert_eq!(packet.len(), 14 + 20 + 20 + expected);
        let segment = &packet[34..];
        let sum = checksum::pseudo_v4(src, dst, 6, segment.len() as u16) + checksum::sum(segment);
        assert_eq!(checksum::finish(sum), 0);
    }
}

#[test]
fn a_packet_of_a_given_size_ends_in_zeros_that_count() {
    let key = key_of(&frame::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build()).unwrap();
    let built = frame::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(&[0; 58]).build();
    assert_eq!(compose_of_size(&key, 100), Some(without_id(built)));
}

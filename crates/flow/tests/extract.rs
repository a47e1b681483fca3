//! Extraction against the byte-by-byte parser, on valid packets, damaged ones and all their beginnings.

use proptest::prelude::*;
use sluice_flow::{
    FlowKey, Line, Metadata, PacketKey, ParseError, VlanLimit, extract, extract_again, extract_with, layout,
};
use sluice_oracle::parse;
use sluice_simd::isa::Kernel;
use sluice_simd::{Isa, VectorOps};
use sluice_testkit::arbitrary::packets;
use sluice_testkit::frame;

/// A key as extraction may find it: every line full of another packet's bytes.
fn dirty() -> PacketKey {
    PacketKey { lines: [Line([0xa5; 64]); layout::PACKET_LINES] }
}

/// Extraction with the vector operations of each instruction set.
struct Extract<'a>(&'a [u8], VlanLimit, &'a mut PacketKey);

impl Kernel for Extract<'_> {
    type Output = Result<(), ParseError>;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> Self::Output {
        extract_with(ops, self.0, &Metadata::of_port(9).with_vlan_limit(self.1), self.2)
    }
}

/// The limits there are.
const LIMITS: [VlanLimit; 2] = [VlanLimit::from_setting(1), VlanLimit::MAX];

/// What every instruction set extracts.
fn extracted(packet: &[u8], limit: VlanLimit) -> Option<FlowKey> {
    let of = |isa: Isa| {
        let mut key = dirty();
        let done = isa.run(Extract(packet, limit, &mut key));
        done.map(|()| (FlowKey::of_packet(&key), key.lines[0].0[layout::PRESENCE.offset]))
    };
    let want = of(Isa::SCALAR);
    Isa::available().into_iter().for_each(|isa| assert_eq!(of(isa), want, "{isa:?}: {packet:02x?}"));
    want.ok().map(|(key, _)| key)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn extraction_agrees_with_the_oracle(packet in packets()) {
        for limit in LIMITS {
            prop_assert_eq!(extracted(&packet, limit), parse::key(&packet, 9, limit.tags()), "{:02x?}", packet);
        }
    }

    #[test]
    fn extracting_again_keeps_metadata_and_gives_the_same(packet in packets(), limit in prop::sample::select(&LIMITS)) {
        let Some(want) = extracted(&packet, limit) else { return Ok(()) };
        let mut key = dirty();
        key.lines[0].0[layout::PRESENCE.offset] = 0;
        key.set(layout::IN_PORT, &9u32.to_be_bytes());
        key.set(layout::RECIRC_ID, &[0; 4]);
        for span in [layout::DP_HASH, layout::PKT_MARK, layout::CT_MARK] {
            key.set(span, &[0; 4]);
        }
        key.set(layout::CT_ZONE, &[0; 2]);
        key.set(layout::CT_STATE, &[0]);
        extract_again(&packet, limit, &mut key).unwrap();
        prop_assert_eq!(FlowKey::of_packet(&key), want);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_beginning_of_a_packet_agrees(packet in packets(), limit in prop::sample::select(&LIMITS)) {
        for len in 0..packet.len() {
            let beginning = &packet[..len];
            let want = parse::key(beginning, 9, limit.tags());
            prop_assert_eq!(extracted(beginning, limit), want, "{:02x?}", beginning);
        }
    }
}

#[test]
fn ordinary_packets_touch_line_0_only() {
    let packets = [
        frame::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2),
        frame::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2, 0x12),
        frame::ethernet().vlan(5).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).icmp(8, 0).payload(&[0; 40]).build(),
        frame::ethernet().ipv4([1; 4], [2; 4]).ipv4_options(&[1; 4]).fragment(3, false).sctp(1, 2).build(),
    ];
    for packet in packets {
        for isa in Isa::available() {
            let mut key = dirty();
            isa.run(Extract(&packet, VlanLimit::MAX, &mut key)).unwrap();
            assert_eq!(key.number(layout::PRESENCE), 0);
            assert_eq!(key.lines[1..], dirty().lines[1..], "a line the packet does not need was written");
        }
    }
}

#[test]
fn recirculation_keeps_the_connection_as_long_as_the_packet_is_of_its_kind() {
    let udp = frame::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2);
    let mut key = PacketKey::ZERO;
    extract(&udp, &Metadata::of_port(1), &mut key).unwrap();
    let stamped = [
        (layout::RECIRC_ID, &[0, 0, 0, 3][..]),
        (layout::CT_STATE, &[0x22]),
        (layout::CT_ZONE, &[0, 5]),
        (layout::CT_MARK, &[1, 2, 3, 4]),
        (layout::CT_LABEL, &[7; 16]),
        (layout::TUN_ID, &[8; 8]),
    ];
    let ports = [(layout::CT_TP_SRC, &[0, 53][..]), (layout::CT_TP_DST, &[0, 80])];
    let tuple = [(layout::CT_SRC, &[9; 16][..]), (layout::CT_DST, &[8; 16]), (layout::CT_NW_PROTO, &[17])];
    stamped.iter().chain(&tuple).chain(&ports).for_each(|(span, value)| key.set(*span, value));

    let mut again = key;
    extract_again(&udp, VlanLimit::MAX, &mut again).unwrap();
    assert_eq!(again, key);

    let fragment = frame::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(5, false).udp(1, 2).build();
    extract_again(&fragment, VlanLimit::MAX, &mut again).unwrap();
    stamped.iter().chain(&tuple).for_each(|(span, value)| assert_eq!(again.get(*span), *value));
    ports.iter().for_each(|(span, _)| assert_eq!(again.get(*span), [0, 0]));

    again = key;
    let arp = frame::ethernet().arp(1, [1; 6], [2; 4], [3; 6], [4; 4]).build();
    extract_again(&arp, VlanLimit::MAX, &mut again).unwrap();
    stamped.iter().for_each(|(span, value)| assert_eq!(again.get(*span), *value));
    tuple.iter().chain(&ports).for_each(|(span, value)| assert_eq!(again.get(*span), vec![0; value.len()]));
}

//! Random packets for property tests: every protocol that the switch knows, valid and damaged.
//!
//! Values come from small pools, so that rare coincidences (equal addresses, fragments, nested tags, the same option
//! twice) are common.

use crate::frame::{self, FrameBuilder};
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Valid frames of all protocols.
pub fn frames() -> impl Strategy<Value = Vec<u8>> {
    (links(), any::<bool>()).prop_flat_map(|(link, padded)| {
        networks(link).prop_map(move |frame| if padded { frame.pad_to(60).build() } else { frame.build() })
    })
}

/// Frames, some valid, some truncated, some with wrong lengths, types or other bytes, some garbage.
pub fn packets() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => frames(),
        2 => (frames(), any::<Index>()).prop_map(|(mut frame, at)| {
            frame.truncate(at.index(frame.len() + 1));
            frame
        }),
        6 => (frames(), damages()).prop_map(|(mut frame, damages)| {
            damages.iter().for_each(|damage| damage.apply(&mut frame));
            frame
        }),
        1 => prop::collection::vec(any::<u8>(), 0..100),
    ]
}

/// A change of one byte near the front, where the headers are.
#[derive(Clone, Debug)]
struct Damage {
    at: Index,
    kind: DamageKind,
}

#[derive(Clone, Debug)]
enum DamageKind {
    Put(u8),
    Add(u8),
    FlipBit(u8),
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let kind = prop_oneof![
        // Bytes of types, protocols, version and header length, and extremes.
        select(vec![
            0, 1, 2, 3, 4, 5, 6, 8, 17, 43, 44, 51, 58, 60, 0x44, 0x45, 0x46, 0x4f, 0x81, 0x86, 0x88, 0xa8, 0xdd, 132,
            255
        ])
        .prop_map(DamageKind::Put),
        select(vec![1, 2, 4, 8, 255, 254, 252, 248]).prop_map(DamageKind::Add),
        (0..8u8).prop_map(DamageKind::FlipBit),
    ];
    prop::collection::vec((any::<Index>(), kind).prop_map(|(at, kind)| Damage { at, kind }), 1..4)
}

impl Damage {
    fn apply(&self, frame: &mut [u8]) {
        // Beyond the addresses of Ethernet, and mostly headers.
        let (from, to) = (12.min(frame.len()), 90.min(frame.len()));
        if from == to {
            return;
        }
        let byte = &mut frame[from + self.at.index(to - from)];
        *byte = match self.kind {
            DamageKind::Put(value) => value,
            DamageKind::Add(value) => byte.wrapping_add(value),
            DamageKind::FlipBit(bit) => *byte ^ 1 << bit,
        };
    }
}

fn macs() -> impl Strategy<Value = [u8; 6]> {
    select(vec![[0; 6], [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [0xff; 6], [0x33, 0x33, 0, 0, 0, 1]])
}

/// IPv4 addresses from a small pool.
pub fn addresses4() -> impl Strategy<Value = [u8; 4]> {
    select(vec![[10, 0, 0, 1], [10, 0, 0, 2], [192, 168, 255, 254], [224, 0, 0, 1], [0; 4], [255; 4]])
}

/// IPv6 addresses from a small pool.
pub fn addresses6() -> impl Strategy<Value = [u8; 16]> {
    let mut host = [0; 16];
    (host[0], host[1], host[15]) = (0xfd, 0x01, 7);
    let mut multicast = [0; 16];
    (multicast[0], multicast[1], multicast[15]) = (0xff, 0x02, 1);
    select(vec![host, multicast, [0; 16], [0xff; 16], *b"0123456789abcdef"])
}

/// L4 ports from a small pool.
pub fn ports() -> impl Strategy<Value = u16> {
    select(vec![0, 1, 53, 80, 443, 0x00ff, 0xff00, 65535])
}

/// Ethernet, tags, labels, SNAP.
fn links() -> impl Strategy<Value = FrameBuilder> {
    let tag = (select(vec![0x8100u16, 0x88a8]), select(vec![0u16, 5, 0x0fff, 0x1005, 0xe064, 0xffff]));
    let tags = prop_oneof![3 => Just(0..1usize), 2 => Just(1..2), 2 => Just(2..4)]
        .prop_flat_map(move |n| prop::collection::vec(tag.clone(), n));
    (macs(), macs(), tags, 0..12u8).prop_map(|(src, dst, tags, snap)| {
        let frame = tags.iter().fold(frame::ethernet().macs(src, dst), |frame, (tpid, tci)| frame.tag(*tpid, *tci));
        if snap == 0 { frame.snap() } else { frame }
    })
}

fn networks(link: FrameBuilder) -> impl Strategy<Value = FrameBuilder> {
    let (l4, v4, v6, arp) = (link.clone(), link.clone(), link.clone(), link.clone());
    let label = (any::<u32>(), 0..8u8, any::<u8>()).prop_map(|(label, tc, ttl)| (label & 0xf_ffff, tc, ttl));
    prop_oneof![
        6 => ipv4(l4).prop_flat_map(transports),
        1 => ipv4(v4).prop_map(|frame| frame.proto(47).payload(b"GRE, which is not looked into")),
        6 => ipv6(v6).prop_flat_map(transports),
        2 => (select(vec![0u16, 1, 2, 3, 255, 256, 0x0101]), macs(), addresses4(), macs(), addresses4(), any::<bool>())
            .prop_map(move |(op, sha, spa, tha, tpa, reverse)| {
                let frame = arp.clone();
                if reverse { frame.rarp(op, sha, spa, tha, tpa) } else { frame.arp(op, sha, spa, tha, tpa) }
            }),
        2 => (prop::collection::vec(label, 1..6), addresses4(), any::<bool>()).prop_map(move |(labels, address, multicast)| {
            let frame = labels.iter().fold(link.clone(), |frame, (label, tc, ttl)| frame.mpls(*label, *tc, *ttl));
            let frame = if multicast { frame.mpls_multicast() } else { frame };
            frame.ipv4(address, address).udp(1, 2)
        }),
    ]
}

fn ipv4(link: FrameBuilder) -> impl Strategy<Value = FrameBuilder> {
    let options = select(vec![&b""[..], b"", b"\x94\x04\0\0", b"\x07\x27\x04", &[1; 40]]);
    let fragment = prop_oneof![
        5 => Just(None),
        1 => Just(Some((0, true))),
        1 => select(vec![(8191, false), (5, false)]).prop_map(Some),
        // Each bit of the offset alone.
        2 => (0..13u32, any::<bool>()).prop_map(|(bit, more)| Some((1 << bit, more))),
    ];
    (addresses4(), addresses4(), any::<u8>(), any::<u8>(), options, fragment).prop_map(
        move |(src, dst, tos, ttl, options, fragment)| {
            let frame = link.clone().ipv4(src, dst).tos(tos).ttl(ttl).ipv4_options(options);
            fragment.map_or(frame.clone(), |(offset, more)| frame.fragment(offset, more))
        },
    )
}

fn ipv6(link: FrameBuilder) -> impl Strategy<Value = FrameBuilder> {
    let extension = prop_oneof![
        select(vec![0u8, 43, 51, 60]).prop_flat_map(|kind| (Just(kind), prop::collection::vec(0..3u8, 0..30))),
        // Fragment headers: whole, first, later, and with reserved bits.
        (Just(44), select(vec![vec![0, 0], vec![0, 1], vec![0, 8], vec![0xff, 0xf9], vec![0x80, 0], vec![0, 2]])),
    ];
    let extensions =
        prop_oneof![Just(0..1usize), Just(1..4)].prop_flat_map(move |n| prop::collection::vec(extension.clone(), n));
    (addresses6(), addresses6(), any::<u8>(), any::<u8>(), any::<u32>(), extensions).prop_map(
        move |(src, dst, tos, ttl, label, extensions)| {
            let frame = link.clone().ipv6(src, dst).tos(tos).ttl(ttl).label(label);
            extensions.iter().fold(frame, |frame, (kind, body)| frame.extension(*kind, body))
        },
    )
}

fn transports(ip: FrameBuilder) -> impl Strategy<Value = FrameBuilder> {
    let frame = move || ip.clone();
    let (tcp, udp, sctp, icmp, icmpv6, igmp, nd) = (frame(), frame(), frame(), frame(), frame(), frame(), frame());
    let payload = || prop::collection::vec(any::<u8>(), 0..40);
    let tcp_options = select(vec![&b""[..], b"\x02\x04\x05\xb4", &[1; 40]]);
    let nd_option = prop_oneof![
        4 => (select(vec![1u8, 2]), macs()).prop_map(|(kind, mac)| [&[kind, 1][..], &mac].concat()),
        1 => select(vec![vec![14, 1, 9, 9, 9, 9, 9, 9], vec![5, 2, 0, 0, 0, 0, 5, 220, 0, 0, 0, 0, 0, 0, 0, 0], vec![1, 0, 0, 0, 0, 0, 0, 0]]),
    ];
    prop_oneof![
        (ports(), ports(), any::<u16>(), tcp_options, payload()).prop_map(
            move |(src, dst, flags, options, payload)| tcp
                .clone()
                .tcp(src, dst)
                .tcp_flags(flags)
                .tcp_options(options)
                .payload(&payload)
        ),
        (ports(), ports(), any::<bool>(), payload()).prop_map(move |(src, dst, checksum, payload)| {
            let frame = udp.clone().udp(src, dst);
            if checksum { frame } else { frame.no_checksum() }.payload(&payload)
        }),
        (ports(), ports(), payload())
            .prop_map(move |(src, dst, payload)| sctp.clone().sctp(src, dst).payload(&payload)),
        (0..20u8, 0..3u8, payload())
            .prop_map(move |(kind, code, payload)| icmp.clone().icmp(kind, code).payload(&payload)),
        (128..138u8, 0..3u8, payload())
            .prop_map(move |(kind, code, payload)| icmpv6.clone().icmpv6(kind, code).payload(&payload)),
        (0x11..0x23u8, any::<u8>(), addresses4())
            .prop_map(move |(kind, code, group)| igmp.clone().igmp(kind, code, group)),
        (any::<bool>(), any::<u32>(), addresses6(), prop::collection::vec(nd_option, 0..4)).prop_map(
            move |(advert, flags, target, options)| {
                let frame = nd.clone();
                let frame =
                    if advert { frame.neighbour_advert(flags, target) } else { frame.neighbour_solicit(target) };
                options.iter().fold(frame, |frame, option| frame.payload(option))
            }
        ),
    ]
}

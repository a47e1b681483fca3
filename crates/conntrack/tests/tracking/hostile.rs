//! Bytes from outside never panic, and what is forwarded stays a packet of the same length.

use crate::scene::*;
use proptest::prelude::*;
use sluice_conntrack::{Ct, Helper, Masked, NatSpec, NatTarget, PortChoice};

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let port = prop::sample::select(vec![0, 1, 21, 69, 80]);
    let known = (any::<bool>(), 0..9u8, 1..4u8, 1..4u8, port.clone(), port, any::<[u8; 3]>()).prop_map(
        |(is_v6, kind, src, dst, src_port, dst_port, x)| {
            let frame = ip(is_v6, src, dst);
            let inside = udp(is_v6, (dst, dst_port), (src, src_port));
            match kind {
                0 => frame.udp(src_port, dst_port).payload(&x).build(),
                1 => frame
                    .tcp(src_port, dst_port)
                    .tcp_flags(u16::from(x[0] & 0x3f))
                    .payload(b"PORT 10,0,0,1,4,1\r\n")
                    .build(),
                2 => frame.tcp(src_port, dst_port).tcp_options(&[x[0] & 7, x[1], x[2], 3, 3, 99]).build(),
                3 => frame.icmp(x[0] % 18, x[1] & 1).payload(&inside[14..]).build(),
                4 => frame.icmpv6([1, 2, 3, 4, 128, 129][usize::from(x[0] % 6)], 0).payload(&inside[14..]).build(),
                5 => {
                    frame.fragment(u16::from(x[0] & 1), x[1] & 1 == 1).udp(src_port, dst_port).payload(&[0; 16]).build()
                }
                6 => frame.sctp(src_port, dst_port).payload(&x).build(),
                7 if is_v6 => frame.extension(x[0] % 64, &x).udp(src_port, dst_port).build(),
                _ => frame.proto(x[0]).payload(&x).build(),
            }
        },
    );
    let damage = prop::option::weighted(0.4, (any::<prop::sample::Index>(), any::<u8>()));
    let cut = prop::option::weighted(0.2, any::<prop::sample::Index>());
    let damaged = (known, damage, cut).prop_map(|(mut bytes, damage, cut)| {
        if let Some((at, value)) = damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(14 + cut.index(bytes.len() - 13));
        }
        bytes
    });
    prop_oneof![9 => damaged, 1 => prop::collection::vec(any::<u8>(), 14..120)]
}

fn request() -> impl Strategy<Value = Ct> {
    let target = prop::sample::select(vec![None, Some(NatTarget::Src), Some(NatTarget::Dst)]);
    let addr = prop::sample::select(vec![[0; 16], [1; 16], [10; 16], [0xff; 16]]);
    let spec = (target, addr.clone(), addr, prop::option::of((any::<u16>(), any::<u16>())), any::<[bool; 2]>())
        .prop_map(|(target, min, max, ports, [is_random, persistent])| {
            let choice = if is_random { PortChoice::Random } else { PortChoice::Hash };
            NatSpec { target, addrs: (min, max), ports, choice, persistent, ..NatSpec::default() }
        });
    let helper = prop::sample::select(vec![None, Some(Helper::Ftp), Some(Helper::Tftp)]);
    (0..2u16, any::<[bool; 3]>(), prop::option::of(spec), helper).prop_map(
        |(zone, [commit, force, marks], nat, helper)| Ct {
            zone,
            commit,
            force,
            mark: marks.then_some(Masked { value: 1, mask: 3 }),
            label: marks.then_some(Masked { value: 1, mask: 3 }),
            nat,
            helper,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn random_histories_never_panic_and_the_counts_add_up(
        passes in prop::collection::vec((frame(), prop::collection::vec(request(), 1..3), 0..20_000u64), 1..40),
    ) {
        let mut scene = Scene::new();
        // The twin always takes the slow path.
        let mut twin = Scene::new();
        twin.forgetful = true;
        for (bytes, requests, wait) in passes {
            scene.now_ms += wait;
            twin.now_ms += wait;
            // Keys and checksums are looked at in there.
            let (seen, plainly) = (scene.passes(&bytes, &requests), twin.passes(&bytes, &requests));
            prop_assert_eq!((seen.outcome, &seen.bytes, seen.key), (plainly.outcome, &plainly.bytes, plainly.key));
            let sorted = |scene: &Scene| {
                let mut lines = scene.dump(true);
                lines.sort();
                lines
            };
            prop_assert_eq!(sorted(&scene), sorted(&twin));
            scene.ct.expire(scene.now_ms, 5);
            twin.ct.expire(twin.now_ms, 5);
            prop_assert!(scene.dump(true).len() <= scene.ct.connections() as usize);
        }
        scene.ct.flush(&sluice_conntrack::Filter::default());
        prop_assert_eq!(scene.ct.connections(), 0);
    }
}

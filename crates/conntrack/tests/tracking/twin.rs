//! Beside a plain twin: one list, looked through from end to end.

use crate::scene::*;
use proptest::prelude::*;
use sluice_conntrack::{CommitError, Ct, CtOutcome, Filter};

/// A UDP connection of the twin.
#[derive(Clone, Debug)]
struct Plain {
    zone: u16,
    src: (u8, u16),
    dst: (u8, u16),
    said: Said,
    ends_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Said {
    Once,
    Often,
    BothWays,
}

#[derive(Clone, Debug)]
enum Op {
    Packet { zone: u16, src: (u8, u16), dst: (u8, u16), commit: bool, force: bool },
    Wait(u64),
    Flush(Option<u16>),
    Limit(Option<u16>, u32),
}

fn op() -> impl Strategy<Value = Op> {
    let end = (1..4u8, 5..7u16);
    let packet = (0..3u16, end.clone(), end, any::<bool>(), prop::bool::weighted(0.1))
        .prop_map(|(zone, src, dst, commit, force)| Op::Packet { zone, src, dst, commit, force });
    prop_oneof![
        20 => packet,
        4 => prop::sample::select(vec![1, 500, 5_000, 29_999, 30_000, 60_000, 200_000]).prop_map(Op::Wait),
        1 => prop::option::of(0..3u16).prop_map(Op::Flush),
        1 => (prop::option::of(0..3u16), 2..8u32).prop_map(|(zone, limit)| Op::Limit(zone, limit)),
    ]
}

#[derive(Default)]
struct Twin {
    connections: Vec<Plain>,
}

impl Twin {
    /// The state the packet has, and whether it would begin a connection.
    fn packet(&mut self, now_ms: u64, zone: u16, src: (u8, u16), dst: (u8, u16), force: bool) -> (&'static str, bool) {
        self.connections.retain(|c| c.ends_ms > now_ms);
        let found = self
            .connections
            .iter()
            .position(|c| c.zone == zone && ((c.src, c.dst) == (src, dst) || (c.src, c.dst) == (dst, src)));
        let Some(at) = found else { return ("new|trk", true) };
        let connection = &mut self.connections[at];
        let reply = connection.src != src || connection.dst != dst;
        if reply && force {
            self.connections.remove(at);
            return ("new|trk", true);
        }
        connection.said = match connection.said {
            Said::BothWays => Said::BothWays,
            _ if reply => Said::BothWays,
            _ => Said::Often,
        };
        connection.ends_ms = now_ms + if connection.said == Said::BothWays { 30_000 } else { 60_000 };
        let state = match (connection.said, reply) {
            (Said::BothWays, true) => "est|rpl|trk",
            (Said::BothWays, false) => "est|trk",
            _ => "new|trk",
        };
        (state, false)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn states_ends_and_limits_are_the_twins(ops in prop::collection::vec(op(), 1..120)) {
        let mut scene = Scene::new();
        let mut twin = Twin::default();
        for op in ops {
            match op {
                Op::Packet { zone, src, dst, commit, force } => {
                    // How many there are, ended ones not yet swept included, is compared at the end.
                    let limit = scene.ct.zone_limit(zone);
                    let (state, begins) = twin.packet(scene.now_ms, zone, src, dst, force);
                    let request = Ct { zone, commit, force, ..Ct::default() };
                    let seen = scene.pass(&udp(false, src, dst), &request);
                    prop_assert_eq!(seen.state(), state);
                    let is_full = limit.is_some_and(|limit| limit.count >= limit.limit);
                    let want = match (begins && (commit || force), is_full) {
                        (true, true) => CtOutcome::NotCommitted(CommitError::ZoneLimit),
                        (true, false) => CtOutcome::Committed,
                        _ => CtOutcome::Tracked,
                    };
                    prop_assert_eq!(seen.outcome, want);
                    if want == CtOutcome::Committed {
                        let ends_ms = scene.now_ms + 60_000;
                        twin.connections.push(Plain { zone, src, dst, said: Said::Once, ends_ms });
                    }
                }
                Op::Wait(ms) => {
                    scene.now_ms += ms;
                    scene.expire();
                }
                Op::Flush(zone) => {
                    scene.ct.flush(&Filter::zone(zone));
                    twin.connections.retain(|c| zone.is_some_and(|zone| zone != c.zone));
                }
                Op::Limit(zone, limit) => scene.ct.set_zone_limit(zone, limit),
            }
            twin.connections.retain(|c| c.ends_ms > scene.now_ms);
            prop_assert_eq!(scene.dump(false).len(), twin.connections.len());
        }
        // All that has ended is found, and the counts come down to nothing.
        scene.now_ms += 100_000;
        scene.expire();
        prop_assert_eq!(scene.ct.connections(), 0);
        prop_assert!(scene.ct.zone_limits().iter().all(|limit| limit.count == 0));
    }
}

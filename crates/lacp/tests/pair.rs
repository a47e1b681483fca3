//! Aggregators that talk to each other over links that lose units, and an aggregator beside a plain table of the states of
//! one member.

use proptest::prelude::*;
use sluice_lacp::{Config, Info, Lacp, MemberConfig, PDU_LEN, Pdu, Received, State, Status};
use std::collections::VecDeque;

/// The step of the simulation, ms.
const STEP_MS: u64 = 50;

struct Pair {
    ends: [Lacp; 2],
    /// What is on its way to each end: the member, and the unit.
    coming: [VecDeque<(u16, [u8; PDU_LEN])>; 2],
    now_ms: u64,
}

fn config(number: u8, active: bool, fast: bool) -> Config {
    Config { active, fast, system_id: [2, 0, 0, 0, 0, number], system_priority: 65534, fallback_ab: false }
}

fn member(id: u16) -> MemberConfig {
    MemberConfig { name: format!("p{id}"), port_id: id, port_priority: 65535, key: 0 }
}

impl Pair {
    fn new(configs: [Config; 2], links: u16) -> Self {
        let now_ms = 1_000_000;
        let end = |config: Config| {
            let mut lacp = Lacp::new("bond0", config);
            (1..=links).for_each(|id| lacp.register(id, member(id), true, now_ms));
            lacp
        };
        Pair { ends: configs.map(end), coming: Default::default(), now_ms }
    }

    /// Lets time pass; `loses(member)` says whether a unit on that link is lost.
    fn run(&mut self, span_ms: u64, loses: impl Fn(u16) -> bool) {
        let until = self.now_ms + span_ms;
        while self.now_ms < until {
            self.now_ms += STEP_MS;
            for i in 0..2 {
                while let Some((id, bytes)) = self.coming[i].pop_front() {
                    self.ends[i].receive(id, &bytes, self.now_ms);
                }
                let others = &mut self.coming[1 - i];
                self.ends[i].run(self.now_ms, |id, pdu| {
                    if !loses(id) {
                        others.push_back((id, pdu.write()));
                    }
                });
            }
        }
    }

    fn usable(&self, id: u16) -> [bool; 2] {
        [0, 1].map(|i| self.ends[i].may_enable(id))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// One end that talks is enough; a dead link goes within the partner's timeout, alone, and comes back.
    #[test]
    fn links_follow_the_wire(passive in any::<bool>(), fast in any::<[bool; 2]>(), links in 1..5_u16, dead in 1..5_u16) {
        let mut pair = Pair::new([config(1, true, fast[0]), config(2, !passive, fast[1])], links);
        pair.run(35_000, |_| false);
        for id in 1..=links {
            prop_assert_eq!(pair.usable(id), [true; 2], "link {}", id);
        }
        let dead = dead.min(links);
        // Three slow intervals, and three seconds more.
        pair.run(95_000, |id| id == dead);
        for id in 1..=links {
            prop_assert_eq!(pair.usable(id), [id != dead; 2], "link {} of which {} is dead", id, dead);
        }
        pair.run(35_000, |_| false);
        prop_assert_eq!(pair.usable(dead), [true; 2]);
    }

    /// Two ends that only answer never begin.
    #[test]
    fn nobody_begins_if_both_are_passive(fast in any::<[bool; 2]>()) {
        let mut pair = Pair::new([config(1, false, fast[0]), config(2, false, fast[1])], 2);
        pair.run(100_000, |_| false);
        prop_assert_eq!(pair.usable(1), [false; 2]);
        prop_assert_eq!(pair.ends[0].status(), Status::Configured);
    }

    /// A link to another system stays out, whichever came first.
    #[test]
    fn a_link_to_another_system_stays_out(stranger in 3..200_u8) {
        let mut pair = Pair::new([config(1, true, true), config(2, true, true)], 1);
        pair.run(5000, |_| false);
        let now = pair.now_ms;
        pair.ends[0].register(7, member(7), true, now);
        let actor = Info { system_priority: 1, system_id: [2, 0, 0, 0, 0, stranger], key: 1, port_priority: 1, port_id: 1, state: State(0x3f) };
        pair.ends[0].receive(7, &Pdu { actor, partner: Info::default() }.write(), now);
        pair.run(500, |_| false);
        prop_assert!(pair.ends[0].may_enable(1) && !pair.ends[0].may_enable(7));
    }
}

/// The plain table: what one member knows, IEEE 802.1AX figure 6-18 as far as it concerns a port that is enabled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Twin {
    Current { until_ms: u64 },
    Expired { until_ms: u64 },
    Defaulted,
}

impl Twin {
    fn pass(self, now_ms: u64) -> Twin {
        match self {
            Twin::Current { until_ms } if until_ms <= now_ms => Twin::Expired { until_ms: now_ms + 3000 },
            Twin::Expired { until_ms } if until_ms <= now_ms => Twin::Defaulted,
            other => other,
        }
    }
}

#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Unit { sync: bool },
    Marker,
    Garbage(Vec<u8>),
    Carrier(bool),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => prop_oneof![Just(1), Just(999), Just(1000), Just(2999), Just(3000), 0..40_000_u64].prop_map(Event::Pass),
        4 => any::<bool>().prop_map(|sync| Event::Unit { sync }),
        1 => Just(Event::Marker),
        1 => prop::collection::vec(any::<u8>(), 0..130).prop_map(Event::Garbage),
        2 => any::<bool>().prop_map(Event::Carrier),
    ]
}

proptest! {
    /// One member beside the table: its status, whether it may carry traffic, and when it may send.
    #[test]
    fn a_member_is_as_in_the_table(fast in any::<bool>(), active in any::<bool>(), events in prop::collection::vec(event(), 1..60)) {
        let mut now = 1_000_000;
        let mut lacp = Lacp::new("p", config(1, active, fast));
        lacp.register(1, member(1), true, now);
        let mut twin = if active { Twin::Expired { until_ms: now + 3000 } } else { Twin::Defaulted };
        let (mut carrier, mut synced) = (true, false);
        let peer = Info { system_priority: 9, system_id: [2, 0, 0, 0, 0, 9], key: 3, port_priority: 1, port_id: 4, state: State(0) };
        for event in events {
            match event {
                Event::Pass(ms) => now += ms,
                Event::Unit { sync } => {
                    let mut actor = peer;
                    actor.state.set(State::SYNC, sync);
                    lacp.receive(1, &Pdu { actor, partner: Info::default() }.write(), now);
                    if carrier {
                        twin = Twin::Current { until_ms: now + if fast { 3000 } else { 90_000 } };
                        synced = sync;
                    }
                }
                Event::Marker => {
                    let mut bytes = Pdu::default().write();
                    bytes[0] = 2;
                    lacp.receive(1, &bytes, now);
                }
                Event::Garbage(bytes) => {
                    if let Received::Lacp(_) = Pdu::read(&bytes) {
                        continue;
                    }
                    lacp.receive(1, &bytes, now);
                }
                Event::Carrier(up) if up != carrier => {
                    lacp.set_carrier(1, up, now);
                    carrier = up;
                    if active || matches!(twin, Twin::Current { .. }) {
                        twin = Twin::Expired { until_ms: now + 3000 };
                        synced = false;
                    }
                }
                Event::Carrier(up) => lacp.set_carrier(1, up, now),
            }
            let before = twin;
            twin = twin.pass(now);
            synced &= twin == before;
            let mut sent = 0;
            lacp.run(now, |_, _| sent += 1);
            prop_assert_eq!(lacp.is_current(1), Some(twin != Twin::Defaulted));
            prop_assert_eq!(lacp.may_enable(1), synced, "{:?}", twin);
            let is_negotiated = lacp.status() == Status::Negotiated;
            prop_assert!(!is_negotiated || twin != Twin::Defaulted);
            prop_assert!(is_negotiated || !matches!(twin, Twin::Current { .. }), "a partner that is heard leads");
            prop_assert!(sent == 0 || carrier && (active || twin != Twin::Defaulted));
            let again = lacp.wake_ms();
            prop_assert!(again.is_none_or(|at| at > now), "there is nothing left to do: {:?} at {}", again, now);
        }
    }
}

/// With fallback, members without a partner may carry traffic, until one has a partner.
#[test]
fn members_without_a_partner_fall_back() {
    let configs = [1, 2].map(|n| Config { fallback_ab: true, ..config(n, true, true) });
    let mut pair = Pair::new(configs, 2);
    pair.run(4000, |_| true);
    assert_eq!((pair.usable(1), pair.usable(2)), ([true; 2], [true; 2]));
    assert_eq!(pair.ends[0].status(), Status::Configured);
    pair.run(32_000, |id| id == 2);
    assert_eq!(pair.ends[0].status(), Status::Negotiated);
    assert_eq!((pair.usable(1), pair.usable(2)), ([true; 2], [false; 2]));
}

//! Bonds beside plain statements of what they are to do: delays, failover, rebalancing.

use proptest::prelude::*;
use sluice_bond::{Balance, Bond, Config, MemberLink, Mode, Verdict};
use sluice_lacp::Status;
use std::collections::BTreeMap;

const UP: MemberLink = MemberLink { carrier: true, may_enable: true };
const DOWN: MemberLink = MemberLink { carrier: false, may_enable: false };

fn bond(config: Config, members: u16) -> Bond {
    let mut bond = Bond::new("bond0", config, 0);
    for id in 1..=members {
        bond.register(id, &format!("p{id}"), [2, 0, 0, 0, 0, id as u8], UP);
        bond.set_link(id, UP);
    }
    bond.run(Status::Off, 0);
    bond
}

fn members_of_buckets(bond: &Bond) -> Vec<Option<u16>> {
    (0..=u8::MAX).map(|bucket| bond.member_of(bucket)).collect()
}

fn slb() -> Config {
    Config { mode: Mode::BalanceSlb, ..Config::default() }
}

#[test]
fn the_primary_is_active_whenever_it_can_be() {
    let mut bond = bond(Config { primary: Some("p2".into()), ..Config::default() }, 3);
    assert_eq!((bond.active(), bond.balance()), (Some(2), Balance::Active));
    bond.take_has_to_teach();
    bond.set_link(2, DOWN);
    bond.run(Status::Off, 10);
    assert_eq!(bond.active(), Some(1));
    assert!(bond.take_has_to_teach() && !bond.take_has_to_teach(), "once");
    bond.set_link(2, UP);
    bond.run(Status::Off, 20);
    assert_eq!(bond.active(), Some(2));
}

#[test]
fn without_a_primary_the_active_member_stays() {
    let mut bond = bond(Config::default(), 2);
    bond.set_link(1, DOWN);
    bond.run(Status::Off, 10);
    bond.set_link(1, UP);
    bond.run(Status::Off, 20);
    assert_eq!((bond.active(), bond.active_mac()), (Some(2), [2, 0, 0, 0, 0, 2]));
}

#[test]
fn delays_are_kept_and_the_last_hope_does_not_wait() {
    let mut bond = bond(Config { updelay_ms: 100, downdelay_ms: 50, ..Config::default() }, 2);
    bond.set_link(1, DOWN);
    bond.run(Status::Off, 1000);
    assert_eq!((bond.active(), bond.wake_ms()), (Some(1), Some(1050)), "it may come back");
    bond.run(Status::Off, 1049);
    assert_eq!(bond.active(), Some(1));
    bond.run(Status::Off, 1050);
    assert_eq!(bond.active(), Some(2));
    bond.set_link(1, UP);
    bond.run(Status::Off, 1060);
    assert_eq!(bond.wake_ms(), Some(1160));
    // The other goes for good: the one that waits is used at once.
    bond.set_link(2, DOWN);
    bond.run(Status::Off, 1070);
    bond.run(Status::Off, 1120);
    assert_eq!(bond.active(), Some(1));
}

#[test]
fn lacp_decides_what_a_bond_by_connection_carries() {
    let config = Config { mode: Mode::BalanceTcp, ..Config::default() };
    let mut bond = bond(config.clone(), 2);
    assert!(!bond.carries() && bond.member_of(0).is_none());
    assert_eq!(bond.admission(1).unicast, Verdict::Drop);
    bond.run(Status::Configured, 10);
    assert!(!bond.carries());
    bond.configure(Config { fallback_ab: true, ..config }, 20);
    bond.run(Status::Configured, 20);
    assert_eq!((bond.balance(), bond.member_of(77)), (Balance::Active, bond.active()));
    bond.run(Status::Negotiated, 30);
    assert_eq!(bond.balance(), Balance::Connection);
    assert_eq!(bond.admission(2).multicast, Verdict::Accept);
}

/// Links seldom come up at one moment, and rebalancing may be off.
#[test]
fn a_new_member_gets_its_share_at_once_and_one_that_returns_does_not() {
    let mut bond = Bond::new("bond0", Config { rebalance_interval_ms: 0, ..slb() }, 0);
    let shares =
        |bond: &Bond| [1, 2].map(|id| members_of_buckets(bond).iter().filter(|member| **member == Some(id)).count());
    for id in [1, 2] {
        bond.register(id, &format!("p{id}"), [2, 0, 0, 0, 0, id as u8], DOWN);
    }
    bond.set_link(1, UP);
    bond.run(Status::Off, 0);
    assert_eq!(shares(&bond), [256, 0]);
    bond.set_link(2, UP);
    bond.run(Status::Off, 10);
    assert_eq!(shares(&bond), [128, 128]);
    let flap = |bond: &mut Bond, now_ms| {
        bond.set_link(2, DOWN);
        bond.run(Status::Off, now_ms);
        bond.set_link(2, UP);
        bond.run(Status::Off, now_ms + 10);
    };
    // While LACP negotiates, members come and go, and nothing is lost by spreading anew.
    flap(&mut bond, 20);
    assert_eq!(shares(&bond), [128, 128]);
    bond.account(7, 100);
    flap(&mut bond, 40);
    assert_eq!(shares(&bond), [256, 0]);
}

#[test]
fn multicast_comes_in_once() {
    let mut bond = bond(slb(), 2);
    let verdicts = |bond: &Bond| [1, 2].map(|id| (bond.admission(id).unicast, bond.admission(id).multicast));
    let (moved, drop) = (Verdict::DropIfMoved, Verdict::Drop);
    assert_eq!(verdicts(&bond), [(moved, moved), (moved, drop)]);
    bond.configure(Config { all_members_active: true, ..slb() }, 10);
    assert_eq!(verdicts(&bond), [(moved, moved), (moved, moved)]);
    bond.configure(Config::default(), 10);
    bond.run(Status::Off, 10);
    assert_eq!(verdicts(&bond), [(Verdict::Accept, Verdict::Accept), (drop, drop)]);
}

#[test]
fn commands_answer_as_open_vswitch() {
    let mut bond = bond(slb(), 2);
    bond.set_link(2, DOWN);
    bond.run(Status::Off, 10);
    assert_eq!(bond.migrate("3", "p9"), Err("no such member"));
    assert_eq!(bond.migrate("x", "p1"), Err("bad hash"));
    assert_eq!(bond.migrate("3", "p2"), Err("cannot migrate to disabled member"));
    assert_eq!(bond.make_active("p2"), Err("cannot make disabled member active"));
    assert_eq!(bond.make_active("p1"), Ok("no change"));
    assert_eq!(bond.force_enabled("p2", true), Ok("enabled"));
    assert_eq!(bond.migrate("99999999999999999999999259", "p2"), Ok("migrated"));
    assert_eq!(bond.make_active("p2"), Ok("done"));
    bond.configure(Config::default(), 10);
    assert_eq!(bond.migrate("3", "p1"), Err("not an SLB bond"));
}

proptest! {
    /// A failover moves the buckets of members that went, and no other; each bucket has a member that works.
    #[test]
    fn a_failover_moves_what_it_must(members in 2..6_u16, steps in prop::collection::vec((1..6_u16, any::<bool>()), 1..20)) {
        let mut bond = bond(slb(), members);
        bond.note_carried();
        let mut up: BTreeMap<u16, bool> = (1..=members).map(|id| (id, true)).collect();
        for (now, (id, is_up)) in (1..).zip(steps) {
            let id = id.min(members);
            let before = members_of_buckets(&bond);
            up.insert(id, is_up);
            bond.set_link(id, if is_up { UP } else { DOWN });
            bond.run(Status::Off, now);
            let works = |id: &u16| up[id];
            for (was, is) in before.into_iter().zip(members_of_buckets(&bond)) {
                prop_assert_eq!(is.is_some(), up.values().any(|up| *up));
                prop_assert!(is.is_none_or(|id| works(&id)));
                if was.is_some_and(|id| works(&id)) {
                    prop_assert_eq!(was, is);
                }
            }
            prop_assert!(bond.active().is_none_or(|id| works(&id)));
        }
    }

    /// Rebalancing moves load from the fullest to the emptiest: their difference shrinks, and no load is lost.
    #[test]
    fn rebalancing_brings_loads_together(
        members in 2..5_u16,
        loads in prop::collection::vec(prop_oneof![Just(0_u64), 1..2_000_000_u64, Just(50_000_000)], 256),
    ) {
        let mut bond = bond(slb(), members);
        loads.iter().enumerate().for_each(|(bucket, bytes)| bond.account(bucket as u8, *bytes));
        let sums = |bond: &Bond| {
            let mut sums: BTreeMap<u16, u64> = (1..=members).map(|id| (id, 0)).collect();
            for (bucket, bytes) in loads.iter().enumerate() {
                *sums.get_mut(&bond.member_of(bucket as u8).unwrap()).unwrap() += bytes;
            }
            sums
        };
        let spread = |sums: &BTreeMap<u16, u64>| sums.values().max().unwrap() - sums.values().min().unwrap();
        let before = sums(&bond);
        prop_assert!(!bond.is_rebalance_due(9_999) && bond.is_rebalance_due(10_000));
        bond.rebalance(10_000);
        let after = sums(&bond);
        prop_assert_eq!(before.values().sum::<u64>(), after.values().sum::<u64>());
        prop_assert!(spread(&after) <= spread(&before), "{:?} became {:?}", before, after);
        prop_assert!(!bond.is_rebalance_due(19_999));
        // Light buckets are plenty: then what is left is what is not worth a move.
        let lightest = loads.iter().filter(|load| **load != 0).count();
        if lightest > 200 && loads.iter().all(|load| *load < 2_000_000) {
            let least = *after.values().min().unwrap();
            prop_assert!(spread(&after) <= (least / 4).max(2_100_000), "{:?}", after);
        }
    }
}

/// The one bucket that carries everything stays: moving it would only change who is full.
#[test]
fn a_single_heavy_bucket_stays() {
    let mut bond = bond(slb(), 2);
    let before = members_of_buckets(&bond);
    bond.account(9, 1 << 30);
    bond.rebalance(10_000);
    assert_eq!(members_of_buckets(&bond), before);
    // Two of the same weight on one member: one of them moves.
    let mate = (0..=u8::MAX).find(|bucket| *bucket != 9 && bond.member_of(*bucket) == bond.member_of(9)).unwrap();
    let mut bond = self::bond(slb(), 2);
    bond.account(9, 1 << 30);
    bond.account(mate, 1 << 30);
    bond.rebalance(10_000);
    assert_ne!(bond.member_of(9), bond.member_of(mate));
}

//! The governor follows its documented rules.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// The idle timeout of megaflows.
const IDLE_MS: u64 = 10_000;

/// A hash that is not in the sample; distinct ones select distinct counters.
fn unsampled(i: u64) -> u64 {
    1 << 40 | i
}

/// Feeds 64 flows of five packets, so that nearly all flows are set up.
fn eager() -> Governor {
    let mut governor = Governor::new(Mode::Shortcut, 0, IDLE_MS);
    for flow in 0..64 {
        assert_eq!(governor.decide(|| unsampled(flow), || 5, 0), Decision::Install);
    }
    assert!(governor.most_flows_get_set_up());
    governor
}

#[test]
fn the_fifth_packet_installs() {
    let mut governor = Governor::new(Mode::Classic, 0, IDLE_MS);
    let decisions: Vec<_> = (0..10).map(|_| governor.decide(|| 7, || 1, 0)).collect();
    let want = |i: usize| if i % 5 == 4 { Decision::Install } else { Decision::Count };
    assert_eq!(decisions, (0..10).map(want).collect::<Vec<_>>());
    assert_eq!(governor.decide(|| 8, || 3, 0), Decision::Count);
    assert_eq!(governor.decide(|| 8, || 2, 0), Decision::Install, "packets that miss together count together");
}

#[test]
fn off_installs_everything() {
    let mut governor = Governor::new(Mode::Off, 0, IDLE_MS);
    assert!((0..100).all(|i| governor.decide(|| i, || 1, 0) == Decision::Install));
    assert_eq!(governor.stats().setups, 100);
}

#[test]
fn the_shortcut_is_taken_except_for_the_sample() {
    let mut governor = eager();
    let decisions: Vec<_> = (0..6400u64).map(|i| governor.decide(|| i << 40 | i, || 1, 0)).collect();
    let shortcuts = decisions.iter().filter(|d| **d == Decision::Shortcut).count();
    // Sampled one-packet flows lower the share of setups: five of them end the shortcut.
    assert_eq!(shortcuts, 63 * 4);
    assert!(!governor.most_flows_get_set_up(), "short flows end the shortcut");
    assert_eq!(decisions.last(), Some(&Decision::Count));
}

#[test]
fn classic_takes_no_shortcut() {
    let mut governor = eager();
    governor.set_mode(Mode::Classic);
    assert_eq!(governor.decide(|| unsampled(1000), || 1, 0), Decision::Count);
}

#[test]
fn auto_installs_everything_while_there_is_little() {
    let mut governor = Governor::new(Mode::Auto, 0, IDLE_MS);
    // 999 a second, all in the sample.
    assert!((0..9990).all(|i| governor.decide(|| i, || 1, i / 999 * 1000).installs()));
    assert!(
        (0..2000).any(|i| !governor.decide(|| i, || 1, 10_000).installs()),
        "a flood is looked at within its second"
    );
}

#[test]
fn a_lasting_flow_is_sampled_for_a_generation_only() {
    let mut governor = Governor::new(Mode::Classic, 0, IDLE_MS);
    // Enough flows that a sample of half of them still fills a generation.
    (0..400).for_each(|flow| assert!(governor.decide(|| unsampled(flow), || 5, 0).installs()));
    governor.set_mode(Mode::Shortcut);
    let hash = 0;
    assert_eq!(governor.decide(|| hash, || 1, 0), Decision::Count);
    let before = governor.stats().generations;
    (1u64..).find(|i| {
        governor.decide(|| unsampled(*i), || 5, 0);
        governor.stats().generations > before
    });
    assert_eq!(governor.decide(|| hash, || 1, 0), Decision::Shortcut);
}

#[test]
fn short_flows_are_never_installed() {
    let mut governor = Governor::new(Mode::Shortcut, 0, IDLE_MS);
    // 300 flows of four packets each; too few packets to begin a generation.
    let installed =
        (0..300u64).flat_map(|flow| [flow; 4]).filter(|flow| governor.decide(|| *flow, || 1, 0).installs()).count();
    assert_eq!((installed, governor.stats().flows, governor.stats().counted), (0, 300, 1200));
}

#[test]
fn busy_generations_grow_the_table_and_idle_ones_shrink_it() {
    let mut governor = Governor::new(Mode::Classic, 0, IDLE_MS);
    let size = |g: &Governor| g.stats().table_bytes;
    let generation = |governor: &mut Governor, now_ms| {
        let target = governor.stats().generations + 1;
        (0u64..).find(|i| {
            governor.decide(|| *i, || 1, now_ms);
            governor.stats().generations == target
        });
    };
    let mut now_ms = 0;
    for _ in 0..6 {
        now_ms += 999;
        generation(&mut governor, now_ms);
    }
    assert_eq!(size(&governor), SIZE_MAX);
    now_ms += 3000;
    generation(&mut governor, now_ms);
    assert_eq!(size(&governor), SIZE_MAX, "between one and five seconds it stays");
    for _ in 0..6 {
        now_ms += 5001;
        generation(&mut governor, now_ms);
    }
    assert_eq!(size(&governor), SIZE_MIN);
    governor.decide(|| 1, || 1, now_ms);
    generation(&mut governor, 0);
    assert_eq!(size(&governor), SIZE_MIN * 2, "a clock that went back is a short generation, not a panic");
}

proptest! {
    /// Each flow is installed at every fifth packet while no two flows share a counter and no generation ends.
    #[test]
    fn without_collisions_it_counts_exactly(packets in prop::collection::vec((0u64..200, 1usize..7), 0..500)) {
        let mut governor = Governor::new(Mode::Classic, 0, IDLE_MS);
        let mut twin: HashMap<u64, usize> = HashMap::new();
        for (flow, n) in packets {
            let count = twin.entry(flow).or_default();
            *count += n;
            let installs = *count >= usize::from(THRESHOLD);
            if installs {
                *count = 0;
            }
            prop_assert_eq!(governor.decide(|| flow, || n, 0).installs(), installs);
        }
        let stats = governor.stats();
        prop_assert!(stats.setups <= stats.flows);
    }
}

#[test]
fn modes_have_names() {
    assert!(Mode::ALL.into_iter().all(|mode| mode.name().parse() == Ok(mode)));
    assert_eq!("on".parse::<Mode>(), Err(UnknownMode("on".to_owned())));
}

#[test]
fn a_generation_that_ended_is_logged_once() {
    for (mode, expected) in [
        (Mode::Classic, "processed 4096 packets in 0.50 s, enlarging hash table to 32 kB ("),
        (Mode::Before2012, "processed 4096 packets in 0.50 s, enlarging hash table to 32 kB ("),
        (Mode::After2012, "processed 4096 packets in 0.50 s, enlarging hash table to 32 kB ("),
    ] {
        let mut governor = Governor::new(mode, 0, IDLE_MS);
        for flow in 0..4097u64 {
            governor.decide(|| flow.wrapping_mul(0x9e37_79b9_7f4a_7c15), || 1, flow * 500 / 4095);
        }
        let line = governor.take_generation().unwrap().to_string();
        assert!(
            line.starts_with(expected) && line.ends_with(" setups, 0 shortcuts), generation 1"),
            "{mode:?}: {line}"
        );
        assert_eq!(governor.take_generation(), None);
        assert_eq!(governor.stats().table_bytes, 32 << 10);
    }
}

#[test]
fn the_modes_of_2012_decide_as_then() {
    let decisions = |mode| {
        let mut governor = Governor::new(mode, 0, IDLE_MS);
        (0..5).map(|_| governor.decide(|| 7 << 32 | 9, || 1, 0).installs()).collect::<Vec<_>>()
    };
    assert_eq!(decisions(Mode::Before2012), [false, false, false, false, true]);
    assert_eq!(decisions(Mode::After2012), [false, false, false, false, true]);
}

/// Where counting does not pay, flows are of interest to one miss in ten at most.
#[test]
fn between_two_cohorts_no_hash_is_asked_for() {
    let mut governor = Governor::new(Mode::Auto, 0, 1000);
    governor.spent(Costs { translate: 1000, install: 1000, remove: 1000 });
    let mut asked = 0;
    for flow in 0..400_000u64 {
        let hash = || {
            asked += 1;
            flow.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        assert!(governor.decide(hash, || 5, 0).installs());
    }
    assert!((5 * 4000..40_000).contains(&asked), "{asked} of 400000");
}

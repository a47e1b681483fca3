//! Compares the modes on a simulated machine: the cycles that each kind of traffic costs.

use sluice_governor::{Costs, Decision, Governor, Mode};
use std::collections::HashMap;

/// A machine: the costs of a miss and of a hit, and the idle timeout of megaflows.
const COSTS: Costs = Costs { translate: 3000, install: 4000, remove: 1500 };
const HIT: u64 = 150;
const IDLE_MS: u64 = 2000;

/// Packets in total, and per second.
const PACKETS: u64 = 1_000_000;
const RATE_MS: u64 = 40;

/// The flow of packet number `i`.
type Traffic = fn(u64) -> u64;

/// Flows of `n` packets each, 64 at a time.
fn short<const N: u64>(i: u64) -> u64 {
    i / (64 * N) * 64 + i % 64
}

/// This many lasting flows, in random order.
fn lasting<const N: u64>(i: u64) -> u64 {
    mix(i) % N
}

/// Every other packet belongs to a flow of one packet, the rest to lasting flows.
fn flood_beside_lasting(i: u64) -> u64 {
    if i.is_multiple_of(2) { 1 << 40 | i } else { mix(i) % 5000 }
}

/// Alternates each second between flows of one packet and a thousand lasting flows.
fn alternating(i: u64) -> u64 {
    if (i / (1000 * RATE_MS)).is_multiple_of(2) { 1 << 40 | i } else { mix(i) % 1000 }
}

fn mix(i: u64) -> u64 {
    let z = (i ^ i >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Cycles of the whole run, and of its second half.
fn run(mode: Mode, traffic: Traffic) -> [u64; 2] {
    let mut governor = Governor::new(mode, 0, IDLE_MS);
    let mut used_ms: HashMap<u64, u64> = HashMap::new();
    let mut cycles = [0; 2];
    for i in 0..PACKETS {
        let (now_ms, flow) = (i / RATE_MS, traffic(i));
        let mut spent = Costs::default();
        let is_hit = match used_ms.get_mut(&flow) {
            Some(used) if now_ms - *used <= IDLE_MS => {
                *used = now_ms;
                true
            }
            _ => false,
        };
        if !is_hit {
            spent.translate = COSTS.translate;
            if governor.decide(|| mix(flow ^ 0x5eed), || 1, now_ms) != Decision::Count {
                (spent.install, spent.remove) = (COSTS.install, COSTS.remove);
                used_ms.insert(flow, now_ms);
            }
            governor.spent(spent);
        }
        let cost = if is_hit { HIT } else { spent.translate + spent.install + spent.remove };
        cycles[0] += cost;
        cycles[1] += if i >= PACKETS / 2 { cost } else { 0 };
    }
    cycles
}

#[test]
fn auto_never_costs_more_than_to_install_everything() {
    let traffics: [(&str, Traffic); 11] = [
        ("1 packet a flow", short::<1>),
        ("3", short::<3>),
        ("5", short::<5>),
        ("6", short::<6>),
        ("10", short::<10>),
        ("100", short::<100>),
        ("100 flows that last", lasting::<100>),
        // Less than one packet a second each.
        ("50 000 flows that last", lasting::<50_000>),
        ("10 000 flows that last", lasting::<10_000>),
        ("flood beside flows that last", flood_beside_lasting),
        ("alternating", alternating),
    ];
    for (name, traffic) in traffics {
        let (auto, off) = (run(Mode::Auto, traffic), run(Mode::Off, traffic));
        assert!(auto[0] as f64 <= off[0] as f64 * 1.02, "{name}: auto {auto:?}, off {off:?}");
    }
}

#[test]
fn auto_counts_where_that_pays() {
    for (name, traffic) in [("1 packet a flow", short::<1> as Traffic), ("flood", flood_beside_lasting)] {
        let (auto, off) = (run(Mode::Auto, traffic)[1], run(Mode::Off, traffic)[1]);
        assert!(auto < off * 6 / 10, "{name}: auto {auto}, off {off}");
    }
}

#[test]
fn the_shortcut_is_worth_a_quarter_where_most_flows_get_set_up() {
    let (shortcut, classic) = (run(Mode::Shortcut, short::<6>)[1], run(Mode::Classic, short::<6>)[1]);
    assert!(shortcut * 5 < classic * 4, "{shortcut} {classic}");
}

/// Flows of six packets each, 512 at a time, like TCP connections with one request.
fn transactions(i: u64) -> u64 {
    i / (512 * 6) * 512 + i % 512
}

#[test]
fn the_shortcut_is_kept_though_many_flows_are_under_way() {
    for traffic in [transactions, short::<10>] {
        let mut governor = Governor::new(Mode::Shortcut, 0, IDLE_MS);
        let mut installed = std::collections::HashSet::new();
        for i in 0..PACKETS {
            let flow = traffic(i);
            if !installed.contains(&flow)
                && governor.decide(|| mix(flow ^ 0x5eed), || 1, i / RATE_MS) != Decision::Count
            {
                installed.insert(flow);
            }
        }
        let stats = governor.stats();
        assert!(stats.shortcuts > installed.len() as u64 * 8 / 10, "{stats:?} of {} flows", installed.len());
    }
}

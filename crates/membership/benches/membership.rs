//! Lookups in the manner of DPDK's `member_perf_autotest`: 393 216 keys in 524 288 slots, keys of 4 to 64 bytes,
//! hashing included, in bulks of 64. Prints TSC cycles per key, comparable with DPDK's output.
//!
//! `cargo bench -p sluice-membership`; for DPDK: `dpdk-test`, then `member_perf_autotest`. Answers are checked first.
//! With `--test` (as CI runs it) it only checks them.

use sluice_membership::{Ht, HtConfig, SetId, Summary, Vbf, VbfConfig};
use sluice_simd::tsc;

const SLOTS: usize = 1 << 19;
const KEYS: usize = SLOTS * 3 / 4;
const BULK: usize = 64;
const ROUNDS: usize = 7;
const SETS: u16 = 16;

/// Distinct keys: a counter, spread over the bytes by a multiplication.
fn keys<const N: usize>(from: u64) -> Vec<[u8; N]> {
    let key = |i: u64| {
        let mut key = [0; N];
        let words = [i.wrapping_mul(0x9e37_79b9_7f4a_7c15), i, i.rotate_left(17) ^ 0xa5a5];
        let bytes = words.iter().flat_map(|w| w.to_le_bytes()).cycle();
        key.iter_mut().zip(bytes.skip(if N < 8 { 8 } else { 0 })).for_each(|(to, b)| *to = b);
        key
    };
    (from..from + KEYS as u64).map(key).collect()
}

fn set_of(i: usize) -> SetId {
    SetId::new((i % usize::from(SETS)) as u16 + 1).expect("not zero")
}

/// The median of `work`'s cycles per key over the rounds.
fn cycles(mut work: impl FnMut()) -> f64 {
    let mut rounds: Vec<u64> = (0..ROUNDS)
        .map(|_| {
            let start = tsc::now();
            work();
            tsc::now() - start
        })
        .collect();
    rounds.sort_unstable();
    rounds[ROUNDS / 2] as f64 / KEYS as f64
}

fn measure<const N: usize, S: Summary>(
    name: &str,
    summary: &mut S,
    known: &[[u8; N]],
    absent: &[[u8; N]],
    timed: bool,
) {
    for (i, key) in known.iter().enumerate() {
        let _ = summary.add(key, set_of(i));
    }
    let mut out = [None; BULK];
    let mut wrong = 0;
    for (i, bulk) in known.chunks(BULK).enumerate() {
        summary.lookup_bulk(bulk, &mut out[..bulk.len()]);
        for (j, got) in out[..bulk.len()].iter().enumerate() {
            wrong += usize::from(*got != Some(set_of(i * BULK + j)));
        }
    }
    let false_hits: usize = absent.chunks(BULK).map(|b| summary.lookup_bulk(b, &mut out[..b.len()])).sum();
    let share = |n: usize| n as f64 / KEYS as f64;
    if !timed {
        println!("{name:>6} {N:>3} bytes: {wrong} wrong, {false_hits} false hits of {KEYS}");
        assert!(share(wrong) < 0.05 && share(false_hits) < 0.05, "more errors than the structure may make");
        return;
    }
    let mut sum = 0;
    let one = cycles(|| sum += known.iter().filter(|k| summary.lookup(*k).is_some()).count());
    let bulk = cycles(|| known.chunks(BULK).for_each(|b| sum += summary.lookup_bulk(b, &mut out[..b.len()])));
    let miss = cycles(|| absent.chunks(BULK).for_each(|b| sum += summary.lookup_bulk(b, &mut out[..b.len()])));
    let mut sets = [set_of(0); BULK * 4];
    let mut counts = [0; BULK];
    let multi =
        cycles(|| known.chunks(BULK).for_each(|b| sum += summary.lookup_multi_bulk(b, 4, &mut sets, &mut counts)));
    std::hint::black_box(sum);
    println!(
        "{name:>6} {N:>5} {one:>8.1} {bulk:>8.1} {miss:>10.1} {multi:>11.1} {:>9.5} {:>10.5}",
        share(wrong),
        share(false_hits)
    );
}

fn all_types<const N: usize>(timed: bool) {
    let (known, absent) = (keys::<N>(0), keys::<N>(1 << 30));
    for (name, cache) in [("HT", false), ("cache", true)] {
        let mut ht = Ht::new(&HtConfig { keys: SLOTS, cache, seed: 1 }).expect("a valid configuration");
        measure(name, &mut ht, &known, &absent, timed);
    }
    let config = VbfConfig { keys: KEYS, sets: usize::from(SETS), false_positives: 0.03, seed: 1 };
    measure("vBF", &mut Vbf::new(&config).expect("a valid configuration"), &known, &absent, timed);
}

fn main() {
    let timed = !std::env::args().any(|a| a == "--test");
    if timed {
        println!("TSC cycles a key, median of {ROUNDS}; {KEYS} keys in {SLOTS} slots, bulks of {BULK}, {SETS} sets");
        println!("  type bytes   lookup     bulk  bulk miss  multi bulk   f/wrong    f/false");
    }
    all_types::<4>(timed);
    all_types::<8>(timed);
    all_types::<16>(timed);
    all_types::<32>(timed);
    all_types::<48>(timed);
    all_types::<64>(timed);
}

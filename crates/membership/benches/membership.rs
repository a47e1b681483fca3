//! Lookups in the manner of DPDK's `member_perf_autotest`: 393 216 keys in 524 288 slots, keys of 4 to 64 bytes,
//! hashing included, in bulks of 64. Prints TSC cycles per key for keys that are there (hit) and keys that are not (miss),
//! one by one and in bulk, with each instruction set of this machine. DPDK prints the same for hits; its misses are one by one, in a table that
//! is half as full.
//!
//! `cargo bench -p sluice-membership`; beside DPDK's on the same core: `ci/member-perf`. Answers are checked first. With
//! `--test` (as CI runs it) it only checks them.

use sluice_membership::{Ht, HtConfig, SetId, Summary, Vbf, VbfConfig};
use sluice_simd::{Isa, tsc};

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

/// A summary whose vector instructions can be chosen.
trait Chosen: Summary {
    fn choose(&mut self, isa: Isa);
}

impl Chosen for Ht {
    fn choose(&mut self, isa: Isa) {
        self.set_isa(isa);
    }
}

impl Chosen for Vbf {
    fn choose(&mut self, isa: Isa) {
        self.set_isa(isa);
    }
}

fn measure<const N: usize>(name: &str, summary: &mut impl Chosen, known: &[[u8; N]], absent: &[[u8; N]], timed: bool) {
    for (i, key) in known.iter().enumerate() {
        let _ = summary.add(key, set_of(i));
    }
    for isa in Isa::available() {
        summary.choose(isa);
        let (wrong, false_hits) = errors(summary, known, absent);
        let share = |n: usize| n as f64 / KEYS as f64;
        if timed {
            let cycles = times(summary, known, absent).map(|cycles| format!("{cycles:>10.1}")).concat();
            println!("{name:>6} {N:>5} {:>7}{cycles} {:>9.5} {:>10.5}", isa.name(), share(wrong), share(false_hits));
        } else {
            println!("{name:>6} {N:>3} bytes, {}: {wrong} wrong, {false_hits} false hits of {KEYS}", isa.name());
            assert!(share(wrong) < 0.05 && share(false_hits) < 0.05, "more errors than the structure may make");
        }
    }
}

/// Known keys with another answer than their set, and absent keys that are found.
fn errors<const N: usize>(summary: &impl Summary, known: &[[u8; N]], absent: &[[u8; N]]) -> (usize, usize) {
    let mut out = [None; BULK];
    let mut wrong = 0;
    for (i, bulk) in known.chunks(BULK).enumerate() {
        summary.lookup_bulk(bulk, &mut out[..bulk.len()]);
        for (j, got) in out[..bulk.len()].iter().enumerate() {
            wrong += usize::from(*got != Some(set_of(i * BULK + j)));
        }
    }
    let false_hits = absent.chunks(BULK).map(|b| summary.lookup_bulk(b, &mut out[..b.len()])).sum();
    (wrong, false_hits)
}

/// Cycles a key: one by one hit and miss, in bulk hit and miss, all sets of known keys in bulk.
fn times<const N: usize>(summary: &impl Summary, known: &[[u8; N]], absent: &[[u8; N]]) -> [f64; 5] {
    let (mut sum, mut out) = (0, [None; BULK]);
    let single =
        [known, absent].map(|keys| cycles(|| sum += keys.iter().filter(|key| summary.lookup(*key).is_some()).count()));
    let bulk = [known, absent]
        .map(|keys| cycles(|| keys.chunks(BULK).for_each(|b| sum += summary.lookup_bulk(b, &mut out[..b.len()]))));
    let mut sets = [set_of(0); BULK * 4];
    let mut counts = [0; BULK];
    let multi =
        cycles(|| known.chunks(BULK).for_each(|b| sum += summary.lookup_multi_bulk(b, 4, &mut sets, &mut counts)));
    std::hint::black_box(sum);
    [single[0], single[1], bulk[0], bulk[1], multi]
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
        println!("  type bytes vectors one: hit one: miss bulk: hit bulk: miss bulk multi   f/wrong    f/false");
    }
    all_types::<4>(timed);
    all_types::<8>(timed);
    all_types::<16>(timed);
    all_types::<32>(timed);
    all_types::<48>(timed);
    all_types::<64>(timed);
}

//! What a lookup that no cache knows costs as masks grow, in three structures and the plain search.
//!
//! The prototypes behind docs/notes/bounded-misses.md; none is used by the switch yet. `cargo bench -p
//! sluice-flow-cache --bench bounded_misses` prints a table; without `--bench` it only checks the answers of small
//! cases against the plain search. Times are CPU time of one thread, medians of seven rounds.

mod directory;
mod merged;
mod prefixes;
mod pruned;
mod search;
mod workload;

use directory::Directory;
use merged::Merged;
use pruned::Pruned;
use rustix::time::{ClockId, clock_gettime};
use search::{Flow, Plain, Search, Words};
use std::hint::black_box;
use std::time::Duration;
use workload::{Random, Workload};

/// Keys a measurement goes through.
const KEYS: usize = 512;

fn main() {
    let full = std::env::args().any(|arg| arg == "--bench");
    println!(
        "{:<26} {:>6} {:>7}  {:<10} {:>9} {:>9} {:>7} {:>7} {:>9} {:>9}",
        "workload", "masks", "flows", "structure", "hit ns", "miss ns", "probes", "/miss", "change ns", "KiB"
    );
    let explosions = [[2, 2, 2], [4, 4, 4], [8, 8, 8], [32, 16, 16]];
    for dims in explosions.iter().take(if full { 4 } else { 2 }) {
        measure(&Workload::explosion(false, *dims), full);
    }
    for dims in [[2, 2, 2], [8, 8, 8], [128, 8, 8]].iter().take(if full { 3 } else { 1 }) {
        measure(&Workload::explosion(true, *dims), full);
    }
    for rules in [20, 200, 2000].iter().take(if full { 3 } else { 1 }) {
        measure(&Workload::access_list(*rules, if full { 100_000 } else { 2000 }), full);
    }
}

fn measure(workload: &Workload, full: bool) {
    let mut random = Random(1);
    let mut plain = Plain::default();
    (0..workload.flows.len() as u32).for_each(|id| plain.insert(&workload.flows, id));
    let hits: Vec<Words> = (0..KEYS).map(|_| workload.hit(&mut random)).collect();
    let is_miss = |key: &Words| plain.find(&workload.flows, key).0.is_none();
    let misses: Vec<Words> = (0..100 * KEYS).map(|_| workload.miss(&mut random)).filter(is_miss).take(KEYS).collect();
    assert_eq!(misses.len(), KEYS);
    let structures: [Box<dyn Search>; 4] =
        [Box::new(Plain::default()), Box::new(Pruned::new()), Box::new(Directory::new()), Box::new(Merged::new())];
    for mut search in structures {
        (0..workload.flows.len() as u32).for_each(|id| search.insert(&workload.flows, id));
        check(search.as_ref(), &plain, &workload.flows, hits.iter().chain(&misses));
        let rounds = if full { 7 } else { 1 };
        let hit = median(rounds, || find_all(search.as_ref(), &workload.flows, &hits)) / KEYS as u128;
        let miss = median(rounds, || find_all(search.as_ref(), &workload.flows, &misses)) / KEYS as u128;
        let changes: Vec<u32> = (0..KEYS).map(|_| random.below(workload.flows.len() as u64) as u32).collect();
        let change = median(rounds, || change_all(search.as_mut(), &workload.flows, &changes)) / (2 * KEYS as u128);
        check(search.as_ref(), &plain, &workload.flows, hits.iter().chain(&misses));
        println!(
            "{:<26} {:>6} {:>7}  {:<10} {:>9} {:>9} {:>7.1} {:>7.1} {:>9} {:>9}",
            workload.name,
            workload.masks(),
            workload.flows.len(),
            search.name(),
            hit,
            miss,
            probes(search.as_ref(), &workload.flows, &hits),
            probes(search.as_ref(), &workload.flows, &misses),
            change,
            search.bytes() / 1024
        );
    }
}

/// Megaflows may overlap if they say the same, so a structure must find one exactly when the plain search does.
fn check<'a>(search: &dyn Search, plain: &Plain, flows: &[Flow], keys: impl Iterator<Item = &'a Words>) {
    for key in keys {
        let (found, _) = search.find(flows, key);
        assert_eq!(found.is_some(), plain.find(flows, key).0.is_some(), "{}", search.name());
        assert!(found.is_none_or(|id| flows[id as usize].matches(key)), "{}", search.name());
    }
}

fn find_all(search: &dyn Search, flows: &[Flow], keys: &[Words]) {
    keys.iter().for_each(|key| {
        black_box(search.find(flows, key));
    });
}

/// Takes each flow out and puts it back.
fn change_all(search: &mut dyn Search, flows: &[Flow], ids: &[u32]) {
    for &id in ids {
        search.remove(flows, id);
        search.insert(flows, id);
    }
}

fn probes(search: &dyn Search, flows: &[Flow], keys: &[Words]) -> f64 {
    keys.iter().map(|key| search.find(flows, key).1).sum::<usize>() as f64 / keys.len() as f64
}

/// The median over some rounds of the nanoseconds `work` takes.
fn median(rounds: usize, mut work: impl FnMut()) -> u128 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos()
    };
    let mut times: Vec<u128> = (0..rounds)
        .map(|_| {
            let start = now();
            work();
            now() - start
        })
        .collect();
    times.sort_unstable();
    times[rounds / 2]
}

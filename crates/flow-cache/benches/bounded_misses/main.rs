//! The cost of a lookup that no cache answers, as masks grow: in the switch's subtables, with pruning and without, and
//! in merged tables, which lost. See docs/notes/bounded-misses.md.
//!
//! `cargo bench -p sluice-flow-cache --bench bounded_misses` prints a table; without `--bench` it only checks the
//! results of small cases. Times are CPU time of one thread, medians of seven rounds. Everything was looked up once
//! before, so records are in the processor's cache as far as they fit.

mod merged;
mod product;
mod search;
mod workload;

use merged::Merged;
use product::Product;
use rustix::time::{ClockId, clock_gettime};
use search::{Flow, Search, Words};
use std::hint::black_box;
use std::time::Duration;
use workload::{Random, Workload};

/// Keys in a measurement.
const KEYS: usize = 512;

fn main() {
    let full = std::env::args().any(|arg| arg == "--bench");
    println!(
        "{:<20} {:>6} {:>7}  {:<8} {:>8} {:>8} {:>10} {:>10}",
        "workload", "masks", "flows", "search", "hit ns", "miss ns", "probes/hit", "change ns"
    );
    let explosions = [[2, 2, 2], [4, 4, 2], [4, 4, 4], [8, 4, 4], [8, 8, 8], [32, 16, 16]];
    for dims in explosions.iter().take(if full { 6 } else { 2 }) {
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
    let flows = &workload.flows;
    let hits: Vec<Words> = (0..KEYS).map(|_| workload.hit(&mut random)).collect();
    let is_miss = |key: &Words| flows.iter().all(|flow| !flow.matches(key));
    let misses: Vec<Words> = (0..100 * KEYS).map(|_| workload.miss(&mut random)).filter(is_miss).take(KEYS).collect();
    assert_eq!(misses.len(), KEYS);
    let structures: [Box<dyn Search>; 3] =
        [Box::new(Product::new(false)), Box::new(Product::new(true)), Box::new(Merged::new())];
    for mut search in structures {
        let search = search.as_mut();
        (0..flows.len() as u32).for_each(|id| search.insert(flows, id));
        (0..20).for_each(|_| check(search, flows, [&hits, &misses]));
        search.tidy();
        let rounds = if full { 7 } else { 1 };
        let hit = median(rounds, search.find_all(flows, &hits)) / KEYS as u128;
        search.take_probes();
        black_box(search.find_all(flows, &hits)());
        let probes = search.take_probes().map_or("-".into(), |n| format!("{:.1}", n as f64 / KEYS as f64));
        let miss = median(rounds, search.find_all(flows, &misses)) / KEYS as u128;
        let changes: Vec<u32> = (0..KEYS).map(|_| random.below(flows.len() as u64) as u32).collect();
        let change = median(rounds, || change_all(search, flows, &changes)) / (2 * KEYS as u128);
        check(search, flows, [&hits, &misses]);
        println!(
            "{:<20} {:>6} {:>7}  {:<8} {hit:>8} {miss:>8} {probes:>10} {change:>10}",
            workload.name,
            workload.masks(),
            flows.len(),
            search.name(),
        );
    }
}

/// Every expected hit is found and is correct; no expected miss is found.
fn check(search: &mut dyn Search, flows: &[Flow], [hits, misses]: [&[Words]; 2]) {
    let found = search.find_all(flows, hits)();
    for (key, found) in hits.iter().zip(found) {
        let found = found.map(|found| search.number(found));
        assert!(found.is_some_and(|id| flows[id as usize].matches(key)), "{}", search.name());
    }
    assert!(search.find_all(flows, misses)().iter().all(Option::is_none), "{}", search.name());
}

/// Removes each flow and inserts it again.
fn change_all(search: &mut dyn Search, flows: &[Flow], ids: &[u32]) {
    for &id in ids {
        search.remove(flows, id);
        search.insert(flows, id);
    }
}

/// The median over some rounds of the nanoseconds `work` takes.
fn median<R>(rounds: usize, mut work: impl FnMut() -> R) -> u128 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos()
    };
    let mut times: Vec<u128> = (0..rounds)
        .map(|_| {
            let start = now();
            black_box(work());
            now() - start
        })
        .collect();
    times.sort_unstable();
    times[rounds / 2]
}

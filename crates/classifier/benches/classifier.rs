//! Lookups by number of subtables and rules; insertions and removals; memory per rule.
//!
//! Tables are access lists: rule `i` belongs to mask `i mod n`, a pair of prefixes and perhaps a port, and has a
//! priority of its own, so no lookup can stop before the subtable of its winner. Keys are taken from rules spread over
//! the table ("hit") or match none ("miss"); a miss visits every subtable. Answers are checked before they are timed.
//!
//! Time is the thread's CPU time, which a shared machine disturbs less. Caches are still shared.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use sluice_classifier::{Classifier, LATEST, RuleId};
use sluice_flow::FieldId::{EthType, InPort, IpProto, Ipv4Dst, Ipv4Src, TcpDst, TcpSrc};
use sluice_flow::{FlowKey, Match};
use std::hint::black_box;
use std::time::Duration;

/// Keys of a measurement: enough that large tables do not stay in the L1 cache.
const KEYS: usize = 1024;

/// A number spread over 32 bits by `i`.
fn scatter(i: usize) -> u32 {
    (i as u32).wrapping_mul(0x9e37_79b1).rotate_left(15).wrapping_mul(0x85eb_ca6b)
}

fn prefix(len: u32) -> u128 {
    !u128::from(u32::MAX.checked_shr(len).unwrap_or(0)) & 0xffff_ffff
}

/// Rule `i` of a table with `subtables` masks.
fn rule(i: usize, subtables: usize) -> Match {
    let mask = (i % subtables) as u32;
    let (src_len, dst_len) = (32 - mask % 20, 32 - mask / 20 % 25);
    let acl = Match::ANY
        .with(EthType, 0x0800)
        .with(IpProto, 6)
        .with_masked(Ipv4Src, scatter(i).into(), prefix(src_len))
        .with_masked(Ipv4Dst, scatter(i + 7).into(), prefix(dst_len));
    if mask.is_multiple_of(2) { acl.with(TcpDst, (scatter(i) & 0xff).into()) } else { acl }
}

/// A packet that rule `i` matches.
fn key_of(rule: &Match) -> FlowKey {
    let mut key = Match::ANY.with(InPort, 1).with(TcpSrc, 4711).key;
    key.or_with(&rule.key);
    key
}

fn table(rules: usize, subtables: usize) -> Classifier<u32> {
    let mut classifier = Classifier::default();
    for i in 0..rules {
        classifier.insert(&rule(i, subtables), i as u32, 1, &[], i as u32);
    }
    classifier
}

fn lookups(c: &mut Criterion) {
    let mut group = c.benchmark_group("lookup");
    group.throughput(Throughput::Elements(1));
    let sizes =
        [(1, 1), (1000, 1), (1_000_000, 1), (1000, 20), (100_000, 20), (1_000_000, 20), (1000, 500), (100_000, 500)];
    for (rules, subtables) in sizes.into_iter().filter(|(rules, _)| measuring() || *rules <= 1000) {
        let classifier = table(rules, subtables);
        assert_eq!(classifier.subtable_count(), subtables.min(rules));
        let hits: Vec<FlowKey> = (0..KEYS).map(|i| key_of(&rule(scatter(i) as usize % rules, subtables))).collect();
        let misses: Vec<FlowKey> = (0..KEYS)
            .map(|i| key_of(&Match::ANY.with(EthType, 0x0800).with(IpProto, 17).with(Ipv4Src, i as u128)))
            .collect();
        assert!(hits.iter().all(|key| classifier.lookup(key, LATEST, None).is_some()));
        assert!(misses.iter().all(|key| classifier.lookup(key, LATEST, None).is_none()));
        for (what, keys) in [("hit", &hits), ("miss", &misses)] {
            let mut keys = keys.iter().cycle();
            let name = format!("{what}/{subtables} subtables");
            group.bench_function(BenchmarkId::new(name, rules), |b| {
                b.iter_custom(|n| {
                    cpu_time_of(|| {
                        for _ in 0..n {
                            let mut looked_at = FlowKey::ZERO;
                            let found = classifier.lookup(keys.next().expect("a cycle"), LATEST, Some(&mut looked_at));
                            black_box((found.map(|rule| *rule.payload()), &looked_at));
                        }
                    })
                });
            });
        }
    }
    group.finish();
}

fn changes(c: &mut Criterion) {
    let mut group = c.benchmark_group("change");
    let sizes = [(1000, 20), (100_000, 20), (100_000, 500)];
    for (rules, subtables) in sizes.into_iter().filter(|(rules, _)| measuring() || *rules <= 1000) {
        let matches: Vec<Match> = (0..rules).map(|i| rule(i, subtables)).collect();
        group.throughput(Throughput::Elements(rules as u64));
        group.bench_function(BenchmarkId::new(format!("insert all/{subtables} subtables"), rules), |b| {
            b.iter_custom(|n| {
                (0..n)
                    .map(|_| {
                        let mut classifier = Classifier::default();
                        cpu_time_of(|| {
                            for (i, matching) in matches.iter().enumerate() {
                                classifier.insert(matching, i as u32, 1, &[], i as u32);
                            }
                        })
                    })
                    .sum()
            });
        });
        group.bench_function(BenchmarkId::new(format!("remove all/{subtables} subtables"), rules), |b| {
            b.iter_custom(|n| {
                (0..n)
                    .map(|_| {
                        let mut classifier = table(rules, subtables);
                        // Rules of the highest priority go first, the worst order for a maximum kept by scanning.
                        cpu_time_of(|| {
                            for id in (0..rules as u32).rev() {
                                classifier.remove(RuleId(id)).expect("ids count up");
                            }
                        })
                    })
                    .sum()
            });
        });
    }
    group.finish();
}

/// The CPU time this thread spends on `work`.
fn cpu_time_of(work: impl FnOnce()) -> Duration {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let start = now();
    work();
    now() - start
}

/// Pages of this process in memory, in bytes.
fn resident() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split(' ').nth(1)?.parse::<usize>().ok()? * 4096)
}

/// Whether to measure. Otherwise benchmarks run once, as tests, without the large tables.
fn measuring() -> bool {
    std::env::args().any(|arg| arg == "--bench")
}

/// A million rules, once: memory, insertion and removal. Too long to sample.
fn million(_: &mut Criterion) {
    let filtered = std::env::args().skip(1).any(|arg| !arg.starts_with('-'));
    if !measuring() || filtered {
        return;
    }
    const RULES: usize = 1_000_000;
    for subtables in [1, 20, 500] {
        let matches: Vec<Match> = (0..RULES).map(|i| rule(i, subtables)).collect();
        let mut classifier = Classifier::default();
        let before = resident();
        let insert = cpu_time_of(|| {
            for (i, matching) in matches.iter().enumerate() {
                classifier.insert(matching, i as u32, 1, &[], i as u32);
            }
        });
        let bytes = before.zip(resident()).map_or(0, |(before, after)| after.saturating_sub(before));
        assert_eq!(classifier.len(), RULES);
        let remove = cpu_time_of(|| {
            for id in (0..RULES as u32).rev() {
                classifier.remove(RuleId(id)).expect("ids count up");
            }
        });
        assert!(classifier.is_empty());
        let each = |time: Duration| time.as_nanos() / RULES as u128;
        println!(
            "million rules/{subtables} subtables: {} bytes a rule, insert {} ns, remove {} ns",
            bytes / RULES,
            each(insert),
            each(remove)
        );
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_millis(200));
    targets = million, lookups, changes
}
criterion_main!(benches);

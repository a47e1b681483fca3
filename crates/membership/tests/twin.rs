//! Compares both types with a plain map, and their error rates with the theory.

use proptest::prelude::*;
use sluice_membership::{AddError, Added, Ht, HtConfig, SetId, Summary, Vbf, VbfConfig};
use sluice_simd::Isa;
use std::collections::{BTreeSet, HashMap};

fn set(n: u16) -> SetId {
    SetId::new(n).unwrap()
}

#[derive(Clone, Debug)]
enum Op {
    Add(u8, u16),
    Delete(u8, u16),
    Reset,
}

fn op() -> impl Strategy<Value = Op> {
    // Few keys and few sets, so that a key is often in several sets, deleted and added again.
    prop_oneof![
        12 => (any::<u8>(), 1u16..5).prop_map(|(k, s)| Op::Add(k, s)),
        6 => (any::<u8>(), 1u16..5).prop_map(|(k, s)| Op::Delete(k, s)),
        1 => Just(Op::Reset),
    ]
}

/// Keys of one table differ in their first byte only.
fn key(k: u8) -> [u8; 8] {
    [k, 1, 2, 3, 4, 5, 6, 7]
}

fn sets_of(summary: &impl Summary, k: u8) -> Vec<u16> {
    let mut out = [set(1); 64];
    let n = summary.lookup_multi(&key(k), &mut out);
    out[..n].iter().map(|s| s.get()).collect()
}

proptest! {
    /// Filter mode never loses an entry, whatever was moved, and refuses a key only when it is full.
    #[test]
    fn a_filter_holds_what_was_added(ops in prop::collection::vec(op(), 0..600), keys in 1usize..200, seed in any::<u64>()) {
        let mut ht = Ht::new(&HtConfig { keys, cache: false, seed }).unwrap();
        let mut twin: HashMap<u8, Vec<u16>> = HashMap::new();
        for op in ops {
            match op {
                Op::Add(k, s) => match ht.add(&key(k), set(s)) {
                    Ok(added) => {
                        prop_assert_eq!(added, Added::Stored);
                        twin.entry(k).or_default().push(s);
                    }
                    Err(AddError::Full { entries, .. }) => prop_assert_eq!(entries, twin.values().map(Vec::len).sum::<usize>()),
                    Err(e) => prop_assert!(false, "{}", e),
                },
                Op::Delete(k, s) => {
                    let had = twin.entry(k).or_default();
                    let at = had.iter().position(|h| *h == s);
                    if let Some(at) = at {
                        had.remove(at);
                        prop_assert!(ht.delete(&key(k), set(s)));
                    }
                }
                Op::Reset => {
                    ht.reset();
                    twin.clear();
                }
            }
            prop_assert_eq!(ht.len(), twin.values().map(Vec::len).sum::<usize>());
        }
        for (k, want) in &twin {
            let mut got = sets_of(&ht, *k);
            // Other keys with the same signature may add sets. No set of ours may be missing, each as often as it was
            // added.
            for s in want {
                let at = got.iter().position(|g| g == s);
                prop_assert!(at.is_some(), "key {} lost set {}", k, s);
                got.remove(at.unwrap());
            }
            prop_assert_eq!(ht.lookup(&key(*k)).is_some(), !sets_of(&ht, *k).is_empty());
        }
    }

    /// Single and bulk lookups agree, for bulks around the internal piece size.
    #[test]
    fn bulk_is_one_by_one(n in 0usize..140, stored in 0u16..300, seed in any::<u64>(), cache in any::<bool>()) {
        let mut ht = Ht::new(&HtConfig { keys: 256, cache, seed }).unwrap();
        let mut vbf = Vbf::new(&VbfConfig { keys: 300, sets: 16, false_positives: 0.05, seed }).unwrap();
        for i in 0..stored {
            let _ = ht.add(&u64::from(i).to_le_bytes(), set(i % 16 + 1));
            vbf.add(&u64::from(i).to_le_bytes(), set(i % 16 + 1)).unwrap();
        }
        let keys: Vec<[u8; 8]> = (0..n as u64).map(|i| (i * 3).to_le_bytes()).collect();
        let plain: Vec<_> = keys.iter().map(|key| (ht.lookup(key), vbf.lookup(key))).collect();
        for isa in Isa::available() {
            ht.set_isa(isa);
            vbf.set_isa(isa);
            check_bulk(&ht, &keys)?;
            check_bulk(&vbf, &keys)?;
            let same = keys.iter().map(|key| (ht.lookup(key), vbf.lookup(key)));
            prop_assert!(same.eq(plain.iter().copied()), "{:?}", isa);
        }
    }

    /// A vector Bloom filter finds every added key in each of its sets, and refuses sets out of range.
    #[test]
    fn a_bloom_filter_forgets_nothing(adds in prop::collection::vec((any::<u8>(), 1u16..40), 0..300), log2 in 0u32..=6) {
        let sets = 1usize << log2;
        let mut vbf = Vbf::new(&VbfConfig { keys: 300, sets, false_positives: 0.01, seed: 3 }).unwrap();
        let mut twin: HashMap<u8, BTreeSet<u16>> = HashMap::new();
        for (k, s) in adds {
            match vbf.add(&key(k), set(s)) {
                Ok(_) => _ = twin.entry(k).or_default().insert(s),
                Err(e) => prop_assert_eq!((e, usize::from(s) > sets), (AddError::NoSuchSet { set: set(s), sets }, true)),
            }
        }
        for (k, want) in &twin {
            let got: BTreeSet<u16> = sets_of(&vbf, *k).into_iter().collect();
            prop_assert!(want.is_subset(&got), "key {}: {:?} not all in {:?}", k, want, got);
        }
    }
}

fn check_bulk(summary: &impl Summary, keys: &[[u8; 8]]) -> Result<(), TestCaseError> {
    let mut out = vec![Some(set(999)); keys.len() + 1];
    let found = summary.lookup_bulk(keys, &mut out);
    let want: Vec<_> = keys.iter().map(|k| summary.lookup(k)).collect();
    prop_assert_eq!(&out[..keys.len()], &want[..]);
    prop_assert_eq!(out[keys.len()], Some(set(999)), "wrote past the keys");
    prop_assert_eq!(found, want.iter().flatten().count());
    let (mut sets, mut counts) = (vec![set(999); keys.len() * 3], vec![0; keys.len()]);
    prop_assert_eq!(summary.lookup_multi_bulk(keys, 3, &mut sets, &mut counts), found);
    prop_assert!(counts.iter().zip(&want).all(|(n, w)| (*n > 0) == w.is_some()));
    Ok(())
}

/// A filter accepts 95 % of its entries before it refuses one.
#[test]
fn a_filter_fills_to_95_percent() {
    let mut ht = Ht::new(&HtConfig { keys: 1 << 14, cache: false, seed: 11 }).unwrap();
    let mut stored = 0u64;
    while ht.add(&stored.to_le_bytes(), set(1)).is_ok() {
        stored += 1;
    }
    assert!(stored as f64 >= 0.95 * ht.capacity() as f64, "{stored} of {}", ht.capacity());
    for i in 0..stored {
        assert_eq!(ht.lookup(&i.to_le_bytes()), Some(set(1)), "{i} was moved and lost");
    }
}

/// A cache never refuses, keeps its size, and finds most of the keys added last.
#[test]
fn a_cache_overwrites() {
    let mut ht = Ht::new(&HtConfig { keys: 1024, cache: true, seed: 5 }).unwrap();
    let mut evicted = 0;
    for i in 0..100_000u64 {
        evicted += usize::from(ht.add(&i.to_le_bytes(), set(1 + (i % 7) as u16)).unwrap() == Added::Evicted);
    }
    assert!(evicted > 90_000 && ht.len() <= ht.capacity());
    let last = (99_900..100_000u64).filter(|i| ht.lookup(&i.to_le_bytes()) == Some(set(1 + (i % 7) as u16))).count();
    assert!(last >= 80, "only {last} of the last 100 keys are still there");
}

/// HT reports absent keys at the documented rate, `1 - (1 - 2^-16)^(32 load)`.
#[test]
fn ht_false_positives_agree_with_theory() {
    let mut ht = Ht::new(&HtConfig { keys: 1 << 15, cache: false, seed: 2 }).unwrap();
    let n = ht.capacity() * 3 / 4;
    (0..n as u64).for_each(|i| _ = ht.add(&i.to_le_bytes(), set(1)).unwrap());
    let absent = 2_000_000u64;
    let found = (0..absent).filter(|i| ht.lookup(&(i + (1 << 40)).to_le_bytes()).is_some()).count() as f64;
    let expected = absent as f64 * (1.0 - (1.0 - 1.0 / 65_536.0f64).powf(32.0 * 0.75));
    // About 730 expected, deviation 27.
    assert!((found - expected).abs() < 6.0 * expected.sqrt(), "{found} found, {expected} expected");
}

#[test]
fn a_vbf_of_any_number_of_keys_can_be_made() {
    for sets in [1, 8, 32, 64] {
        for keys in (1..3000).chain([1 << 20]) {
            let vbf = Vbf::new(&VbfConfig { keys, sets, false_positives: 0.03, seed: 1 });
            assert!(vbf.is_ok(), "{keys} keys, {sets} sets: {}", vbf.err().unwrap());
        }
    }
}

/// vBF keeps the configured rate and the rate it computes.
#[test]
fn vbf_false_positives_agree_with_theory() {
    for (sets, rate) in [(1usize, 0.01), (16, 0.03), (32, 0.03), (64, 0.1)] {
        let mut vbf = Vbf::new(&VbfConfig { keys: 32_768, sets, false_positives: rate, seed: 9 }).unwrap();
        for i in 0..32_768u64 {
            vbf.add(&i.to_le_bytes(), set((i % sets as u64) as u16 + 1)).unwrap();
        }
        let absent = 400_000u64;
        let found = (0..absent).filter(|i| vbf.lookup(&(i + (1 << 40)).to_le_bytes()).is_some()).count() as f64;
        let expected = absent as f64 * vbf.expected_rate(32_768 / sets);
        assert!(vbf.expected_rate(32_768 / sets) <= rate);
        assert!((found / expected - 1.0).abs() < 0.1, "{sets} sets: {found} found, {expected} expected");
    }
}

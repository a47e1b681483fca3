//! How often each table names the right subtable, by counting: what the speed-up of seed 000 rests on.

use super::own::OwnTable;
use super::summary::{HtTable, VbfTable};
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::Isa;
use sluice_simd::hash::splitmix64;

/// What became of lookups, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Shares {
    hits: f64,
    misses: f64,
    wrong: f64,
}

/// A table under test: finds hints, and records one.
trait Table {
    fn find(&mut self, hashes: &[u64], found: &mut [u16]);
    fn note(&mut self, hash: u64, hint: u16);
}

impl Table for OwnTable {
    fn find(&mut self, hashes: &[u64], found: &mut [u16]) {
        OwnTable::find(self, Isa::best(), hashes, found);
    }

    fn note(&mut self, hash: u64, hint: u16) {
        OwnTable::note(self, hash, hint);
    }
}

impl Table for HtTable {
    fn find(&mut self, hashes: &[u64], found: &mut [u16]) {
        HtTable::find(self, Isa::best(), hashes, found);
    }

    fn note(&mut self, hash: u64, hint: u16) {
        HtTable::note(self, hash, hint);
    }
}

impl Table for VbfTable {
    fn find(&mut self, hashes: &[u64], found: &mut [u16]) {
        VbfTable::find(self, Isa::best(), hashes, found, 0);
    }

    /// As in the lookup, which goes on to the next name: one that is right has nothing to record.
    fn note(&mut self, hash: u64, hint: u16) {
        let (hashes, mut named) = ([hash; BATCH_MAX], [0; BATCH_MAX]);
        let one = BatchMask::first(1);
        while self.find_more(&hashes, one, &mut named) == one {
            if named[0] == hint {
                return;
            }
        }
        VbfTable::note(self, hash, hint);
    }
}

/// Flow `n` of a table under test.
fn hash_of(n: u64) -> u64 {
    splitmix64(&mut n.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1))
}

/// Looks up packets of `flows` flows, evenly spread over `subtables`, each time any flow, for `rounds` packets a flow;
/// counts the last packet a flow.
fn shares(table: &mut impl Table, flows: u64, subtables: u64, rounds: u64) -> Shares {
    let (mut state, mut shares) = (flows, Shares::default());
    let batches = flows / BATCH_MAX as u64;
    for at in 0..rounds * batches {
        let drawn: [u64; BATCH_MAX] = std::array::from_fn(|_| splitmix64(&mut state) % flows);
        let hashes = drawn.map(hash_of);
        let mut found = [0; BATCH_MAX];
        table.find(&hashes, &mut found);
        for (i, n) in drawn.into_iter().enumerate() {
            let right = (n % subtables) as u16 + 1;
            if found[i] != right {
                table.note(hashes[i], right);
            }
            if at >= (rounds - 1) * batches {
                shares.hits += f64::from(u8::from(found[i] == right));
                shares.misses += f64::from(u8::from(found[i] == 0));
                shares.wrong += f64::from(u8::from(found[i] != right && found[i] != 0));
            }
        }
    }
    let percent = |n: f64| 100.0 * n / (batches * BATCH_MAX as u64) as f64;
    Shares { hits: percent(shares.hits), misses: percent(shares.misses), wrong: percent(shares.wrong) }
}

/// The flows and the subtables of the seed.
const CELLS: [(u64, u64); 9] = [
    (20_000, 10),
    (20_000, 20),
    (20_000, 30),
    (100_000, 10),
    (100_000, 20),
    (100_000, 30),
    (1_000_000, 10),
    (1_000_000, 20),
    (1_000_000, 30),
];

/// In every cell of the seed's tables at least 98 % of the packets are sent to the right subtable.
#[test]
fn nearly_every_packet_finds_its_subtable_at_once() {
    for (flows, subtables) in CELLS {
        let shares = shares(&mut OwnTable::new(super::OWN_ENTRIES), flows, subtables, 8);
        println!("{flows:>8} flows {subtables:>3} subtables: {shares:?}");
        assert!(shares.hits >= 98.0 && shares.wrong < 0.5, "{flows} flows, {subtables} subtables: {shares:?}");
    }
}

/// With hardly more slots than flows it still finds as many as the membership library's HT does.
#[test]
fn in_as_many_entries_it_is_as_good_as_ht() {
    let (flows, entries) = (1_000_000, 1 << 20);
    let own = shares(&mut OwnTable::new(entries), flows, 20, 8);
    let ht = shares(&mut HtTable::new(entries, 7), flows, 20, 8);
    println!("own {own:?}, HT {ht:?}");
    assert!(own.hits >= ht.hits && own.hits >= 98.0, "own {own:?}, HT {ht:?}");
}

/// The first name of the Bloom filters is right as often as the seed says of its first level.
#[test]
fn bloom_filters_name_the_right_subtable_first_for_97_of_100() {
    for subtables in [3, 17, 20] {
        let shares = shares(&mut VbfTable::new(1 << 20, 7), 1_000_000, subtables, 8);
        println!("{subtables} subtables: {shares:?}");
        assert!(shares.hits >= 97.0, "{subtables} subtables: {shares:?}");
    }
}

/// Flows that replace others: after the change the new ones are found as the old ones were.
#[test]
fn flows_of_yesterday_make_room() {
    let mut table = OwnTable::new(1 << 17);
    let before = shares(&mut table, 100_000, 20, 8);
    struct Shifted<'a>(&'a mut OwnTable);
    impl Table for Shifted<'_> {
        fn find(&mut self, hashes: &[u64], found: &mut [u16]) {
            let hashes: Vec<u64> = hashes.iter().map(|hash| hash.rotate_left(23) ^ 0x5555).collect();
            Table::find(self.0, &hashes, found);
        }
        fn note(&mut self, hash: u64, hint: u16) {
            self.0.note(hash.rotate_left(23) ^ 0x5555, hint);
        }
    }
    let after = shares(&mut Shifted(&mut table), 100_000, 20, 16);
    println!("before {before:?}, after {after:?}");
    assert!(before.hits >= 98.0 && after.hits >= 90.0, "before {before:?}, after {after:?}");
}

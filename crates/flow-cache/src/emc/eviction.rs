//! Whether it would pay to spare entries that are in use: the cache beside a twin that does, by counting.
//!
//! The thread about recirculated packets asks that (docs/seeds.md, 002-eviction). Its firewall tracks 6000 connections. Each
//! packet takes two lookups, so the connections want 12,000 entries, and the cache has 8192.

use super::*;

/// Entries, as in that thread.
const ENTRIES: usize = 8192;
/// Packets a connection until the cache is as full as it gets, and those that are counted.
const WARM: u64 = 100;
const COUNTED: u64 = 20;
/// Of the connections a tenth, which has nine tenths of the packets where connections are not of equal size.
const LARGE: u64 = 10;

/// What gives way to a new flow where its bucket is full or all entries are in use.
#[derive(Clone, Copy, PartialEq)]
enum Evicts {
    /// A random entry, as in the switch.
    Any,
    /// An entry that has answered nothing since its bucket last refused a flow. If there is none, the new flow is refused.
    Idle,
}

/// A workload and a policy.
#[derive(Clone, Copy)]
struct Case {
    connections: u64,
    /// Whether a tenth of them has nine tenths of the packets.
    is_skewed: bool,
    evicts: Evicts,
    /// A miss inserts its flow with the probability of one in this number.
    insert_inv_prob: u64,
    /// Whether packets in their second pass stay away while the cache is more than half full.
    has_threshold: bool,
}

/// What was counted of the last packets: lookups answered, percent, and entries overwritten a packet.
#[derive(Debug)]
struct Outcome {
    answered: f64,
    overwritten: f64,
}

/// The cache with what is known of its entries.
struct Watched {
    emc: Emc,
    /// For each bucket the slots that have answered since it last refused a flow.
    active: Vec<u32>,
    random: u64,
    answered: u64,
    overwritten: u64,
}

impl Watched {
    fn lookup(&mut self, flow: u64, case: &Case) {
        let (mut seed, id) = (flow, FlowId(flow as u32));
        let hash = hash::splitmix64(&mut seed);
        let at = self.emc.at(hash);
        let bucket = &self.emc.buckets[at];
        let tag = tag((hash >> 32) as u32);
        if let Some(slot) = slots(bucket.matching(tag)).find(|slot| bucket.ids[*slot] == id.0) {
            self.answered += 1;
            self.active[at] |= 1 << slot;
        } else if hash::splitmix64(&mut self.random).is_multiple_of(case.insert_inv_prob) {
            self.insert(hash, id, case.evicts);
        }
    }

    fn insert(&mut self, hash: u64, id: FlowId, evicts: Evicts) {
        let (at, used) = (self.emc.at(hash), self.emc.used);
        let taken = !self.emc.buckets[at].matching(0) & SLOTS;
        let idle = taken & !self.active[at];
        let has_room = taken != SLOTS && used < self.emc.entries;
        if evicts == Evicts::Any || has_room {
            self.emc.insert(hash, id);
            self.overwritten += u64::from(taken != 0 && self.emc.used == used);
        } else if idle != 0 {
            let slot = idle.trailing_zeros() as usize;
            let bucket = &mut self.emc.buckets[at];
            (bucket.tags[slot], bucket.ids[slot]) = (tag((hash >> 32) as u32), id.0);
            self.overwritten += 1;
        } else {
            self.active[at] = 0;
        }
    }
}

impl Case {
    fn run(&self) -> Outcome {
        let emc = Emc::new(ENTRIES, 1, 7);
        let active = vec![0; emc.buckets.len()];
        let mut watched = Watched { emc, active, random: 5, answered: 0, overwritten: 0 };
        let n = self.connections;
        let mut choice = 3;
        for packet in 0..(WARM + COUNTED) * n {
            if packet == WARM * n {
                (watched.answered, watched.overwritten) = (0, 0);
            }
            let random = hash::splitmix64(&mut choice);
            let is_large = self.is_skewed && !random.is_multiple_of(LARGE);
            let connection = (random >> 8) % if is_large { n / LARGE } else { n };
            watched.lookup(connection, self);
            let stays_away = self.has_threshold && watched.emc.usage().percent() > 50.0;
            if !stays_away {
                watched.lookup(n + connection, self);
            }
        }
        let packets = (COUNTED * n) as f64;
        Outcome {
            answered: watched.answered as f64 / packets / 2.0 * 100.0,
            overwritten: watched.overwritten as f64 / packets,
        }
    }
}

/// The outcomes of the switch's cache and of the twin.
fn both(connections: u64, is_skewed: bool, insert_inv_prob: u64, has_threshold: bool) -> [Outcome; 2] {
    [Evicts::Any, Evicts::Idle]
        .map(|evicts| Case { connections, is_skewed, evicts, insert_inv_prob, has_threshold }.run())
}

/// Counting gives the same numbers each time: lookups answered, percent, and entries overwritten a packet.
fn assert_counted(outcome: &Outcome, answered: f64, overwritten: f64) {
    let is_same = (outcome.answered - answered).abs() < 0.5 && (outcome.overwritten - overwritten).abs() < 0.01;
    assert!(is_same, "{outcome:?}, expected {answered} and {overwritten}");
}

#[test]
fn of_connections_of_equal_size_as_many_are_answered() {
    let [any, idle] = both(6000, false, 1, false);
    assert_counted(&any, 68.2, 0.62);
    assert_counted(&idle, 68.2, 0.51);
    let [any, idle] = both(6000, false, 1, true);
    assert_counted(&any, 49.9, 0.0);
    assert_counted(&idle, 49.9, 0.0);
}

#[test]
fn where_few_connections_have_most_packets_more_are_answered() {
    let [any, idle] = both(30_000, true, 1, false);
    assert_counted(&any, 80.2, 0.39);
    assert_counted(&idle, 90.1, 0.15);
    // With one insertion in a hundred misses, entries are overwritten a hundredth as often, and as many lookups answered.
    let [any, idle] = both(30_000, true, 100, false);
    assert_counted(&any, 80.3, 0.0);
    assert_counted(&idle, 90.7, 0.0);
    // Above the threshold the second lookup of a packet stays away.
    let [any, idle] = both(30_000, true, 1, true);
    assert_counted(&any, 44.6, 0.11);
    assert_counted(&idle, 46.3, 0.07);
}

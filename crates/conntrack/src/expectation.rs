//! Data connections that a helper expects.

use crate::connection::Connection;
use crate::tuple::Tuple;
use parking_lot::Mutex;
use sluice_action::ct::NatTarget;
use sluice_fate::Limit;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Expectations of one control connection, at most: the last ones. Linux keeps one.
const OF_CONNECTION_MAX: usize = 32;
/// Expectations in all, at most. This bound is ours: in Open vSwitch one client can fill the memory with `PORT` commands.
const EXPECTATIONS_MAX: usize = 16_384;

/// An expected connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expectation {
    /// The control connection's original tuple.
    pub parent: Tuple,
    /// With NAT: the data connection's new address, and which of its addresses that replaces.
    pub addr: [u8; 16],
    pub target: NatTarget,
    /// Inherited from the control connection.
    pub mark: u32,
    pub label: u128,
}

/// All expectations. The lock is not taken while there are none.
#[derive(Debug, Default)]
pub(crate) struct Expectations {
    count: AtomicUsize,
    inner: Mutex<ExpectationTable>,
}

/// The expectations by tuple, by control connection and by zone.
///
/// At a bound the newest is taken and the oldest of the control connection goes, or, if the table is full, that of the
/// connection with most expectations in the zone with most of them: a client, or a zone, that announces more than
/// others loses its own. Each change costs a few operations on maps, however many expectations there are.
#[derive(Debug, Default)]
struct ExpectationTable {
    /// By the first packet's tuple with source port zero, since that port is unknown.
    by_tuple: HashMap<Tuple, Expectation>,
    /// By the original tuple of the control connection.
    parents: HashMap<Tuple, ControlConnection>,
    /// The control connections of each zone: number of expectations, and its number, so that the last is the fullest
    /// and of equals the oldest.
    zones: HashMap<u16, BTreeMap<(usize, Reverse<u64>), Tuple>>,
    /// Expectations of each zone.
    zone_counts: HashMap<u16, usize>,
    /// The zones by number of expectations.
    by_count: BTreeSet<(usize, u16)>,
    /// Control connections so far.
    begun: u64,
}

/// What a control connection has announced, the oldest first.
#[derive(Debug)]
struct ControlConnection {
    number: u64,
    announced: VecDeque<Tuple>,
}

impl Expectations {
    /// How many there are, and how many there may be.
    pub fn usage(&self) -> (usize, usize) {
        (self.count.load(Ordering::Relaxed), EXPECTATIONS_MAX)
    }

    /// The expectation that a first packet with `tuple` fulfils. It remains as long as the control connection.
    pub fn find(&self, tuple: &Tuple) -> Option<Expectation> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut tuple = *tuple;
        tuple.src.port = 0;
        self.inner.lock().by_tuple.get(&tuple).copied()
    }

    /// Expects a connection to `port` of the end that announced it: the replying end if `reply`.
    pub fn add(&self, port: u16, parent: &Connection, reply: bool, mark_and_label: (u32, u128)) {
        let (original, answers) = (&parent.original, &parent.reply);
        let is_dnat = parent.nat == Some(NatTarget::Dst);
        let (mut tuple, addr, target) = if reply {
            let (addr, target) = match is_dnat {
                true => (answers.src.addr, NatTarget::Dst),
                false => (answers.dst.addr, NatTarget::Src),
            };
            (*original, addr, target)
        } else {
            let (addr, target) = match is_dnat {
                true => (original.dst.addr, NatTarget::Src),
                false => (original.src.addr, NatTarget::Dst),
            };
            (*answers, addr, target)
        };
        (tuple.src.port, tuple.dst.port) = (0, port);
        let (mark, label) = mark_and_label;
        let mut table = self.inner.lock();
        table.add(tuple, Expectation { parent: *original, addr, target, mark, label });
        self.count.store(table.by_tuple.len(), Ordering::Relaxed);
    }

    /// Removes the expectations of a control connection.
    pub fn remove_of(&self, parent: &Tuple) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut table = self.inner.lock();
        table.remove_of(parent);
        self.count.store(table.by_tuple.len(), Ordering::Relaxed);
    }
}

impl ExpectationTable {
    fn add(&mut self, tuple: Tuple, expectation: Expectation) {
        if self.by_tuple.contains_key(&tuple) {
            return;
        }
        let parent = expectation.parent;
        if self.parents.get(&parent).is_some_and(|control| control.announced.len() >= OF_CONNECTION_MAX) {
            self.remove_oldest(&parent);
        } else if self.by_tuple.len() >= EXPECTATIONS_MAX {
            let fullest = self.by_count.last().and_then(|(_, zone)| self.zones.get(zone));
            if let Some(parent) = fullest.and_then(BTreeMap::last_key_value).map(|(_, parent)| *parent) {
                self.remove_oldest(&parent);
            }
        }
        self.by_tuple.insert(tuple, expectation);
        let begun = &mut self.begun;
        let control = self.parents.entry(parent).or_insert_with(|| {
            *begun += 1;
            ControlConnection { number: *begun, announced: VecDeque::new() }
        });
        let (number, before) = (control.number, control.announced.len());
        control.announced.push_back(tuple);
        self.recount(&parent, number, before, before + 1);
    }

    fn remove_oldest(&mut self, parent: &Tuple) {
        let Some(control) = self.parents.get_mut(parent) else { return };
        let (number, before) = (control.number, control.announced.len());
        let Some(oldest) = control.announced.pop_front() else { return };
        self.by_tuple.remove(&oldest);
        if before == 1 {
            self.parents.remove(parent);
        }
        self.recount(parent, number, before, before - 1);
        Limit::Expectations.hit();
    }

    fn remove_of(&mut self, parent: &Tuple) {
        let Some(ControlConnection { number, announced }) = self.parents.remove(parent) else { return };
        announced.iter().for_each(|tuple| _ = self.by_tuple.remove(tuple));
        self.recount(parent, number, announced.len(), 0);
    }

    /// Files a control connection, that had `before` expectations, under the number it has now.
    fn recount(&mut self, parent: &Tuple, number: u64, before: usize, after: usize) {
        let zone = self.zones.entry(parent.zone).or_default();
        zone.remove(&(before, Reverse(number)));
        if after > 0 {
            zone.insert((after, Reverse(number)), *parent);
        }
        let is_empty = zone.is_empty();
        let count = self.zone_counts.entry(parent.zone).or_default();
        self.by_count.remove(&(*count, parent.zone));
        *count = *count + after - before;
        if is_empty {
            self.zones.remove(&parent.zone);
            self.zone_counts.remove(&parent.zone);
        } else {
            self.by_count.insert((*count, parent.zone));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuple::Endpoint;

    fn tuple(zone: u16, client: u32, port: u16) -> Tuple {
        let mut addr = [0; 16];
        addr[..4].copy_from_slice(&client.to_be_bytes());
        Tuple { zone, dst: Endpoint { addr, port, ..Endpoint::default() }, ..Tuple::default() }
    }

    impl ExpectationTable {
        fn announce(&mut self, zone: u16, client: u32, port: u16) {
            let parent = tuple(zone, client, 21);
            let expectation = Expectation { parent, addr: [0; 16], target: NatTarget::Src, mark: 0, label: 0 };
            self.add(tuple(zone, client, port), expectation);
        }

        fn has(&self, zone: u16, client: u32, port: u16) -> bool {
            self.by_tuple.contains_key(&tuple(zone, client, port))
        }

        /// Sees that all views of the table agree.
        fn check(&self) {
            let sum = |zone| {
                self.parents.iter().filter(|(p, _)| p.zone == zone).map(|(_, c)| c.announced.len()).sum::<usize>()
            };
            let counted: Vec<(usize, u16)> = self.by_count.iter().copied().collect();
            assert!(counted.iter().all(|(n, zone)| *n > 0 && *n == sum(*zone) && self.zone_counts[zone] == *n));
            assert_eq!(counted.iter().map(|(n, _)| n).sum::<usize>(), self.by_tuple.len());
            assert_eq!(self.zones.values().map(BTreeMap::len).sum::<usize>(), self.parents.len());
            assert!(self.by_tuple.len() <= EXPECTATIONS_MAX);
        }
    }

    #[test]
    fn a_connection_keeps_its_last_announcements() {
        let mut table = ExpectationTable::default();
        (1..=100).for_each(|port| table.announce(0, 1, port));
        table.announce(0, 2, 1);
        table.check();
        assert!(table.has(0, 1, 100) && table.has(0, 1, 69) && !table.has(0, 1, 68) && table.has(0, 2, 1));
        table.remove_of(&tuple(0, 1, 21));
        table.check();
        assert_eq!((table.by_tuple.len(), table.parents.len()), (1, 1));
    }

    /// Many connections, each below its own bound, fill the table. Another zone's client, and one of the same zone that
    /// announces little, keep what they have.
    #[test]
    fn many_connections_lose_their_own_announcements() {
        let mut table = ExpectationTable::default();
        table.announce(7, 1, 1);
        table.announce(0, 0, 1);
        for client in 1..2000 {
            (1..=20).for_each(|port| table.announce(0, client, port));
        }
        table.check();
        assert_eq!(table.by_tuple.len(), EXPECTATIONS_MAX);
        assert!(table.has(7, 1, 1) && table.has(0, 0, 1));
        table.announce(8, 1, 1);
        assert!(table.has(8, 1, 1));
        (1..2000).for_each(|client| table.remove_of(&tuple(0, client, 21)));
        table.check();
        assert_eq!(table.by_tuple.len(), 3);
    }
}

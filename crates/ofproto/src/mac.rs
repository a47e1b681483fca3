//! The MAC table of a bridge: the port of each known address and VLAN; `lib/mac-learning` in Open vSwitch.
//!
//! Entries expire by whole seconds since their address last sent a packet; static entries do not. Learned entries have
//! a limit. At the limit, a new entry replaces the least recently used one of the port with most learned entries, so
//! that one port cannot evict the entries of others; of equally full ports the same one as in Open vSwitch. Static entries are counted apart: packets cannot evict them. (Open
//! vSwitch 3.1 counts all together and evicts static ones too, after which the address can be learned anywhere.) A
//! change costs a few operations on ordered maps, a lookup one hash. The control thread is the only writer.

use crate::port_usage::PortUsage;
use sluice_fate::Limit;
use sluice_flow::{Mac, OfPort};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Seconds until an unused entry expires, by default.
/// Source: OVS lib/mac-learning.h.
pub const DEFAULT_AGE_S: u64 = 300;
/// Learned entries at most, by default.
/// Source: OVS lib/mac-learning.h.
pub const DEFAULT_MAX: usize = 8192;

/// The MAC table of a bridge.
#[derive(Debug)]
pub struct MacTable {
    entries: HashMap<(u16, Mac), MacEntry>,
    /// The entries by last use, the least recent first.
    order: BTreeMap<u64, (u16, Mac)>,
    /// The learned ones of each port, in the same order.
    by_port: HashMap<OfPort, BTreeMap<u64, (u16, Mac)>>,
    /// How many they are.
    usage: PortUsage,
    /// The static ones, in the same order.
    statics: BTreeMap<u64, (u16, Mac)>,
    next_stamp: u64,
    age_s: u64,
    max: usize,
    /// VLANs in which nothing is learned and nothing is found.
    flood_vlans: BTreeSet<u16>,
    counts: MacCounts,
    /// Addresses whose entry was added, removed or moved since this was last taken.
    changed: Vec<(u16, Mac)>,
}

#[derive(Clone, Copy, Debug)]
struct MacEntry {
    port: OfPort,
    stamp: u64,
    /// The second in which it expires; `None` if static.
    expires_s: Option<u64>,
    /// Until then gratuitous ARP that comes by a bond does not move it.
    locked_until_s: u64,
}

/// What is special about the packet that taught an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LearnPacket {
    /// It is gratuitous ARP: a station has moved.
    pub is_gratuitous: bool,
    /// It came by a bond, and may be one of ours that came back.
    pub is_from_bond: bool,
}

/// How long a station that has moved to a port that is no bond stays there, whatever bonds say, seconds.
/// Source: OVS lib/mac-learning.h, `MAC_GRAT_ARP_LOCK_TIME`.
const GRATUITOUS_LOCK_S: u64 = 5;

/// The counters of `fdb/stats-show`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MacCounts {
    /// Entries learned.
    pub learned: u64,
    /// Entries expired.
    pub expired: u64,
    /// Entries evicted from a full table.
    pub evicted: u64,
    /// Entries that moved to another port.
    pub moved: u64,
}

/// A row of `fdb/show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacRow {
    /// Port.
    pub port: OfPort,
    /// VLAN.
    pub vlan: u16,
    /// Address.
    pub mac: Mac,
    /// Seconds since it was last used; `None` if static.
    pub age_s: Option<u64>,
}

/// Whether an address is a multicast or broadcast address.
pub fn is_multicast(mac: Mac) -> bool {
    mac.0[0] & 1 != 0
}

impl MacTable {
    /// An empty table.
    pub fn new(age_s: u64, max: usize) -> Self {
        MacTable {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            by_port: HashMap::new(),
            usage: PortUsage::default(),
            statics: BTreeMap::new(),
            next_stamp: 0,
            age_s,
            max,
            flood_vlans: BTreeSet::new(),
            counts: MacCounts::default(),
            changed: Vec::new(),
        }
    }

    /// Changes the time until entries expire. Present entries keep their age.
    pub fn set_age(&mut self, age_s: u64) {
        for entry in self.entries.values_mut() {
            if let Some(expires) = &mut entry.expires_s {
                *expires = expires.saturating_sub(self.age_s) + age_s;
            }
        }
        self.age_s = age_s;
    }

    /// Changes how many entries there may be; the least recently used ones that are too many go.
    pub fn set_max(&mut self, max: usize) {
        self.max = max;
        while self.entries.len() > self.max && !self.by_port.is_empty() {
            self.evict();
        }
    }

    /// Changes the VLANs in which nothing is learned. If they differ, what was learned is forgotten.
    pub fn set_flood_vlans(&mut self, vlans: &BTreeSet<u16>) {
        if self.flood_vlans != *vlans {
            self.flood_vlans.clone_from(vlans);
            self.flush();
        }
    }

    /// The port of an address; `None` if it is unknown or multicast, or all packets of the VLAN are flooded.
    pub fn lookup(&self, vlan: u16, mac: Mac) -> Option<OfPort> {
        self.entries.get(&(vlan, mac)).map(|e| e.port).filter(|_| !self.flood_vlans.contains(&vlan))
    }

    /// Whether packets of a VLAN teach where an address is.
    pub fn may_learn(&self, vlan: u16, mac: Mac) -> bool {
        !is_multicast(mac) && !self.flood_vlans.contains(&vlan)
    }

    /// Whether [`MacTable::learn`] would change anything.
    pub fn needs_learning(&self, vlan: u16, mac: Mac, port: OfPort, now_s: u64) -> bool {
        self.may_learn(vlan, mac)
            && match self.entries.get(&(vlan, mac)) {
                None => true,
                Some(MacEntry { expires_s: None, .. }) => false,
                Some(e) => e.port != port || e.expires_s != Some(now_s + self.age_s),
            }
    }

    /// Learns that an address is behind a port; true if the entry is new or has moved.
    pub fn learn(&mut self, vlan: u16, mac: Mac, port: OfPort, now_s: u64) -> bool {
        if !self.may_learn(vlan, mac) {
            return false;
        }
        let old = self.entries.get(&(vlan, mac)).copied();
        match old {
            Some(MacEntry { expires_s: None, .. }) => return false,
            Some(e) if e.port != port => self.counts.moved += 1,
            Some(_) => {}
            None => {
                if self.entries.len() - self.statics.len() >= self.max {
                    self.evict();
                }
                self.counts.learned += 1;
            }
        }
        self.put(vlan, mac, port, Some(now_s + self.age_s));
        let is_new_or_moved = old.is_none_or(|e| e.port != port);
        if is_new_or_moved {
            self.changed.push((vlan, mac));
        }
        is_new_or_moved
    }

    /// The same, of a packet that may be special. Gratuitous ARP from elsewhere than bonds locks the entry for some
    /// seconds: bonds send it on, and what comes back by another member must not move the station.
    pub fn learn_of(&mut self, packet: LearnPacket, (vlan, mac): (u16, Mac), port: OfPort, now_s: u64) -> bool {
        if packet.is_gratuitous && packet.is_from_bond && self.is_locked(vlan, mac, now_s) {
            return false;
        }
        let is_news = self.learn(vlan, mac, port, now_s);
        if let Some(entry) = self.entries.get_mut(&(vlan, mac))
            && packet.is_gratuitous
            && !packet.is_from_bond
        {
            entry.locked_until_s = now_s + GRATUITOUS_LOCK_S;
        }
        is_news
    }

    /// Whether [`MacTable::learn_of`] would change anything.
    pub fn needs_learning_of(&self, packet: LearnPacket, (vlan, mac): (u16, Mac), port: OfPort, now_s: u64) -> bool {
        match packet {
            LearnPacket { is_gratuitous: true, is_from_bond: false } => self.may_learn(vlan, mac),
            LearnPacket { is_gratuitous: true, is_from_bond: true } if self.is_locked(vlan, mac, now_s) => false,
            _ => self.needs_learning(vlan, mac, port, now_s),
        }
    }

    /// Whether gratuitous ARP that comes by a bond does not move an address now.
    pub fn is_locked(&self, vlan: u16, mac: Mac, now_s: u64) -> bool {
        self.entries.get(&(vlan, mac)).is_some_and(|entry| entry.locked_until_s > now_s)
    }

    /// Adds a static entry.
    pub fn add_static(&mut self, vlan: u16, mac: Mac, port: OfPort) {
        self.put(vlan, mac, port, None);
        self.changed.push((vlan, mac));
    }

    /// Removes a static entry; false if there is none.
    pub fn remove_static(&mut self, vlan: u16, mac: Mac) -> bool {
        let is_static = self.is_static(vlan, mac) == Some(true);
        if is_static {
            self.changed.push((vlan, mac));
        }
        is_static && self.take(vlan, mac)
    }

    /// The addresses whose entry was added, removed, moved or made static since the last call, except those that a
    /// flush removed.
    pub fn take_changed(&mut self) -> Vec<(u16, Mac)> {
        std::mem::take(&mut self.changed)
    }

    /// Whether an address has a static entry; `None` without an entry.
    pub fn is_static(&self, vlan: u16, mac: Mac) -> Option<bool> {
        self.entries.get(&(vlan, mac)).map(|e| e.expires_s.is_none())
    }

    /// Whether an address has a static entry at another port, which packets do not move.
    pub fn is_static_elsewhere(&self, vlan: u16, mac: Mac, port: OfPort) -> bool {
        self.entries.get(&(vlan, mac)).is_some_and(|entry| entry.expires_s.is_none() && entry.port != port)
    }

    /// Removes every learned entry. Source: OVS lib/mac-learning.c, which keeps static ones since 2.16.
    pub fn flush(&mut self) {
        let learned = self.entries.iter().filter(|(_, entry)| entry.expires_s.is_some());
        let learned: Vec<(u16, Mac)> = learned.map(|(address, _)| *address).collect();
        learned.into_iter().for_each(|(vlan, mac)| _ = self.take(vlan, mac));
    }

    /// Removes the entries of a port; true if there was one.
    pub fn flush_port(&mut self, port: OfPort) -> bool {
        let gone = self.of_port(port);
        gone.iter().for_each(|&(vlan, mac)| _ = self.take(vlan, mac));
        self.changed.extend(&gone);
        !gone.is_empty()
    }

    /// The addresses behind a port: the learned ones, then the static ones.
    pub fn of_port(&self, port: OfPort) -> Vec<(u16, Mac)> {
        let learned = self.by_port.get(&port).into_iter().flat_map(BTreeMap::values);
        let statics = self.statics.values().filter(|&key| self.entries[key].port == port);
        learned.chain(statics).copied().collect()
    }

    /// Removes the learned entries of these addresses.
    pub fn forget(&mut self, addresses: &[(u16, Mac)]) {
        for &(vlan, mac) in addresses {
            if self.is_static(vlan, mac) == Some(false) {
                self.take(vlan, mac);
                self.changed.push((vlan, mac));
            }
        }
    }

    /// Removes expired entries; true if there was one.
    pub fn expire(&mut self, now_s: u64) -> bool {
        let mut any = false;
        // OVS stops at the first entry that has not expired. A static entry, which never expires, would keep the ones
        // after it alive, so static entries are skipped.
        let due: Vec<_> = self
            .order
            .values()
            .map_while(|key| match self.entries[key].expires_s {
                None => Some(None),
                Some(at) => (at <= now_s).then_some(Some(*key)),
            })
            .flatten()
            .collect();
        for (vlan, mac) in due {
            self.counts.expired += 1;
            self.changed.push((vlan, mac));
            any |= self.take(vlan, mac);
        }
        any
    }

    /// The rows of `fdb/show`, the least recently used first.
    pub fn rows(&self, now_s: u64) -> impl Iterator<Item = MacRow> + '_ {
        self.order.values().map(move |&(vlan, mac)| {
            let entry = self.entries[&(vlan, mac)];
            let age_s = entry.expires_s.map(|at| (now_s + self.age_s).saturating_sub(at));
            MacRow { port: entry.port, vlan, mac, age_s }
        })
    }

    /// Entries now, learned entries at most, static entries.
    pub fn sizes(&self) -> (usize, usize, usize) {
        (self.entries.len(), self.max, self.statics.len())
    }

    /// The counters.
    pub fn counts(&self) -> MacCounts {
        self.counts
    }

    /// Resets the counters.
    pub fn clear_counts(&mut self) {
        self.counts = MacCounts::default();
    }

    fn put(&mut self, vlan: u16, mac: Mac, port: OfPort, expires_s: Option<u64>) {
        let learned = |entry: MacEntry| entry.expires_s.map(|_| entry.port);
        let stamp = self.next_stamp;
        self.next_stamp += 1;
        let old = self.unlink(vlan, mac);
        let locked_until_s = old.map_or(0, |old| old.locked_until_s);
        let entry = MacEntry { port, stamp, expires_s, locked_until_s };
        let old = old.and_then(learned);
        // A port whose entry is only used again keeps its place among equally full ones.
        if old != learned(entry) {
            old.inspect(|port| self.usage.decrease(*port));
            learned(entry).inspect(|port| self.usage.increase(*port));
        }
        self.entries.insert((vlan, mac), entry);
        self.order.insert(stamp, (vlan, mac));
        let of_kind = match expires_s {
            Some(_) => self.by_port.entry(port).or_default(),
            None => &mut self.statics,
        };
        of_kind.insert(stamp, (vlan, mac));
    }

    fn take(&mut self, vlan: u16, mac: Mac) -> bool {
        let taken = self.unlink(vlan, mac);
        taken.filter(|entry| entry.expires_s.is_some()).inspect(|entry| self.usage.decrease(entry.port));
        taken.is_some()
    }

    /// Removes an entry from everything but the ports' usage.
    fn unlink(&mut self, vlan: u16, mac: Mac) -> Option<MacEntry> {
        let entry = self.entries.remove(&(vlan, mac))?;
        self.order.remove(&entry.stamp);
        self.statics.remove(&entry.stamp);
        if let Some(of_port) = self.by_port.get_mut(&entry.port) {
            of_port.remove(&entry.stamp);
            if of_port.is_empty() {
                self.by_port.remove(&entry.port);
            }
        }
        Some(entry)
    }

    /// Removes the least recently used learned entry of the port with most of them.
    fn evict(&mut self) {
        let fullest = self.usage.fullest().and_then(|port| self.by_port.get(&port));
        if let Some((_, &(vlan, mac))) = fullest.and_then(|m| m.first_key_value()) {
            self.counts.evicted += 1;
            Limit::MacEntries.hit();
            self.changed.push((vlan, mac));
            self.take(vlan, mac);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const B: Mac = Mac([2, 0, 0, 0, 0, 2]);

    #[test]
    fn a_table_that_gets_smaller_keeps_what_was_used_last() {
        let mut table = MacTable::new(300, 8);
        (0..4).for_each(|n| assert!(table.learn(0, Mac([2, 0, 0, 0, 1, n]), OfPort(1), n.into())));
        table.set_max(2);
        let left: Vec<u8> = (0..4).filter(|n| table.lookup(0, Mac([2, 0, 0, 0, 1, *n])).is_some()).collect();
        assert_eq!(left, [2, 3]);
        assert!(table.learn(0, A, OfPort(2), 10), "the table is full");
        assert_eq!(table.lookup(0, Mac([2, 0, 0, 0, 1, 2])), None);
    }

    /// Of ports with equally many entries the same ones lose as in Open vSwitch.
    #[test]
    fn a_port_with_many_addresses_takes_the_fair_shares_of_others_only_in_part() {
        let mut table = MacTable::new(300, 10);
        (0..10).for_each(|n| _ = table.learn(0, Mac([2, 0, 0, 0, 0, n]), OfPort(1 + u16::from(n) / 2), n.into()));
        (0..16).for_each(|n| _ = table.learn(0, Mac([2, 0, 0, 0, 1, n]), OfPort(6), 10 + u64::from(n)));
        let mut left: Vec<(u16, u8)> = table.rows(30).map(|row| (row.port.0, row.mac.0[5])).collect();
        left.sort_unstable();
        let (old, new) = left.split_at(7);
        assert_eq!(old, [(1, 1), (2, 3), (3, 4), (3, 5), (4, 7), (5, 8), (5, 9)]);
        assert_eq!(new, [(6, 13), (6, 14), (6, 15)]);
    }

    #[test]
    fn entries_move_and_age() {
        let mut table = MacTable::new(300, 8);
        assert!(table.learn(0, A, OfPort(1), 10), "new");
        assert!(!table.learn(0, A, OfPort(1), 20), "refreshed");
        assert!(table.learn(0, A, OfPort(2), 30), "moved");
        assert_eq!(table.lookup(0, A), Some(OfPort(2)));
        assert_eq!(table.lookup(1, A), None, "another VLAN is another entry");
        assert!(!table.expire(329));
        assert!(table.expire(330));
        assert_eq!(table.counts(), MacCounts { learned: 1, expired: 1, evicted: 0, moved: 1 });
    }

    #[test]
    fn only_what_was_learned_is_forgotten() {
        let mut table = MacTable::new(300, 8);
        table.learn(0, A, OfPort(1), 10);
        table.add_static(0, B, OfPort(1));
        assert_eq!(table.of_port(OfPort(1)), [(0, A), (0, B)]);
        table.take_changed();
        table.forget(&[(0, A), (0, B), (7, A)]);
        assert_eq!((table.lookup(0, A), table.lookup(0, B)), (None, Some(OfPort(1))));
        assert_eq!(table.take_changed(), [(0, A)]);
    }

    #[test]
    fn the_port_with_most_entries_loses_one() {
        let mut table = MacTable::new(300, 3);
        table.learn(0, A, OfPort(1), 0);
        table.learn(1, B, OfPort(2), 0);
        table.learn(2, B, OfPort(2), 0);
        table.learn(3, B, OfPort(1), 0);
        assert_eq!(table.lookup(1, B), None);
        assert_eq!(table.lookup(0, A), Some(OfPort(1)));
        assert_eq!(table.counts().evicted, 1);
    }

    #[test]
    fn static_entries_neither_age_nor_move() {
        let mut table = MacTable::new(300, 8);
        table.add_static(0, A, OfPort(1));
        assert!(!table.needs_learning(0, A, OfPort(2), 0));
        assert!(!table.learn(0, A, OfPort(2), 0));
        table.learn(0, B, OfPort(2), 0);
        assert!(table.expire(1000), "a static entry in front does not keep others alive");
        assert_eq!(table.rows(1000).map(|r| r.age_s).collect::<Vec<_>>(), [None]);
        assert!(table.is_static_elsewhere(0, A, OfPort(2)) && !table.is_static_elsewhere(0, A, OfPort(1)));
        table.learn(0, B, OfPort(2), 1000);
        table.flush();
        assert_eq!((table.lookup(0, A), table.lookup(0, B)), (Some(OfPort(1)), None));
        assert!(table.remove_static(0, A) && !table.remove_static(0, A));
    }

    /// A static entry stays when its own port, another one or all together learn more than the table holds.
    #[test]
    fn learned_entries_never_evict_static_ones() {
        let mac = |i: u32| {
            let [a, b, c, d] = i.to_be_bytes();
            Mac([2, 1, a, b, c, d])
        };
        for ports in [&[1u16][..], &[2], &[1, 2, 3]] {
            let mut table = MacTable::new(300, 8);
            table.add_static(0, A, OfPort(1));
            // One that was learned first and then made static.
            table.learn(0, B, OfPort(1), 0);
            table.add_static(0, B, OfPort(1));
            (0..100).for_each(|i| assert!(table.learn(0, mac(i), OfPort(ports[i as usize % ports.len()]), 1)));
            assert_eq!((table.lookup(0, A), table.lookup(0, B)), (Some(OfPort(1)), Some(OfPort(1))), "{ports:?}");
            assert_eq!((table.sizes(), table.counts().evicted), ((10, 8, 2), 92), "{ports:?}");
            assert!(table.remove_static(0, A) && table.learn(0, A, OfPort(2), 2));
        }
    }

    /// More static entries than learned ones may be take nothing from those.
    #[test]
    fn static_entries_do_not_evict_learned_ones() {
        let mut table = MacTable::new(300, 2);
        table.learn(0, A, OfPort(1), 0);
        (0..10).for_each(|i| table.add_static(i, B, OfPort(2)));
        assert_eq!((table.lookup(0, A), table.sizes()), (Some(OfPort(1)), (11, 2, 10)));
        table.learn(1, A, OfPort(1), 0);
        let before = Limit::MacEntries.count();
        table.learn(2, A, OfPort(1), 0);
        assert!(Limit::MacEntries.count() > before);
        assert_eq!((table.lookup(0, A), table.sizes(), table.counts().evicted), (None, (12, 2, 10), 1));
        assert!(table.flush_port(OfPort(2)) && table.sizes() == (2, 2, 0));
    }

    #[test]
    fn multicast_addresses_are_not_learned() {
        let mut table = MacTable::new(300, 8);
        assert!(!table.learn(0, Mac([1, 0, 0, 0, 0, 1]), OfPort(1), 0));
    }
}

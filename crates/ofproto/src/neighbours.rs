//! The Ethernet addresses of the next hops of tunnels, and questions for those that are not known. Source: Open vSwitch
//! lib/tnl-neigh-cache.c.
//!
//! Translations read the table and note the addresses that it lacks; the control thread asks for these by ARP or neighbour
//! discovery.

use crate::routes::address;
use parking_lot::{Mutex, RwLock};
use sluice_fate::Limit;
use sluice_flow::Mac;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Neighbours that are known at most: packets make them known.
const KNOWN_MAX: usize = 16 * 1024;

/// Neighbours that are asked for at a time at most.
const ASKED_MAX: usize = 256;

/// A neighbour is asked for once in that time.
const ASK_EVERY_MS: u64 = 1000;

/// How long a neighbour is known, by default. Source: Open vSwitch, `NEIGH_ENTRY_DEFAULT_IDLE_TIME_MS`.
const AGE_MS: u64 = 15 * 60 * 1000;

/// A neighbour: its bridge and its address.
pub(crate) type NeighbourKey = (String, Ipv6Addr);

#[derive(Clone, Copy, Debug)]
struct Known {
    mac: Mac,
    expires_ms: u64,
}

/// A question for a neighbour that a tunnel needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourRequest {
    /// The bridge that it is to be sent in, and the device that asks.
    pub bridge: String,
    /// That device.
    pub device: String,
    /// Its addresses.
    pub mac: Mac,
    /// The address that asks.
    pub src: Ipv6Addr,
    /// The address that is asked for.
    pub target: Ipv6Addr,
}

#[derive(Debug)]
pub(crate) struct Neighbours {
    known: RwLock<BTreeMap<NeighbourKey, Known>>,
    /// When each was last asked for, and the questions that wait to be sent.
    asked: Mutex<BTreeMap<NeighbourKey, u64>>,
    waiting: Mutex<Vec<NeighbourRequest>>,
    age_ms: AtomicU64,
}

impl Default for Neighbours {
    fn default() -> Self {
        let (known, asked, waiting) = Default::default();
        Neighbours { known, asked, waiting, age_ms: AGE_MS.into() }
    }
}

impl Neighbours {
    /// The Ethernet address of a neighbour.
    pub fn lookup(&self, bridge: &str, ip: Ipv6Addr, now_ms: u64) -> Option<Mac> {
        let known = self.known.read();
        known.get(&(bridge.to_owned(), ip)).filter(|known| known.expires_ms > now_ms).map(|known| known.mac)
    }

    /// A neighbour has shown its address; whether that changes anything but the time for which it is known.
    pub fn set(&self, key: NeighbourKey, mac: Mac, now_ms: u64) -> bool {
        let mut known = self.known.write();
        let expires_ms = now_ms + self.age_ms.load(Relaxed);
        if let Some(known) = known.get_mut(&key) {
            let changed = known.mac != mac || known.expires_ms <= now_ms;
            *known = Known { mac, expires_ms };
            return changed;
        }
        if known.len() >= KNOWN_MAX {
            Limit::Neighbours.hit();
            evict(&mut known);
        }
        known.insert(key, Known { mac, expires_ms });
        true
    }

    /// Whether [`Neighbours::set`] would change more than the time by less than a second.
    pub fn needs(&self, key: &NeighbourKey, mac: Mac, now_ms: u64) -> bool {
        let fresh_ms = now_ms + self.age_ms.load(Relaxed).saturating_sub(1000);
        self.known.read().get(key).is_none_or(|known| known.mac != mac || known.expires_ms < fresh_ms)
    }

    /// Notes a neighbour that is missed, unless it was asked for of late.
    pub fn ask(&self, request: NeighbourRequest, now_ms: u64) {
        let mut asked = self.asked.lock();
        let key = (request.bridge.clone(), request.target);
        if asked.get(&key).is_some_and(|at| now_ms < at + ASK_EVERY_MS) {
            return;
        }
        if asked.len() >= ASKED_MAX {
            asked.retain(|_, at| now_ms < *at + ASK_EVERY_MS);
        }
        if asked.len() < ASKED_MAX {
            asked.insert(key, now_ms);
            self.waiting.lock().push(request);
        }
    }

    /// How many are known, and how many may be.
    pub fn usage(&self) -> (usize, usize) {
        (self.known.read().len(), KNOWN_MAX)
    }

    /// The questions to be sent now.
    pub fn take_requests(&self) -> Vec<NeighbourRequest> {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Forgets the neighbours for which `lasts` is false, and those that have been silent; which.
    pub fn retain(&self, lasts: impl Fn(&str) -> bool, now_ms: u64) -> Vec<NeighbourKey> {
        let goes = |(bridge, _): &NeighbourKey, known: &mut Known| !lasts(bridge) || known.expires_ms <= now_ms;
        let mut known = self.known.write();
        known.extract_if(.., goes).map(|(key, _)| key).collect()
    }

    /// Forgets all of them.
    pub fn flush(&self) {
        self.known.write().clear();
        self.asked.lock().clear();
    }

    /// How long neighbours are known, ms.
    pub fn age_ms(&self) -> u64 {
        self.age_ms.load(Relaxed)
    }

    /// Changes how long neighbours are known that show themselves from now on.
    pub fn set_age_ms(&self, age_ms: u64) {
        self.age_ms.store(age_ms, Relaxed);
    }

    /// `tnl/neigh/show`.
    pub fn show(&self, now_ms: u64) -> String {
        let mut out = format!("{:<46}{:<20}Bridge\n{}\n", "IP", "MAC", "=".repeat(74));
        for ((bridge, ip), known) in self.known.read().iter() {
            let stale = if known.expires_ms <= now_ms { " STALE" } else { "" };
            let _ = writeln!(out, "{:<46}{}   {bridge}{stale}", address(*ip), known.mac);
        }
        out
    }
}

/// Forgets an eighth of what the bridge with most neighbours may have: those that have been silent for longest. One whose
/// hosts make addresses up loses its own; what a tunnel needs is asked for again.
fn evict(known: &mut BTreeMap<NeighbourKey, Known>) {
    let mut of_bridges = BTreeMap::<&str, usize>::new();
    known.keys().for_each(|(bridge, _)| *of_bridges.entry(bridge).or_default() += 1);
    let Some((fullest, _)) = of_bridges.into_iter().max_by_key(|(_, count)| *count) else { return };
    let mut silent: Vec<(u64, NeighbourKey)> =
        known.iter().filter(|((bridge, _), _)| bridge == fullest).map(|(key, k)| (k.expires_ms, key.clone())).collect();
    silent.sort_unstable();
    silent.iter().take(KNOWN_MAX / 8).for_each(|(_, key)| _ = known.remove(key));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(n: u128) -> NeighbourRequest {
        let (bridge, device) = ("br0".to_owned(), "br0".to_owned());
        NeighbourRequest { bridge, device, mac: Mac([2; 6]), src: Ipv6Addr::LOCALHOST, target: Ipv6Addr::from_bits(n) }
    }

    #[test]
    fn a_neighbour_is_known_until_it_has_been_silent() {
        let (neighbours, key, mac) = (Neighbours::default(), ("br0".to_owned(), Ipv6Addr::LOCALHOST), Mac([1; 6]));
        assert!(neighbours.set(key.clone(), mac, 0) && !neighbours.set(key.clone(), mac, 10));
        assert_eq!(neighbours.lookup("br0", key.1, 20), Some(mac));
        assert_eq!((neighbours.lookup("br1", key.1, 20), neighbours.lookup("br0", key.1, AGE_MS + 10)), (None, None));
        assert!(!neighbours.needs(&key, mac, 20) && neighbours.needs(&key, Mac([3; 6]), 20));
        assert!(
            neighbours.show(0).ends_with("::1                                           01:01:01:01:01:01   br0\n")
        );
        assert_eq!(neighbours.retain(|_| true, 20), []);
        assert_eq!(neighbours.retain(|bridge| bridge != "br0", 20), [key]);
        assert_eq!(neighbours.retain(|_| false, 20), []);
    }

    #[test]
    fn a_flood_of_unknown_neighbours_is_asked_for_in_part() {
        let neighbours = Neighbours::default();
        (0..10_000).for_each(|n| neighbours.ask(request(n), 5));
        assert_eq!(neighbours.take_requests().len(), ASKED_MAX);
        neighbours.ask(request(0), 6);
        assert!(neighbours.take_requests().is_empty(), "asked a moment ago");
        neighbours.ask(request(0), 5 + ASK_EVERY_MS);
        assert_eq!(neighbours.take_requests(), [request(0)]);
    }

    #[test]
    fn a_bridge_whose_hosts_make_addresses_up_loses_its_own_neighbours() {
        let neighbours = Neighbours::default();
        let set = |bridge: &str, n| neighbours.set((bridge.to_owned(), Ipv6Addr::from_bits(n)), Mac([1; 6]), n as u64);
        (0..100).for_each(|n| _ = set("br1", n));
        let before = Limit::Neighbours.count();
        for n in 0..3 * KNOWN_MAX as u128 {
            assert!(set("br0", n) && neighbours.known.read().len() <= KNOWN_MAX);
        }
        assert!(Limit::Neighbours.count() > before);
        let known = |bridge: &str, n| neighbours.lookup(bridge, Ipv6Addr::from_bits(n), 0).is_some();
        assert!((0..100).all(|n| known("br1", n)));
        assert!(known("br0", 3 * KNOWN_MAX as u128 - 1) && !known("br0", 0), "the oldest go first");
    }
}

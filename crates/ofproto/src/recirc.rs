//! Frozen translations: the state of a translation that stopped and goes on when its packet recirculates.
//!
//! Some actions need bytes that only the datapath can reach, such as the header after the last MPLS label. The rest of
//! the translation is then frozen under a recirculation id. When the packet comes back with that id, a new translation
//! resumes there. Equal states share an id, so that revalidation gets the same actions again, and so that packets
//! without a megaflow need few. After the last megaflow of an id is deleted, an equal state gets a new one, as in OVS.
//!
//! An id lives as long as an xlate cache holds it, and [`KEEP_MS`] longer for packets under way.
//!
//! Rules that copy packet fields into registers may need an id for each packet, so senders decide how many there are.
//! When seven eighths are in use, a port that has more than its share (an equal part for each port that has any, and for
//! one more) gets no new ones. Its packets are dropped by name, and the drop is not cached: it lasts as long as the shortage.

use crate::bridge_config::BridgeId;
use crate::mirror::MirrorMask;
use crate::tunnel::Tunnel;
use parking_lot::{Mutex, MutexGuard};
use sluice_fate::Limit;
use sluice_flow::{FieldValue, Line, OfPort};
use sluice_ofp::OfAction;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How long an id lives that no xlate cache holds, milliseconds.
const KEEP_MS: u64 = 10_000;
/// How long an id that is in use is not looked at again, milliseconds.
const LOOK_AGAIN_MS: u64 = 1000;
/// Recirculation ids, at most; a state of more than [`UNIT`] bytes counts as several. They take about 128 MiB then.
const MAX_IDS: usize = 1 << 18;
/// Bytes of a state that count as one id.
const UNIT: usize = 1024;
/// How often a dropped id is looked at: dumps of the revalidator.
const UNSHARE_TRIES: u8 = 4;
/// Ids that one call of [`Recirculations::expire`] looks at, and under one hold of the lock, which PMDs take, too.
const EXPIRE_BUDGET: usize = 16_384;
const EXPIRE_AT_ONCE: usize = 256;

/// The table and the cookie that later actions report in messages to controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Restore {
    pub table: u8,
    pub cookie: u64,
}

/// The actions that are left, and where the table and the cookie change among them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FrozenActions {
    pub actions: Vec<OfAction>,
    /// The index of an action, and what holds from there on.
    pub restores: Vec<(usize, Restore)>,
}

/// A value on the stack of `push` and `pop`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StackValue {
    pub value: FieldValue,
    pub n_bytes: u32,
}

/// The state of a translation that stopped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Frozen {
    pub bridge: BridgeId,
    /// The table to search if no actions are left.
    pub table: u8,
    pub in_port: OfPort,
    pub tunnel: Tunnel,
    pub registers: Line,
    pub metadata: u64,
    /// The packet's queue. Keys of packets lack it, so the state alone tells the next pass.
    pub queue: u32,
    pub stack: Vec<StackValue>,
    pub was_mpls: bool,
    /// Whether the fields of its connection are valid.
    pub conntracked: bool,
    /// The bridge's mirrors that have a copy of the packet.
    pub mirrors: MirrorMask,
    pub actions: FrozenActions,
    pub action_set: Vec<OfAction>,
    pub userdata: Vec<u8>,
    /// The bond that the packet leaves by; then nothing else of the state counts.
    pub bond: Option<u32>,
}

/// A frozen translation and its id.
#[derive(Debug)]
pub(crate) struct Recirculation {
    pub id: u32,
    pub frozen: Arc<Frozen>,
}

/// The port by which a packet came in: whose share its ids count for.
pub(crate) type Ingress = (BridgeId, OfPort);

/// All frozen translations.
#[derive(Debug)]
pub(crate) struct Recirculations {
    ids: Mutex<RecircIds>,
    max: usize,
}

impl Default for Recirculations {
    fn default() -> Self {
        Recirculations { ids: Mutex::default(), max: MAX_IDS }
    }
}

#[derive(Debug, Default)]
struct RecircIds {
    last: u32,
    by_id: HashMap<u32, RecircEntry>,
    /// The id of each state. The states are shared with `by_id`.
    by_state: HashMap<Arc<Frozen>, u32>,
    /// What the ids of each port count.
    shares: HashMap<Ingress, usize>,
    /// What all ids count.
    used: usize,
    /// The ids to look at, with the time; in order of time each: new ones, and those that were in use.
    new: VecDeque<(u64, u32)>,
    in_use: VecDeque<(u64, u32)>,
    /// Ids that a dropped xlate cache held, and how often to look whether another one does: a deleted megaflow's goes
    /// when no PMD can see it.
    dropped: VecDeque<(u32, u8)>,
}

#[derive(Debug)]
struct RecircEntry {
    recirculation: Arc<Recirculation>,
    used_ms: u64,
    ingress: Ingress,
    units: usize,
}

impl Frozen {
    /// The state of packets that leave by the bond of that number.
    pub fn of_bond(bridge: BridgeId, id: u32) -> Self {
        Frozen {
            bridge,
            table: 0,
            in_port: OfPort::NONE,
            tunnel: Tunnel::NONE,
            registers: Line::ZERO,
            queue: 0,
            metadata: 0,
            stack: Vec::new(),
            was_mpls: false,
            conntracked: false,
            mirrors: 0,
            actions: FrozenActions::default(),
            action_set: Vec::new(),
            userdata: Vec::new(),
            bond: Some(id),
        }
    }

    /// What it counts against [`MAX_IDS`].
    fn units(&self) -> usize {
        let actions = (self.actions.actions.len() + self.action_set.len()) * size_of::<OfAction>();
        let others = self.stack.len() * size_of::<StackValue>() + self.userdata.len();
        (size_of::<Frozen>() + actions + others).div_ceil(UNIT)
    }
}

impl Recirculations {
    /// What the ids count, and the most that they may.
    pub fn usage(&self) -> (usize, usize) {
        (self.ids.lock().used, self.max)
    }

    /// Locks the ids.
    pub fn lock(&self) -> LockedIds<'_> {
        LockedIds { ids: self.ids.lock(), max: self.max }
    }

    /// Locks the ids if nobody else has.
    pub fn try_lock(&self) -> Option<LockedIds<'_>> {
        Some(LockedIds { ids: self.ids.try_lock()?, max: self.max })
    }

    /// The id of a state; see [`LockedIds::freeze`].
    pub fn freeze(&self, frozen: Frozen, ingress: Ingress, now_ms: u64) -> Option<Arc<Recirculation>> {
        self.lock().freeze(frozen, ingress, now_ms)
    }

    /// The state of an id.
    pub fn thaw(&self, id: u32, now_ms: u64) -> Option<Arc<Recirculation>> {
        self.lock().thaw(id, now_ms)
    }

    /// Notes that an xlate cache that holds these ids is dropped, or will be soon.
    pub fn note_dropped(&self, ids: impl Iterator<Item = u32>) {
        let mut ids = ids.peekable();
        if ids.peek().is_some() {
            self.ids.lock().dropped.extend(ids.map(|id| (id, UNSHARE_TRIES)));
        }
    }

    /// Lets states that no xlate cache holds be shared no more, of those that were noted. In pieces, as
    /// [`Recirculations::expire`].
    pub fn unshare(&self) {
        let mut left = self.ids.lock().dropped.len();
        while left > 0 {
            let n = left.min(EXPIRE_AT_ONCE);
            self.ids.lock().unshare_some(n);
            left -= n;
        }
    }

    /// Removes states that no xlate cache holds. A bounded part of the work a call, in pieces, so that PMDs do not wait.
    pub fn expire(&self, now_ms: u64) {
        for _ in 0..EXPIRE_BUDGET / EXPIRE_AT_ONCE {
            if self.ids.lock().expire_some(now_ms) < EXPIRE_AT_ONCE {
                return;
            }
        }
    }

    /// Number of ids.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.ids.lock().by_id.len()
    }
}

/// The ids, locked.
pub(crate) struct LockedIds<'a> {
    ids: MutexGuard<'a, RecircIds>,
    max: usize,
}

impl LockedIds<'_> {
    /// The id of a state: that of an equal state, or a new one. `None` if the port may have no more.
    pub fn freeze(&mut self, frozen: Frozen, ingress: Ingress, now_ms: u64) -> Option<Arc<Recirculation>> {
        let LockedIds { ids, max } = self;
        if let Some(id) = ids.by_state.get(&frozen).copied() {
            let found = ids.by_id.get_mut(&id)?;
            found.used_ms = now_ms;
            return Some(Arc::clone(&found.recirculation));
        }
        let units = frozen.units();
        if !ids.has_room(ingress, units, *max) {
            Limit::RecircIds.hit();
            return None;
        }
        ids.make_room(*max);
        Some(ids.add(frozen, ingress, units, now_ms))
    }

    /// The state of an id.
    pub fn thaw(&mut self, id: u32, now_ms: u64) -> Option<Arc<Recirculation>> {
        let found = self.ids.by_id.get_mut(&id)?;
        found.used_ms = now_ms;
        Some(Arc::clone(&found.recirculation))
    }
}

impl RecircIds {
    fn has_room(&self, ingress: Ingress, units: usize, max: usize) -> bool {
        let used = self.used + units;
        let own = self.shares.get(&ingress).copied().unwrap_or(0);
        let ports = self.shares.len() + usize::from(own == 0);
        used <= max - max / 8 || used <= max && own + units <= max / (ports + 1)
    }

    /// Reserves memory for all ids when the first one comes, in pages that are provided when first written: a table that
    /// grew later would hold up a PMD. With twice the room it never grows to remove traces of deletions.
    fn make_room(&mut self, max: usize) {
        if self.by_id.capacity() == 0 {
            self.by_id.reserve(2 * max);
            self.by_state.reserve(2 * max);
        }
    }

    fn add(&mut self, frozen: Frozen, ingress: Ingress, units: usize, now_ms: u64) -> Arc<Recirculation> {
        let id = loop {
            self.last = self.last.wrapping_add(1).max(1);
            if !self.by_id.contains_key(&self.last) {
                break self.last;
            }
        };
        let frozen = Arc::new(frozen);
        let recirculation = Arc::new(Recirculation { id, frozen: Arc::clone(&frozen) });
        let entry = RecircEntry { recirculation: Arc::clone(&recirculation), used_ms: now_ms, ingress, units };
        self.by_id.insert(id, entry);
        self.by_state.insert(frozen, id);
        *self.shares.entry(ingress).or_default() += units;
        self.used += units;
        self.new.push_back((now_ms + KEEP_MS, id));
        recirculation
    }

    /// Looks at some ids that are due; returns how many.
    fn expire_some(&mut self, now_ms: u64) -> usize {
        for n in 0..EXPIRE_AT_ONCE {
            let is_due = |queue: &VecDeque<(u64, u32)>| queue.front().is_some_and(|(at_ms, _)| *at_ms <= now_ms);
            let queue = if is_due(&self.new) { &mut self.new } else { &mut self.in_use };
            let Some((_, id)) = queue.pop_front_if(|(at_ms, _)| *at_ms <= now_ms) else { return n };
            let Some(entry) = self.by_id.get(&id) else { continue };
            if Arc::strong_count(&entry.recirculation) > 1 || entry.used_ms + KEEP_MS > now_ms {
                self.in_use.push_back((now_ms + LOOK_AGAIN_MS, id));
            } else {
                self.remove(id);
            }
        }
        EXPIRE_AT_ONCE
    }

    /// Looks at the first `n` ids that were noted.
    fn unshare_some(&mut self, n: usize) {
        for (id, tries) in self.dropped.drain(..n.min(self.dropped.len())).collect::<Vec<_>>() {
            let Some(entry) = self.by_id.get(&id) else { continue };
            if Arc::strong_count(&entry.recirculation) == 1 {
                let frozen = Arc::clone(&entry.recirculation.frozen);
                self.forget_state(&frozen, id);
            } else if tries > 0 {
                self.dropped.push_back((id, tries - 1));
            }
        }
    }

    /// Lets the next equal state have another id.
    fn forget_state(&mut self, frozen: &Frozen, id: u32) {
        if self.by_state.get(frozen) == Some(&id) {
            self.by_state.remove(frozen);
        }
    }

    fn remove(&mut self, id: u32) {
        let Some(RecircEntry { recirculation, ingress, units, .. }) = self.by_id.remove(&id) else { return };
        self.forget_state(&recirculation.frozen, id);
        self.used -= units;
        if let Some(own) = self.shares.get_mut(&ingress) {
            *own -= units;
            if *own == 0 {
                self.shares.remove(&ingress);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(table: u8) -> Frozen {
        Frozen { table, in_port: OfPort(1), bond: None, ..Frozen::of_bond(BridgeId(0), 0) }
    }

    const PORT: Ingress = (BridgeId(0), OfPort(1));
    const OTHER: Ingress = (BridgeId(0), OfPort(2));

    /// A state of its own for each number.
    fn numbered(n: u64) -> Frozen {
        Frozen { metadata: n, ..state(1) }
    }

    #[test]
    fn equal_states_share_an_id() {
        let all = Recirculations::default();
        let a = all.freeze(state(1), PORT, 0).unwrap();
        let b = all.freeze(state(1), OTHER, 0).unwrap();
        let c = all.freeze(state(2), PORT, 0).unwrap();
        assert_eq!((a.id, b.id, c.id), (1, 1, 2));
        assert_eq!(*all.thaw(2, 0).unwrap().frozen, state(2));
        assert!(all.thaw(3, 0).is_none());
    }

    #[test]
    fn an_id_that_nothing_holds_is_shared_until_xlate_caches_were_dropped() {
        let all = Recirculations::default();
        let id = |table, ingress| all.freeze(state(table), ingress, 0).unwrap().id;
        let held = all.freeze(state(1), PORT, 0).unwrap();
        assert_eq!([1, 2, 2].map(|table| id(table, PORT)), [1, 2, 2]);
        all.note_dropped([1, 2].into_iter());
        all.unshare();
        assert_eq!([1, 2].map(|table| id(table, PORT)), [held.id, 3]);
        assert_eq!(*all.thaw(2, 0).unwrap().frozen, state(2), "packets under way find it");
        // The first one is dropped later than it was noted.
        drop(held);
        all.unshare();
        assert_eq!(id(1, PORT), 4);
        // When the old ids expire, the new ones stay shared.
        let newer = [1, 2].map(|table| all.freeze(state(table), PORT, KEEP_MS).unwrap());
        all.expire(KEEP_MS);
        assert_eq!((all.len(), [1, 2].map(|table| id(table, PORT))), (2, newer.map(|newer| newer.id)));
    }

    #[test]
    fn an_id_lives_while_somebody_holds_it_and_a_little_longer() {
        let all = Recirculations::default();
        let held = all.freeze(state(1), PORT, 0).unwrap();
        drop(all.freeze(state(2), PORT, 0));
        all.expire(KEEP_MS - 1);
        assert_eq!(all.len(), 2);
        all.expire(KEEP_MS);
        assert_eq!(all.len(), 1);
        drop(held);
        all.expire(KEEP_MS + LOOK_AGAIN_MS);
        assert_eq!(all.len(), 0);
        assert_ne!(all.freeze(state(1), PORT, 0).unwrap().id, 1, "an id is not used again at once");
    }

    #[test]
    fn a_port_that_takes_many_leaves_others_their_share() {
        let all = Recirculations { max: 80, ..Recirculations::default() };
        let taken =
            |from: u64, ingress| (from..from + 200).filter(|n| all.freeze(numbered(*n), ingress, 0).is_some()).count();
        assert_eq!(taken(0, PORT), 70, "a port that is alone leaves the next one an eighth");
        all.expire(KEEP_MS);
        let held: Vec<_> = (0..70).filter_map(|n| all.freeze(numbered(n), PORT, KEEP_MS)).collect();
        assert_eq!((held.len(), taken(1000, OTHER)), (70, 10));
        assert_eq!(taken(2000, PORT), 0);
        // The attacker's ids go when nothing holds them. Then the other port has its half.
        drop(held);
        let later = 3 * KEEP_MS;
        all.expire(later);
        assert_eq!(taken(3000, OTHER), 70);
        assert_eq!(all.ids.lock().shares.len(), 1);
    }

    /// Not the number of ids alone takes memory.
    #[test]
    fn a_large_state_counts_as_many() {
        let all = Recirculations { max: 80, ..Recirculations::default() };
        let large = |n: u64| Frozen { userdata: vec![0; 20 << 10], ..numbered(n) };
        assert_eq!((0..200).filter(|n| all.freeze(large(*n), PORT, 0).is_some()).count(), 3);
        assert!(all.freeze(numbered(7), OTHER, 0).is_some());
    }

    /// Many ids that are in use take no longer a call than the budget says, and none is forgotten.
    #[test]
    fn expiry_is_done_in_parts() {
        let all = Recirculations::default();
        let n = EXPIRE_BUDGET + EXPIRE_AT_ONCE;
        (0..n as u64).for_each(|n| drop(all.freeze(numbered(n), PORT, 0)));
        all.expire(KEEP_MS);
        assert_eq!(all.len(), EXPIRE_AT_ONCE);
        all.expire(KEEP_MS);
        let ids = all.ids.lock();
        assert_eq!((ids.by_id.len(), ids.used, ids.by_state.len()), (0, 0, 0));
    }
}

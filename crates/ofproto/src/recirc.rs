//! Frozen translations: the state of a translation that stopped and goes on when its packet recirculates.
//!
//! Some actions need bytes that only the datapath can reach, such as the header after the last MPLS label. The rest of
//! the translation is then frozen under a recirculation id. When the packet comes back with that id, a new translation
//! resumes there. Equal states share an id, so that revalidation gets the same actions again, and so that packets
//! without a megaflow need few. After the last megaflow of an id is deleted, an equal state gets a new one, as in OVS.
//!
//! An id lives as long as an xlate cache holds it, and [`KEEP_MS`] longer for packets under way.

use crate::bridge_config::BridgeId;
use crate::tunnel::Tunnel;
use parking_lot::Mutex;
use sluice_flow::{Line, OfPort};
use sluice_ofp::OfAction;
use std::collections::HashMap;
use std::sync::Arc;

/// How long an id lives that no xlate cache holds, milliseconds.
const KEEP_MS: u64 = 10_000;
/// Recirculation ids, at most. Rules that copy packet fields into registers could otherwise need one for each packet.
const MAX_IDS: usize = 1 << 16;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StackValue {
    pub value: u128,
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
    pub stack: Vec<StackValue>,
    pub was_mpls: bool,
    /// Whether the fields of its connection are valid.
    pub conntracked: bool,
    pub actions: FrozenActions,
    pub action_set: Vec<OfAction>,
    pub userdata: Vec<u8>,
}

/// A frozen translation and its id.
#[derive(Debug)]
pub(crate) struct Recirculation {
    pub id: u32,
    pub frozen: Arc<Frozen>,
}

/// All frozen translations.
#[derive(Debug, Default)]
pub(crate) struct Recirculations(Mutex<RecircIds>);

#[derive(Debug, Default)]
struct RecircIds {
    last: u32,
    by_id: HashMap<u32, (Arc<Recirculation>, u64)>,
    /// The id of each state. The states are shared with `by_id`.
    by_state: HashMap<Arc<Frozen>, u32>,
}

impl Recirculations {
    /// The id of a state: that of an equal state, or a new one. `None` if there are too many.
    pub fn freeze(&self, frozen: Frozen, now_ms: u64) -> Option<Arc<Recirculation>> {
        let mut ids = self.0.lock();
        if let Some(id) = ids.by_state.get(&frozen).copied() {
            let (found, used_ms) = ids.by_id.get_mut(&id)?;
            *used_ms = now_ms;
            return Some(Arc::clone(found));
        }
        if ids.by_id.len() >= MAX_IDS {
            return None;
        }
        let id = loop {
            ids.last = ids.last.wrapping_add(1).max(1);
            if !ids.by_id.contains_key(&ids.last) {
                break ids.last;
            }
        };
        let frozen = Arc::new(frozen);
        let made = Arc::new(Recirculation { id, frozen: Arc::clone(&frozen) });
        ids.by_id.insert(id, (Arc::clone(&made), now_ms));
        ids.by_state.insert(frozen, id);
        Some(made)
    }

    /// The state of an id.
    pub fn thaw(&self, id: u32, now_ms: u64) -> Option<Arc<Recirculation>> {
        let mut ids = self.0.lock();
        let (found, used_ms) = ids.by_id.get_mut(&id)?;
        *used_ms = now_ms;
        Some(Arc::clone(found))
    }

    /// Lets states that no xlate cache holds be shared no more. To be called after xlate caches were dropped.
    pub fn unshare(&self) {
        let RecircIds { by_id, by_state, .. } = &mut *self.0.lock();
        by_state.retain(|_, id| by_id.get(id).is_some_and(|(r, _)| Arc::strong_count(r) > 1));
    }

    /// Removes states that no xlate cache holds.
    pub fn expire(&self, now_ms: u64) {
        let RecircIds { by_id, by_state, .. } = &mut *self.0.lock();
        by_id.retain(|_, (r, used_ms)| Arc::strong_count(r) > 1 || *used_ms + KEEP_MS > now_ms);
        by_state.retain(|_, id| by_id.contains_key(id));
    }

    /// Number of ids.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.lock().by_id.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(table: u8) -> Frozen {
        Frozen {
            bridge: BridgeId(0),
            table,
            in_port: OfPort(1),
            tunnel: Tunnel::NONE,
            registers: Line::ZERO,
            metadata: 0,
            stack: Vec::new(),
            was_mpls: false,
            conntracked: false,
            actions: FrozenActions::default(),
            action_set: Vec::new(),
            userdata: Vec::new(),
        }
    }

    #[test]
    fn equal_states_share_an_id() {
        let all = Recirculations::default();
        let a = all.freeze(state(1), 0).unwrap();
        let b = all.freeze(state(1), 0).unwrap();
        let c = all.freeze(state(2), 0).unwrap();
        assert_eq!((a.id, b.id, c.id), (1, 1, 2));
        assert_eq!(*all.thaw(2, 0).unwrap().frozen, state(2));
        assert!(all.thaw(3, 0).is_none());
    }

    #[test]
    fn an_id_that_nothing_holds_is_shared_until_xlate_caches_were_dropped() {
        let all = Recirculations::default();
        let held = all.freeze(state(1), 0).unwrap();
        assert_eq!([1, 2, 2].map(|table| all.freeze(state(table), 0).unwrap().id), [1, 2, 2]);
        all.unshare();
        assert_eq!([1, 2].map(|table| all.freeze(state(table), 0).unwrap().id), [held.id, 3]);
        assert_eq!(*all.thaw(2, 0).unwrap().frozen, state(2), "packets under way find it");
    }

    #[test]
    fn an_id_lives_while_somebody_holds_it_and_a_little_longer() {
        let all = Recirculations::default();
        let held = all.freeze(state(1), 0).unwrap();
        drop(all.freeze(state(2), 0));
        all.expire(KEEP_MS - 1);
        assert_eq!(all.len(), 2);
        all.expire(KEEP_MS);
        assert_eq!(all.len(), 1);
        drop(held);
        all.expire(KEEP_MS);
        assert_eq!(all.len(), 0);
        assert_ne!(all.freeze(state(1), 0).unwrap().id, 1, "an id is not used again at once");
    }
}

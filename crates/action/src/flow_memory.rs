//! The memory that megaflows take, in bytes, and its bound.
//!
//! Two owners charge one account: the store charges records, the tables charge xlate caches. The store asks before it
//! installs a megaflow; the revalidator evicts when little is left. What a translation needs for a moment is charged as
//! well, so the account may pass its bound by the translations under way, one a PMD.

use crate::{Action, Ct, MaskedField, SFlowAction};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The account. Changed once a translation and once an installation, by any thread.
#[derive(Debug)]
pub struct FlowMemory {
    used: AtomicU64,
    limit: AtomicU64,
}

impl Default for FlowMemory {
    /// Without a bound.
    fn default() -> Self {
        FlowMemory::new(u64::MAX)
    }
}

impl FlowMemory {
    /// An empty account of at most `limit` bytes.
    pub fn new(limit: u64) -> Self {
        FlowMemory { used: 0.into(), limit: limit.into() }
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// The bound.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Changes the bound.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
    }

    /// Whether `bytes` more fit.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.used().saturating_add(bytes) <= self.limit()
    }

    /// Whether more than seven eighths are in use.
    pub fn is_nearly_full(&self) -> bool {
        let limit = self.limit();
        self.used() > limit - limit / 8
    }

    /// Charges bytes, whatever the bound.
    pub fn add(&self, bytes: u64) {
        self.used.fetch_add(bytes, Relaxed);
    }

    /// Takes a charge back.
    pub fn sub(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
    }
}

/// A charge to an account, taken back when it is dropped.
#[derive(Debug, Default)]
pub struct FlowCharge {
    memory: Option<Arc<FlowMemory>>,
    bytes: u64,
}

impl FlowCharge {
    /// Charges bytes to an account, if there is one.
    pub fn new(memory: Option<&Arc<FlowMemory>>, bytes: u64) -> Self {
        if let Some(memory) = memory {
            memory.add(bytes);
        }
        FlowCharge { memory: memory.cloned(), bytes }
    }

    /// Whether it charges no account.
    pub fn is_unbound(&self) -> bool {
        self.memory.is_none()
    }

    /// What it charges.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Charges another number of bytes instead.
    pub fn set(&mut self, bytes: u64) {
        if let Some(memory) = &self.memory {
            memory.add(bytes);
            memory.sub(self.bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for FlowCharge {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.sub(self.bytes);
        }
    }
}

/// What an allocation takes beside its content: counts of references, the allocator's header and rounding.
pub const ALLOCATION_BYTES: usize = 32;

/// The memory of an action list, with the lists in it.
pub fn actions_bytes(actions: &[Action]) -> usize {
    ALLOCATION_BYTES + actions.iter().map(|action| size_of::<Action>() + further_bytes(action)).sum::<usize>()
}

/// What an action keeps outside its list.
fn further_bytes(action: &Action) -> usize {
    match action {
        Action::Set { fields, .. } => ALLOCATION_BYTES + size_of::<MaskedField>() * fields.len(),
        Action::Ct(_) => ALLOCATION_BYTES + size_of::<Ct>(),
        Action::Clone(actions) | Action::Sample { actions, .. } => actions_bytes(actions),
        Action::CheckPktLen { greater, less_or_equal, .. } => actions_bytes(greater) + actions_bytes(less_or_equal),
        Action::SFlow(_) => 2 * ALLOCATION_BYTES + size_of::<SFlowAction>(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_change_and_end() {
        let memory = Arc::new(FlowMemory::new(1000));
        let mut charge = FlowCharge::new(Some(&memory), 600);
        assert!(memory.has_room(400) && !memory.has_room(401) && !memory.is_nearly_full());
        charge.set(900);
        assert_eq!((memory.used(), charge.bytes(), memory.is_nearly_full()), (900, 900, true));
        drop(charge);
        assert_eq!(memory.used(), 0);
    }
}

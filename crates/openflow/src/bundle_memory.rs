//! The memory of bundles that are not committed, over all connections.
//!
//! When seven eighths are in use, a connection that has more than its share (an equal part for each connection that has
//! any, and one for the next) gets no more.

use sluice_fate::Limit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of the bundles of all connections at most: more than two million flow-mods.
pub const BUNDLE_MEMORY: usize = 256 << 20;

/// The memory that bundles take, and its bound.
#[derive(Debug)]
pub struct BundleMemory {
    limit: AtomicUsize,
    used: AtomicUsize,
    /// Connections with bundles.
    connections: AtomicUsize,
}

impl Default for BundleMemory {
    fn default() -> Self {
        BundleMemory::new(BUNDLE_MEMORY)
    }
}

impl BundleMemory {
    /// Bundles may take `limit` bytes.
    pub fn new(limit: usize) -> Self {
        BundleMemory { limit: limit.into(), used: 0.into(), connections: 0.into() }
    }

    /// Changes the bound.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Relaxed);
    }

    /// Bytes in use, and the bound.
    pub fn usage(&self) -> (usize, usize) {
        (self.used.load(Relaxed), self.limit.load(Relaxed))
    }
}

/// A connection's part of the memory. Dropping it gives all back.
#[derive(Debug, Default)]
pub(crate) struct BundleShare {
    memory: Arc<BundleMemory>,
    bytes: usize,
}

impl BundleShare {
    /// No bytes of that memory.
    pub fn new(memory: Arc<BundleMemory>) -> Self {
        BundleShare { memory, bytes: 0 }
    }

    /// Takes bytes; whether it may.
    pub fn take(&mut self, bytes: usize) -> bool {
        let memory = &*self.memory;
        let limit = memory.limit.load(Relaxed);
        let used = memory.used.fetch_add(bytes, Relaxed).saturating_add(bytes);
        let others = memory.connections.load(Relaxed) - usize::from(self.bytes != 0);
        let has_share = self.bytes + bytes <= limit / (others + 2);
        if used > limit || used > limit - limit / 8 && !has_share {
            memory.used.fetch_sub(bytes, Relaxed);
            Limit::BundleMemory.hit();
            return false;
        }
        if self.bytes == 0 && bytes != 0 {
            memory.connections.fetch_add(1, Relaxed);
        }
        self.bytes += bytes;
        true
    }

    /// Gives bytes back.
    pub fn give_back(&mut self, bytes: usize) {
        self.memory.used.fetch_sub(bytes, Relaxed);
        if self.bytes == bytes && bytes != 0 {
            self.memory.connections.fetch_sub(1, Relaxed);
        }
        self.bytes -= bytes;
    }
}

impl Drop for BundleShare {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_fills_the_memory_leaves_room_for_the_next() {
        let memory = Arc::new(BundleMemory::new(1600));
        let share = || BundleShare::new(Arc::clone(&memory));
        let (mut first, mut second) = (share(), share());
        let before = Limit::BundleMemory.count();
        assert!(first.take(1400) && !first.take(1));
        assert!(Limit::BundleMemory.count() > before);
        assert!(second.take(200) && !second.take(1), "all of it is in use");
        drop(first);
        assert!(second.take(1200) && !second.take(1));
        second.give_back(1400);
        assert_eq!((memory.usage(), memory.connections.load(Relaxed)), ((0, 1600), 0));
    }
}

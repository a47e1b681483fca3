//! Memory that connections share: that of their bundles, or of their packets that wait.
//!
//! Peers on the network have half of it at most, so that the owner always has room.

use sluice_fate::{Limit, MemoryShare, SharedMemory};
use std::sync::Arc;

/// Memory that connections share, and its bound.
#[derive(Debug)]
pub struct ConnMemory {
    all: Arc<SharedMemory>,
    peers: Arc<SharedMemory>,
}

impl ConnMemory {
    /// `limit` bytes; `bound` counts what is refused.
    pub fn new(bound: Limit, limit: usize) -> Self {
        let all = Arc::new(SharedMemory::new(bound, limit));
        ConnMemory { peers: Arc::new(SharedMemory::part_of(&all, limit / 2)), all }
    }

    /// Changes the bound.
    pub fn set_limit(&self, limit: usize) {
        self.all.set_limit(limit);
        self.peers.set_limit(limit / 2);
    }

    /// Bytes in use, and the bound.
    pub fn usage(&self) -> (usize, usize) {
        self.all.usage()
    }

    /// The share of a connection: of one of the owner's (a controller of a bridge, or a client of its management
    /// socket), or of another peer.
    pub fn share(&self, is_owners: bool) -> MemoryShare {
        MemoryShare::new(Arc::clone(if is_owners { &self.all } else { &self.peers }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_that_fill_their_part_leave_the_owner_as_much() {
        let memory = ConnMemory::new(Limit::BundleMemory, 1600);
        let (first, second, owner) = (memory.share(false), memory.share(false), memory.share(true));
        assert!(first.take(700) && second.take(100) && !second.take(1));
        assert!(owner.take(800) && !owner.take(1));
        drop((first, second));
        assert_eq!(memory.usage(), (800, 1600));
        assert!(owner.take(600), "the owner may have all that it leaves for others");
        memory.set_limit(0);
        assert!(!memory.share(false).take(1) && !memory.share(true).take(1));
    }
}

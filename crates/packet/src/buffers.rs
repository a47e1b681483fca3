//! One PMD's view of all packet pools.

use crate::Packet;
use sluice_mem::{FramePool, Frames, PoolId};
use std::sync::Arc;

/// One PMD's way to every pool: takes and gives frames in batches, by pool id. Not shared between threads.
#[derive(Default)]
pub struct Buffers {
    /// By `PoolId`; a pool that has gone leaves a hole.
    pools: Vec<Option<Arc<dyn FramePool>>>,
    /// Frames on their way back, by pool, until a batch is full or `flush` is called.
    returning: Vec<Frames>,
}

impl Buffers {
    /// Knows no pool yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes `pool` known, replacing one of the same id.
    pub fn add_pool(&mut self, pool: Arc<dyn FramePool>) {
        let at = usize::from(pool.id().0);
        if self.pools.len() <= at {
            self.pools.resize_with(at + 1, || None);
            self.returning.resize_with(at + 1, Frames::new);
        }
        self.pools[at] = Some(pool);
    }

    /// The pool of that id.
    pub fn pool(&self, id: PoolId) -> Option<&Arc<dyn FramePool>> {
        self.pools.get(usize::from(id.0))?.as_ref()
    }

    /// Gives packets back to their pools.
    pub fn give(&mut self, packets: impl Iterator<Item = Packet>) {
        for packet in packets {
            let at = usize::from(packet.frame.pool().0);
            let Some(returning) = self.returning.get_mut(at) else { continue };
            if returning.is_full()
                && let Some(pool) = &self.pools[at]
            {
                pool.give(returning);
            }
            returning.push(packet.frame);
        }
    }

    /// Hands every frame still on its way back to its pool.
    pub fn flush(&mut self) {
        for (returning, pool) in self.returning.iter_mut().zip(&self.pools) {
            if let Some(pool) = pool
                && !returning.is_empty()
            {
                pool.give(returning);
            }
        }
    }
}

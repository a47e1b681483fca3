//! The packet pools of the process, by frame length.

use sluice_mem::{FramePool, HeapPool, PoolConfig, PoolError};
use std::sync::Arc;

/// The pools that ports take their frames from: one for the ordinary MTU, one more for each longer one.
///
/// Ports share a pool where they can, so that packets cross between them without a copy.
#[derive(Debug)]
pub struct Pools {
    frames: usize,
    pools: Vec<Arc<HeapPool>>,
}

/// Part of a pool that is kept for receiving, and so not used for copies.
const RESERVE_SHARE: usize = 16;

impl Pools {
    /// No pool yet; each one to come will have `frames` frames.
    pub fn new(frames: usize) -> Self {
        Pools { frames, pools: Vec::new() }
    }

    /// The pool for packets of up to `size` bytes, made if there is none: at least for the ordinary MTU.
    pub fn of_size(&mut self, size: usize) -> Result<Arc<HeapPool>, PoolError> {
        if let Some(pool) = self.pools.iter().find(|pool| pool.frame_size() >= size) {
            return Ok(Arc::clone(pool));
        }
        let pool = Arc::new(HeapPool::new(PoolConfig {
            frames: self.frames,
            frame_size: size.max(PoolConfig::default().frame_size),
            reserve: self.frames / RESERVE_SHARE,
        })?);
        self.pools.push(Arc::clone(&pool));
        self.pools.sort_by_key(|pool| pool.frame_size());
        Ok(pool)
    }

    /// The pools there are, shortest frames first: to be logged, and for packets the switch makes itself.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<HeapPool>> {
        self.pools.iter()
    }
}

impl Default for Pools {
    fn default() -> Self {
        Pools::new(PoolConfig::default().frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_share_the_shortest_pool_that_fits() {
        let mut pools = Pools::new(32);
        let jumbo = pools.of_size(9022).unwrap();
        let ordinary = pools.of_size(1522).unwrap();
        assert_eq!(ordinary.id(), jumbo.id(), "a pool that fits is not doubled");
        let mut pools = Pools::new(32);
        let ordinary = pools.of_size(1522).unwrap();
        let jumbo = pools.of_size(9022).unwrap();
        assert_ne!(ordinary.id(), jumbo.id());
        assert_eq!(pools.of_size(100).unwrap().id(), ordinary.id());
        assert_eq!(pools.iter().count(), 2);
    }
}

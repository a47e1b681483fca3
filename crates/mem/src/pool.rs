//! The interface of packet buffer pools, and the ids that tell them apart.

use crate::{FrameLayout, FreeFrames};
use parking_lot::Mutex;

/// Which pool a frame belongs to: a small number, unique among live pools (see [`PoolTicket`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct PoolId(u16);

impl PoolId {
    /// The number as an index; the numbers in use are dense.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A pool's ownership of its [`PoolId`]. No other live pool has the same id, so the id in a frame names its pool.
///
/// Dropping the ticket frees the id. A pool that still has frames out must `mem::forget` it instead.
#[derive(Debug)]
pub struct PoolTicket(PoolId);

/// The numbers in use.
#[derive(Debug)]
struct PoolIds {
    taken: Vec<bool>,
}

static IDS: Mutex<PoolIds> = Mutex::new(PoolIds { taken: Vec::new() });

impl PoolTicket {
    /// Takes the lowest free id; `None` when all 65,536 are in use.
    pub fn draw() -> Option<Self> {
        let mut ids = IDS.lock();
        let free = ids.taken.iter().position(|taken| !taken).unwrap_or(ids.taken.len());
        let id = u16::try_from(free).ok()?;
        if free == ids.taken.len() {
            ids.taken.push(true);
        } else {
            ids.taken[free] = true;
        }
        Some(PoolTicket(PoolId(id)))
    }

    /// The number.
    pub fn id(&self) -> PoolId {
        self.0
    }
}

impl Drop for PoolTicket {
    fn drop(&mut self) {
        let mut ids = IDS.lock();
        ids.taken[self.0.index()] = false;
    }
}

/// A pool of packet buffers that several PMDs share. It is called for hundreds of frames at a time, never for one
/// packet.
///
/// A PMD keeps a cache of frames in front of it; [`FramePool::available`] does not count the frames in those caches.
pub trait FramePool: Send + Sync + std::fmt::Debug {
    /// Where its frames are in memory.
    fn layout(&self) -> FrameLayout;

    /// Which pool this is.
    fn id(&self) -> PoolId {
        self.layout().pool()
    }

    /// The longest packet that a frame can hold, behind the default headroom.
    fn frame_size(&self) -> usize {
        self.layout().frame_size()
    }

    /// Frames in all.
    fn capacity(&self) -> usize;

    /// Frames that are free now. Other threads change the number at any time.
    fn available(&self) -> usize;

    /// Frames kept for receiving: copies are refused when no more than these are free.
    fn reserve(&self) -> usize;

    /// What the library that it belongs to shows of it, if it belongs to one.
    fn dump(&self) -> Option<String> {
        None
    }

    /// Moves up to `n` frames into `out`, which must belong to this pool. Returns how many.
    fn take(&self, n: usize, out: &mut FreeFrames) -> usize;

    /// Takes back the `n` frames that have been in `frames` longest. Frames of another pool are leaked.
    fn give(&self, frames: &mut FreeFrames, n: usize);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_tickets_differ_and_dead_ones_are_drawn_again() {
        let tickets: Vec<_> = (0..10).map(|_| PoolTicket::draw().unwrap()).collect();
        let mut ids: Vec<_> = tickets.iter().map(|t| t.id()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 10);
        drop(tickets);
        // Other tests of this process draw too, so the exact ids are unknown; they stay small.
        for _ in 0..1000 {
            assert!(PoolTicket::draw().unwrap().id().index() < 500);
        }
    }
}

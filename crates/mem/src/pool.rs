//! What every pool of packet buffers can do, and how pools are told apart.

use crate::{FrameLayout, FreeFrames};
use std::sync::Mutex;

/// Which pool a frame belongs to: a small number, unique among the pools that live (see [`PoolTicket`]).
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

/// A pool's right to its [`PoolId`]: no other live pool has the same one, so a frame that names it is of this pool.
///
/// Dropping the ticket frees the number; a pool that still has frames out must `mem::forget` it instead.
#[derive(Debug)]
pub struct PoolTicket(PoolId);

/// The numbers in use.
#[derive(Debug)]
struct PoolIds {
    taken: Vec<bool>,
}

static IDS: Mutex<PoolIds> = Mutex::new(PoolIds { taken: Vec::new() });

impl PoolTicket {
    /// The lowest free number; `None` when all 65,536 are taken.
    pub fn draw() -> Option<Self> {
        let mut ids = IDS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
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
        let mut ids = IDS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        ids.taken[self.0.index()] = false;
    }
}

/// A source of packet buffers that several PMDs share. Called for hundreds of frames at a time, never for one packet.
///
/// A PMD keeps a cache of frames in front of it, so what [`FramePool::available`] says leaves those out.
pub trait FramePool: Send + Sync + std::fmt::Debug {
    /// Where its frames lie.
    fn layout(&self) -> FrameLayout;

    /// Which pool this is.
    fn id(&self) -> PoolId {
        self.layout().pool()
    }

    /// The longest packet one of its frames can hold, behind the default headroom.
    fn frame_size(&self) -> usize {
        self.layout().frame_size()
    }

    /// Frames in all.
    fn capacity(&self) -> usize;

    /// Frames free now; a moment later it may be another number.
    fn available(&self) -> usize;

    /// Frames kept for receiving: when no more than these are free, copies are refused.
    fn reserve(&self) -> usize;

    /// Puts up to `n` frames into `out`, which is for frames of this pool. Returns how many there were.
    fn take(&self, n: usize, out: &mut FreeFrames) -> usize;

    /// Takes back the `n` frames that were put into `frames` first. Those of another pool are left to leak.
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
        // Other tests of this process draw too, so the very numbers are not known; that they stay small is.
        for _ in 0..1000 {
            assert!(PoolTicket::draw().unwrap().id().index() < 500);
        }
    }
}

//! Free frames, stored as bare tokens, and how frame handles are made from them.

use crate::{Frame, PoolId};
use std::ptr::NonNull;

/// Where a pool's frames are in memory, and what a fresh frame looks like.
///
/// The packet of the fresh frame with token `t` starts at address `start + t * stride`. So a token is an index (our own
/// memory), or an address itself (a DPDK mbuf, stride 1).
#[derive(Clone, Copy, Debug)]
pub struct FrameLayout {
    start: usize,
    stride: usize,
    shape: Shape,
}

/// The parts of a frame handle other than its address and token. One word, copied as one.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Shape {
    pub(crate) len: u32,
    pub(crate) headroom: u16,
    pub(crate) pool: PoolId,
}

impl FrameLayout {
    /// The layout of the pool that holds the ticket for `pool`. Fresh frames have `frame_size` bytes.
    ///
    /// # Safety
    /// For each token that the pool ever puts into a [`FreeFrames`], the bytes from `headroom` before that address to
    /// `frame_size` behind it are one live, writable allocation of exposed provenance, of this token alone, which stays
    /// where it is until the pool has the token back.
    pub const unsafe fn new(start: usize, stride: usize, headroom: u16, frame_size: u32, pool: PoolId) -> Self {
        FrameLayout { start, stride, shape: Shape { len: frame_size, headroom, pool } }
    }

    /// The longest packet a fresh frame can hold.
    pub const fn frame_size(&self) -> usize {
        self.shape.len as usize
    }

    /// The pool it describes.
    pub const fn pool(&self) -> PoolId {
        self.shape.pool
    }
}

/// Free frames of one pool, last in, first out, since the last frame is the warmest in the cache.
///
/// Shape:  8 bytes a frame. Tokens rather than handles: adding and removing a frame are one load and one store of a
///         word, and a handle is always made afresh, whatever the last packet left behind.
#[derive(Debug)]
pub struct FreeFrames {
    layout: FrameLayout,
    /// The first `len` are in use. The vector is longer, so that adding a token is a plain store.
    tokens: Vec<u64>,
    len: usize,
}

impl FreeFrames {
    /// No frames yet, with room for `capacity`.
    pub fn new(layout: FrameLayout, capacity: usize) -> Self {
        FreeFrames { layout, tokens: vec![0; capacity], len: 0 }
    }

    /// The pool whose frames these are.
    #[inline]
    pub fn pool(&self) -> PoolId {
        self.layout.shape.pool
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The longest packet that a frame can hold.
    #[inline]
    pub fn frame_size(&self) -> usize {
        self.layout.frame_size()
    }

    /// Adds a frame. A frame of another pool is leaked, and panics in debug builds.
    #[inline]
    pub fn push(&mut self, frame: Frame) {
        debug_assert_eq!(frame.pool(), self.pool(), "a frame of another pool was given back");
        if frame.pool() == self.pool() {
            self.room(1)[0] = frame.token();
            self.len += 1;
        }
    }

    /// Adds frames, all of this pool. If one is not, all are leaked, and debug builds panic.
    #[inline]
    pub fn extend(&mut self, frames: impl ExactSizeIterator<Item = Frame>) {
        let (pool, mut strange, mut put) = (self.pool(), false, 0);
        for (slot, frame) in self.room(frames.len()).iter_mut().zip(frames) {
            // No branch for each frame; the result is checked once below.
            strange |= frame.pool() != pool;
            *slot = frame.token();
            put += 1;
        }
        debug_assert!(!strange, "a frame of another pool was given back");
        if !strange {
            self.len += put;
        }
    }

    /// Removes a frame. It is `frame_size` bytes long with unspecified content, behind the default headroom.
    #[inline]
    pub fn pop(&mut self) -> Option<Frame> {
        self.drain(1, self.layout.frame_size()).next()
    }

    /// Removes `n` frames, or all if there are fewer. Each is `size` bytes long, at most `frame_size`.
    #[inline]
    pub fn drain(&mut self, n: usize, size: usize) -> impl ExactSizeIterator<Item = Frame> + use<'_> {
        let from = self.len - n.min(self.len);
        let FrameLayout { start, stride, shape } = self.layout;
        let shape = Shape { len: size.min(self.layout.frame_size()) as u32, ..shape };
        let tokens = &self.tokens[from..self.len];
        // Frames that the iterator does not reach are leaked.
        self.len = from;
        tokens.iter().rev().map(move |token| {
            let data = std::ptr::with_exposed_provenance_mut(start + *token as usize * stride);
            // SAFETY: the token came from a frame of this pool that was consumed, or from the pool itself, so nobody
            // else has it; that a live allocation lies there is vouched for by `FrameLayout::new`.
            unsafe { Frame::fresh(NonNull::new_unchecked(data), shape, *token) }
        })
    }

    /// Adds a frame by its token.
    ///
    /// # Safety
    /// It is a token of this pool, and nobody else has it.
    #[inline]
    pub unsafe fn push_token(&mut self, token: u64) {
        self.room(1)[0] = token;
        self.len += 1;
    }

    /// Removes the tokens of the `n` frames that were added first, to give them back to the pool.
    pub fn drain_tokens(&mut self, n: usize) -> impl ExactSizeIterator<Item = u64> {
        let n = n.min(self.len);
        self.len -= n;
        self.tokens.drain(..n)
    }

    /// The slots of the next `n` tokens.
    #[inline]
    fn room(&mut self, n: usize) -> &mut [u64] {
        if self.tokens.len() - self.len < n {
            self.tokens.resize((self.len + n).next_power_of_two(), 0);
        }
        &mut self.tokens[self.len..self.len + n]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FramePool, HeapPool, PoolConfig};

    fn pool(frames: usize) -> HeapPool {
        HeapPool::new(PoolConfig { frames, frame_size: 100, reserve: 0 }).unwrap()
    }

    #[test]
    fn the_last_in_is_the_first_out_and_the_first_in_goes_back() {
        let pool = pool(10);
        let mut free = FreeFrames::new(pool.layout(), 2);
        pool.take(10, &mut free);
        let mut frames: Vec<Frame> = free.drain(10, 60).collect();
        assert!(free.is_empty() && frames.iter().all(|frame| frame.len() == 60));
        frames.sort_unstable_by_key(Frame::token);
        free.extend(frames.drain(..));
        assert_eq!(free.drain_tokens(3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(free.len(), 7);
        assert_eq!(free.drain(2, 60).map(|frame| frame.token()).collect::<Vec<_>>(), [9, 8]);
        assert_eq!(free.pop().map(|frame| frame.token()), Some(7));
        assert_eq!(free.drain_tokens(usize::MAX).collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert!(free.pop().is_none() && free.is_empty());
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "another pool"))]
    fn a_stranger_is_not_taken_for_our_own() {
        let (ours, other) = (pool(2), pool(2));
        let mut theirs = FreeFrames::new(other.layout(), 2);
        other.take(2, &mut theirs);
        let mut free = FreeFrames::new(ours.layout(), 2);
        free.extend(theirs.drain(2, 60));
        assert!(free.is_empty());
    }
}

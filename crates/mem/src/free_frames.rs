//! Frames that no packet uses, as bare tokens, and how to make handles of them again.

use crate::{Frame, PoolId};
use std::ptr::NonNull;

/// Where a pool's frames lie, and how a fresh one looks.
///
/// The packet of the fresh frame with token `t` starts at address `start + t * stride`, so a token is an index
/// (our own memory) or itself an address (a DPDK mbuf, stride 1).
#[derive(Clone, Copy, Debug)]
pub struct FrameLayout {
    start: usize,
    stride: usize,
    shape: Shape,
}

/// What of a frame is not its place. One word, copied as one.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Shape {
    pub(crate) len: u32,
    pub(crate) headroom: u16,
    pub(crate) pool: PoolId,
}

impl FrameLayout {
    /// The layout of the pool that holds the ticket for `pool`; fresh frames have `frame_size` bytes.
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

/// Frames of one pool that no packet uses; the last one put in comes out first, as it is the warmest.
///
/// Shape:  8 bytes a frame. Tokens, not handles: putting a frame in and taking one out are each one load and one store
///         of a word, and a handle is made afresh, so that it does not matter what the last packet left behind.
#[derive(Debug)]
pub struct FreeFrames {
    layout: FrameLayout,
    tokens: Vec<u64>,
}

impl FreeFrames {
    /// None yet; room for `capacity` before memory is asked for.
    pub fn new(layout: FrameLayout, capacity: usize) -> Self {
        FreeFrames { layout, tokens: Vec::with_capacity(capacity) }
    }

    /// The pool whose frames these are.
    pub fn pool(&self) -> PoolId {
        self.layout.shape.pool
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The longest packet one can hold.
    #[inline]
    pub fn frame_size(&self) -> usize {
        self.layout.frame_size()
    }

    /// Puts a frame in. One of another pool is left to leak, and in debug builds panics.
    #[inline]
    pub fn push(&mut self, frame: Frame) {
        debug_assert_eq!(frame.pool(), self.pool(), "a frame of another pool was given back");
        if frame.pool() == self.pool() {
            self.tokens.push(frame.token());
        }
    }

    /// Puts frames in. Those of another pool are left to leak.
    #[inline]
    pub fn extend(&mut self, frames: impl ExactSizeIterator<Item = Frame>) {
        let mut len = self.tokens.len();
        self.tokens.resize(len + frames.len(), 0);
        let pool = self.pool();
        for frame in frames {
            let Some(slot) = self.tokens.get_mut(len) else { break };
            *slot = frame.token();
            // Without a branch: a stranger's token is overwritten by the next, or cut off below.
            len += usize::from(frame.pool() == pool);
        }
        self.tokens.truncate(len);
    }

    /// Takes a frame out: `frame_size` long with unspecified bytes, behind the default headroom.
    #[inline]
    pub fn pop(&mut self) -> Option<Frame> {
        self.pop_sized(self.layout.frame_size())
    }

    /// Takes a frame out for a packet of `size` bytes, or of `frame_size` if that is less.
    #[inline]
    pub fn pop_sized(&mut self, size: usize) -> Option<Frame> {
        let token = self.tokens.pop()?;
        let address = self.layout.start + token as usize * self.layout.stride;
        let data = NonNull::new(std::ptr::with_exposed_provenance_mut(address))?;
        let shape = Shape { len: size.min(self.layout.frame_size()) as u32, ..self.layout.shape };
        // SAFETY: the token came from a frame of this pool that was consumed, or from the pool itself, so nobody else
        // has it; what lies there is vouched for by `FrameLayout::new`.
        Some(unsafe { Frame::fresh(data, shape, token) })
    }

    /// Puts in a frame by its token.
    ///
    /// # Safety
    /// It is a token of this pool, and nobody else has it.
    #[inline]
    pub unsafe fn push_token(&mut self, token: u64) {
        self.tokens.push(token);
    }

    /// Takes the `n` frames out that were put in first, as tokens; for the pool to have them back.
    pub fn drain_tokens(&mut self, n: usize) -> impl ExactSizeIterator<Item = u64> {
        let n = n.min(self.tokens.len());
        self.tokens.drain(..n)
    }
}

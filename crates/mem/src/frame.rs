//! A packet's buffer, held by exactly one owner.

use crate::PoolId;
use crate::free_frames::Shape;
use std::ptr::NonNull;

/// One packet's buffer: unique, not `Clone`, contiguous.
///
/// Shape:  `headroom` free bytes, then `len` bytes of packet. Bytes behind the packet belong to the pool.
/// Units:  bytes.
/// Errors: pushing more than the headroom gives [`NoHeadroom`]; nothing here panics on packet contents.
/// Layout: data, length, headroom, pool and token in this order, without gaps (asserted below): a port's foreign code
///         may write handles in place.
///
/// Dropping a frame instead of giving it back to its pool leaks its buffer, which is safe, but the pool runs dry.
#[derive(Debug)]
#[repr(C)]
pub struct Frame {
    /// First byte of the packet.
    data: NonNull<u8>,
    shape: Shape,
    /// What the pool calls the buffer: an index, a UMEM address, an mbuf pointer.
    token: u64,
}

const _: () = {
    use std::mem::offset_of;
    assert!(
        offset_of!(Frame, data) == 0 && offset_of!(Frame, shape.len) == 8 && offset_of!(Frame, shape.headroom) == 12
    );
    assert!(offset_of!(Frame, shape.pool) == 14 && offset_of!(Frame, token) == 16 && size_of::<PoolId>() == 2);
};
const _: () = assert!(size_of::<Frame>() == 24, "a packet handle is to stay half a cache line with its metadata");

// SAFETY: a frame is the only handle to its bytes (see `from_raw`), so moving it to another thread moves access.
unsafe impl Send for Frame {}

/// There is too little room in front of the packet for the header to be pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHeadroom;

impl Frame {
    /// Makes the handle for a buffer.
    ///
    /// # Safety
    /// From `data - headroom` to `data + len` is one live, writable allocation that stays where it is until the frame
    /// is given back, and no other `Frame` or reference covers any of it meanwhile.
    pub unsafe fn from_raw(data: NonNull<u8>, len: u32, headroom: u16, pool: PoolId, token: u64) -> Self {
        Frame { data, shape: Shape { len, headroom, pool }, token }
    }

    /// Like `from_raw`, for frames fresh from a pool.
    ///
    /// # Safety
    /// As for `from_raw`, with the length, headroom and pool in `shape`.
    #[inline]
    pub(crate) unsafe fn fresh(data: NonNull<u8>, shape: Shape, token: u64) -> Self {
        Frame { data, shape, token }
    }

    /// The packet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `from_raw`'s caller vouched for `len` bytes at `data`; the pushes and trims below stay inside.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.shape.len as usize) }
    }

    /// The packet, for writing.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`; `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.shape.len as usize) }
    }

    /// Length of the packet.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a frame of length 0 is a runt, not an empty container")]
    pub fn len(&self) -> usize {
        self.shape.len as usize
    }

    /// Free bytes in front of the packet.
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.shape.headroom)
    }

    /// The pool it belongs to.
    #[inline]
    pub fn pool(&self) -> PoolId {
        self.shape.pool
    }

    /// What the pool calls the buffer.
    #[inline]
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Extends the packet by `n` bytes at its front. Their content is unspecified.
    #[inline]
    pub fn push_front(&mut self, n: u16) -> Result<(), NoHeadroom> {
        self.shape.headroom = self.shape.headroom.checked_sub(n).ok_or(NoHeadroom)?;
        // SAFETY: `headroom` bytes in front of `data` belong to the buffer, and n was no more than that.
        self.data = unsafe { self.data.sub(usize::from(n)) };
        self.shape.len += u32::from(n);
        Ok(())
    }

    /// Removes `n` bytes at the front of the packet, at most all of it. They become headroom.
    #[inline]
    pub fn trim_front(&mut self, n: u16) {
        let n = u32::from(n).min(self.shape.len).min(u32::from(u16::MAX - self.shape.headroom)) as u16;
        // SAFETY: n is at most `len`, so `data` stays inside the buffer or one past its end.
        self.data = unsafe { self.data.add(usize::from(n)) };
        self.shape.len -= u32::from(n);
        self.shape.headroom += n;
    }

    /// Shortens the packet to at most `len` bytes, cutting its end.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.shape.len = self.shape.len.min(u32::try_from(len).unwrap_or(u32::MAX));
    }

    /// Prefetches the packet's first cache line.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch never faults, whatever the address; SSE is part of x86-64.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(self.data.as_ptr().cast());
        }
    }
}

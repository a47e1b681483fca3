//! Packet buffers in our own memory.

use crate::{Frame, FrameLayout, FramePool, FreeFrames, Pages, PoolTicket, Region};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Free bytes in front of a packet in a fresh frame: room for a tunnel's outer headers (Ethernet 14, IPv6 40, UDP 8,
/// Geneve 8 and 58 bytes of options).
pub const HEADROOM: u16 = 128;

/// Frames start at multiples of this.
const LINE: usize = 64;

/// The longest packet that a frame may hold: enough for 9000 bytes and for a 64 KiB segment.
const FRAME_SIZE_MAX: usize = 1 << 17;

/// The sizes of a [`HeapPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Frames in all.
    pub frames: usize,
    /// Longest packet, bytes; rounded up.
    pub frame_size: usize,
    /// Frames kept for receiving.
    pub reserve: usize,
}

impl Default for PoolConfig {
    /// For packets of the usual MTU of 1500.
    fn default() -> Self {
        PoolConfig { frames: 16_384, frame_size: 2048, reserve: 1024 }
    }
}

/// Why a pool could not be made.
#[derive(Debug)]
pub enum PoolError {
    /// The sizes are impossible.
    Config(PoolConfig),
    /// There is not enough memory.
    Memory {
        /// How much was requested.
        bytes: usize,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// 65,536 pools exist already.
    TooMany,
}

/// Packet buffers of one size in one [`Region`], with a free list.
///
/// Shape:  `frames` frames, `stride` bytes apart: headroom, then `frame_size` bytes. The stride is an odd number of
///         cache lines, so that the headers of a batch spread over all sets of the first-level cache; with a power of
///         two 32 packets would share two sets of a 48 KiB cache, which holds 24 lines there.
/// Units:  bytes; a frame's token is its number.
/// Errors: an empty pool gives fewer frames than requested.
///
/// Frames that are out when the pool is dropped stay valid: the memory is then leaked.
#[derive(Debug)]
pub struct HeapPool {
    config: PoolConfig,
    stride: usize,
    /// Numbers of the free frames, last in, first out, since the last one is the warmest in the cache.
    free: Mutex<Vec<u32>>,
    /// Length of `free`, for readers without the lock.
    available: AtomicUsize,
    /// `None` only while the pool is being dropped.
    memory: Option<(Region, PoolTicket)>,
    layout: FrameLayout,
}

impl HeapPool {
    /// Maps the memory and frees every frame.
    pub fn new(config: PoolConfig) -> Result<Self, PoolError> {
        let PoolConfig { frames, frame_size, reserve } = config;
        if frames == 0
            || frames > u32::MAX as usize
            || frame_size == 0
            || frame_size > FRAME_SIZE_MAX
            || reserve >= frames
        {
            return Err(PoolError::Config(config));
        }
        let lines = (usize::from(HEADROOM) + frame_size).div_ceil(LINE) | 1;
        let stride = lines * LINE;
        let bytes = frames.checked_mul(stride).ok_or(PoolError::Config(config))?;
        let ticket = PoolTicket::draw().ok_or(PoolError::TooMany)?;
        let region = Region::map(bytes).map_err(|source| PoolError::Memory { bytes, source })?;
        let start = region.base().as_ptr().expose_provenance() + usize::from(HEADROOM);
        let frame_size = (stride - usize::from(HEADROOM)) as u32;
        // SAFETY: tokens are numbers below `frames`, each once; their frames are `stride` bytes each, side by side in
        // the region, which is unmapped only when every token is back (see `drop`).
        let layout = unsafe { FrameLayout::new(start, stride, HEADROOM, frame_size, ticket.id()) };
        Ok(HeapPool {
            config,
            stride,
            free: Mutex::new((0..frames as u32).rev().collect()),
            available: AtomicUsize::new(frames),
            layout,
            memory: Some((region, ticket)),
        })
    }

    /// The pages its memory got.
    pub fn pages(&self) -> Pages {
        self.region().pages()
    }

    /// Its memory, for registration with a device.
    pub fn region(&self) -> &Region {
        let (region, _) = self.memory.as_ref().expect("invariant: only `drop` takes it");
        region
    }

    /// Bytes from the start of one frame to the start of the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The handle of a frame that a device held: `len` bytes of packet from byte `offset` of the region.
    ///
    /// `None` if these do not lie within one frame.
    ///
    /// # Safety
    /// The frame was handed to the device by dropping its handle, and the device holds it no longer.
    #[inline]
    pub unsafe fn adopt(&self, offset: usize, len: usize) -> Option<Frame> {
        let token = offset / self.stride;
        let headroom = offset - token * self.stride;
        if token >= self.config.frames || headroom + len > self.stride {
            return None;
        }
        // SAFETY: the offset is inside the region, which was just checked.
        let data = unsafe { self.region().base().add(offset) };
        // SAFETY: `stride` bytes from the frame's start are its own, and the caller holds the only claim to them.
        // Strides are below 2^17 + 256, so `len` fits; a headroom that does not fit 16 bits is understated.
        Some(unsafe { Frame::from_raw(data, len as u32, headroom.min(0xffff) as u16, self.id(), token as u64) })
    }
}

impl FramePool for HeapPool {
    fn layout(&self) -> FrameLayout {
        self.layout
    }

    fn capacity(&self) -> usize {
        self.config.frames
    }

    fn available(&self) -> usize {
        self.available.load(Relaxed)
    }

    fn reserve(&self) -> usize {
        self.config.reserve
    }

    fn take(&self, n: usize, out: &mut FreeFrames) -> usize {
        assert_eq!(out.pool(), self.id(), "frames of one pool are asked of another");
        let mut free = self.free.lock();
        let from = free.len().saturating_sub(n);
        let taken = free.len() - from;
        for token in free.drain(from..) {
            // SAFETY: a number on the free list is a token of this pool that nobody has.
            unsafe { out.push_token(u64::from(token)) };
        }
        self.available.store(free.len(), Relaxed);
        taken
    }

    fn give(&self, frames: &mut FreeFrames, n: usize) {
        let ours = frames.pool() == self.id();
        debug_assert!(ours, "frames of another pool were given back");
        let tokens = frames.drain_tokens(n);
        if ours {
            let mut free = self.free.lock();
            free.extend(tokens.map(|token| token as u32));
            self.available.store(free.len(), Relaxed);
        }
    }
}

impl Drop for HeapPool {
    fn drop(&mut self) {
        if self.free.lock().len() < self.config.frames {
            // A frame is still out: its bytes must stay, and no other pool may get this pool's id.
            std::mem::forget(self.memory.take());
        }
    }
}

impl std::fmt::Display for PoolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PoolError::Config(PoolConfig { frames, frame_size, reserve }) => write!(
                f,
                "a pool of {frames} frames of {frame_size} bytes with {reserve} in reserve is impossible: expected 1 to \
                 {FRAME_SIZE_MAX} bytes and a reserve below the number of frames"
            ),
            PoolError::Memory { bytes, source } => write!(
                f,
                "no memory for packet buffers: {} MiB were asked for: {source}; use fewer or shorter frames",
                bytes >> 20
            ),
            PoolError::TooMany => write!(f, "65536 packet pools exist already"),
        }
    }
}

impl std::error::Error for PoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PoolError::Memory { source, .. } => Some(source),
            PoolError::Config(_) | PoolError::TooMany => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Arc;

    fn pool(frames: usize, frame_size: usize) -> HeapPool {
        HeapPool::new(PoolConfig { frames, frame_size, reserve: 0 }).unwrap()
    }

    /// Takes up to `n` frames as handles.
    fn take(pool: &HeapPool, n: usize) -> Vec<Frame> {
        let mut free = FreeFrames::new(pool.layout(), n);
        pool.take(n, &mut free);
        std::iter::from_fn(|| free.pop()).collect()
    }

    fn give(pool: &HeapPool, frames: impl IntoIterator<Item = Frame>) {
        let mut free = FreeFrames::new(pool.layout(), 8);
        frames.into_iter().for_each(|frame| free.push(frame));
        pool.give(&mut free, usize::MAX);
    }

    #[test]
    fn frames_do_not_overlap_and_the_pool_runs_dry() {
        let pool = pool(100, 60);
        let mut frames = take(&pool, 70);
        assert_eq!(frames.len(), 70);
        frames.extend(take(&pool, 70));
        assert_eq!((frames.len(), pool.available(), take(&pool, 1).len()), (100, 0, 0));
        for (i, frame) in frames.iter_mut().enumerate() {
            frame.push_front(HEADROOM).unwrap();
            frame.bytes_mut().fill(i as u8);
            assert_eq!(frame.len(), pool.stride());
        }
        assert!(frames.iter().enumerate().all(|(i, frame)| frame.bytes().iter().all(|b| *b == i as u8)));
        give(&pool, frames);
        assert_eq!(pool.available(), 100);
    }

    #[test]
    fn a_frame_comes_back_as_good_as_new() {
        let pool = pool(1, 1500);
        let mut frame = take(&pool, 1).remove(0);
        let new = (frame.bytes().as_ptr(), frame.len(), frame.headroom());
        frame.trim_front(14);
        frame.truncate(3);
        let mut free = FreeFrames::new(pool.layout(), 1);
        free.push(frame);
        let frame = free.pop().unwrap();
        assert_eq!((frame.bytes().as_ptr(), frame.len(), frame.headroom()), new);
        assert!(frame.len() >= 1500);
        give(&pool, [frame]);
    }

    #[test]
    fn strides_are_odd_lines() {
        for size in [1, 60, 64, 1500, 2048, 9100, FRAME_SIZE_MAX] {
            assert_eq!(pool(1, size).stride() / LINE % 2, 1, "{size}");
        }
    }

    #[test]
    fn frames_outlive_their_pool() {
        let pool = pool(2, 100);
        let id = pool.id();
        let mut frame = take(&pool, 1).remove(0);
        drop(pool);
        frame.bytes_mut().fill(1);
        let next = self::pool(1, 100);
        assert_ne!(next.id(), id, "the number is still named by a frame");
    }

    #[test]
    fn adopting_checks_the_place() {
        let pool = pool(3, 1500);
        let tokens: HashSet<u64> = take(&pool, 3).into_iter().map(|f| f.token()).collect();
        assert_eq!(tokens, HashSet::from([0, 1, 2]));
        // SAFETY: all handles were just dropped.
        let back = unsafe {
            assert!(pool.adopt(3 * pool.stride(), 1).is_none());
            assert!(pool.adopt(2 * pool.stride() + 256, pool.stride() - 255).is_none());
            [pool.adopt(0, 0), pool.adopt(pool.stride() + 256, 60), pool.adopt(2 * pool.stride(), pool.stride())]
        };
        let frames = back.map(Option::unwrap);
        assert_eq!((frames[1].token(), frames[1].headroom(), frames[1].len()), (1, 256, 60));
        give(&pool, frames);
        assert_eq!(pool.available(), 3);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for (frames, frame_size, reserve) in [(0, 60, 0), (1, 0, 0), (1, FRAME_SIZE_MAX + 1, 0), (5, 60, 5)] {
            let config = PoolConfig { frames, frame_size, reserve };
            let error = HeapPool::new(config).unwrap_err();
            assert!(matches!(error, PoolError::Config(c) if c == config), "{error}");
        }
        assert!(HeapPool::new(PoolConfig { frames: 1 << 31, frame_size: 9000, reserve: 0 }).is_err());
    }

    /// Threads take frames, write their mark, pass frames on to each other, check the marks, and give the frames back.
    #[test]
    fn threads_never_share_a_frame_and_lose_none() {
        let pool = Arc::new(pool(500, 64));
        let (to_next, from_last) = std::sync::mpsc::channel::<Frame>();
        let from_last = Mutex::new(from_last);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (pool, to_next, from_last) = (Arc::clone(&pool), to_next.clone(), &from_last);
                scope.spawn(move || {
                    let mut mine: Vec<Frame> = Vec::new();
                    for round in 0..2000u64 {
                        let had = mine.len();
                        mine.extend(take(&pool, (round * (thread + 3) % 61) as usize));
                        for frame in &mut mine[had..] {
                            let mark = (thread << 32 | frame.token()).to_le_bytes();
                            frame.bytes_mut()[..8].copy_from_slice(&mark);
                        }
                        mine.extend(from_last.lock().try_recv());
                        for frame in &mine {
                            let mark = u64::from_le_bytes(*frame.bytes().first_chunk().unwrap());
                            assert_eq!(mark & 0xffff_ffff, frame.token(), "somebody else wrote here");
                        }
                        if round % 3 == 0
                            && let Some(frame) = mine.pop()
                        {
                            to_next.send(frame).unwrap();
                        }
                        let n = mine.len().min((round % 97) as usize);
                        give(&pool, mine.drain(..n));
                    }
                    give(&pool, mine);
                });
            }
        });
        give(&pool, from_last.lock().try_iter());
        let frames = take(&pool, 501);
        let tokens: HashSet<u64> = frames.iter().map(|f| f.token()).collect();
        assert_eq!((frames.len(), tokens.len()), (500, 500));
        give(&pool, frames);
    }
}

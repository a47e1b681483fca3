//! Packets received together, and subsets of them.

use crate::{Buffers, Packet};
use arrayvec::ArrayVec;
use sluice_fate::{DropReason, Tally};

/// The most packets in a batch, so that a [`BatchMask`] (u32) names any subset.
pub const BATCH_MAX: usize = 32;
const _: () = assert!(BATCH_MAX == u32::BITS as usize);

/// A subset of a batch: bit `i` stands for packet `i` in arrival order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BatchMask(pub u32);

impl BatchMask {
    /// No packet.
    pub const NONE: BatchMask = BatchMask(0);

    /// The first `n` packets, `n` at most 32.
    #[inline]
    pub const fn first(n: usize) -> Self {
        BatchMask(if n >= 32 { u32::MAX } else { (1 << n) - 1 })
    }

    /// Whether packet `i` is in it.
    #[inline]
    pub const fn contains(self, i: usize) -> bool {
        self.0 >> i & 1 != 0
    }

    /// Adds packet `i`.
    #[inline]
    pub const fn insert(&mut self, i: usize) {
        self.0 |= 1 << i;
    }

    /// Removes packet `i`.
    #[inline]
    pub const fn remove(&mut self, i: usize) {
        self.0 &= !(1 << i);
    }

    /// Whether it names no packet.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many packets it names.
    #[inline]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }
}

impl Iterator for BatchMask {
    type Item = usize;

    /// The packets in it, in order of arrival.
    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let i = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(i)
    }
}

/// Packets received together, in arrival order; at most [`BATCH_MAX`].
#[must_use = "an unsent batch loses packets uncounted: transmit it or discard it by name"]
#[derive(Debug)]
pub struct PacketBatch {
    packets: ArrayVec<Packet, BATCH_MAX>,
    /// How many a receive queue may make it hold.
    limit: usize,
}

impl Default for PacketBatch {
    fn default() -> Self {
        PacketBatch { packets: ArrayVec::new(), limit: BATCH_MAX }
    }
}

impl PacketBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has receive queues append no more packets than make it hold `limit`.
    #[inline]
    pub fn limit(&mut self, limit: usize) {
        self.limit = limit.min(BATCH_MAX);
    }

    /// How many packets a receive queue may append.
    #[inline]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.packets.len())
    }

    /// Whether a receive queue may append none.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Gives every packet back to its pool and counts it as dropped for `reason`.
    pub fn discard(&mut self, reason: DropReason, buffers: &mut Buffers, tally: &mut Tally) {
        tally.drop(reason, self.len());
        buffers.give_batch(self);
    }
}

impl std::ops::Deref for PacketBatch {
    type Target = ArrayVec<Packet, BATCH_MAX>;
    fn deref(&self) -> &Self::Target {
        &self.packets
    }
}

impl std::ops::DerefMut for PacketBatch {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.packets
    }
}

impl Drop for PacketBatch {
    fn drop(&mut self) {
        // Debug builds only: losing packets silently is a bug in the walk.
        debug_assert!(self.packets.is_empty() || std::thread::panicking(), "{} packets lost", self.packets.len());
    }
}

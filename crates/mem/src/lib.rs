//! Packet buffers: the memory packets live in, and who holds which piece of it. And the memory of tables.
//!
//! A [`Frame`] is one packet's buffer: unique, not `Clone`, contiguous, its data pointer and length resolved once at
//! receive. It belongs to a [`FramePool`] (our own memory in a [`HeapPool`], an AF_XDP UMEM, a DPDK mempool) and goes
//! back there by value. There are no reference counts: a copy is a new frame.
//!
//! A pool is shared by all PMDs and locks; a PMD's own cache stands in front of it (`sluice-packet`, `Buffers`), so
//! that the lock is met once in a few hundred packets.
//!
//! This crate is one of the locked rooms where `unsafe` may live.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod frame;
#[allow(unsafe_code)]
mod free_frames;
#[allow(unsafe_code)]
mod heap;
#[allow(unsafe_code)]
mod heap_pool;
#[allow(unsafe_code)]
mod huge_array;
mod pool;
#[allow(unsafe_code)]
mod region;

pub use frame::{Frame, NoHeadroom};
pub use free_frames::{FrameLayout, FreeFrames};
pub use heap::grow_heaps_in_large_steps;
pub use heap_pool::{HEADROOM, HeapPool, PoolConfig, PoolError};
pub use huge_array::{ArrayMemory, HugeArray};
pub use pool::{FramePool, PoolId, PoolTicket};
pub use region::{Pages, Region};

//! Packet buffers: the memory packets live in, and who holds which piece of it.
//!
//! A [`Frame`] is one packet's buffer: unique, not `Clone`, contiguous, its data pointer and length resolved once at
//! receive. It belongs to a [`FramePool`] (our own memory, an AF_XDP UMEM, a DPDK mempool) and goes back there by
//! value. There are no reference counts: a copy is a new frame.
//!
//! This crate is one of the locked rooms where `unsafe` may live.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod frame;
mod pool;

pub use frame::{Frame, NoHeadroom};
pub use pool::{FRAMES_MAX, FramePool, Frames, PoolId};

//! Memory: packet buffers, and the arrays behind a PMD's caches.
//!
//! # Packet buffers
//!
//! A [`Frame`] is one packet's buffer: unique, not `Clone`, contiguous, its data pointer and length resolved once at
//! receive. It belongs to a [`FramePool`] and goes back there by value. There are no reference counts: a copy is a new
//! frame.
//!
//! A pool is one [`Region`], cut into frames of one size. The region uses reserved huge pages if there are any, else
//! transparent huge pages, else pages of 4 KiB, which a region of up to 256 KiB always has; the log says which. Ports
//! share the pool whose frames are long enough, so a packet crosses from port to port without a copy. An AF_XDP socket's
//! buffers are frames of the same pool ([`HeapPool`]); a DPDK port's are mbufs of a pool of its own, behind the same
//! trait.
//!
//! Free frames are tokens of one word ([`FreeFrames`]). Each PMD caches some of each pool, last in, first out, so that
//! the next frame is warm in the processor's cache; the pool's lock is taken once in hundreds of packets
//! (`sluice-packet`, `Buffers`). When only the pool's reserve is left, copies are refused: the reserve is for
//! receiving. Frames are an odd number of cache lines apart, since a power of two would put the headers of a batch into
//! two sets of the first-level cache.
//!
//! # Arrays
//!
//! The tables of a PMD's caches are [`HugeArray`]s, on transparent huge pages, or on reserved ones where the kernel
//! makes no transparent ones; the log says which. A page that is touched for the first time costs a page fault, which a
//! PMD must not wait for. So a PMD uses only the part of an array that is resident. When its cache needs more, it
//! requests more, and a control thread makes that part resident within 20 ms: the signature match cache starts with 8
//! MiB, enough for a million flows, and grows to 128 MiB.
//!
//! For the same reason heaps of threads grow 64 MiB at a time ([`grow_heaps_in_large_steps`]), and memory is made
//! resident one huge page at a time ([`Region::populate`]): a PMD whose heap grew page by page waited up to 147 ms for
//! the process's mappings while another thread made memory resident.
//!
//! This crate may use `unsafe`, in the files that `ci/unsafe.txt` lists.
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

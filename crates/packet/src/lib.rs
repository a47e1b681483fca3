//! Packets: handles, batches, buffers, where headers are, checksums, and rewriting headers in place.
//!
//! A [`Packet`] is half a cache line and unique: it is moved and never cloned, and its frame goes back to its pool by
//! value. A [`PacketBatch`] holds up to 32 packets in arrival order; a [`BatchMask`] is a subset of them, one bit a
//! packet, so that stages of the walk narrow a mask and never reorder the batch. [`Buffers`] is a PMD's cache of free
//! frames.
#![forbid(unsafe_code)]

mod batch;
mod buffers;
pub mod checksum;
pub mod edit;
pub mod headers;
mod layers;
mod packet;
mod vlan_limit;

pub use batch::{BATCH_MAX, BatchMask, PacketBatch};
pub use buffers::Buffers;
pub use layers::{Ip, LABELS_MAX, Layers, Payload};
pub use packet::Packet;
pub use vlan_limit::{VLANS_MAX, VlanLimit};

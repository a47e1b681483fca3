//! Packet handles, batches, header views and checksums.
#![forbid(unsafe_code)]

mod batch;
mod buffers;
mod packet;

pub use batch::{BATCH_MAX, BatchMask, PacketBatch};
pub use buffers::Buffers;
pub use packet::Packet;

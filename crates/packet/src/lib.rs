//! Packet handles, batches, header views and checksums.
#![forbid(unsafe_code)]

mod batch;
mod buffers;
pub mod checksum;
pub mod edit;
pub mod headers;
mod layers;
mod packet;

pub use batch::{BATCH_MAX, BatchMask, PacketBatch};
pub use buffers::Buffers;
pub use layers::{Ip, LABELS_MAX, Layers, Payload, VLANS_MAX};
pub use packet::Packet;

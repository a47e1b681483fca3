//! Packet builders, random packets and a small pool, for tests.
#![forbid(unsafe_code)]

pub mod arbitrary;
pub mod frame;
mod frame_layer;
pub mod plain_checksum;
pub mod pool;
#[cfg(feature = "vhost")]
pub mod vhost_guest;

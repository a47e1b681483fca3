//! Packet builders, random packets, a small pool, and the runner of cases that need programs or privileges, for tests.
#![forbid(unsafe_code)]

pub mod arbitrary;
pub mod cases;
pub mod frame;
mod frame_layer;
pub mod plain_checksum;
pub mod pool;
#[cfg(feature = "vhost")]
pub mod vhost_guest;

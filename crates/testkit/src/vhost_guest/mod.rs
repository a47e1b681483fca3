//! A guest whose memory, rings and frontend are in this process, and a vhost-user port that it is connected to.

mod guest;
mod inflight;
mod migration;
mod packed;
mod port;

pub use guest::{BUFFERS, Described, Guest, INDIRECT, NEXT, Place, WRITE, feature, protocol_feature, request};
pub use inflight::Inflight;
pub use migration::{Migration, PAGE};
pub use packed::{AVAILABLE, USED};
pub use port::GuestPort;

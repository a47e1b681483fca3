//! A guest whose memory, rings and frontend are in this process, and a vhost-user port that it is connected to.

mod guest;
mod port;

pub use guest::{BUFFERS, Guest, INDIRECT, NEXT, Place, WRITE, feature, request};
pub use port::GuestPort;

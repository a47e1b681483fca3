//! Bidirectional forwarding detection (BFD, RFC 5880 and 5881) as Open vSwitch does it: asynchronous mode, one session a
//! port, no authentication, no echo.
//!
//! A [`Session`] has no clock, socket or thread: time and packets are its arguments, so a whole exchange is a test.
//!
//! | module | what |
//! |---|---|
//! | [`packet`] | the control packet's 24 bytes, and what is wrong with a received one |
//! | [`frame`] | the Ethernet frame that carries one |
//! | [`config`] | what a session is asked for |
//! | [`session`] | timers, poll sequences, decay, whether the port forwards |
//! | [`receive`] | what a received control packet does to a session |
//! | [`text`] | a session as `bfd/show` shows it |

#![forbid(unsafe_code)]

mod config;
mod frame;
mod packet;
mod receive;
mod session;
mod text;

pub use config::{Config, DEFAULT_DST_IP, DEFAULT_MULT, DEFAULT_SRC_IP};
pub use frame::{FRAME_LEN, UDP_PORT, read as read_frame};
pub use packet::{ControlPacket, Diagnostic, Fault, Flags, PACKET_LEN, State, TooShort};
pub use receive::MAX_TTL;
pub use session::{Session, Status};

//! The link aggregation control protocol (LACP, IEEE 802.1AX) as Open vSwitch does it: active or passive, fast or slow, one
//! aggregator a port, and fallback to one link if the partner is silent.
//!
//! A [`Lacp`] has no clock, socket or thread: time and packets are its arguments, so a whole exchange is a test.
//!
//! | module | what |
//! |---|---|
//! | [`pdu`] | the 110 bytes of a protocol data unit, and the Ethernet frame around it |
//! | [`config`] | what an aggregator and its members are asked for |
//! | [`aggregator`] | members, their states and timers, which of them may carry traffic |
//! | [`text`] | an aggregator as `lacp/show` and `lacp/show-stats` show it |

#![forbid(unsafe_code)]

mod aggregator;
mod config;
mod pdu;
mod text;

pub use aggregator::{Lacp, Stats, Status};
pub use config::{Config, MemberConfig};
pub use pdu::{ETHERTYPE, FRAME_LEN, Info, PDU_LEN, Pdu, Received, State, compose_frame, read_frame};

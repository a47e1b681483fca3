//! Policers: packets beyond a rate are dropped, nothing waits.
//!
//! A [`TokenBucket`] fills at a rate up to its burst, and a packet takes as many tokens as it has bytes. It is shared by
//! all threads that carry packets of a port: each takes the tokens of a whole batch at once, with one atomic exchange,
//! and puts back what it did not spend. So the shared word is written once a batch, and all threads meet the same
//! bucket: what they offer decides who gets the tokens.
//!
//! | policer | what it is for | buckets |
//! |---|---|---|
//! | [`IngressPolicer`] | `ingress_policing_*` of an interface | bytes, packets |
//! | [`EgressPolicer`] | `egress-policer` of a port, RFC 2697 without excess burst | committed |
//! | [`EgressPolicer`] | `trtcm-policer` of a port, RFC 4115 by queue, then for the port | committed and excess, of each |
//!
//! Packets count without their Ethernet header, as they do in Open vSwitch's policers. The time is an argument:
//! nanoseconds since any fixed point. Source: Open vSwitch lib/netdev-dpdk.c; DPDK lib/meter.
#![forbid(unsafe_code)]

mod bucket;
mod egress;
mod ingress;
mod trtcm;

pub use bucket::{Grant, Rate, TokenBucket};
pub use egress::{EgressPolicer, QueueCounts, QueuePolicer};
pub use ingress::{IngressPolicer, PolicingRates};
pub use trtcm::{Color, Marked, TrTcm, TrTcmRates};

/// Bytes of a frame that policers do not count: its Ethernet header.
const UNCOUNTED_BYTES: usize = 14;

/// The tokens that a frame takes, by its size in bytes.
pub fn tokens_of(frame_bytes: usize) -> u64 {
    frame_bytes.saturating_sub(UNCOUNTED_BYTES) as u64
}

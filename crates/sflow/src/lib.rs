//! sFlow version 5, as Open vSwitch 3.1 sends it: samples of packets and of counters become datagrams for collectors.
//!
//! An [`Agent`] has neither clock nor socket. It is told the time and what was sampled, says which counters are due
//! ([`Agent::tick`]), and hands out the datagrams that are complete ([`Agent::take_datagrams`]). What it sends is bounded
//! by what it is given: a sample is part of one datagram, and the longest header is [`HEADER_MAX`].
//!
//! Source: <https://sflow.org/sflow_version_5.txt>, <https://sflow.org/sflow_tunnels.txt>,
//! <https://sflow.org/sflow_openflow.txt>; which records are sent, and in which order: Open vSwitch
//! ofproto/ofproto-dpif-sflow.c.
#![forbid(unsafe_code)]

mod agent;
mod datagram;
mod sample;

pub use agent::{Agent, AgentConfig};
pub use sample::{
    CounterRecord, DatapathCounters, FlowSample, InterfaceCounters, Output, ResourceCounters, SampledTunnel, Source,
};

/// The port of collectors whose target names none.
pub const COLLECTOR_PORT: u16 = 6343;
/// Packets of which one is sampled, if nothing else is said. Source: Open vSwitch lib/sflow.h, as the next two.
pub const DEFAULT_SAMPLING: u32 = 400;
/// Seconds between samples of a port's counters, likewise.
pub const DEFAULT_POLLING_S: u32 = 30;
/// Bytes of a packet that are sampled, likewise.
pub const DEFAULT_HEADER: u32 = 128;
/// The most bytes of a packet that are sampled: with all other records of a sample they fit a datagram.
pub const HEADER_MAX: u32 = 1024;

/// The probability, in 2^32, with which a packet is taken if one in `sampling` is to be.
pub fn probability(sampling: u32) -> u32 {
    (u32::MAX / sampling.max(1)).max(1)
}

//! TCP transactions between real stacks through a switch: what netperf calls TCP_CRR, and what `ovs-benchmark rate`
//! measured.
//!
//! Client and server are this program, over the kernel's sockets, each in a network namespace of its own. A pair of veth
//! leads from each to the switch, which is this one on AF_PACKET ports or Open vSwitch's userspace datapath, or nothing.

mod client;
mod network;
mod server;
mod switches;

pub use client::ConnectArgs;
pub use server::ServeArgs;
pub use switches::{Exchange, MICROS, P50, P99, Through, Transactions, missing_program};

/// The answer to a request of one byte.
const fn answer_to(request: u8) -> u8 {
    !request
}

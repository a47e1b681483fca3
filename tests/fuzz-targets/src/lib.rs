//! What the fuzzers call: one function a target, from any bytes to a panic or nothing.
//!
//! They live here, not under `fuzz/`, so that plain `cargo test` replays the seeds and every past crash through them
//! without libFuzzer.
#![forbid(unsafe_code)]

mod bfd;
mod classifier;
mod control;
mod ct_helpers;
mod flow_text;
mod input;
mod lacp;
mod openflow;
mod ovsdb;
mod packet;
mod pcap;
mod switch;
mod tables;
mod tunnels;
mod vhost_rings;

pub use bfd::bfd;
pub use classifier::classifier;
pub use control::control;
pub use ct_helpers::ct_helpers;
pub use flow_text::flow_text;
pub use lacp::lacp;
pub use openflow::openflow;
pub use ovsdb::ovsdb;
pub use packet::packet;
pub use pcap::pcap;
pub use switch::switch;
pub use tables::tables;
pub use tunnels::tunnels;
pub use vhost_rings::vhost_rings;

/// A target: its name, as under `fuzz/seeds` and `fuzz/crashes`, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target there is.
pub const TARGETS: &[Target] = &[
    ("bfd", bfd),
    ("classifier", classifier),
    ("control", control),
    ("ct-helpers", ct_helpers),
    ("flow-text", flow_text),
    ("lacp", lacp),
    ("openflow", openflow),
    ("ovsdb", ovsdb),
    ("packet", packet),
    ("pcap", pcap),
    ("switch", switch),
    ("tables", tables),
    ("tunnels", tunnels),
    ("vhost-rings", vhost_rings),
];

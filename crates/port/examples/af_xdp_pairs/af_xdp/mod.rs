//! Bare sockets, with the XDP program of our ports.

#[path = "../../../src/bpf/mod.rs"]
// A filter for packet sockets is in it, too.
#[allow(dead_code)]
mod bpf;
pub(crate) mod sys;

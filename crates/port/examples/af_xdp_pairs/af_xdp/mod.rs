//! Bare sockets, with the XDP program of our ports.

#[path = "../../../src/af_xdp/bpf/mod.rs"]
mod bpf;
pub(crate) mod sys;

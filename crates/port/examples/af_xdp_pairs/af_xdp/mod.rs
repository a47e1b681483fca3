//! Bare sockets, and the program of our ports for them.

#[path = "../../../src/af_xdp/bpf/mod.rs"]
mod bpf;
pub(crate) mod sys;

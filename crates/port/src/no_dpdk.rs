//! DPDK in a program built without it: ports are an error that says how to build it, and the environment never runs.

use crate::config::Options;
use crate::dpdk_environment::{DetachError, Dump};
use crate::{DpdkConfig, OpenError, Pools, Port};

/// What is said of a port of type `dpdk`.
pub(crate) const REMEDY: &str = "this sluice was built without DPDK; install libdpdk-dev and pkg-config, then build with \
                      `cargo build --release --features dpdk`";

pub(crate) fn open(options: &Options<'_>, _pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    Err(OpenError::Dpdk { port: options.port(), reason: REMEDY.to_owned() })
}

pub(crate) fn start(_pools: &mut Pools, _config: &DpdkConfig) -> Result<(), String> {
    Err(REMEDY.to_owned())
}

pub(crate) fn version() -> Option<String> {
    None
}

pub(crate) fn is_running() -> bool {
    false
}

pub(crate) fn dump(_what: Dump) -> Option<String> {
    None
}

pub(crate) fn set_log_level(_pattern: &str, _level: u32) -> bool {
    false
}

pub(crate) fn detach(_devargs: &str) -> Result<(), DetachError> {
    Err(DetachError::NotFound)
}

//! DPDK ports in a program built without DPDK: an error that says how to build it.

use crate::config::Options;
use crate::{OpenError, Pools, Port};

pub(crate) fn open(options: &Options<'_>, _pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    let reason = "this sluice was built without DPDK; install libdpdk-dev and pkg-config, then build with \
                  `cargo build --release --features dpdk`";
    Err(OpenError::Dpdk { port: options.port(), reason: reason.to_owned() })
}

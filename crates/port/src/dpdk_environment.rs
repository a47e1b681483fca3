//! DPDK's environment, of which a process has one: started once, shown and changed by commands. A build without the feature
//! `dpdk` has none.

#[cfg(feature = "dpdk")]
use crate::dpdk::environment as inner;
#[cfg(not(feature = "dpdk"))]
use crate::no_dpdk as inner;
use crate::{DpdkConfig, Pools};

/// What DPDK shows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dump {
    /// The threads that it knows, and their cores.
    Lcores,
    /// The levels of its log.
    Log,
    /// Its heaps.
    Malloc,
    /// All pools of packet buffers.
    Mempools,
}

/// Why a device is not given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DetachError {
    /// DPDK does not know it.
    NotFound,
    /// These ports of the switch use it, or another port of the same device.
    InUse(Vec<String>),
    /// Its driver does not let it go.
    Refused(String),
}

/// Starts DPDK for ports of `pools`. It can be tried once a process.
///
/// # Errors
/// With the reason, in one line.
pub fn start(pools: &mut Pools, config: &DpdkConfig) -> Result<(), String> {
    inner::start(pools, config)
}

/// The version of the DPDK that this build has, if it has one.
pub fn version() -> Option<String> {
    inner::version()
}

/// Whether DPDK was started.
pub fn is_running() -> bool {
    inner::is_running()
}

/// What DPDK shows of itself, while it runs.
pub fn dump(what: Dump) -> Option<String> {
    inner::dump(what)
}

/// Sets the level, 1 to 8, of the parts of DPDK's log whose names match a shell's pattern. Whether that could be done.
pub fn set_log_level(pattern: &str, level: u32) -> bool {
    inner::set_log_level(pattern, level)
}

/// Gives a device back that no port of the switch uses.
///
/// # Errors
/// If there is none, or it does not go.
pub fn detach(devargs: &str) -> Result<(), DetachError> {
    inner::detach(devargs)
}

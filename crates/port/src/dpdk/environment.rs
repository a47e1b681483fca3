//! DPDK's environment abstraction layer (EAL), which a process has once.

use super::{DpdkError, sys};
use crate::dpdk_environment::{DetachError, Dump};
use crate::{DpdkConfig, Pools};
use parking_lot::Mutex;

/// The environment is started, and tried, at most once a process. A second `rte_eal_init` after one that failed for lack of
/// huge pages does not return (seen with 22.11).
enum Environment {
    Untried,
    Running(Vec<String>),
    Failed,
}

static ENVIRONMENT: Mutex<Environment> = Mutex::new(Environment::Untried);

/// Starts the environment, unless it runs with these arguments.
pub(super) fn ensure(config: &DpdkConfig) -> Result<(), DpdkError> {
    let DpdkConfig { eal_args, keeps_cores, .. } = config;
    let mut environment = ENVIRONMENT.lock();
    match &*environment {
        Environment::Running(args) if args != eal_args => Err(DpdkError::EalChanged { running: args.clone() }),
        Environment::Running(_) => Ok(()),
        Environment::Failed => Err(DpdkError::EalFailed),
        Environment::Untried => match sys::eal_init(eal_args, *keeps_cores) {
            Ok(()) => {
                *environment = Environment::Running(eal_args.clone());
                Ok(())
            }
            Err(e) => {
                *environment = Environment::Failed;
                Err(DpdkError::Eal { args: eal_args.clone(), reason: sys::strerror(e) })
            }
        },
    }
}

pub(crate) fn start(pools: &mut Pools, config: &DpdkConfig) -> Result<(), String> {
    pools.set_dpdk_config(config.clone());
    pools.dpdk().map(drop).map_err(|error| error.to_string())
}

pub(crate) fn version() -> Option<String> {
    Some(sys::version())
}

pub(crate) fn is_running() -> bool {
    matches!(*ENVIRONMENT.lock(), Environment::Running(_))
}

pub(crate) fn dump(what: Dump) -> Option<String> {
    is_running().then(|| sys::dump(what)).flatten()
}

pub(crate) fn set_log_level(pattern: &str, level: u32) -> bool {
    is_running() && sys::set_log_level(pattern, level)
}

pub(crate) fn detach(devargs: &str) -> Result<(), DetachError> {
    if is_running() { sys::detach(devargs) } else { Err(DetachError::NotFound) }
}

//! `sluice run --check`: whether a switch could start from a configuration.

use crate::config::Config;
use crate::process::explain;
use anyhow::{Context, Result};
use sluice_vswitch::Switch;
use std::path::Path;

/// Checks the configuration `file` and all that it names: rules are read as at a start, into a switch without devices.
///
/// # Errors
/// With the first thing that a switch would not start with.
pub fn check(file: &Path) -> Result<String> {
    let config = Config::load(file)?;
    config.check_build()?;
    config.switch.identity().with_context(|| file.display().to_string())?;
    check_log_file(&config).with_context(|| file.display().to_string())?;
    let mut desired = config.desired()?;
    desired.dpdk = None;
    for port in desired.bridges.iter_mut().flat_map(|bridge| &mut bridge.ports) {
        // Patch ports and tunnels have no device.
        if sluice_port::PORT_TYPES.iter().any(|kind| kind.name == port.kind) {
            port.kind = "null".into();
            port.options.clear();
        }
    }
    let switch = Switch::prepare(&desired).map_err(explain)?;
    switch.close_ports();
    let warnings: String = config.warnings().iter().map(|text| format!("warning: {text}\n")).collect();
    Ok(format!("{warnings}{}: can be run\n", file.display()))
}

/// Whether the log file can be where the configuration has it.
fn check_log_file(config: &Config) -> Result<()> {
    let Some(path) = config.switch.log_file.as_ref().map(|path| config.resolve(path)) else { return Ok(()) };
    let directory = path.parent().unwrap_or(Path::new("/"));
    anyhow::ensure!(
        directory.as_os_str().is_empty() || directory.is_dir(),
        "switch.log-file: {}: there is no directory {}; make it",
        path.display(),
        directory.display()
    );
    Ok(())
}

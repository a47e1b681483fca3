//! `dpdk/*` and `netdev-dpdk/*`. Texts and errors are Open vSwitch's. Source: lib/dpdk.c, lib/netdev-dpdk.c.

use super::{Reply, admin_state};
use sluice_port::dpdk_environment::{self, DetachError, Dump};
use sluice_vswitch::{PortStatus, Switch};

/// The levels of DPDK's log, from 1 on.
const LEVELS: [&str; 8] = ["emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"];

/// The types that these commands are about.
const TYPES: [&str; 4] = ["dpdk", "dpdkvhostuser", "dpdkvhostuserclient", "vhost-user"];

const NOT_RUNNING: &str = "DPDK is not running";
const NOT_DPDK: &str = "Not a DPDK Interface";

/// `dpdk/lcore-list`.
pub fn lcore_list(_: &Switch, _: &[&str]) -> Reply {
    dump(Dump::Lcores)
}

/// `dpdk/log-list`.
pub fn log_list(_: &Switch, _: &[&str]) -> Reply {
    dump(Dump::Log)
}

/// `dpdk/get-malloc-stats`.
pub fn malloc_stats(_: &Switch, _: &[&str]) -> Reply {
    dump(Dump::Malloc)
}

fn dump(what: Dump) -> Reply {
    dpdk_environment::dump(what).ok_or_else(|| NOT_RUNNING.to_owned())
}

/// `dpdk/log-set [LEVEL | PATTERN:LEVEL]...`: without arguments all parts say everything.
pub fn log_set(_: &Switch, args: &[&str]) -> Reply {
    if !dpdk_environment::is_running() {
        return Err(NOT_RUNNING.to_owned());
    }
    let args = if args.is_empty() { &["debug"] } else { args };
    for arg in args {
        let (pattern, name) = arg.split_once(':').unwrap_or(("*", arg));
        let level = level(name).ok_or_else(|| format!("invalid log level: '{name}'"))?;
        if !dpdk_environment::set_log_level(pattern, level) {
            return Err(format!("cannot set log level for '{arg}'"));
        }
    }
    Ok(String::new())
}

fn level(name: &str) -> Option<u32> {
    (1..).zip(LEVELS).find(|(_, known)| *known == name).map(|(level, _)| level)
}

/// `netdev-dpdk/set-admin-state [NETDEV] up|down`.
pub fn set_admin_state(switch: &Switch, args: &[&str]) -> Reply {
    let (name, is_up) = admin_state(args)?;
    let ports = match name {
        Some(name) => vec![port(switch, name)?],
        None => ports(switch).collect(),
    };
    for port in ports {
        let Some(number) = port.number else { continue };
        let set = switch.datapath().set_admin_state(number, is_up);
        set.map_err(|error| format!("interface {}: {error}", port.name))?;
    }
    switch.watch_ports();
    Ok("OK".to_owned())
}

/// `netdev-dpdk/get-mempool-info [NETDEV]`.
pub fn mempool_info(switch: &Switch, args: &[&str]) -> Reply {
    let Some(name) = args.first() else { return dump(Dump::Mempools) };
    let number = port(switch, name)?.number.ok_or(NOT_DPDK)?;
    let info = switch.datapath().mempool_info(number);
    info.ok_or_else(|| format!("the packet buffers of interface {name} are not DPDK's"))
}

/// `netdev-dpdk/detach DEVARGS`.
pub fn detach(_: &Switch, args: &[&str]) -> Reply {
    let device = args[0];
    match dpdk_environment::detach(device) {
        Ok(()) => Ok(format!("All devices shared with device '{device}' have been detached")),
        Err(DetachError::NotFound) => Err(format!("Device '{device}' not found in DPDK")),
        Err(DetachError::InUse(users)) => {
            let users = users.join(" ");
            Err(format!(
                "Device '{device}' is being used by the following interfaces: {users}. Remove them before detaching."
            ))
        }
        Err(DetachError::Refused(why)) => Err(format!("Device '{device}' can not be detached ({why})")),
    }
}

/// The open ports of these types.
fn ports(switch: &Switch) -> impl Iterator<Item = PortStatus> {
    let all = switch.port_status().into_values().flatten();
    all.filter(|port| port.info.as_ref().is_some_and(|info| TYPES.contains(&info.kind)))
}

fn port(switch: &Switch, name: &str) -> Result<PortStatus, String> {
    ports(switch).find(|port| port.name == name).ok_or_else(|| NOT_DPDK.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_the_numbers_of_dpdk() {
        assert_eq!(["emergency", "error", "debug", "loud"].map(level), [Some(1), Some(4), Some(8), None]);
    }
}

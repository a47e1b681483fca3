//! Commands about implementations of parts of the datapath, of which Open vSwitch has several for vector instructions.
//! Here there is one of each, `scalar`; `sluice/set vector` chooses the vector instructions of all parts.
//! Texts: OVS 3.1 lib/dpif-netdev.c, lib/dpif-netdev-private-dpif.c and lib/odp-execute.c.

use super::Reply;
use sluice_vswitch::Switch;

/// The name of the implementation of the datapath's input.
const DPIF: &str = "dpif_scalar";

/// The name of the implementations of parsing and of actions.
const SCALAR: &str = "scalar";

/// `dpif-netdev/dpif-impl-get`.
pub fn dpif_impl_get(switch: &Switch, _: &[&str]) -> Reply {
    Ok(format!("Available DPIF implementations:\n  {DPIF} (pmds: {})\n", pmds(switch)))
}

/// `dpif-netdev/dpif-impl-set NAME`.
pub fn dpif_impl_set(_: &Switch, args: &[&str]) -> Reply {
    let name = args[0];
    if name != DPIF {
        return Err(format!("DPIF implementation not available: Unknown DPIF implementation {name}.\n"));
    }
    Ok(format!("DPIF implementation set to {name}.\n"))
}

/// `dpif-netdev/miniflow-parser-get`.
pub fn miniflow_parser_get(switch: &Switch, _: &[&str]) -> Reply {
    Ok(format!("Available MFEX implementations:\n  {SCALAR} (available: True pmds: {})\n", pmds(switch)))
}

/// `odp-execute/action-impl-show`.
pub fn action_impl_show(_: &Switch, _: &[&str]) -> Reply {
    Ok(format!("Available Actions implementations:\n  {SCALAR} (available: Yes, active: Yes)\n"))
}

/// `odp-execute/action-impl-set NAME`.
pub fn action_impl_set(_: &Switch, args: &[&str]) -> Reply {
    let name = args[0];
    if name != SCALAR {
        return Err(format!("Error: unknown action implementation, {name}, specified!"));
    }
    Ok(format!("Action implementation set to {name}."))
}

/// The cores of the PMDs, as these commands list them.
fn pmds(switch: &Switch) -> String {
    let mut cores: Vec<usize> = switch.datapath().pmds().into_iter().filter_map(|pmd| pmd.core).collect();
    cores.sort_unstable();
    let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
    if cores.is_empty() { "none".to_owned() } else { cores.join(",") }
}

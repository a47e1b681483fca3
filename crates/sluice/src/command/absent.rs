//! Commands about what this switch never has: spanning trees, multicast snooping. They answer
//! as Open vSwitch does where none is configured, so that support tools that run them all find nothing amiss.

use super::Reply;
use sluice_vswitch::Switch;

/// Shows all objects of a kind, of which there are none, or the one that is named.
fn show(args: &[&str], missing: &str) -> Reply {
    if args.is_empty() { Ok(String::new()) } else { Err(missing.to_owned()) }
}

/// Does something to all objects of a kind, of which there are none, or to the one that is named.
fn change(args: &[&str], missing: &str) -> Reply {
    if args.is_empty() { Ok("OK".to_owned()) } else { Err(missing.to_owned()) }
}

pub fn stp_show(_: &Switch, args: &[&str]) -> Reply {
    show(args, "no such stp object")
}

pub fn stp_tcn(_: &Switch, args: &[&str]) -> Reply {
    change(args, "no such stp object")
}

pub fn rstp_show(_: &Switch, args: &[&str]) -> Reply {
    show(args, "No such RSTP object")
}

pub fn rstp_tcn(_: &Switch, args: &[&str]) -> Reply {
    change(args, "No such RSTP object")
}

pub fn cfm_show(_: &Switch, args: &[&str]) -> Reply {
    show(args, "no such CFM object")
}

pub fn mdb_show(switch: &Switch, args: &[&str]) -> Reply {
    no_snooping(switch, args[0])
}

pub fn mdb_flush(switch: &Switch, args: &[&str]) -> Reply {
    args.first().map_or_else(|| Ok("table successfully flushed".to_owned()), |bridge| no_snooping(switch, bridge))
}

fn no_snooping(switch: &Switch, bridge: &str) -> Reply {
    Err(if switch.has_bridge(bridge) { "multicast snooping is disabled" } else { "no such bridge" }.to_owned())
}

//! Commands about bridges: their rules and ports.

use super::{Reply, options};
use crate::config::read_source;
use crate::process::Process;
use crate::program;
use crate::text::rules;
use sluice_ofp::text::FlowLine;
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_unixctl::Pieces;
use sluice_vswitch::Switch;
use std::path::Path;
use std::sync::Arc;

/// What OVS answers when a bridge is not there.
const UNKNOWN_BRIDGE: &str = "Unknown bridge";

/// The bridge exists, for a command of Open vSwitch.
fn check_known(switch: &Switch, bridge: &str) -> Result<(), String> {
    switch.has_bridge(bridge).then_some(()).ok_or_else(|| UNKNOWN_BRIDGE.into())
}

/// The bridge exists, for a command of ours.
pub fn check_bridge(switch: &Switch, bridge: &str) -> Result<(), String> {
    if switch.has_bridge(bridge) {
        return Ok(());
    }
    let names: Vec<_> = switch.ofproto().bridges().into_iter().map(|bridge| bridge.name).collect();
    Err(format!("no bridge \"{bridge}\"; expected one of {}", names.join(", ")))
}

/// An error of ours, as text of one line.
pub fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

pub fn add_flow(switch: &Switch, args: &[&str]) -> Reply {
    change(switch, args[0], FlowCommand::Add, args[1])
}

pub fn mod_flows(switch: &Switch, args: &[&str]) -> Reply {
    match args {
        ["--strict", bridge, flow] => change(switch, bridge, FlowCommand::ModifyStrict, flow),
        [bridge, flow] => change(switch, bridge, FlowCommand::Modify, flow),
        [other, ..] => Err(format!("\"{other}\": expected --strict, a bridge and a flow")),
        [] => unreachable!("invariant: the table asks for two arguments"),
    }
}

pub fn del_flows(switch: &Switch, args: &[&str]) -> Reply {
    match args {
        ["--strict", bridge, flow] => change(switch, bridge, FlowCommand::DeleteStrict, flow),
        [bridge, flow] => change(switch, bridge, FlowCommand::Delete, flow),
        [bridge] => change(switch, bridge, FlowCommand::Delete, ""),
        [other, ..] => Err(format!("\"{other}\": expected --strict, a bridge and a match")),
        [] => unreachable!("invariant: the table asks for an argument"),
    }
}

fn change(switch: &Switch, bridge: &str, command: FlowCommand, flow: &str) -> Reply {
    check_bridge(switch, bridge)?;
    let flow_mod = FlowMod::parse(flow, command, &switch.port_names(bridge)).map_err(text)?;
    switch.ofproto().flow_mod(bridge, &flow_mod, switch.now_ms()).map_err(text)?;
    switch.request_revalidation();
    Ok(String::new())
}

pub fn replace_flows(switch: &Switch, args: &[&str]) -> Reply {
    check_bridge(switch, args[0])?;
    let rules = read_source(Path::new(args[1])).map_err(text)?;
    switch.replace_rules(args[0], &rules).map_err(text)?;
    Ok(String::new())
}

pub fn dump_flows(process: &Arc<Process>, args: &[&str]) -> Result<Pieces, String> {
    let switch = process.switch();
    // As in OVS, the bridge is the last argument; nothing here is offloaded, so there are no such statistics.
    let bridge = args[args.len() - 1];
    check_known(switch, bridge)?;
    // With what the megaflows have carried until now.
    switch.revalidate();
    let line = |line: &FlowLine<'_>| line.display_in_bridge().to_string();
    let dump = rules::dump(switch.ofproto(), bridge, switch.now_ms(), line).map_err(text)?;
    Ok(Box::new(dump))
}

pub fn add_port(switch: &Switch, args: &[&str]) -> Reply {
    check_bridge(switch, args[0])?;
    let port = options::port(args[1], &args[2..])?;
    switch.add_port(args[0], &port).map_err(text)?;
    Ok(String::new())
}

pub fn del_port(switch: &Switch, args: &[&str]) -> Reply {
    check_bridge(switch, args[0])?;
    switch.remove_port(args[0], args[1]).map_err(text)?;
    Ok(String::new())
}

pub fn ofproto_list(switch: &Switch, _: &[&str]) -> Reply {
    Ok(switch.ofproto().list())
}

pub fn ofproto_trace(switch: &Switch, args: &[&str]) -> Reply {
    switch.ofproto().trace(&trace_arguments(args), switch.now_ms())
}

pub fn ofproto_trace_packet_out(switch: &Switch, args: &[&str]) -> Reply {
    switch.ofproto().trace_packet_out(&trace_arguments(args), switch.now_ms())
}

/// The arguments of a trace. In the place of Open vSwitch's daemon it answers in that one's words alone.
fn trace_arguments<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let style = program::is_open_vswitch().then_some("--plain");
    style.into_iter().chain(args.iter().copied()).collect()
}

pub fn fdb_show(switch: &Switch, args: &[&str]) -> Reply {
    switch.ofproto().fdb_show(args[0], switch.now_ms())
}

pub fn fdb_add(switch: &Switch, args: &[&str]) -> Reply {
    let reply = switch.ofproto().fdb_add(args[0], args[1], args[2], args[3]);
    switch.request_revalidation();
    reply
}

pub fn fdb_del(switch: &Switch, args: &[&str]) -> Reply {
    let reply = switch.ofproto().fdb_del(args[0], args[1], args[2]);
    switch.request_revalidation();
    reply
}

pub fn fdb_flush(switch: &Switch, args: &[&str]) -> Reply {
    let reply = switch.ofproto().fdb_flush(args.first().copied());
    switch.request_revalidation();
    reply
}

pub fn fdb_stats_clear(switch: &Switch, args: &[&str]) -> Reply {
    switch.ofproto().fdb_stats_clear(args.first().copied())
}

pub fn fdb_stats_show(switch: &Switch, args: &[&str]) -> Reply {
    switch.ofproto().fdb_stats_show(args[0])
}

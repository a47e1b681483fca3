//! Metrics of what the switch keeps: connections, rules, megaflows, memory, controllers, limits, captures, build.

use super::exposition::{Families, Sample};
use crate::command::usage;
use sluice_fate::Limit;
use sluice_vswitch::Switch;
use std::fmt;

/// Writes all of them.
pub(super) fn collect(out: &mut Families<'_>, switch: &Switch) -> fmt::Result {
    build(out)?;
    memory(out, switch)?;
    connections(out, switch)?;
    rules(out, switch)?;
    controllers(out, switch)?;
    limits(out, switch)?;
    let captures = switch.datapath().captures() as u64;
    out.gauge("captures", "Packet captures under way (sluice capture).", [plain(captures)])
}

/// A sample without labels.
fn plain(value: u64) -> Sample {
    (Vec::new(), value)
}

fn build(out: &mut Families<'_>) -> fmt::Result {
    let labels = vec![
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("profile", if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned()),
        ("dpdk", cfg!(feature = "dpdk").to_string()),
    ];
    out.gauge("build_info", "The program that runs, as labels; always 1.", [(labels, 1)])
}

fn memory(out: &mut Families<'_>, switch: &Switch) -> fmt::Result {
    let resident = resident_bytes().map(plain);
    out.gauge("resident_memory_bytes", "Memory of the process that is in RAM, huge pages not counted.", resident)?;
    let buffers = switch.usage().packet_buffers as u64;
    out.gauge("packet_buffers", "Buffers for packets, free ones and those in use.", [plain(buffers)])
}

/// Source: proc(5), /proc/PID/statm: the second number is pages in RAM.
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn connections(out: &mut Families<'_>, switch: &Switch) -> fmt::Result {
    let conntrack = switch.datapath().conntrack();
    let count = conntrack.connections() as u64;
    out.gauge("conntrack_connections", "Connections that are tracked (action ct), in all zones.", [plain(count)])?;
    let help = "Connections that may be tracked at most (dpctl/ct-set-maxconns).";
    out.gauge("conntrack_connections_max", help, [plain(conntrack.connections_max() as u64)])
}

fn rules(out: &mut Families<'_>, switch: &Switch) -> fmt::Result {
    let bridges = switch.ofproto().bridges();
    let mut rules: Vec<Sample> = Vec::new();
    let mut searches: [Vec<Sample>; 2] = Default::default();
    for bridge in &bridges {
        for table in switch.ofproto().table_stats(&bridge.name).unwrap_or_default() {
            let labels = || vec![("bridge", bridge.name.clone()), ("table", table.table.to_string())];
            rules.push((labels(), table.rules as u64));
            searches[0].push((labels(), table.matched));
            searches[1].push((labels(), table.missed));
        }
    }
    let [matched, missed] = searches;
    out.gauge("rules", "OpenFlow rules, by bridge and table; tables that were never used are left out.", rules)?;
    out.counter("table_matched_total", "Packets for which a rule was found in a table.", matched)?;
    out.counter("table_missed_total", "Packets for which no rule was found in a table.", missed)?;
    let megaflows = switch.datapath().store().len() as u64;
    let help = "Megaflows (cached decisions for sets of packets) of the whole switch.";
    out.gauge("datapath_megaflows", help, [plain(megaflows)])
}

fn controllers(out: &mut Families<'_>, switch: &Switch) -> fmt::Result {
    let mut connected = Vec::new();
    for bridge in switch.ofproto().bridges() {
        for controller in switch.controllers(&bridge.name) {
            let labels = vec![("bridge", bridge.name.clone()), ("target", controller.target.to_string())];
            connected.push((labels, u64::from(controller.is_connected())));
        }
    }
    out.gauge("controller_connected", "1 while a bridge is connected to that OpenFlow controller, else 0.", connected)
}

fn limits(out: &mut Families<'_>, switch: &Switch) -> fmt::Result {
    let label = |limit: &Limit| vec![("limit", limit.name().trim_start_matches("limit-").to_owned())];
    let used = |limit: &Limit| Some((label(limit), usage(switch, *limit)?.used));
    let bound = |limit: &Limit| Some((label(limit), usage(switch, *limit)?.bound));
    let help = "What is in use of a bounded resource (sluice/limits-show), in its unit: bytes or pieces.";
    out.gauge("limit_used", help, Limit::ALL.iter().filter_map(used))?;
    let help = "How much of a bounded resource there may be, in its unit: bytes or pieces.";
    out.gauge("limit_bound", help, Limit::ALL.iter().filter_map(bound))?;
    let help = "How often a bound was met, so that something was refused or dropped; docs/limits.md says what.";
    out.counter("limit_met_total", help, Limit::ALL.iter().map(|limit| (label(limit), limit.count())))
}

//! `sluice/overview`: the switch at a glance, as `sluice top` shows it.

use crate::text::megaflows::dpctl_line;
use sluice_datapath::PortReport;
use sluice_fate::Counter;
use sluice_top::{FlowRow, Overview, PmdRow, PortRow, QueueRow, Totals};
use sluice_vswitch::Switch;

/// Flows shown.
const BUSIEST: usize = 20;
/// Megaflows beyond which looking at each of them every second would cost too much.
const LOOKED_AT_MAX: usize = 200_000;

/// The switch now.
pub fn overview(switch: &Switch) -> Overview {
    let totals = switch.totals();
    let names = switch.datapath_names();
    let pmds = switch.datapath().pmds();
    let megaflows = pmds.iter().map(|pmd| pmd.megaflows).max().unwrap_or(0);
    let port = |PortReport { number, info, stats, is_up, fates, .. }| PortRow {
        name: names.display(number).to_string(),
        kind: info.kind.to_owned(),
        is_up,
        rx_packets: stats.rx_packets,
        rx_bytes: stats.rx_bytes,
        tx_packets: stats.tx_packets,
        tx_bytes: stats.tx_bytes,
        dropped: stats.rx_missed + fates.dropped_in_all(),
    };
    let ports: Vec<PortRow> = switch.datapath().ports().into_iter().map(port).collect();
    let sum = |of: fn(&PortRow) -> u64| ports.iter().map(of).sum();
    let queues = switch.datapath().autopilots().into_iter().flat_map(|(_, reports)| reports).map(|report| QueueRow {
        port: names.display(report.port).to_string(),
        queue: report.queue,
        levels: report.arms[report.in_charge].arm.to_string(),
        cycles: report.arms[report.in_charge].cost,
        changes: report.changes,
    });
    Overview {
        totals: Totals {
            received: sum(|port| port.rx_packets),
            sent: sum(|port| port.tx_packets),
            dropped: sum(|port| port.dropped),
            passes: totals[Counter::Passes],
            emc_hits: totals[Counter::EmcHits],
            smc_hits: totals[Counter::SmcHits],
            distributor_hits: totals[Counter::DistributorHits],
            megaflow_hits: totals[Counter::MegaflowHits],
            upcalls: totals[Counter::Upcalls],
            busy_cycles: totals[Counter::BusyCycles],
        },
        ports,
        queues: queues.collect(),
        pmds: pmds
            .iter()
            .map(|pmd| PmdRow {
                pmd: pmd.pmd,
                core: pmd.core,
                busy_cycles: pmd.counters[Counter::BusyCycles],
                idle_cycles: pmd.counters[Counter::IdleCycles],
                emc_used: pmd.emc.used,
                emc_entries: pmd.emc.entries,
                subtables: pmd.subtables,
                megaflows: pmd.megaflows,
            })
            .collect(),
        megaflows,
        busiest: if megaflows > LOOKED_AT_MAX { Vec::new() } else { busiest(switch) },
    }
}

fn busiest(switch: &Switch) -> Vec<FlowRow> {
    let (names, now_ms) = (switch.datapath_names(), switch.now_ms());
    let mut flows = switch.datapath().flows();
    flows.sort_by_key(|flow| std::cmp::Reverse(flow.flow.stats.packets));
    let row = |flow: &sluice_datapath::FlowReport| FlowRow {
        packets: flow.flow.stats.packets,
        text: short(&dpctl_line(flow, flow.flow.stats, false, &names, now_ms)),
    };
    flows.iter().take(BUSIEST).map(row).collect()
}

/// A megaflow in the width of a screen: without what nearly all have alike, and without the counters, which stand beside it.
fn short(line: &str) -> String {
    let line = line.replacen("recirc_id(0),", "", 1).replacen("packet_type(ns=0,id=0),", "", 1);
    match (line.find(", packets:"), line.find(", actions:")) {
        (Some(counters), Some(actions)) if counters < actions => format!("{}{}", &line[..counters], &line[actions..]),
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn what_tells_megaflows_apart_stays() {
        let line = "recirc_id(0),in_port(gen),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(src=1.0.0.0/255.0.0.0), packets:3, bytes:180, used:0.1s, actions:sink";
        assert_eq!(short(line), "in_port(gen),eth_type(0x0800),ipv4(src=1.0.0.0/255.0.0.0), actions:sink");
        let second = "recirc_id(0x1),in_port(gen),eth_type(0x0800), actions:drop";
        assert_eq!(short(second), second);
    }
}

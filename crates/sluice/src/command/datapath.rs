//! Commands about the datapath: its PMDs, ports and megaflows.

use super::Reply;
use super::options::{PmdOptions, names_datapath};
use crate::text::datapath::{
    DATAPATH, PortLine, dpctl_show as show_datapath, dpif_show as show_bridges, upcall_show as show_upcalls,
};
use crate::text::pmd::{self, PmdFigures, RxqFigures, Thread};
use crate::text::port;
use sluice_datapath::PmdReport;
use sluice_vswitch::Switch;
use std::collections::BTreeMap;
use time::OffsetDateTime;

/// The length of the measurement that `pmd-rxq-show` shows, seconds. Source: OVS, PMD_INTERVAL_LEN times
/// PMD_INTERVAL_MAX.
const USAGE_SECS: u64 = 60;

/// The revalidator thread's number in `upcall/show`; there is one.
const REVALIDATOR: u32 = 1;

/// The PMDs asked for.
fn pmds(switch: &Switch, options: &PmdOptions) -> Vec<PmdReport> {
    let wanted = |report: &PmdReport| options.core.is_none_or(|core| report.core == Some(core as usize));
    let mut reports: Vec<_> = switch.datapath().pmds().into_iter().filter(wanted).collect();
    // As in OVS, the main thread comes last.
    reports.sort_by_key(|report| report.core.unwrap_or(usize::MAX));
    reports
}

/// A PMD's figures for the texts.
pub fn figures(report: &PmdReport) -> PmdFigures {
    PmdFigures {
        thread: thread(report.core),
        counters: report.counters.clone(),
        measured: report.measured,
        emc: Some((report.emc.used as u64, report.emc.entries as u64)),
    }
}

/// A worker as the texts name it.
pub fn thread(core: Option<usize>) -> Thread {
    core.map_or(Thread::Main, |core| Thread::Pmd { numa: switch_numa(core), core: core as u32 })
}

/// The NUMA node of a core, as the system tells; 0 where it does not.
pub fn switch_numa(core: usize) -> u32 {
    let Ok(entries) = std::fs::read_dir(format!("/sys/devices/system/cpu/cpu{core}")) else { return 0 };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix("node")?.parse().ok()).next().unwrap_or(0)
}

pub fn pmd_perf_show(switch: &Switch, args: &[&str]) -> Reply {
    Ok(perf_show(switch, &PmdOptions::parse(args)))
}

/// `pmd-perf-show` of the PMDs asked for.
pub fn perf_show(switch: &Switch, options: &PmdOptions) -> String {
    let show =
        |report: PmdReport| pmd::perf_show(&figures(&report), sluice_datapath::tsc_hz(), OffsetDateTime::now_utc());
    // As in OVS, there is nothing to measure of a thread that sleeps.
    pmds(switch, options).into_iter().filter(|report| report.core.is_some()).map(show).collect()
}

pub fn pmd_stats_show(switch: &Switch, args: &[&str]) -> Reply {
    Ok(pmds(switch, &PmdOptions::parse(args)).iter().map(|report| pmd::stats_show(&figures(report))).collect())
}

pub fn pmd_stats_clear(switch: &Switch, args: &[&str]) -> Reply {
    let options = PmdOptions::parse(args);
    match options.core {
        Some(core) => switch
            .datapath()
            .pmds()
            .iter()
            .filter(|p| p.core == Some(core as usize))
            .for_each(|p| switch.datapath().clear_pmd_stats(p.pmd)),
        None => switch.datapath().clear_stats(),
    }
    Ok(String::new())
}

pub fn pmd_rxq_rebalance(switch: &Switch, args: &[&str]) -> Reply {
    if args.iter().any(|name| !names_datapath(name)) {
        return Err("please specify an existing datapath".into());
    }
    let moved = switch.datapath().rebalance();
    tracing::info!("{moved} receive queues moved");
    Ok("pmd rxq rebalance requested.\n".into())
}

pub fn pmd_rxq_show(switch: &Switch, args: &[&str]) -> Reply {
    let options = PmdOptions::parse(args);
    let names = switch.datapath_names();
    let mut out = format!("Displaying last {USAGE_SECS} seconds pmd usage %\n");
    for report in pmds(switch, &options).into_iter().filter(|report| report.core.is_some()) {
        let queues = report.rxqs.iter().map(|rxq| RxqFigures {
            port: names.display(rxq.port).to_string(),
            queue: rxq.queue,
            usage: rxq.usage_percent.map(u64::from),
        });
        let overhead = report.overhead_percent.map(u64::from);
        out += &pmd::rxq_show(thread(report.core), queues.collect(), overhead);
    }
    Ok(out)
}

pub fn dpctl_dump_dps(_: &Switch, _: &[&str]) -> Reply {
    Ok(format!("{DATAPATH}\n"))
}

pub fn dpctl_show(switch: &Switch, args: &[&str]) -> Reply {
    let with_statistics = args.contains(&"-s") || args.contains(&"--statistics");
    if let Some(other) = args.iter().find(|arg| !arg.starts_with('-') && !names_datapath(arg)) {
        return Err(format!("sluice: opening datapath {other} failed (No such device)"));
    }
    let ports = port_lines(switch).into_values().flatten().filter(|port| port.number.is_some()).collect();
    Ok(show_datapath(switch.lookups(), ports, with_statistics))
}

/// The ports of each bridge, for the texts.
fn port_lines(switch: &Switch) -> BTreeMap<String, Vec<PortLine>> {
    let bridges = switch.port_status().into_iter();
    bridges.map(|(bridge, ports)| (bridge, ports.into_iter().map(PortLine::of).collect())).collect()
}

/// What became of the packets of one port or all: by reason, where they were dropped.
pub fn port_show(switch: &Switch, args: &[&str]) -> Reply {
    let names = switch.datapath_names();
    let named = switch.datapath().ports().into_iter().map(|report| (names.display(report.number).to_string(), report));
    let shown: String = named
        .filter(|(name, _)| args.first().is_none_or(|wanted| wanted == name))
        .map(|(name, report)| port::show(&name, &report))
        .collect();
    match args.first() {
        Some(wanted) if shown.is_empty() => {
            Err(format!("no port {wanted} is open; `dpif/show` lists the ports, and why one is closed"))
        }
        _ => Ok(shown),
    }
}

pub fn dpif_dump_dps(switch: &Switch, _: &[&str]) -> Reply {
    let mut names: Vec<_> =
        switch.ofproto().bridges().into_iter().map(|bridge| format!("netdev@{}\n", bridge.name)).collect();
    names.sort();
    Ok(names.concat())
}

pub fn dpif_show(switch: &Switch, _: &[&str]) -> Reply {
    Ok(show_bridges(switch.lookups(), &port_lines(switch)))
}

pub fn upcall_disable_megaflows(switch: &Switch, _: &[&str]) -> Reply {
    switch.enable_megaflows(false);
    Ok("megaflows disabled".into())
}

pub fn upcall_enable_megaflows(switch: &Switch, _: &[&str]) -> Reply {
    switch.enable_megaflows(true);
    Ok("megaflows enabled".into())
}

pub fn upcall_show(switch: &Switch, _: &[&str]) -> Reply {
    Ok(show_upcalls(switch.revalidator_figures(), REVALIDATOR))
}

pub fn revalidator_wait(switch: &Switch, _: &[&str]) -> Reply {
    switch.revalidate();
    Ok(String::new())
}

pub fn revalidator_purge(switch: &Switch, _: &[&str]) -> Reply {
    switch.purge();
    Ok(String::new())
}

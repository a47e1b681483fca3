//! Commands about the datapath: its PMDs, ports and megaflows.

use super::Reply;
use super::dpctl::resolve;
use super::options::{PmdOptions, names_datapath};
use crate::program;
use crate::text::datapath::{
    PortLine, datapath_name, dpctl_show as show_datapath, dpif_show as show_bridges, upcall_show as show_upcalls,
};
use crate::text::pmd::{self, PmdFigures, RxqFigures, Thread};
use crate::text::port;
use sluice_action::PortNo;
use sluice_datapath::perf_metrics::{PerfLog, PerfMetrics, text as perf_text};
use sluice_datapath::{PmdReport, USAGE_INTERVAL, USAGE_SPAN, numa};
use sluice_flow::OfPort;
use sluice_port::PortStats;
use sluice_vswitch::{DatapathRef, LoosePort, PortStatus, Switch};
use std::collections::BTreeMap;
use std::time::Duration;
use time::OffsetDateTime;

/// The revalidator thread's number in `upcall/show`; there is one.
const REVALIDATOR: u32 = 1;

/// The datapath asked for.
fn datapath_of(switch: &Switch, options: &PmdOptions) -> Result<DatapathRef, String> {
    let named =
        options.datapath.as_deref().map(|name| resolve(switch, name).ok_or("please specify an existing datapath"));
    Ok(named.transpose()?.unwrap_or(DatapathRef::Own))
}

/// The PMDs asked for.
fn pmds(switch: &Switch, at: &DatapathRef, options: &PmdOptions) -> Vec<PmdReport> {
    let wanted = |report: &PmdReport| options.core.is_none_or(|core| report.core == Some(core as usize));
    let reports = switch.datapath_of(at).pmds_over(usage_span(options));
    let mut reports: Vec<_> = reports.into_iter().filter(wanted).collect();
    // As in OVS, the main thread comes last.
    reports.sort_by_key(|report| report.core.unwrap_or(usize::MAX));
    reports
}

/// The time whose usage is asked for, in whole intervals; what is none counts as the longest. Source: OVS
/// lib/dpif-netdev.c, `dpif_netdev_pmd_info`.
fn usage_span(options: &PmdOptions) -> Duration {
    let wanted = options.secs.filter(|secs| (1..=USAGE_SPAN.as_secs()).contains(secs));
    wanted.map_or(USAGE_SPAN, |secs| Duration::from_secs(secs.next_multiple_of(USAGE_INTERVAL.as_secs())))
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
    core.map_or(Thread::Main, |core| Thread::Pmd { numa: numa::node_of(core), core: core as u32 })
}

pub fn pmd_perf_show(switch: &Switch, args: &[&str]) -> Reply {
    let options = PmdOptions::parse(args);
    Ok(perf_show_of(switch, &datapath_of(switch, &options)?, &options))
}

/// `pmd-perf-show` of the PMDs asked for.
pub fn perf_show(switch: &Switch, options: &PmdOptions) -> String {
    perf_show_of(switch, &DatapathRef::Own, options)
}

fn perf_show_of(switch: &Switch, at: &DatapathRef, options: &PmdOptions) -> String {
    let datapath = switch.datapath_of(at);
    let show = |report: PmdReport| {
        let text = pmd::perf_show(&figures(&report), sluice_datapath::tsc_hz(), OffsetDateTime::now_utc());
        text + &datapath.perf_metrics(report.pmd).map_or_else(String::new, |metrics| metrics_text(&metrics, options))
    };
    // As in OVS, there is nothing to measure of a thread that sleeps.
    pmds(switch, at, options).into_iter().filter(|report| report.core.is_some()).map(show).collect()
}

/// What `pmd-perf-show` shows of the metrics of one PMD.
fn metrics_text(metrics: &PerfMetrics, options: &PmdOptions) -> String {
    let mut out = String::new();
    if !options.without_histograms {
        out += &format!("\n{}", perf_text::histograms(metrics));
    }
    if options.iterations != 0 {
        out += &format!("\n{}", perf_text::iterations(metrics.iterations().take(options.iterations)));
    }
    if options.milliseconds != 0 {
        out += &format!("\n{}", perf_text::milliseconds(metrics.milliseconds().take(options.milliseconds)));
    }
    out
}

/// `pmd-perf-log-set [on|off] [-b N] [-a N] [-e|-ne] [-us N] [-q N]`: which iterations are logged. Source: Open vSwitch
/// lib/dpif-netdev-perf.c, `pmd_perf_log_set_cmd`.
pub fn pmd_perf_log_set(switch: &Switch, args: &[&str]) -> Reply {
    let log = perf_log(switch.datapath().perf_log(), args).ok_or(PERF_LOG_USAGE)?;
    let PerfLog { is_on, before, after, extends, limit_us, limit_qfill } = log;
    let state = if is_on { "on" } else { "off" };
    tracing::info!(
        target: "pmd_perf",
        "pmd-perf-log-set: {state}, before={before}, after={after}, extend={extends}, us_thr={limit_us}, q_thr={limit_qfill}"
    );
    switch.datapath().set_perf_log(log);
    Ok(String::new())
}

const PERF_LOG_USAGE: &str =
    "Usage: ovs-appctl dpif-netdev/pmd-perf-log-set [on|off] [-b before] [-a after] [-e|-ne] [-us usec] [-q qlen]";

fn perf_log(mut log: PerfLog, args: &[&str]) -> Option<PerfLog> {
    let mut words = args.iter();
    let number = |word: Option<&&str>| word?.parse::<u32>().ok().map(u64::from);
    while let Some(word) = words.next() {
        match *word {
            "on" => log.is_on = true,
            "off" => log.is_on = false,
            "-e" => log.extends = true,
            "-ne" => log.extends = false,
            "-b" => log.before = number(words.next())?,
            "-a" => log.after = number(words.next())?,
            "-us" => log.limit_us = number(words.next())?,
            "-q" => log.limit_qfill = number(words.next())?,
            _ => return None,
        }
    }
    Some(log.bounded())
}

pub fn pmd_stats_show(switch: &Switch, args: &[&str]) -> Reply {
    let options = PmdOptions::parse(args);
    let at = datapath_of(switch, &options)?;
    Ok(pmds(switch, &at, &options).iter().map(|report| pmd::stats_show(&figures(report))).collect())
}

pub fn pmd_stats_clear(switch: &Switch, args: &[&str]) -> Reply {
    let options = PmdOptions::parse(args);
    let at = datapath_of(switch, &options)?;
    let datapath = switch.datapath_of(&at);
    match options.core {
        Some(core) => {
            let pmds = datapath.pmds();
            let of_core = pmds.iter().filter(|pmd| pmd.core == Some(core as usize));
            of_core.for_each(|pmd| datapath.clear_pmd_stats(pmd.pmd));
        }
        None => datapath.clear_stats(),
    }
    Ok(String::new())
}

pub fn pmd_rxq_rebalance(switch: &Switch, args: &[&str]) -> Reply {
    let at = datapath_of(switch, &PmdOptions::parse(args))?;
    let moved = switch.datapath_of(&at).rebalance();
    tracing::info!("{moved} receive queues moved");
    Ok("pmd rxq rebalance requested.\n".into())
}

pub fn pmd_rxq_show(switch: &Switch, args: &[&str]) -> Reply {
    let options = PmdOptions::parse(args);
    let at = datapath_of(switch, &options)?;
    let names = switch.names_of(&at);
    let mut out = format!("Displaying last {} seconds pmd usage %\n", usage_span(&options).as_secs());
    for report in pmds(switch, &at, &options).into_iter().filter(|report| report.core.is_some()) {
        let queues = report.rxqs.iter().map(|rxq| RxqFigures {
            port: names.display(rxq.port).to_string(),
            queue: rxq.queue,
            usage: rxq.usage_percent.map(u64::from),
        });
        let overhead = report.overhead_percent.map(u64::from);
        out += &pmd::rxq_show(thread(report.core), report.is_isolated, queues.collect(), overhead);
    }
    Ok(out)
}

/// The bridges by the type by which they name the datapath.
fn by_datapath_type(switch: &Switch) -> BTreeMap<String, Vec<String>> {
    let mut types = BTreeMap::<String, Vec<String>>::new();
    for bridge in switch.ofproto().bridges() {
        types.entry(bridge.datapath_type).or_default().push(bridge.name);
    }
    types
}

pub fn dpctl_dump_dps(switch: &Switch, _: &[&str]) -> Reply {
    let own = by_datapath_type(switch).into_keys().map(|datapath_type| datapath_name(&datapath_type));
    let made = switch.made_datapaths().into_iter().map(|made| made.name().to_owned());
    Ok(own.chain(made).map(|name| name + "\n").collect())
}

pub fn dpctl_show(switch: &Switch, args: &[&str]) -> Reply {
    let with_statistics = args.contains(&"-s") || args.contains(&"--statistics");
    let wanted: Vec<&str> = args.iter().copied().filter(|arg| !arg.starts_with('-')).collect();
    let types = by_datapath_type(switch);
    let is_name_of = |name: &str, datapath_type: &str| {
        let full = datapath_name(datapath_type);
        name == full || full.split_once('@').is_some_and(|(_, short)| name == short)
    };
    let is_own = |name: &str| names_datapath(name) && types.keys().any(|own| is_name_of(name, own));
    let unknown = |name: &&&str| !is_own(name) && switch.made_datapath(name).is_none();
    if let Some(other) = wanted.iter().find(unknown) {
        return Err(program::error(format_args!("opening datapath {other} failed (No such device)")));
    }
    let mut lines = port_lines(switch);
    let mut loose = loose_lines(switch, &DatapathRef::Own);
    let mut out = String::new();
    for (datapath_type, bridges) in &types {
        if !wanted.is_empty() && !wanted.iter().any(|name| is_name_of(name, datapath_type)) {
            continue;
        }
        let mut ports: Vec<_> = bridges.iter().filter_map(|bridge| lines.remove(bridge)).flatten().collect();
        ports.retain(|port| port.number.is_some());
        ports.extend(PortLine::of_datapath(datapath_type));
        ports.append(&mut loose);
        out += &show_datapath(&datapath_name(datapath_type), switch.lookups(), ports, with_statistics);
    }
    for made in switch.made_datapaths() {
        if wanted.is_empty()
            || wanted.iter().any(|name| switch.made_datapath(name).is_some_and(|it| it.name() == made.name()))
        {
            let at = DatapathRef::Made(made);
            let (lookups, ports) = (switch.lookups_of(&at), loose_lines(switch, &at));
            let DatapathRef::Made(made) = &at else { continue };
            out += &show_datapath(made.name(), lookups, ports, with_statistics);
        }
    }
    Ok(out)
}

/// The ports of a datapath that belong to no bridge, for the texts.
fn loose_lines(switch: &Switch, at: &DatapathRef) -> Vec<PortLine> {
    let reports = switch.datapath_of(at).ports().into_iter();
    let stats: BTreeMap<PortNo, PortStats> = reports.map(|report| (report.number, report.stats)).collect();
    let line = |port: LoosePort| {
        let status = PortStatus {
            name: port.name,
            ofport: OfPort::NONE,
            number: Some(port.number),
            kind: Some(port.kind),
            tunnel: None,
            peer: None,
            error: None,
            info: port.info,
        };
        PortLine::of(status, stats.get(&port.number).copied().unwrap_or_default())
    };
    switch.loose_ports(at).into_iter().map(line).collect()
}

/// The ports of each bridge, for the texts.
fn port_lines(switch: &Switch) -> BTreeMap<String, Vec<PortLine>> {
    let reports = switch.datapath().ports().into_iter();
    let stats: BTreeMap<PortNo, PortStats> = reports.map(|report| (report.number, report.stats)).collect();
    let line = |port: PortStatus| {
        let counted = port.number.and_then(|number| stats.get(&number).copied());
        PortLine::of(port, counted.unwrap_or_default())
    };
    let bridges = switch.port_status().into_iter();
    bridges.map(|(bridge, ports)| (bridge, ports.into_iter().map(line).collect())).collect()
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
    let mut names: Vec<_> = switch
        .ofproto()
        .bridges()
        .into_iter()
        .map(|bridge| format!("{}@{}\n", bridge.datapath_type, bridge.name))
        .collect();
    names.sort();
    Ok(names.concat())
}

pub fn dpif_show(switch: &Switch, _: &[&str]) -> Reply {
    let mut lines = port_lines(switch);
    let show = |(datapath_type, bridges): (String, Vec<String>)| {
        let bridges = bridges.into_iter().filter_map(|bridge| lines.remove_entry(&bridge)).collect();
        show_bridges(&datapath_name(&datapath_type), switch.lookups(), &bridges)
    };
    Ok(by_datapath_type(switch).into_iter().map(show).collect())
}

pub fn upcall_disable_megaflows(switch: &Switch, _: &[&str]) -> Reply {
    switch.enable_megaflows(false);
    Ok("megaflows disabled".into())
}

pub fn upcall_enable_megaflows(switch: &Switch, _: &[&str]) -> Reply {
    switch.enable_megaflows(true);
    Ok("megaflows enabled".into())
}

pub fn upcall_disable_ufid(switch: &Switch, _: &[&str]) -> Reply {
    switch.use_ufid(false);
    Ok("Datapath dumping tersely using UFID disabled".into())
}

pub fn upcall_enable_ufid(switch: &Switch, _: &[&str]) -> Reply {
    switch.use_ufid(true);
    Ok("Datapath dumping tersely using UFID enabled for supported datapaths".into())
}

/// `upcall/set-flow-limit N`. As in OVS, what is no number counts as 0.
pub fn upcall_set_flow_limit(switch: &Switch, args: &[&str]) -> Reply {
    let limit = args[0].parse().unwrap_or(0);
    switch.set_flow_limit(limit);
    Ok(format!("set flow_limit to {limit}\n"))
}

pub fn revalidator_pause(switch: &Switch, _: &[&str]) -> Reply {
    switch.pause_revalidator(true);
    Ok(String::new())
}

pub fn revalidator_resume(switch: &Switch, _: &[&str]) -> Reply {
    switch.pause_revalidator(false);
    Ok(String::new())
}

/// `dpif-dummy/change-port-number DATAPATH PORT NUMBER`.
pub fn change_port_number(switch: &Switch, args: &[&str]) -> Reply {
    let is_dummy = |kind: &String| kind == "dummy" && args[0] == "ovs-dummy";
    if !by_datapath_type(switch).keys().any(is_dummy) {
        return Err("unknown datapath or not a dummy".into());
    }
    let number = args[2].parse().ok().filter(|number| *number != 0).ok_or("bad port number");
    switch.renumber_port(args[1], PortNo(number?)).map_err(str::to_owned)?;
    Ok(String::new())
}

pub fn upcall_show(switch: &Switch, _: &[&str]) -> Reply {
    let figures = switch.revalidator_figures();
    let show = |datapath_type: &String| show_upcalls(&datapath_name(datapath_type), figures, REVALIDATOR);
    Ok(by_datapath_type(switch).keys().map(show).collect())
}

pub fn revalidator_wait(switch: &Switch, _: &[&str]) -> Reply {
    switch.revalidate();
    Ok(String::new())
}

pub fn revalidator_purge(switch: &Switch, _: &[&str]) -> Reply {
    switch.purge();
    Ok(String::new())
}

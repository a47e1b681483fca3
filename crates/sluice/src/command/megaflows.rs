//! Commands that show megaflows.

use super::dpctl::open;
use super::options::DumpOptions;
use super::packet_filter::{AnyBridgeFilter, FilterText};
use crate::process::Process;
use crate::program;
use crate::text::megaflows::{dpctl_line, dpif_line};
use sluice_action::{DatapathPortNames, PortNo};
use sluice_datapath::{FlowReport, PmdReport};
use sluice_flow::{OfPort, PortNames};
use sluice_ofproto::packet_of;
use sluice_unixctl::Pieces;
use sluice_vswitch::Switch;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

/// The "core" of the main worker, by which its megaflows can be asked for. Source: OVS lib/dpctl.c, `pmd=-1`.
const MAIN_THREAD: i64 = -1;

/// Megaflows of which the text is made at a time.
const FLOWS_AT_ONCE: usize = 256;

/// `dpctl/dump-flows`: PMD by PMD, what each has of the shared megaflows. Megaflows that go meanwhile are left out.
pub fn dpctl_dump_flows(process: &Arc<Process>, args: &[&str]) -> Result<Pieces, String> {
    let switch = process.switch();
    let options = DumpOptions::parse(args)?;
    let words: Vec<&str> = options.rest.iter().map(String::as_str).collect();
    let at = open(switch, &words)?;
    let datapath = switch.datapath_of(&at);
    let filter = options.filter.as_deref().map(|text| parse_filter(switch, text)).transpose()?;
    if !options.of_our_type {
        return Ok(Box::new(std::iter::empty()));
    }
    let names = if options.names { switch.names_of(&at) } else { switch.option_names() };
    let asked = Arc::clone(process);
    let passes = move |flow: &FlowReport| {
        let key = packet_of(&flow.flow.translation.xcache).unwrap_or(flow.flow.matched.key);
        filter.as_ref().is_none_or(|filter| filter.admits(&key, asked.switch().ofproto()))
    };
    let core_of = |pmd: &PmdReport| pmd.core.map_or(MAIN_THREAD, |core| i64::try_from(core).unwrap_or(i64::MAX));
    let mut pmds = datapath.pmds();
    pmds.retain(|pmd| options.pmd.is_none_or(|wanted| wanted == core_of(pmd)));
    let (flows, pmds) = (datapath.flow_names(), pmds.into_iter().map(|pmd| (pmd.pmd, pmd.core)).collect::<Vec<_>>());
    let (process, verbose, has_header) = (Arc::clone(process), options.verbose, options.pmd.is_none());
    let chunks = flows.len().div_ceil(FLOWS_AT_ONCE);
    let mut header = false;
    Ok(Box::new((0..pmds.len() * chunks).map(move |n| {
        let ((pmd, core), chunk) = (pmds[n / chunks], n % chunks);
        header = if chunk == 0 { has_header } else { header };
        let some = &flows[chunk * FLOWS_AT_ONCE..flows.len().min((chunk + 1) * FLOWS_AT_ONCE)];
        let switch = process.switch();
        let mut out = String::new();
        for flow in switch.datapath_of(&at).flows_named(some).iter().filter(|flow| passes(flow)) {
            let Some(stats) = flow.on_pmd(pmd) else { continue };
            if std::mem::take(&mut header) {
                let _ = match core {
                    Some(core) => writeln!(out, "flow-dump from pmd on cpu core: {core}"),
                    None => writeln!(out, "flow-dump from the main thread:"),
                };
            }
            out += &dpctl_line(flow, stats, verbose, &names, switch.now_ms());
            out.push('\n');
        }
        out
    })))
}

/// `dpif/dump-flows`: the megaflows of one bridge's ports. Megaflows that go meanwhile are left out.
pub fn dpif_dump_flows(process: &Arc<Process>, args: &[&str]) -> Result<Pieces, String> {
    // As in OVS, the bridge is the last argument.
    let (switch, bridge) = (process.switch(), args[args.len() - 1]);
    if !switch.has_bridge(bridge) {
        return Err("no such bridge".into());
    }
    let options = DumpOptions::parse(&args[..args.len() - 1])?;
    let names = names(switch, &options);
    let ports = switch.ofproto().ports(bridge).unwrap_or_default();
    let ports: BTreeSet<PortNo> = ports.iter().filter_map(|port| port.datapath()).collect();
    let (flows, process, mut at) = (switch.datapath().flow_names(), Arc::clone(process), 0);
    Ok(Box::new(std::iter::from_fn(move || {
        let some = flows.get(at..flows.len().min(at + FLOWS_AT_ONCE)).filter(|some| !some.is_empty())?;
        at += some.len();
        let switch = process.switch();
        let reports = switch.datapath().flows_named(some);
        let own = reports.iter().filter(|flow| ports.contains(&PortNo(flow.flow.matched.key.in_port())));
        Some(own.map(|flow| dpif_line(flow, options.verbose, &names, switch.now_ms()) + "\n").collect())
    })))
}

/// The names of ports, if they are to be shown.
fn names(switch: &Switch, options: &DumpOptions) -> DatapathPortNames {
    if options.names { switch.datapath_names() } else { switch.option_names() }
}

/// A filter, in whose text ports have their datapath numbers, as OVS has it.
fn parse_filter(switch: &Switch, text: &str) -> Result<AnyBridgeFilter, String> {
    let mut names = PortNames::NONE;
    for port in switch.port_status().into_values().flatten() {
        if let Some(number) = port.number.and_then(|number| u16::try_from(number.0).ok()) {
            names.insert(&port.name, OfPort(number));
        }
    }
    let parsed = FilterText::parse(text, &names).map(AnyBridgeFilter::new);
    parsed.map_err(|error| program::error(format_args!("Failed to parse filter ({error})")))
}

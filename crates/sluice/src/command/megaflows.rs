//! Commands that show megaflows.

use super::Reply;
use super::dpctl::open;
use super::options::DumpOptions;
use crate::program;
use crate::text::megaflows::{dpctl_line, dpif_line};
use sluice_action::{DatapathPortNames, PortNo};
use sluice_datapath::FlowReport;
use sluice_flow::{FlowKey, Match, OfPort, PortNames};
use sluice_ofproto::packet_of;
use sluice_vswitch::Switch;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The "core" of the main worker, by which its megaflows can be asked for. Source: OVS lib/dpctl.c, `pmd=-1`.
const MAIN_THREAD: i64 = -1;

/// `dpctl/dump-flows`: PMD by PMD, what each has of the shared megaflows.
pub fn dpctl_dump_flows(switch: &Switch, args: &[&str]) -> Reply {
    let options = DumpOptions::parse(args)?;
    let words: Vec<&str> = options.rest.iter().map(String::as_str).collect();
    let at = open(switch, &words)?;
    let datapath = switch.datapath_of(&at);
    let filter = options.filter.as_deref().map(|text| parse_filter(switch, text)).transpose()?;
    if !options.of_our_type {
        return Ok(String::new());
    }
    let names = if options.names { switch.names_of(&at) } else { switch.option_names() };
    let passes = |flow: &&FlowReport| {
        let key = packet_of(&flow.flow.translation.xcache).unwrap_or(flow.flow.matched.key);
        filter.as_ref().is_none_or(|f| FlowKey::of_packet(&key).matches(&f.mask, &f.key))
    };
    let flows = datapath.flows();
    let mut out = String::new();
    for pmd in datapath.pmds() {
        let core = pmd.core.map_or(MAIN_THREAD, |core| i64::try_from(core).unwrap_or(i64::MAX));
        if options.pmd.is_some_and(|wanted| wanted != core) {
            continue;
        }
        let mut header = options.pmd.is_none();
        for flow in flows.iter().filter(passes) {
            let Some(stats) = flow.on_pmd(pmd.pmd) else { continue };
            if std::mem::take(&mut header) {
                let _ = match pmd.core {
                    Some(core) => writeln!(out, "flow-dump from pmd on cpu core: {core}"),
                    None => writeln!(out, "flow-dump from the main thread:"),
                };
            }
            out += &dpctl_line(flow, stats, options.verbose, &names, switch.now_ms());
            out.push('\n');
        }
    }
    Ok(out)
}

/// `dpif/dump-flows`: the megaflows of one bridge's ports.
pub fn dpif_dump_flows(switch: &Switch, args: &[&str]) -> Reply {
    // As in OVS, the bridge is the last argument.
    let bridge = args[args.len() - 1];
    if !switch.has_bridge(bridge) {
        return Err("no such bridge".into());
    }
    let options = DumpOptions::parse(&args[..args.len() - 1])?;
    let names = names(switch, &options);
    let ports = switch.ofproto().ports(bridge).unwrap_or_default();
    let ports: BTreeSet<PortNo> = ports.iter().filter_map(|port| port.datapath()).collect();
    let flows = switch.datapath().flows();
    let own = flows.iter().filter(|flow| ports.contains(&PortNo(flow.flow.matched.key.in_port())));
    Ok(own.map(|flow| dpif_line(flow, options.verbose, &names, switch.now_ms()) + "\n").collect())
}

/// The names of ports, if they are to be shown.
fn names(switch: &Switch, options: &DumpOptions) -> DatapathPortNames {
    if options.names { switch.datapath_names() } else { switch.option_names() }
}

/// A filter, in whose text ports have their datapath numbers, as OVS has it.
fn parse_filter(switch: &Switch, text: &str) -> Result<Match, String> {
    let mut names = PortNames::NONE;
    for port in switch.port_status().into_values().flatten() {
        if let Some(number) = port.number.and_then(|number| u16::try_from(number.0).ok()) {
            names.insert(&port.name, OfPort(number));
        }
    }
    Match::parse(text, &names).map_err(|error| program::error(format_args!("Failed to parse filter ({error})")))
}

//! Megaflows, as `dpctl/dump-flows` and `dpif/dump-flows` show them.

use super::Switch;
use crate::command::options::DumpOptions;
use anyhow::{Result, anyhow};
use sluice_action::{DatapathPortNames, FlowStats, PortNo, show_actions, show_flow, show_stats, show_ufid};
use sluice_datapath::FlowReport;
use sluice_flow::{FlowKey, Match, OfPort, PortNames};
use sluice_ofproto::packet_of;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A megaflow's fields. As in OVS, values are those of the packet that it was made for, whatever the mask leaves of them.
fn show_match<'a>(flow: &'a FlowReport, verbose: bool, names: &'a DatapathPortNames) -> impl std::fmt::Display + 'a {
    let key = packet_of(&flow.flow.translation.xcache).unwrap_or(flow.flow.matched.key);
    std::fmt::from_fn(move |f| write!(f, "{}", show_flow(&key, &flow.flow.matched.mask, verbose, names)))
}

/// One megaflow as `dpctl/dump-flows` shows it, without a line feed.
pub fn dpctl_line(
    flow: &FlowReport,
    stats: FlowStats,
    verbose: bool,
    names: &DatapathPortNames,
    now_ms: u64,
) -> String {
    let mut out = String::new();
    if verbose {
        let _ = write!(out, "{}, ", show_ufid(flow.ufid));
    }
    let _ = write!(out, "{}, {}", show_match(flow, verbose, names), show_stats(stats, now_ms));
    out.push_str(if verbose { ", dp:ovs, actions:" } else { ", actions:" });
    let _ = write!(out, "{}", show_actions(&flow.flow.translation.actions, names));
    out
}

/// One megaflow as `dpif/dump-flows` shows it, without a line feed.
fn dpif_line(flow: &FlowReport, verbose: bool, names: &DatapathPortNames, now_ms: u64) -> String {
    let ufid = if verbose { format!("{} ", show_ufid(flow.ufid)) } else { String::new() };
    format!(
        "{ufid}{}, {}, actions:{}",
        show_match(flow, verbose, names),
        show_stats(flow.flow.stats, now_ms),
        show_actions(&flow.flow.translation.actions, names)
    )
}

impl Switch {
    /// `dpctl/dump-flows`: PMD by PMD, what each has of the shared megaflows.
    ///
    /// # Errors
    /// If the filter is wrong.
    pub fn dpctl_dump_flows(&self, options: &DumpOptions) -> Result<String> {
        let all_names = self.datapath_names();
        let filter = options.filter.as_deref().map(|text| self.parse_filter(text)).transpose()?;
        if !options.of_our_type {
            return Ok(String::new());
        }
        let no_names = DatapathPortNames::default();
        let names = if options.names { &all_names } else { &no_names };
        let passes = |flow: &&FlowReport| {
            let key = packet_of(&flow.flow.translation.xcache).unwrap_or(flow.flow.matched.key);
            filter.as_ref().is_none_or(|f| FlowKey::of_packet(&key).matches(&f.mask, &f.key))
        };
        let flows = self.datapath.flows();
        let mut out = String::new();
        for pmd in self.datapath.pmds() {
            if options.pmd.is_some_and(|wanted| i64::try_from(pmd.core) != Ok(wanted)) {
                continue;
            }
            let mut header = options.pmd.is_none();
            for flow in flows.iter().filter(passes) {
                let Some(stats) = flow.on_pmd(pmd.pmd) else { continue };
                if std::mem::take(&mut header) {
                    let _ = writeln!(out, "flow-dump from pmd on cpu core: {}", pmd.core);
                }
                out += &dpctl_line(flow, stats, options.verbose, names, self.now_ms());
                out.push('\n');
            }
        }
        Ok(out)
    }

    /// Every megaflow, at the end.
    pub fn final_megaflows(&self) -> Vec<String> {
        let (names, now_ms) = (DatapathPortNames::default(), self.now_ms());
        self.datapath.flows().iter().map(|flow| dpctl_line(flow, flow.flow.stats, false, &names, now_ms)).collect()
    }

    /// A filter, in whose text ports have their datapath numbers, as OVS has it.
    fn parse_filter(&self, text: &str) -> Result<Match> {
        let mut names = PortNames::NONE;
        for (name, entry) in &self.setup().ports {
            if let Some(number) = entry.number.and_then(|n| u16::try_from(n.0).ok()) {
                names.insert(name, OfPort(number));
            }
        }
        Match::parse(text, &names).map_err(|error| anyhow!("Failed to parse filter ({error})"))
    }

    /// `dpif/dump-flows`: the megaflows of one bridge's ports.
    pub fn dpif_dump_flows(&self, bridge: &str, options: &DumpOptions) -> String {
        let all_names = self.datapath_names();
        let no_names = DatapathPortNames::default();
        let names = if options.names { &all_names } else { &no_names };
        let ports = self.ofproto.ports(bridge).unwrap_or_default();
        let ports: BTreeSet<PortNo> = ports.iter().filter_map(|port| port.datapath()).collect();
        let flows = self.datapath.flows();
        let own = flows.iter().filter(|flow| ports.contains(&PortNo(flow.flow.matched.key.in_port())));
        own.map(|flow| dpif_line(flow, options.verbose, names, self.now_ms()) + "\n").collect()
    }
}

//! Megaflows, as `dpctl/dump-flows` and `dpif/dump-flows` show them.

use sluice_action::{DatapathPortNames, FlowStats, show_actions, show_flow, show_put_flow, show_stats, show_ufid};
use sluice_datapath::FlowReport;
use sluice_flow::PacketKey;
use sluice_ofproto::{is_put, packet_of};
use std::fmt::Write as _;

/// A megaflow's fields. As in OVS, values are those of the packet that it was made for, whatever the mask leaves of
/// them.
fn show_match<'a>(flow: &'a FlowReport, verbose: bool, names: &'a DatapathPortNames) -> impl std::fmt::Display + 'a {
    let key = key_of(flow);
    let is_put = is_put(&flow.flow.translation.xcache);
    std::fmt::from_fn(move |f| {
        let mask = &flow.flow.matched.mask;
        if is_put {
            return write!(f, "{}", show_put_flow(&key, mask, verbose, names));
        }
        write!(f, "{}", show_flow(&key, mask, verbose, names))
    })
}

fn key_of(flow: &FlowReport) -> PacketKey {
    packet_of(&flow.flow.translation.xcache).unwrap_or(flow.flow.matched.key)
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
    let stats = show_stats(stats.as_received(&key_of(flow)), now_ms);
    let _ = write!(out, "{}, {stats}", show_match(flow, verbose, names));
    out.push_str(if verbose { ", dp:ovs, actions:" } else { ", actions:" });
    let _ = write!(out, "{}", show_actions(&flow.flow.translation.actions, names));
    out
}

/// One megaflow as `dpif/dump-flows` shows it, without a line feed.
pub fn dpif_line(flow: &FlowReport, verbose: bool, names: &DatapathPortNames, now_ms: u64) -> String {
    let ufid = if verbose { format!("{} ", show_ufid(flow.ufid)) } else { String::new() };
    format!(
        "{ufid}{}, {}, actions:{}",
        show_match(flow, verbose, names),
        show_stats(flow.flow.stats.as_received(&key_of(flow)), now_ms),
        show_actions(&flow.flow.translation.actions, names)
    )
}

//! What is printed when a switch ends.

use crate::command;
use crate::command::options::PmdOptions;
use crate::text::megaflows::dpctl_line;
use crate::text::rules;
use sluice_action::DatapathPortNames;
use sluice_datapath::FlowReport;
use sluice_ofp::text::FlowLine;
use sluice_vswitch::Switch;

/// Megaflows, rules of a bridge, and bridges shown at the end; there may be millions.
const SHOWN_MAX: usize = 100;

/// What is printed at the end: PMD statistics, and how many rules and megaflows there were; some of them, if `dumps`.
pub fn summary(switch: &Switch, dumps: bool) -> String {
    let out = command::datapath::perf_show(switch, &PmdOptions::default());
    if dumps {
        return out + &dump(switch);
    }
    let bridges = switch.ofproto().bridges();
    let count = |bridge: &str| rules::dump_some(switch.ofproto(), bridge, 0, switch.now_ms(), |_| String::new());
    let rules: usize = bridges.iter().filter_map(|bridge| Some(count(&bridge.name).ok()?.1)).sum();
    let counts = format!("\nbridges: {}, rules: {rules}, megaflows: {}", bridges.len(), switch.lookups().flows);
    out + &counts + " (--dump shows them here; bridge/dump-flows and dpctl/dump-flows while the switch runs)\n"
}

/// Some rules and some megaflows. The end is to be soon, so it does not format all there is; commands do that while the
/// switch runs.
fn dump(switch: &Switch) -> String {
    let mut out = String::new();
    let now_ms = switch.now_ms();
    let bridges = switch.ofproto().bridges();
    for bridge in bridges.iter().take(SHOWN_MAX).map(|bridge| &*bridge.name) {
        let names = switch.port_names(bridge);
        let show = |line: &FlowLine<'_>| format!(" {}", line.display(&names));
        let (text, more) = rules::dump_some(switch.ofproto(), bridge, SHOWN_MAX, now_ms, show).unwrap_or_default();
        out += &format!("\nrules of {bridge}:\n{text}");
        out += &more_text(more, &format!(" rules: bridge/dump-flows {bridge} lists them while the switch runs"));
    }
    out += &more_text(bridges.len().saturating_sub(SHOWN_MAX), " bridges");
    let names = DatapathPortNames::default();
    let (flows, count) = switch.datapath().oldest_flows(SHOWN_MAX);
    out += &format!("\nmegaflows: {count}\n");
    let line = |flow: &FlowReport| dpctl_line(flow, flow.flow.stats, false, &names, now_ms) + "\n";
    out.extend(flows.iter().map(line));
    out + &more_text(count - flows.len(), "")
}

/// What stands for things that are not shown.
fn more_text(n: usize, what: &str) -> String {
    if n == 0 { String::new() } else { format!("… and {n} more{what}\n") }
}

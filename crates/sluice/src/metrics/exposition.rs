//! What the switch counts, in Prometheus's text format.

use crate::switch::Switch;
use sluice_datapath::{PmdReport, PortReport};
use sluice_fate::{Counter, DropReason};
use sluice_port::PortStats;
use std::fmt::{Display, Write};

/// Name, help, and how it is read.
type Metric<From, To> = (&'static str, &'static str, fn(&From) -> To);

/// The same of a port's drops for a reason.
type Drops = (&'static str, &'static str, fn(&PortReport, DropReason) -> u64);

/// Every metric, now.
pub fn text(switch: &Switch) -> String {
    let mut out = Text::default();
    let totals = switch.totals();
    for counter in Counter::ALL {
        let name = counter.name().replace('-', "_");
        out.head(&format!("{name}_total"), "counter", &format!("What all PMDs have counted as {}.", counter.name()));
        out.value(&format!("{name}_total"), &[], totals[*counter]);
    }
    out.head("dropped_packets_total", "counter", "Packets dropped, by reason.");
    for reason in DropReason::ALL {
        out.value("dropped_packets_total", &[("reason", reason.name())], totals.dropped(*reason));
    }
    pmds(&mut out, &switch.datapath.pmds());
    ports(&mut out, switch);
    autopilots(&mut out, switch);
    out.0
}

fn pmds(out: &mut Text, pmds: &[PmdReport]) {
    let gauges: [Metric<PmdReport, usize>; 4] = [
        ("emc_entries_used", "Entries of a PMD's exact match cache in use.", |pmd| pmd.emc.used),
        ("emc_entries", "Entries of a PMD's exact match cache.", |pmd| pmd.emc.entries),
        ("subtables", "Megaflow subtables of a PMD.", |pmd| pmd.subtables),
        ("megaflows", "Megaflows that a PMD has indexed.", |pmd| pmd.megaflows),
    ];
    for (name, help, read) in gauges {
        out.head(name, "gauge", help);
        for pmd in pmds {
            out.value(name, &[("pmd", &pmd.pmd.to_string()), ("core", &pmd.core.to_string())], read(pmd));
        }
    }
}

fn ports(out: &mut Text, switch: &Switch) {
    let (names, ports) = (switch.datapath_names(), switch.datapath.ports());
    let counters: [Metric<PortStats, u64>; 9] = [
        ("port_received_packets_total", "Packets a port received.", |s| s.rx_packets),
        ("port_received_bytes_total", "Bytes a port received.", |s| s.rx_bytes),
        ("port_receive_dropped_total", "Packets a port dropped on receipt.", |s| s.rx_dropped),
        ("port_receive_missed_total", "Of those, packets lost before the port had them.", |s| s.rx_missed),
        ("port_receive_errors_total", "Errors of a port on receipt.", |s| s.rx_errors),
        ("port_sent_packets_total", "Packets a port sent.", |s| s.tx_packets),
        ("port_sent_bytes_total", "Bytes a port sent.", |s| s.tx_bytes),
        ("port_send_dropped_total", "Packets a port dropped instead of sending.", |s| s.tx_dropped),
        ("port_send_errors_total", "Errors of a port on sending.", |s| s.tx_errors),
    ];
    for (name, help, read) in counters {
        out.head(name, "counter", help);
        for PortReport { number, info, stats, .. } in &ports {
            out.value(name, &[("port", &names.display(*number).to_string()), ("type", info.kind)], read(stats));
        }
    }
    let drops: [Drops; 2] = [
        (
            "port_received_and_dropped_packets_total",
            "Packets a port received and any room dropped, by reason.",
            |p, why| p.fates.dropped(why),
        ),
        ("port_unsent_packets_total", "Packets a port was to send and dropped, by reason.", |p, why| {
            p.stats.tx_drops[why as usize]
        }),
    ];
    for (name, help, read) in drops {
        out.head(name, "counter", help);
        for port in &ports {
            let (label, kind) = (names.display(port.number).to_string(), port.info.kind);
            for why in DropReason::ALL {
                out.value(name, &[("port", &label), ("type", kind), ("reason", why.name())], read(port, *why));
            }
        }
    }
    out.head("port_up", "gauge", "Whether a port's link is up.");
    for PortReport { number, info, is_up, .. } in &ports {
        let labels = [("port", &*names.display(*number).to_string()), ("type", info.kind)];
        out.value("port_up", &labels, u8::from(*is_up));
    }
}

fn autopilots(out: &mut Text, switch: &Switch) {
    let names = switch.datapath_names();
    out.head(
        "autopilot_in_charge",
        "gauge",
        "The levels of the lookup in use for a receive queue, as a label; always 1.",
    );
    for report in switch.datapath.autopilots().into_iter().flat_map(|(_, reports)| reports) {
        let (port, queue) = (names.display(report.port).to_string(), report.queue.to_string());
        let arm = report.arms[report.in_charge].arm.to_string();
        out.value("autopilot_in_charge", &[("port", &port), ("queue", &queue), ("levels", &arm)], 1);
    }
}

/// The text under way.
#[derive(Default)]
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP sluice_{name} {help}\n# TYPE sluice_{name} {kind}");
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escape(value))).collect();
        let _ = match labels.is_empty() {
            true => writeln!(self.0, "sluice_{name} {value}"),
            false => writeln!(self.0, "sluice_{name}{{{}}} {value}", labels.join(",")),
        };
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_form() {
        let mut out = Text::default();
        out.head("a_total", "counter", "What.");
        out.value("a_total", &[("port", "a\"b\\c\nd"), ("n", "1")], 7);
        out.value("b", &[], 0);
        let want = "# HELP sluice_a_total What.\n# TYPE sluice_a_total counter\n\
                    sluice_a_total{port=\"a\\\"b\\\\c\\nd\",n=\"1\"} 7\nsluice_b 0\n";
        assert_eq!(out.0, want);
    }
}

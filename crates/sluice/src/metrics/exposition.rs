//! What the switch counts, in Prometheus's text format (0.0.4), read when it is asked.

use super::state;
use crate::heartbeat;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use sluice_datapath::{PmdReport, PortReport};
use sluice_fate::{Counter, DropReason};
use sluice_port::PortStats;
use sluice_vlog::console_dropped;
use sluice_vswitch::Switch;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Name, help, and how it is read.
type Metric<From> = (&'static str, &'static str, fn(&From) -> u64);
/// The same of a port's drops for a reason.
type Drops = (&'static str, &'static str, fn(&PortReport, DropReason) -> u64);
/// A sample: its labels, its value.
pub(super) type Sample = (Vec<(&'static str, String)>, u64);

/// All metrics of a switch.
pub struct Exposition(Registry);

impl Exposition {
    /// Of that switch.
    pub fn of(switch: Arc<Switch>) -> Exposition {
        let mut registry = Registry::with_prefix("sluice");
        registry.register_collector(Box::new(Reader(switch)));
        Exposition(registry)
    }

    /// Every metric, now.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // A string takes whatever is written to it.
        let _ = text::encode_registry(&mut out, &self.0);
        out
    }
}

struct Reader(Arc<Switch>);

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

impl Collector for Reader {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (switch, mut out) = (&*self.0, Families(encoder));
        let totals = switch.totals();
        for counter in Counter::ALL {
            let name = format!("{}_total", counter.name().replace('-', "_"));
            out.counter(&name, counter.explanation(), [(Vec::new(), totals[*counter])])?;
        }
        let dropped = DropReason::ALL.iter().map(|r| (vec![("reason", r.name().to_owned())], totals.dropped(*r)));
        out.counter("dropped_packets_total", "Packets dropped, by reason; sluice/drops explains each.", dropped)?;
        process(&mut out)?;
        state::collect(&mut out, switch)?;
        pmds(&mut out, &switch.datapath().pmds())?;
        ports(&mut out, switch)?;
        autopilots(&mut out, switch)
    }
}

/// What the process gave up so that it waits for nobody.
fn process(out: &mut Families<'_>) -> fmt::Result {
    let dropped = console_dropped();
    let streams = [("stdout", dropped.output), ("stderr", dropped.error)];
    let streams = streams.map(|(stream, texts)| (vec![("stream", stream.to_owned())], texts));
    out.counter(
        "console_texts_dropped_total",
        "Lines of output that were given up because nobody read the stream in time, by stream.",
        streams,
    )?;
    let missed = heartbeat::missed().into_iter().map(|(thread, times)| (vec![("thread", thread)], times));
    out.counter(
        "heartbeats_missed_total",
        "How often a thread stood still for two seconds or longer, by thread; more than 0 is a defect.",
        missed,
    )?;
    let help = "Clients of this endpoint that were closed before they had their answer.";
    out.counter("metrics_clients_closed_total", help, [(Vec::new(), super::CLIENTS_CLOSED.load(Relaxed))])
}

fn pmds(out: &mut Families<'_>, pmds: &[PmdReport]) -> fmt::Result {
    let gauges: [Metric<PmdReport>; 4] = [
        ("emc_entries_used", "Entries in use of the exact match cache of a PMD (a thread that polls ports).", |pmd| {
            pmd.emc.used as u64
        }),
        ("emc_entries", "Entries of the exact match cache of a PMD.", |pmd| pmd.emc.entries as u64),
        (
            "subtables",
            "Different masks among the megaflows of a PMD; a lookup that no cache answers searches one after the other.",
            |pmd| pmd.subtables as u64,
        ),
        (
            "megaflows",
            "Megaflows (cached decisions for sets of packets) that a PMD can find; those of the switch are in sluice_datapath_megaflows.",
            |pmd| pmd.megaflows as u64,
        ),
    ];
    for (name, help, read) in gauges {
        let labels = |pmd: &PmdReport| {
            vec![("pmd", pmd.pmd.to_string()), ("core", pmd.core.map_or("main".into(), |core| core.to_string()))]
        };
        out.gauge(name, help, pmds.iter().map(|pmd| (labels(pmd), read(pmd))))?;
    }
    Ok(())
}

fn ports(out: &mut Families<'_>, switch: &Switch) -> fmt::Result {
    let (names, ports) = (switch.datapath_names(), switch.datapath().ports());
    let counters: [Metric<PortStats>; 9] = [
        ("port_received_packets_total", "Packets that a port has received and handed to the switch.", |s| s.rx_packets),
        (
            "port_received_bytes_total",
            "Bytes of the packets that a port has received, without the frame check sequence.",
            |s| s.rx_bytes,
        ),
        ("port_receive_dropped_total", "Packets lost on their way into a port: dropped by it, or missed.", |s| {
            s.rx_dropped
        }),
        (
            "port_receive_missed_total",
            "Packets that the device or kernel lost before the port had them; they are part of receive_dropped.",
            |s| s.rx_missed,
        ),
        ("port_receive_errors_total", "Receive errors that a port's device has reported.", |s| s.rx_errors),
        ("port_sent_packets_total", "Packets that a port has sent.", |s| s.tx_packets),
        (
            "port_sent_bytes_total",
            "Bytes of the packets that a port has sent, without the frame check sequence.",
            |s| s.tx_bytes,
        ),
        (
            "port_send_dropped_total",
            "Packets that were to leave by a port and were dropped by it, because its ring was full for example.",
            |s| s.tx_dropped,
        ),
        ("port_send_errors_total", "Send errors that a port's device has reported.", |s| s.tx_errors),
    ];
    let labels =
        |port: &PortReport| vec![("port", names.display(port.number).to_string()), ("type", port.info.kind.to_owned())];
    for (name, help, read) in counters {
        out.counter(name, help, ports.iter().map(|port| (labels(port), read(&port.stats))))?;
    }
    let drops: [Drops; 2] = [
        (
            "port_received_and_dropped_packets_total",
            "Packets that a port received and the switch dropped later, by rules for example, by reason.",
            |port, why| port.fates.dropped(why),
        ),
        (
            "port_unsent_packets_total",
            "Packets that were to leave by a port and were dropped by it, by reason.",
            |port, why| port.stats.tx_drops[why as usize],
        ),
    ];
    for (name, help, read) in drops {
        let labels = |port, why: DropReason| [labels(port), vec![("reason", why.name().to_owned())]].concat();
        let samples = ports.iter().flat_map(|port| DropReason::ALL.iter().map(move |why| (port, *why)));
        out.counter(name, help, samples.map(|(port, why)| (labels(port, why), read(port, why))))?;
    }
    let up = ports.iter().map(|port| (labels(port), u64::from(port.is_up)));
    out.gauge("port_up", "1 while the link of a port is up, else 0.", up)
}

fn autopilots(out: &mut Families<'_>, switch: &Switch) -> fmt::Result {
    let names = switch.datapath_names();
    let reports = switch.datapath().autopilots().into_iter().flat_map(|(_, reports)| reports);
    let samples = reports.map(|report| {
        let port = ("port", names.display(report.port).to_string());
        let arm = ("levels", report.arms[report.in_charge].arm.to_string());
        (vec![port, ("queue", report.queue.to_string()), arm], 1)
    });
    let help = "Which caches are asked for the packets of a receive queue, as the label levels; always 1.";
    out.gauge("autopilot_in_charge", help, samples)
}

/// The families under way.
pub(super) struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    pub(super) fn counter(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Sample>) -> fmt::Result {
        self.family(name, help, MetricType::Counter, samples)
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Sample>) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, samples)
    }

    /// The encoder's own way with a counter is OpenMetrics': a family without the `_total` that its samples have.
    /// `promtool` and format 0.0.4 want one name for both, so counters come with it and their values are written bare.
    fn family(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: impl IntoIterator<Item = Sample>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in samples {
            match labels.is_empty() {
                true => family.encode_gauge(&value)?,
                false => family.encode_family(&labels)?.encode_gauge(&value)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Odd;

    impl Collector for Odd {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            let mut out = Families(encoder);
            out.counter(
                "a_total",
                "What.",
                [(vec![("port", "a\"b\\c\nd".to_owned()), ("n", "1".to_owned())], u64::MAX)],
            )?;
            out.gauge("b", "Which.", [(Vec::new(), 0)])
        }
    }

    #[test]
    fn values_have_their_form() {
        let mut registry = Registry::with_prefix("sluice");
        registry.register_collector(Box::new(Odd));
        let want = "# HELP sluice_a_total What.\n# TYPE sluice_a_total counter\n\
                    sluice_a_total{port=\"a\\\"b\\\\c\\nd\",n=\"1\"} 18446744073709551615\n\
                    # HELP sluice_b Which.\n# TYPE sluice_b gauge\nsluice_b 0\n";
        assert_eq!(Exposition(registry).text(), want);
    }
}

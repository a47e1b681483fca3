//! `dpctl/show`, `dpif/show`, `dpif/dump-dps` and `upcall/show`.
//!
//! Source: OVS 3.1 lib/dpctl.c, ofproto/ofproto-dpif.c, ofproto/ofproto-dpif-upcall.c.

use sluice_flow::OfPort;
use sluice_port::{PortInfo, PortStats};
use sluice_vswitch::{Lookups, PortStatus, RevalidatorFigures};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The types by which bridges name the datapath.
pub const TYPES: [&str; 3] = ["dummy", "netdev", "system"];

/// The datapath's type and name, for bridges that name it by this type.
pub fn datapath_name(datapath_type: &str) -> String {
    format!("{datapath_type}@ovs-{datapath_type}")
}

/// Port types behind which OVS shows no settings.
const PLAIN_KINDS: [&str; 6] = ["dummy", "dummy-internal", "system", "internal", "tap", "patch"];

/// The type that tests of Open vSwitch use where a port has several queues: what is shown of it is theirs.
const DUMMY_PMD: &str = "dummy-pmd";

/// A port's queues, as Open vSwitch shows them: as many as were asked for.
fn queues_by_ovs_names(info: &PortInfo) -> BTreeMap<String, String> {
    let of_way = |way: &'static str, n: usize| {
        ["configured", "requested"].map(|state| (format!("{state}_{way}_queues"), n.to_string()))
    };
    of_way("rx", info.n_rxq).into_iter().chain(of_way("tx", info.n_txq)).collect()
}

/// A port as these commands show it.
#[derive(Clone, Debug)]
pub struct PortLine {
    /// Its name.
    pub name: String,
    /// Its OpenFlow number.
    pub ofport: u32,
    /// Its datapath number; a port that joins bridges has none.
    pub number: Option<u32>,
    /// Its type, and its settings, sorted.
    pub kind: String,
    /// What is shown behind the type.
    pub config: BTreeMap<String, String>,
    /// What it has counted.
    pub stats: PortStats,
    /// The name of the datapath port that serves it, of a tunnel.
    pub backend: Option<String>,
}

impl PortLine {
    /// A port as it is, and what it has counted.
    pub fn of(port: PortStatus, stats: PortStats) -> Self {
        let mut config = BTreeMap::new();
        if let Some(error) = &port.error {
            config.insert("closed".into(), format!("\"{error}\""));
        }
        let kind = port.kind.unwrap_or_else(|| "internal".into());
        if let Some(info) = port.info.as_ref().filter(|_| !PLAIN_KINDS.contains(&kind.as_str())) {
            if kind == DUMMY_PMD {
                config = queues_by_ovs_names(info);
            } else {
                config.insert("n_rxq".into(), info.n_rxq.to_string());
                config.insert("n_txq".into(), info.n_txq.to_string());
                config.insert("mtu".into(), info.mtu.to_string());
            }
        }
        if let Some(tunnel) = &port.tunnel {
            config.extend(tunnel.options());
        }
        if let Some(peer) = &port.peer {
            config.insert("peer".into(), peer.clone());
        }
        PortLine {
            name: port.name,
            ofport: port.ofport.0.into(),
            number: port.number.map(|number| number.0),
            kind,
            config,
            stats,
            backend: port.tunnel.map(|tunnel| tunnel.backend_name()),
        }
    }

    /// The datapath port that serves it, if it is a tunnel. It takes packets of all types, as Open vSwitch says of its own.
    fn backend(&self) -> Option<Self> {
        let name = self.backend.clone()?;
        let config = [("packet_type".to_owned(), "ptap".to_owned())].into();
        Some(PortLine { name, config, ofport: OfPort::NONE.0.into(), backend: None, ..self.clone() })
    }

    /// The port of the datapath itself, which belongs to no bridge. Only the dummy datapath shows one: tests of Open
    /// vSwitch read it.
    pub fn of_datapath(datapath_type: &str) -> Option<Self> {
        (datapath_type == "dummy").then(|| PortLine {
            name: format!("ovs-{datapath_type}"),
            ofport: OfPort::NONE.0.into(),
            number: Some(0),
            kind: "dummy-internal".to_owned(),
            config: BTreeMap::new(),
            stats: PortStats::default(),
            backend: None,
        })
    }

    /// `(type: key=value, …)`.
    fn description(&self) -> String {
        let mut out = format!("({}", self.kind);
        for (i, (key, value)) in self.config.iter().enumerate() {
            let _ = write!(out, "{} {key}={value}", if i == 0 { ":" } else { "," });
        }
        out + ")"
    }
}

/// `dpctl/show [-s]`: the ports that the datapath has, by number.
pub fn dpctl_show(name: &str, lookups: Lookups, mut ports: Vec<PortLine>, with_statistics: bool) -> String {
    let backends: Vec<_> = ports.iter().filter_map(PortLine::backend).collect();
    ports.retain(|port| port.backend.is_none());
    ports.extend(backends);
    ports.sort_by_key(|port| port.number);
    ports.dedup_by_key(|port| port.number);
    let Lookups { hit, missed, lost, flows } = lookups;
    let mut out = format!("{name}:\n  lookups: hit:{hit} missed:{missed} lost:{lost}\n  flows: {flows}\n");
    for port in &ports {
        let Some(number) = port.number else { continue };
        let _ = writeln!(out, "  port {number}: {} {}", port.name, port.description());
        if with_statistics {
            out += &statistics(&port.stats);
        }
    }
    out
}

/// What a port has counted; what no port here counts is a question mark, as in OVS.
fn statistics(stats: &PortStats) -> String {
    format!(
        "    RX packets:{} errors:{} dropped:{} overruns:? frame:?\n    TX packets:{} errors:{} dropped:{} aborted:? carrier:?\n    \
         collisions:?\n    RX bytes:{}{}  TX bytes:{}{}\n",
        stats.rx_packets,
        stats.rx_errors,
        stats.rx_dropped,
        stats.tx_packets,
        stats.tx_errors,
        stats.tx_dropped,
        stats.rx_bytes,
        human_size(stats.rx_bytes),
        stats.tx_bytes,
        human_size(stats.tx_bytes)
    )
}

/// ` (1.5 KiB)`; nothing for less than a KiB.
fn human_size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.iter().find(|(shift, _)| bytes >> shift != 0);
    unit.map_or_else(String::new, |(shift, unit)| format!(" ({:.1} {unit})", bytes as f64 / (1u64 << shift) as f64))
}

/// The part of `dpif/show` that is about the bridges of one datapath: bridges by name, their ports by name.
pub fn dpif_show(name: &str, lookups: Lookups, bridges: &BTreeMap<String, Vec<PortLine>>) -> String {
    let mut out = format!("{name}: hit:{} missed:{}\n", lookups.hit, lookups.missed);
    for (bridge, ports) in bridges {
        let _ = writeln!(out, "  {bridge}:");
        let mut ports: Vec<_> = ports.iter().collect();
        ports.sort_by(|a, b| a.name.cmp(&b.name));
        for port in ports {
            let number = port.number.map_or("none".into(), |number| number.to_string());
            let _ = writeln!(out, "    {} {}/{number}: {}", port.name, port.ofport, port.description());
        }
    }
    out
}

/// `upcall/show`; one revalidator thread.
pub fn upcall_show(name: &str, figures: RevalidatorFigures, revalidator: u32) -> String {
    let RevalidatorFigures { current, average, max, limit, uses_ufid, dump_ms } = figures;
    format!(
        "{name}:\n  flows         : (current {current}) (avg {average}) (max {max}) (limit {limit})\n  \
         dump duration : {dump_ms}ms\n  ufid enabled : {uses_ufid}\n\n  {revalidator}: (keys {current})\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, ofport: u32, number: u32, kind: &str, config: &[(&str, &str)]) -> PortLine {
        let config = config.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let stats = PortStats { rx_packets: 3, rx_bytes: 1536, ..PortStats::default() };
        PortLine { name: name.into(), ofport, number: Some(number), kind: kind.into(), config, stats, backend: None }
    }

    #[test]
    fn dpctl_show_is_ovs_text() {
        let lookups = Lookups { hit: 5, missed: 2, lost: 1, flows: 3 };
        let ports =
            vec![port("p1", 1, 1, "null", &[("n_rxq", "1"), ("n_txq", "1")]), port("br0", 65534, 0, "internal", &[])];
        let expected = "netdev@ovs-netdev:
  lookups: hit:5 missed:2 lost:1
  flows: 3
  port 0: br0 (internal)
  port 1: p1 (null: n_rxq=1, n_txq=1)
";
        assert_eq!(dpctl_show("netdev@ovs-netdev", lookups, ports.clone(), false), expected);
        let statistics = "    RX packets:3 errors:0 dropped:0 overruns:? frame:?
    TX packets:0 errors:0 dropped:0 aborted:? carrier:?
    collisions:?
    RX bytes:1536 (1.5 KiB)  TX bytes:0
";
        assert!(dpctl_show("netdev@ovs-netdev", lookups, ports, true).ends_with(&format!("n_txq=1)\n{statistics}")));
    }

    #[test]
    fn dpif_show_is_ovs_text() {
        let bridges = BTreeMap::from([
            ("br1".to_string(), vec![PortLine { number: None, ..port("p3", 3, 3, "patch", &[("peer", "p4")]) }]),
            ("br0".to_string(), vec![port("p2", 2, 2, "tap", &[]), port("br0", 65534, 100, "internal", &[])]),
        ]);
        let expected = "netdev@ovs-netdev: hit:0 missed:0
  br0:
    br0 65534/100: (internal)
    p2 2/2: (tap)
  br1:
    p3 3/none: (patch: peer=p4)
";
        assert_eq!(dpif_show("netdev@ovs-netdev", Lookups::default(), &bridges), expected);
    }

    #[test]
    fn upcall_show_is_ovs_text() {
        let figures = RevalidatorFigures { current: 2, average: 1, max: 4, limit: 10_000, uses_ufid: true, dump_ms: 1 };
        let expected = "netdev@ovs-netdev:
  flows         : (current 2) (avg 1) (max 4) (limit 10000)
  dump duration : 1ms
  ufid enabled : true

  10: (keys 2)
";
        assert_eq!(upcall_show("netdev@ovs-netdev", figures, 10), expected);
    }
}

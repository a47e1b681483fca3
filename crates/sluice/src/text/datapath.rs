//! `dpctl/show`, `dpif/show`, `dpif/dump-dps` and `upcall/show`.
//!
//! Source: OVS 3.1 lib/dpctl.c, ofproto/ofproto-dpif.c, ofproto/ofproto-dpif-upcall.c.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The datapath's type and name, as OVS's userspace datapath has them.
pub const DATAPATH: &str = "netdev@ovs-netdev";

/// What the lookups came to, over all PMDs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Passes that a cache answered.
    pub hit: u64,
    /// Passes that went to the tables.
    pub missed: u64,
    /// Of those, the ones the tables did not answer.
    pub lost: u64,
    /// Live megaflows.
    pub flows: usize,
}

/// A port as these commands show it.
#[derive(Clone, Debug)]
pub struct PortLine {
    /// Its name.
    pub name: String,
    /// Its OpenFlow number.
    pub ofport: u32,
    /// Its datapath number.
    pub number: u32,
    /// Its type, and its settings, sorted.
    pub kind: String,
    /// What is shown behind the type.
    pub config: BTreeMap<String, String>,
}

impl PortLine {
    /// `(type: key=value, …)`.
    fn description(&self) -> String {
        let mut out = format!("({}", self.kind);
        for (i, (key, value)) in self.config.iter().enumerate() {
            let _ = write!(out, "{} {key}={value}", if i == 0 { ":" } else { "," });
        }
        out + ")"
    }
}

/// `dpctl/show`.
pub fn dpctl_show(lookups: Lookups, mut ports: Vec<PortLine>) -> String {
    ports.sort_by_key(|port| port.number);
    let Lookups { hit, missed, lost, flows } = lookups;
    let mut out = format!("{DATAPATH}:\n  lookups: hit:{hit} missed:{missed} lost:{lost}\n  flows: {flows}\n");
    for port in &ports {
        let _ = writeln!(out, "  port {}: {} {}", port.number, port.name, port.description());
    }
    out
}

/// `dpif/show`: bridges by name, their ports by name.
pub fn dpif_show(lookups: Lookups, bridges: &BTreeMap<String, Vec<PortLine>>) -> String {
    let mut out = format!("{DATAPATH}: hit:{} missed:{}\n", lookups.hit, lookups.missed);
    for (bridge, ports) in bridges {
        let _ = writeln!(out, "  {bridge}:");
        let mut ports: Vec<_> = ports.iter().collect();
        ports.sort_by(|a, b| a.name.cmp(&b.name));
        for port in ports {
            let _ = writeln!(out, "    {} {}/{}: {}", port.name, port.ofport, port.number, port.description());
        }
    }
    out
}

/// What the revalidator knows of the megaflows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpcallFigures {
    /// Live now.
    pub current: usize,
    /// Over the last rounds.
    pub average: usize,
    /// Ever.
    pub max: usize,
    /// As many as may live.
    pub limit: usize,
    /// How long the last round took.
    pub dump_ms: u64,
}

/// `upcall/show`; one revalidator thread.
pub fn upcall_show(figures: UpcallFigures, revalidator: u32) -> String {
    let UpcallFigures { current, average, max, limit, dump_ms } = figures;
    format!(
        "{DATAPATH}:\n  flows         : (current {current}) (avg {average}) (max {max}) (limit {limit})\n  \
         dump duration : {dump_ms}ms\n  ufid enabled : true\n\n  {revalidator}: (keys {current})\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, ofport: u32, number: u32, kind: &str, config: &[(&str, &str)]) -> PortLine {
        let config = config.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        PortLine { name: name.into(), ofport, number, kind: kind.into(), config }
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
        assert_eq!(dpctl_show(lookups, ports), expected);
    }

    #[test]
    fn dpif_show_is_ovs_text() {
        let bridges = BTreeMap::from([
            ("br1".to_string(), vec![port("p3", 3, 3, "null", &[])]),
            ("br0".to_string(), vec![port("p2", 2, 2, "tap", &[]), port("br0", 65534, 100, "internal", &[])]),
        ]);
        let expected = "netdev@ovs-netdev: hit:0 missed:0
  br0:
    br0 65534/100: (internal)
    p2 2/2: (tap)
  br1:
    p3 3/3: (null)
";
        assert_eq!(dpif_show(Lookups::default(), &bridges), expected);
    }

    #[test]
    fn upcall_show_is_ovs_text() {
        let figures = UpcallFigures { current: 2, average: 1, max: 4, limit: 10_000, dump_ms: 1 };
        let expected = "netdev@ovs-netdev:
  flows         : (current 2) (avg 1) (max 4) (limit 10000)
  dump duration : 1ms
  ufid enabled : true

  10: (keys 2)
";
        assert_eq!(upcall_show(figures, 10), expected);
    }
}

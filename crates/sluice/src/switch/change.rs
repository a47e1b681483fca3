//! What changed between two configurations: the steps that lead from one to the other.

use crate::config::{Bridge, Config, Port};

/// A step. They are listed in the order in which they are to be taken: what goes, then what changes, then what comes.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A port goes, by bridge and name.
    RemovePort(String, String),
    /// A bridge goes, with its ports.
    RemoveBridge(String),
    /// A bridge's settings change: those that can while it runs.
    SetBridge(Box<Bridge>),
    /// A bridge comes, with its ports.
    AddBridge(Box<Bridge>),
    /// A port's part in NORMAL forwarding changes.
    SetVlans(String, Box<Port>),
    /// A port comes, to a bridge.
    AddPort(String, Box<Port>),
    /// When the switch is to end changes.
    SetStopAfter,
    /// Settings of the lookup that can change while it runs.
    SetDatapath,
    /// A key that is read at start only.
    AtNextStart(String),
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Change::RemovePort(bridge, port) => write!(f, "{bridge}: port {port} removed"),
            Change::RemoveBridge(bridge) => write!(f, "{bridge}: removed"),
            Change::SetBridge(bridge) => write!(f, "{}: settings changed", bridge.name),
            Change::AddBridge(bridge) => write!(f, "{}: added", bridge.name),
            Change::SetVlans(bridge, port) => write!(f, "{bridge}: port {} changed", port.name),
            Change::AddPort(bridge, port) => write!(f, "{bridge}: port {} added", port.name),
            Change::SetStopAfter => write!(f, "switch.stop-after: changed"),
            Change::SetDatapath => write!(f, "datapath: settings changed"),
            Change::AtNextStart(key) => write!(f, "{key}: changed, takes effect at the next start"),
        }
    }
}

/// The steps from `old` to `new`. Rules, groups and meters are not compared here: their files may
/// have changed under the same name.
pub fn changes(old: &Config, new: &Config) -> Vec<Change> {
    let (mut going, mut changing, mut coming) = (Vec::new(), Vec::new(), Vec::new());
    for bridge in &old.bridge {
        match bridge_named(new, &bridge.name) {
            Some(same) if at_start(bridge) == at_start(same) => {
                compare(bridge, same, &mut going, &mut changing, &mut coming)
            }
            // What makes a bridge what it is changed: another one takes its place.
            Some(other) => {
                going.push(Change::RemoveBridge(bridge.name.clone()));
                coming.push(Change::AddBridge(Box::new(other.clone())));
            }
            None => going.push(Change::RemoveBridge(bridge.name.clone())),
        }
    }
    let is_new = |bridge: &&Bridge| bridge_named(old, &bridge.name).is_none();
    coming.extend(new.bridge.iter().filter(is_new).map(|bridge| Change::AddBridge(Box::new(bridge.clone()))));
    compare_process(old, new, &mut changing);
    going.into_iter().chain(changing).chain(coming).collect()
}

/// What cannot change while the bridge stays.
fn at_start(bridge: &Bridge) -> impl PartialEq + use<> {
    (bridge.datapath_id.clone(), bridge.fail_mode, bridge.local, bridge.prefixes.clone(), bridge.table.clone())
}

fn bridge_named<'a>(config: &'a Config, name: &str) -> Option<&'a Bridge> {
    config.bridge.iter().find(|bridge| bridge.name == name)
}

fn compare(old: &Bridge, new: &Bridge, going: &mut Vec<Change>, changing: &mut Vec<Change>, coming: &mut Vec<Change>) {
    if old.mac_age != new.mac_age || old.openflow() != new.openflow() {
        changing.push(Change::SetBridge(Box::new(new.clone())));
    }
    let find = |ports: &[Port], name: &str| ports.iter().find(|port| port.name == name).cloned();
    for port in &old.port {
        let now = find(&new.port, &port.name);
        let vlans_aside = |p: &Port| Port { tag: None, trunks: Vec::new(), ..p.clone() };
        match now {
            Some(now) if now == *port => {}
            Some(now) if vlans_aside(&now) == vlans_aside(port) => {
                changing.push(Change::SetVlans(new.name.clone(), Box::new(now)));
            }
            now => {
                going.push(Change::RemovePort(old.name.clone(), port.name.clone()));
                coming.extend(now.map(|now| Change::AddPort(new.name.clone(), Box::new(now))));
            }
        }
    }
    let is_new = |port: &&Port| find(&old.port, &port.name).is_none();
    coming.extend(new.port.iter().filter(is_new).map(|port| Change::AddPort(new.name.clone(), Box::new(port.clone()))));
}

fn compare_process(old: &Config, new: &Config, changing: &mut Vec<Change>) {
    if old.switch.stop_after != new.switch.stop_after {
        changing.push(Change::SetStopAfter);
    }
    let (a, b) = (&old.switch, &new.switch);
    let (c, d) = (&old.datapath, &new.datapath);
    for (key, same) in [
        ("switch.rundir", a.rundir == b.rundir),
        ("switch.pmd-cores", a.pmd_cores == b.pmd_cores),
        ("switch.metrics", a.metrics == b.metrics),
        ("switch.dpdk", a.dpdk == b.dpdk),
        ("datapath.flow-memory", c.flow_memory == d.flow_memory),
        ("datapath.governor", c.governor == d.governor),
        ("datapath.miss-budget", c.miss_budget == d.miss_budget),
        ("datapath.pmd-sleep-max", c.pmd_sleep_max == d.pmd_sleep_max),
    ] {
        if !same {
            changing.push(Change::AtNextStart(key.into()));
        }
    }
    let at_start = |d: &crate::config::Datapath| crate::config::Datapath {
        flow_memory: crate::config::Size(0),
        pmd_sleep_max: crate::config::Duration::default(),
        governor: String::new(),
        miss_budget: crate::config::AutoOr::Auto,
        ..d.clone()
    };
    if at_start(c) != at_start(d) {
        changing.push(Change::SetDatapath);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("s.toml"), text).unwrap()
    }

    fn port(name: &str, ofport: u32, more: &str) -> String {
        format!("[[bridge.port]]\nname = \"{name}\"\nofport = {ofport}\ntype = \"null\"\n{more}\n")
    }

    fn bridge(name: &str, more: &str) -> String {
        format!("[[bridge]]\nname = \"{name}\"\n{more}\n")
    }

    fn steps(old: &str, new: &str) -> Vec<String> {
        changes(&config(old), &config(new)).iter().map(Change::to_string).collect()
    }

    #[test]
    fn nothing_changed_is_nothing_to_do() {
        let text = bridge("br0", "") + &port("p1", 1, "");
        assert!(steps(&text, &text).is_empty());
    }

    #[test]
    fn ports_come_go_and_are_replaced() {
        let old = bridge("br0", "") + &port("p1", 1, "") + &port("p2", 2, "") + &port("p3", 3, "");
        let new = bridge("br0", "") + &port("p1", 1, "") + &port("p3", 3, "mtu = 9000") + &port("p4", 4, "");
        let expected = ["br0: port p2 removed", "br0: port p3 removed", "br0: port p3 added", "br0: port p4 added"];
        assert_eq!(steps(&old, &new), expected);
    }

    #[test]
    fn bridges_come_and_go() {
        let old = bridge("br0", "") + &bridge("br1", "");
        let new = bridge("br1", "mac-age = \"10s\"") + &bridge("br2", "");
        assert_eq!(steps(&old, &new), ["br0: removed", "br1: settings changed", "br2: added"]);
        let moved = bridge("br0", "datapath-id = \"0000000000000007\"");
        assert_eq!(steps(&bridge("br0", ""), &moved), ["br0: removed", "br0: added"]);
    }

    #[test]
    fn what_is_read_at_start_is_said() {
        let old = bridge("br0", "");
        let new = bridge("br0", "")
            + "[switch]\npmd-cores = [2]\nstop-after = \"1s\"\n[datapath]\nemc-entries = 1024\nflow-memory = \"1GiB\"\n";
        let expected = [
            "switch.stop-after: changed",
            "switch.pmd-cores: changed, takes effect at the next start",
            "datapath.flow-memory: changed, takes effect at the next start",
            "datapath: settings changed",
        ];
        assert_eq!(steps(&old, &new), expected);
    }
}

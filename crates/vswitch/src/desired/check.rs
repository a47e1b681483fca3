//! What a state must be to be carried out. A front end that can point at its text does so with the key.

use super::{Bridge, DesiredState, FailedPorts, PATCH, Port};
use sluice_flow::OfPort;
use sluice_ofproto::VlanMode;
use sluice_port::{MAX_QUEUES, OpenError, PortConfig};
use sluice_tunnel::TunnelKind;
use std::collections::HashSet;
use std::time::Duration;

/// A value that cannot stand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct Invalid {
    /// Where it is, such as `bridge[0].port[1].type`.
    pub key: String,
    /// What was found and what was expected.
    pub message: String,
}

type Checked = Result<(), Invalid>;

/// Longest name of a network device. Source: IFNAMSIZ, without its NUL.
const DEVICE_NAME_MAX: usize = 15;

/// Longest name of what is no network device.
const NAME_MAX: usize = 255;

/// Largest MTU of a port, bytes: jumbo frames as common NICs have them.
const MTU_MAX: u32 = 9216;

/// Smallest MTU of a port, bytes. Source: RFC 791's smallest reassembly-free datagram.
const MTU_MIN: u32 = 68;

/// Longest sleep of an idle PMD. Source: OVS, pmd-sleep-max.
pub const PMD_SLEEP_MAX: Duration = Duration::from_millis(10);

/// VLANs that a port may be of. Source: IEEE 802.1Q, where 4095 is reserved.
const VLAN_MAX: u16 = 4094;

/// Most PMD threads.
pub const PMDS_MAX: usize = 128;

impl Invalid {
    /// A value that cannot stand, at `key`.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Invalid { key: key.into(), message: message.into() }
    }

    /// The same, seen from further outside.
    pub fn within(self, path: &str) -> Self {
        Invalid { key: format!("{path}.{}", self.key), ..self }
    }
}

fn wrong(key: &str, message: impl Into<String>) -> Checked {
    Err(Invalid::new(key, message))
}

impl DesiredState {
    /// Checks all of it.
    ///
    /// # Errors
    /// With the first value that cannot stand.
    pub fn check(&self) -> Result<(), Invalid> {
        self.check_process()?;
        let mut names = Names::default();
        for (b, bridge) in self.bridges.iter().enumerate() {
            let path = format!("bridge[{b}]");
            bridge.check().map_err(|invalid| invalid.within(&path))?;
            names.add_bridge(&bridge.name).map_err(|invalid| invalid.within(&path))?;
            let mut numbers = HashSet::new();
            for (p, port) in bridge.ports.iter().enumerate() {
                let path = format!("{path}.port[{p}]");
                port.check().map_err(|invalid| invalid.within(&path))?;
                // Where ports may fail and come back, queues may be pinned to PMDs yet to come, as in Open vSwitch.
                if self.failed_ports == FailedPorts::Stay {
                    port.check_affinity(&self.pmd_cores).map_err(|invalid| invalid.within(&path))?;
                }
                port.check_local(&bridge.name).map_err(|invalid| invalid.within(&path))?;
                if !port.is_local() {
                    names.add_port(&port.name).map_err(|invalid| invalid.within(&path))?;
                }
                if let Some(number) = port.ofport_request.filter(|number| !numbers.insert(*number)) {
                    let message = format!("another port of this bridge is number {}", number.0);
                    return wrong(&format!("{path}.ofport"), message);
                }
            }
        }
        Ok(())
    }

    fn check_process(&self) -> Checked {
        let cores = &self.pmd_cores;
        if cores.len() > PMDS_MAX {
            return wrong("switch.pmd-cores", format!("expected at most {PMDS_MAX} core numbers, such as [1]"));
        }
        if cores.iter().collect::<HashSet<_>>().len() != cores.len() {
            return wrong("switch.pmd-cores", "a core is listed twice; expected one PMD thread for each core");
        }
        if self.dpdk.is_some() && !cfg!(feature = "dpdk") {
            let remedy = "build with --features dpdk, or remove the section";
            return wrong("switch.dpdk", format!("this build has no DPDK ports; {remedy}"));
        }
        if self.datapath.pmd_sleep_max > PMD_SLEEP_MAX {
            let given = self.datapath.pmd_sleep_max;
            return wrong("datapath.pmd-sleep-max", format!("{given:?}; expected at most \"{PMD_SLEEP_MAX:?}\""));
        }
        Ok(())
    }
}

/// The names that bridges and ports have.
#[derive(Default)]
struct Names<'a> {
    bridges: HashSet<&'a str>,
    ports: HashSet<&'a str>,
}

impl<'a> Names<'a> {
    fn add_bridge(&mut self, name: &'a str) -> Checked {
        if !self.bridges.insert(name) {
            return wrong("name", format!("another bridge is named \"{name}\"; names are unique"));
        }
        // Its LOCAL port is named like the bridge.
        if !self.ports.insert(name) {
            return wrong("name", format!("a port is named \"{name}\"; names are unique"));
        }
        Ok(())
    }

    fn add_port(&mut self, name: &'a str) -> Checked {
        if !self.ports.insert(name) {
            return wrong("name", format!("another port is named \"{name}\"; names are unique"));
        }
        Ok(())
    }
}

impl Bridge {
    /// Checks what it is by itself, without its ports.
    ///
    /// # Errors
    /// With the first value that cannot stand.
    pub fn check(&self) -> Result<(), Invalid> {
        check_name(&self.name, NAME_MAX)?;
        for (i, table) in self.tables.iter().enumerate() {
            let key = format!("table[{i}].number");
            if table.table > 253 {
                return wrong(&key, format!("table {}; expected 0 to 253", table.table));
            }
            if self.tables[..i].iter().any(|other| other.table == table.table) {
                return wrong(&key, format!("table {} is configured already", table.table));
            }
        }
        Ok(())
    }
}

impl Port {
    /// Checks what it is by itself.
    ///
    /// # Errors
    /// With the first value that cannot stand; its key is the port's own, such as `mtu`.
    pub fn check(&self) -> Result<(), Invalid> {
        // The device of an internal port may have a shorter name.
        let is_device = !matches!(self.kind.as_str(), PATCH | "internal")
            && !self.kind.starts_with("dummy")
            && self.tunnel_kind().is_none();
        check_name(&self.name, if is_device { DEVICE_NAME_MAX } else { NAME_MAX })?;
        if let Some(number) = self.ofport_request.filter(|_| !self.is_local()) {
            Port::ofport(number.0.into())?;
        }
        self.check_kind()?;
        // A dummy takes what an IPv4 packet can be, as in Open vSwitch.
        let largest = if self.kind.starts_with("dummy") { u16::MAX.into() } else { MTU_MAX };
        if let Some(mtu) = self.mtu.filter(|mtu| !(MTU_MIN..=largest).contains(mtu)) {
            return wrong("mtu", format!("{mtu} bytes; expected {MTU_MIN} to {largest}"));
        }
        if !(1..=MAX_QUEUES).contains(&self.n_rxq) {
            return wrong("n-rxq", format!("{} queues; expected 1 to {MAX_QUEUES}", self.n_rxq));
        }
        self.check_vlans()
    }

    /// LOCAL is the port that is named like the bridge, and no other.
    fn check_local(&self, bridge: &str) -> Checked {
        match (self.name == bridge, self.is_local()) {
            (true, false) => wrong("name", format!("another port is named \"{bridge}\"; names are unique")),
            (false, true) => wrong("ofport", format!("port number 65534 is that of port \"{bridge}\"")),
            _ => Ok(()),
        }
    }

    /// An OpenFlow number that a port may request.
    ///
    /// # Errors
    /// If it is 0 or reserved.
    pub fn ofport(number: u32) -> Result<OfPort, Invalid> {
        let ofport = u16::try_from(number).ok().map(OfPort).filter(|n| *n != OfPort(0) && n.is_ordinary());
        let largest = OfPort::MAX.0 - 1;
        ofport.ok_or_else(|| Invalid::new("ofport", format!("port number {number}; expected 1 to {largest}")))
    }

    fn check_vlans(&self) -> Checked {
        let (tag, trunks) = match &self.vlan {
            VlanMode::Access(vlan) => (Some(vlan), None),
            VlanMode::Trunk(trunks) => (None, trunks.as_ref()),
            VlanMode::NativeTagged { vlan, trunks } | VlanMode::NativeUntagged { vlan, trunks } => {
                (Some(vlan), trunks.as_ref())
            }
            VlanMode::Dot1qTunnel { vlan, cvlans, .. } => (Some(vlan), cvlans.as_ref()),
        };
        let vlans =
            tag.map(|vlan| ("tag", vlan)).into_iter().chain(trunks.into_iter().flatten().map(|v| ("trunks", v)));
        for (key, vlan) in vlans {
            if *vlan > VLAN_MAX {
                return wrong(key, format!("VLAN {vlan}; expected 0 to {VLAN_MAX}"));
            }
        }
        Ok(())
    }

    /// Checks that pinned queues exist, and the PMDs of their cores, which run on `pmd_cores`; none: it is not known on
    /// which.
    ///
    /// # Errors
    /// With the first pair that cannot stand.
    pub fn check_affinity(&self, pmd_cores: &[usize]) -> Result<(), Invalid> {
        let key = "pmd-rxq-affinity";
        for (queue, core) in &self.rxq_affinity {
            if *queue >= self.n_rxq {
                return wrong(key, format!("queue {queue}; the port has {}, counted from 0 (n-rxq)", self.n_rxq));
            }
            if !pmd_cores.is_empty() && !pmd_cores.contains(core) {
                return wrong(key, format!("core {core} has no PMD; expected one of switch.pmd-cores = {pmd_cores:?}"));
            }
        }
        Ok(())
    }

    /// The type exists, and knows the options given.
    fn check_kind(&self) -> Checked {
        if self.kind == PATCH {
            let given: Vec<_> = self.options.keys().map(String::as_str).collect();
            return match given[..] {
                ["peer"] => Ok(()),
                _ => wrong("options", "a patch port has one option: peer, the name of its other end"),
            };
        }
        if let Some(kind) = self.tunnel_kind() {
            let parsed = sluice_tunnel::parse(&self.name, kind, &self.options);
            return parsed.map(|_| ()).map_err(|error| Invalid::new("options", error.0.join("; ")));
        }
        let Some(kind) = sluice_port::PORT_TYPES.iter().find(|kind| kind.name == self.kind) else {
            let tunnels = TunnelKind::ALL.map(TunnelKind::name);
            let known = sluice_port::PORT_TYPES.iter().map(|kind| kind.name).chain([PATCH]).chain(tunnels);
            let known = known.collect::<Vec<_>>().join(", ");
            return wrong("type", format!("this build has no port type \"{}\"; expected one of {known}", self.kind));
        };
        let is_unknown = |key: &&String| !kind.options.iter().any(|option| option.key == *key);
        let Some(unknown) = self.options.keys().find(is_unknown) else { return self.check_values() };
        let known: Vec<_> = kind.options.iter().map(|option| option.key).collect();
        let message = format!("unknown to type {}; expected one of {}", kind.name, known.join(", "));
        wrong(&format!("options.{unknown}"), message)
    }

    /// The values of options can be. What else keeps the port from being opened shows when it is.
    fn check_values(&self) -> Checked {
        let config = PortConfig {
            name: self.name.clone(),
            kind: self.kind.clone(),
            mtu: self.mtu.unwrap_or(PortConfig::default().mtu),
            options: self.options.clone(),
            ..PortConfig::default()
        };
        match sluice_port::check(&config) {
            Err(OpenError::BadOption { key, value, expected, .. }) => {
                wrong("options", format!("{key} = \"{value}\": expected {expected}"))
            }
            Err(OpenError::MissingOption { key, expected, .. }) => {
                wrong("options", format!("{key} is missing; expected {expected}"))
            }
            _ => Ok(()),
        }
    }
}

fn check_name(name: &str, max: usize) -> Checked {
    let good = |c: char| c.is_ascii_graphic() && c != '/' && c != ',' && c != '"';
    if name.is_empty() || name.len() > max || !name.chars().all(good) {
        let expected = format!("expected 1 to {max} visible characters without / , \"");
        return wrong("name", format!("\"{}\"; {expected}", name.escape_default()));
    }
    Ok(())
}

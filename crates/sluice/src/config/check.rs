//! What this build supports, and what keys demand of each other.
//!
//! When a feature arrives, its line here goes: the table of what is refused is the honest list of what is missing.

use super::{Config, PATCH, Port};
use sluice_connmgr::{ActiveTarget, PassiveTarget, TargetError};
use sluice_datapath::Settings;
use sluice_ofproto::TrieField;
use std::collections::HashSet;
use std::str::FromStr;

/// A key whose value cannot stand, and why.
pub struct Wrong {
    /// Its path, such as `bridge[0].port[1].type`.
    pub key: String,
    /// What was expected.
    pub message: String,
}

type Checked = Result<(), Wrong>;

/// The largest OpenFlow port number a user may give. Source: OpenFlow 1.0's OFPP_MAX.
const OFPORT_MAX: u32 = 0xfeff;

/// Longest bridge or port name. Source: IFNAMSIZ, so that a name can become a network device's.
const NAME_MAX: usize = 15;

/// Largest MTU of a port, bytes: jumbo frames as common NICs have them.
const MTU_MAX: u32 = 9216;

/// Smallest MTU of a port, bytes. Source: RFC 791's smallest reassembly-free datagram.
const MTU_MIN: u32 = 68;

/// Longest sleep of an idle PMD. Source: OVS, pmd-sleep-max.
const SLEEP_MAX: std::time::Duration = std::time::Duration::from_millis(10);

/// VLANs that a port may be of. Source: IEEE 802.1Q, where 4095 is reserved.
const VLAN_MAX: u16 = 4094;

/// Most PMD threads and most receive queues a port may ask for.
const PMDS_MAX: usize = 128;

/// Checks all of it.
pub fn check(config: &Config) -> Checked {
    check_switch(config)?;
    check_datapath(config)?;
    let mut bridges = HashSet::new();
    let mut ports = HashSet::new();
    for (b, bridge) in config.bridge.iter().enumerate() {
        let path = format!("bridge[{b}]");
        check_name(&format!("{path}.name"), &bridge.name)?;
        if !bridges.insert(&bridge.name) {
            return wrong(
                format!("{path}.name"),
                format!("another bridge is named \"{}\"; names are unique", bridge.name),
            );
        }
        check_bridge(&path, bridge, config.switch.tls.is_some())?;
        if !ports.insert(&bridge.name) {
            return wrong(format!("{path}.name"), format!("a port is named \"{}\"; names are unique", bridge.name));
        }
        let mut numbers = HashSet::new();
        for (p, port) in bridge.port.iter().enumerate() {
            let path = format!("{path}.port[{p}]");
            check_port(&path, port)?;
            check_affinity(&path, port, &config.switch.pmd_cores)?;
            if !ports.insert(&port.name) {
                return wrong(
                    format!("{path}.name"),
                    format!("another port is named \"{}\"; names are unique", port.name),
                );
            }
            if !numbers.insert(port.ofport) {
                return wrong(
                    format!("{path}.ofport"),
                    format!("another port of this bridge is number {}", port.ofport),
                );
            }
        }
    }
    if config.bridge.is_empty() {
        return wrong("bridge", "no bridge; expected at least one [[bridge]] with a name");
    }
    Ok(())
}

fn wrong(key: impl Into<String>, message: impl Into<String>) -> Checked {
    Err(Wrong { key: key.into(), message: message.into() })
}

fn check_switch(config: &Config) -> Checked {
    let cores = &config.switch.pmd_cores;
    if cores.is_empty() || cores.len() > PMDS_MAX {
        return wrong("switch.pmd-cores", format!("expected 1 to {PMDS_MAX} core numbers, such as [1]"));
    }
    if cores.iter().collect::<HashSet<_>>().len() != cores.len() {
        return wrong("switch.pmd-cores", "a core is listed twice; expected one PMD thread for each core");
    }
    if config.switch.dpdk.is_some() && !cfg!(feature = "dpdk") {
        return wrong("switch.dpdk", "this build has no DPDK ports; build with --features dpdk, or remove the section");
    }
    Ok(())
}

fn check_datapath(config: &Config) -> Checked {
    let datapath = &config.datapath;
    if !datapath.emc_entries.is_power_of_two() || !(256..=1 << 24).contains(&datapath.emc_entries) {
        return wrong(
            "datapath.emc-entries",
            format!("{} entries; expected a power of two from 256 to 16777216", datapath.emc_entries),
        );
    }
    for (key, value) in datapath.settings_by_name() {
        Settings::default().set(key, value).or_else(|error| {
            // The key is said already.
            let said = error.to_string();
            let message = said.strip_prefix(key).map_or(said.as_str(), |rest| rest.trim_start_matches(": "));
            wrong(format!("datapath.{key}"), message)
        })?;
    }
    one_of("datapath.governor", &datapath.governor, &["auto", "off", "classic", "shortcut"], &[])?;
    if datapath.pmd_sleep_max.0 > SLEEP_MAX {
        return wrong("datapath.pmd-sleep-max", "expected at most \"10ms\"");
    }
    Ok(())
}

/// `value` is one of what works, else an error that tells what is unknown from what is not there yet.
fn one_of(key: &str, value: &str, works: &[&str], later: &[&str]) -> Checked {
    if works.contains(&value) {
        return Ok(());
    }
    let expected = works.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(" or ");
    if later.contains(&value) {
        return wrong(key, format!("this build does not have \"{value}\"; expected {expected}"));
    }
    wrong(key, format!("\"{value}\" is unknown; expected {expected}"))
}

fn check_bridge(path: &str, bridge: &super::Bridge, has_tls: bool) -> Checked {
    if let Some(id) = &bridge.datapath_id
        && !(id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit()))
    {
        return wrong(format!("{path}.datapath-id"), format!("\"{id}\"; expected 16 hexadecimal digits"));
    }
    if let Some(name) = bridge.prefixes.iter().find(|name| TrieField::named(name).is_none()) {
        let expected = "expected up to four of ip_dst, ip_src, ipv6_dst, ipv6_src";
        return wrong(format!("{path}.prefixes"), format!("\"{name}\"; {expected}"));
    }
    for (i, table) in bridge.table.iter().enumerate() {
        let key = format!("{path}.table[{i}].number");
        if table.number > 253 {
            return wrong(key, format!("table {}; expected 0 to 253", table.number));
        }
        if bridge.table[..i].iter().any(|other| other.number == table.number) {
            return wrong(key, format!("table {} has a limit already", table.number));
        }
    }
    for target in &bridge.listen {
        let listen: PassiveTarget = parse_target(format!("{path}.listen"), target)?;
        check_tls(path, "listen", target, !matches!(listen, PassiveTarget::Tls(_)) || has_tls)?;
    }
    for target in &bridge.controllers {
        let controller: ActiveTarget = parse_target(format!("{path}.controllers"), target)?;
        check_tls(path, "controllers", target, !matches!(controller, ActiveTarget::Tls(_)) || has_tls)?;
    }
    Ok(())
}

fn parse_target<T: FromStr<Err = TargetError>>(key: String, text: &str) -> Result<T, Wrong> {
    text.parse().map_err(|error: TargetError| Wrong { key, message: error.to_string() })
}

fn check_tls(path: &str, key: &str, target: &str, has_it: bool) -> Checked {
    if has_it {
        return Ok(());
    }
    wrong(format!("{path}.{key}"), format!("\"{target}\" takes [switch.tls] with private-key, certificate and ca-cert"))
}

/// What is demanded of a port, in the configuration and of `bridge/add-port`.
pub fn check_port(path: &str, port: &Port) -> Checked {
    check_name(&format!("{path}.name"), &port.name)?;
    if !(1..=OFPORT_MAX).contains(&port.ofport) {
        return wrong(format!("{path}.ofport"), format!("port number {}; expected 1 to {OFPORT_MAX}", port.ofport));
    }
    check_type(path, port)?;
    if !(MTU_MIN..=MTU_MAX).contains(&port.mtu) {
        return wrong(format!("{path}.mtu"), format!("{} bytes; expected {MTU_MIN} to {MTU_MAX}", port.mtu));
    }
    if !(1..=PMDS_MAX).contains(&port.n_rxq) {
        return wrong(format!("{path}.n-rxq"), format!("{} queues; expected 1 to {PMDS_MAX}", port.n_rxq));
    }
    let vlans = port.tag.iter().map(|vlan| ("tag", *vlan)).chain(port.trunks.iter().map(|vlan| ("trunks", *vlan)));
    for (key, vlan) in vlans {
        if vlan > VLAN_MAX {
            return wrong(format!("{path}.{key}"), format!("VLAN {vlan}; expected 0 to {VLAN_MAX}"));
        }
    }
    Ok(())
}

/// Pinned queues exist, and so do the PMDs of their cores.
pub fn check_affinity(path: &str, port: &Port, cores: &[u32]) -> Checked {
    let key = format!("{path}.pmd-rxq-affinity");
    for (queue, core) in &port.pmd_rxq_affinity.0 {
        if *queue >= port.n_rxq {
            return wrong(key, format!("queue {queue}; the port has {}, counted from 0 (n-rxq)", port.n_rxq));
        }
        if !cores.contains(core) {
            return wrong(key, format!("core {core} has no PMD; expected one of switch.pmd-cores = {cores:?}"));
        }
    }
    Ok(())
}

/// The type exists, and knows the options given.
fn check_type(path: &str, port: &Port) -> Checked {
    if port.kind == PATCH {
        let given: Vec<_> = port.options.keys().map(String::as_str).collect();
        return match given[..] {
            ["peer"] if port.options["peer"].is_str() => Ok(()),
            _ => wrong(format!("{path}.options"), "a patch port has one option: peer, the name of its other end"),
        };
    }
    let Some(kind) = sluice_port::PORT_TYPES.iter().find(|kind| kind.name == port.kind) else {
        let known: Vec<_> = sluice_port::PORT_TYPES.iter().map(|kind| kind.name).chain([PATCH]).collect();
        let key = format!("{path}.type");
        return wrong(
            key,
            format!("this build has no port type \"{}\"; expected one of {}", port.kind, known.join(", ")),
        );
    };
    for (key, value) in &port.options {
        let path = format!("{path}.options.{key}");
        if !kind.options.iter().any(|known| known.key == key) {
            let known: Vec<_> = kind.options.iter().map(|known| known.key).collect();
            return wrong(path, format!("unknown to type {}; expected one of {}", kind.name, known.join(", ")));
        }
        if value.is_array() || value.is_table() {
            return wrong(path, "expected a string, a number or a boolean");
        }
    }
    Ok(())
}

fn check_name(key: &str, name: &str) -> Checked {
    let good = |c: char| c.is_ascii_graphic() && c != '/' && c != ',' && c != '"';
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(good) {
        return wrong(
            key,
            format!("\"{}\"; expected 1 to {NAME_MAX} visible characters without / , \"", name.escape_default()),
        );
    }
    Ok(())
}

//! `[[bridge.mirror]]`: copies of what ports receive and send.

use super::Bridge;
use serde::Deserialize;
use sluice_ofproto::{MirrorConfig, MirrorOutput, MirrorPorts};
use sluice_vswitch::Invalid;

/// Largest VLAN id. Source: IEEE 802.1Q, where 4095 is reserved.
const VLAN_MAX: u16 = 4094;

/// Copies have at least an Ethernet header. Source: vswitch.ovsschema, `Mirror`, `snaplen`.
const SNAPLEN_MIN: u16 = 14;

/// `[[bridge.mirror]]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Mirror {
    /// Its name, unique in the bridge.
    pub name: String,
    /// Whether it copies all packets of all ports.
    #[serde(default)]
    pub select_all: bool,
    /// The ports whose received packets it copies.
    #[serde(default)]
    pub select_src_port: Vec<String>,
    /// The ports whose sent packets it copies.
    #[serde(default)]
    pub select_dst_port: Vec<String>,
    /// The VLANs whose packets it copies; empty: all.
    #[serde(default)]
    pub select_vlan: Vec<u16>,
    /// The port that its copies go to.
    #[serde(default)]
    pub output_port: Option<String>,
    /// The VLAN that its copies go to.
    #[serde(default)]
    pub output_vlan: Option<u16>,
    /// Longest copy, bytes.
    #[serde(default)]
    pub snaplen: Option<u16>,
}

impl Mirror {
    pub(super) fn desired(&self, bridge: &Bridge) -> Result<MirrorConfig, Invalid> {
        let known = |key: &str, name: &String| match bridge.port.iter().any(|port| port.name == *name) {
            true => Ok(name.clone()),
            false => Err(Invalid::new(key, format!("bridge {} has no port \"{name}\"", bridge.name))),
        };
        let ports = |key: &str, names: &[String]| match self.select_all {
            true => Ok(MirrorPorts::All),
            false => Ok(MirrorPorts::Named(names.iter().map(|name| known(key, name)).collect::<Result<_, _>>()?)),
        };
        let output = match (&self.output_port, self.output_vlan) {
            (Some(port), None) => MirrorOutput::Port(known("output-port", port)?),
            (None, Some(vlan)) => MirrorOutput::Vlan(valid_vlan("output-vlan", vlan)?),
            _ => return Err(Invalid::new("output-port", "expected either output-port or output-vlan")),
        };
        if !self.select_all && self.select_src_port.is_empty() && self.select_dst_port.is_empty() {
            let expected = "selects no packets; expected select-all = true, select-src-port or select-dst-port";
            return Err(Invalid::new("select-all", expected));
        }
        if let Some(snaplen) = self.snaplen.filter(|snaplen| *snaplen < SNAPLEN_MIN) {
            return Err(Invalid::new("snaplen", format!("{snaplen}; expected {SNAPLEN_MIN} to 65535 bytes")));
        }
        Ok(MirrorConfig {
            id: self.name.clone(),
            name: self.name.clone(),
            sources: ports("select-src-port", &self.select_src_port)?,
            destinations: ports("select-dst-port", &self.select_dst_port)?,
            vlans: self.select_vlan.iter().map(|vlan| valid_vlan("select-vlan", *vlan)).collect::<Result<_, _>>()?,
            output,
            snaplen: self.snaplen.unwrap_or(0),
        })
    }
}

fn valid_vlan(key: &str, vlan: u16) -> Result<u16, Invalid> {
    let expected = || Invalid::new(key, format!("{vlan}; expected 0 to {VLAN_MAX}"));
    (vlan <= VLAN_MAX).then_some(vlan).ok_or_else(expected)
}

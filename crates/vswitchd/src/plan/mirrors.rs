//! A bridge's mirrors. Source: Open vSwitch vswitchd/bridge.c, `mirror_configure`.

use super::{Level, Note, Plan};
use crate::records::{BridgeRecord, InterfaceRecord, MirrorRecord, PortRef};
use sluice_ofproto::{MirrorConfig, MirrorOutput, MirrorPorts};

impl Plan {
    /// The mirrors of a bridge that can be.
    pub(super) fn mirrors(&mut self, bridge: &BridgeRecord) -> Vec<MirrorConfig> {
        bridge.mirrors.iter().filter_map(|record| self.mirror(bridge, record)).collect()
    }

    fn mirror(&mut self, bridge: &BridgeRecord, record: &MirrorRecord) -> Option<MirrorConfig> {
        let output = self.mirror_output(bridge, record)?;
        let (sources, destinations) = if record.select_all {
            (MirrorPorts::All, MirrorPorts::All)
        } else {
            let sources = self.selected(bridge, record, &record.select_src_port);
            (sources, self.selected(bridge, record, &record.select_dst_port))
        };
        Some(MirrorConfig {
            id: record.uuid.to_string(),
            name: record.name.clone(),
            sources,
            destinations,
            vlans: record.select_vlan.iter().filter_map(|vlan| u16::try_from(*vlan).ok()).collect(),
            output,
            snaplen: record.snaplen.and_then(|n| u16::try_from(n).ok()).unwrap_or(0),
        })
    }

    /// Where the copies of a mirror go; `None` if it does not say, or cannot have it so.
    fn mirror_output(&mut self, bridge: &BridgeRecord, record: &MirrorRecord) -> Option<MirrorOutput> {
        let vlan = record.output_vlan.and_then(|vlan| u16::try_from(vlan).ok());
        let (output, wrong) = match (&record.output_port, vlan) {
            (Some(port), vlan) => match interfaces_of(bridge, port).and_then(|interfaces| interfaces.first()) {
                Some(InterfaceRecord { name, .. }) => {
                    let both = "specifies both output port and output vlan; ignoring output vlan";
                    (Some(MirrorOutput::Port(name.to_owned())), vlan.map(|_| both))
                }
                None => (None, Some("outputs to port not on bridge")),
            },
            (None, Some(vlan)) => (Some(MirrorOutput::Vlan(vlan)), None),
            (None, None) => (None, Some("does not specify output; ignoring")),
        };
        if let Some(wrong) = wrong {
            let text = format!("bridge {}: mirror {} {wrong}", bridge.name, record.name);
            self.notes.push(Note::new(Level::Error, text));
        }
        output
    }

    /// The ports that a mirror copies packets of.
    fn selected(&mut self, bridge: &BridgeRecord, record: &MirrorRecord, ports: &[PortRef]) -> MirrorPorts {
        let mut names = std::collections::BTreeSet::new();
        for port in ports {
            match interfaces_of(bridge, port) {
                Some(interfaces) => names.extend(interfaces.iter().map(|interface| interface.name.clone())),
                None => {
                    let (mirror, port) = (&record.name, &port.name);
                    self.warn(format!(
                        "bridge {}: mirror {mirror} cannot match on nonexistent port {port}",
                        bridge.name
                    ));
                }
            }
        }
        MirrorPorts::Named(names)
    }
}

/// The interfaces that serve a port, if the port is on the bridge.
fn interfaces_of<'a>(bridge: &'a BridgeRecord, port: &PortRef) -> Option<&'a [InterfaceRecord]> {
    let port = bridge.ports.iter().find(|other| other.uuid == port.uuid)?;
    Some(port.interfaces.as_slice()).filter(|interfaces| !interfaces.is_empty())
}

//! Interfaces that are tunnels.

use super::{Level, Note, Plan};
use crate::records::Records;
use sluice_ovsdb::Uuid;
use sluice_tunnel::{TunnelConfig, TunnelKind};
use sluice_vswitch::Port;

/// The system's text of EINVAL and of EEXIST.
const INVALID: &str = "Invalid argument";
const EXISTS: &str = "File exists";

impl Plan {
    /// Notes how VXLAN tunnels that are there read their headers: those to come must agree with them.
    pub(super) fn note_vxlan_tunnels(&mut self, records: &Records) {
        let ports = records.bridges.iter().flat_map(|bridge| &bridge.ports);
        let interfaces = ports.flat_map(|port| &port.interfaces).filter(|interface| interface.ofport > Some(0));
        for interface in interfaces.filter(|interface| interface.kind == TunnelKind::Vxlan.name()) {
            if let Ok(parsed) = sluice_tunnel::parse(&interface.name, TunnelKind::Vxlan, &interface.options.0) {
                self.vxlan_ports.entry(parsed.config.dst_port).or_insert(parsed.config.gbp);
            }
        }
    }

    /// Whether a port can be the tunnel that its options say; if not, its row gets the reason. Source: Open vSwitch
    /// lib/netdev-vport.c, `set_tunnel_config`; lib/netdev.c, `netdev_set_config`.
    pub(super) fn accept_tunnel(&mut self, interface: Uuid, port: &Port, kind: TunnelKind) -> bool {
        let (mut notes, system_text) = match sluice_tunnel::parse(&port.name, kind, &port.options) {
            Ok(parsed) if self.has_concomitant(&parsed.config) => (parsed.ignored, EXISTS),
            Ok(parsed) => {
                parsed.ignored.into_iter().for_each(|line| self.note_tunnel(line));
                return true;
            }
            Err(error) => (error.0, INVALID),
        };
        if system_text == EXISTS {
            notes.push(format!(
                "{}: VXLAN-GBP, and non-VXLAN-GBP tunnels can't be configured on the same dst_port",
                port.name
            ));
        }
        notes.iter().for_each(|line| self.note_tunnel(line.clone()));
        self.warn(format!("{}: could not set configuration ({system_text})", port.name));
        self.refuse(interface, Some(notes.join("\n")));
        false
    }

    /// Whether another VXLAN tunnel of the same UDP port reads its header in another way.
    fn has_concomitant(&mut self, config: &TunnelConfig) -> bool {
        let is_vxlan = config.kind == TunnelKind::Vxlan;
        is_vxlan && *self.vxlan_ports.entry(config.dst_port).or_insert(config.gbp) != config.gbp
    }

    /// Says once what is wrong with a tunnel's options.
    fn note_tunnel(&mut self, line: String) {
        self.notes.push(Note::once(Level::Warn, line));
    }
}

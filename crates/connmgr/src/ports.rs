//! Ports as controllers see them.

use crate::backend::Device;
use crate::conn_handle::ConnHandle;
use crate::conn_mgr::ConnMgr;
use crate::connection::Connection;
use crate::flows::nanoseconds;
use crate::known_ports::PortChange;
use crate::switch::Switch;
use sluice_flow::{Mac, OfPort};
use sluice_ofproto::{PortConfig, VportStats};
use sluice_openflow::message::connection::AsyncKind;
use sluice_openflow::message::ports::{PortDesc, PortMod, PortStats, PortStatus, config, state};
use sluice_openflow::{Error, Message, Version};

/// The descriptions of a bridge's ports, by number.
pub fn descriptions(switch: &Switch, bridge: &str) -> Vec<PortDesc> {
    let macs = switch.backend.port_macs();
    let ports = switch.ofproto.ports(bridge).unwrap_or_default();
    let mac = |port: &PortConfig| port.datapath().and_then(|number| macs.get(&number).copied());
    ports.iter().map(|port| description(port, mac(port).unwrap_or(Mac([0; 6])))).collect()
}

fn description(port: &PortConfig, hw_addr: Mac) -> PortDesc {
    let bits = [
        (port.down, config::PORT_DOWN),
        (port.no_receive, config::NO_RECV),
        (port.no_flood, config::NO_FLOOD),
        (port.no_forward, config::NO_FWD),
        (port.no_packet_in, config::NO_PACKET_IN),
    ];
    PortDesc {
        port: port.number.0,
        hw_addr,
        name: port.name.clone(),
        config: bits.into_iter().filter(|(set, _)| *set).fold(0, |all, (_, bit)| all | bit),
        state: match (port.up && !port.down, port.is_live()) {
            (_, true) => state::LIVE,
            (true, false) => 0,
            (false, false) => state::LINK_DOWN,
        },
        ..PortDesc::default()
    }
}

/// The counters of one port, or of all.
pub fn stats(switch: &Switch, conn_mgr: &ConnMgr, wanted: Option<OfPort>) -> Result<Vec<PortStats>, Error> {
    let devices = switch.backend.devices();
    let ports = switch.ofproto.ports(&conn_mgr.bridge).unwrap_or_default().into_iter();
    let ports = ports.filter(|p| wanted.is_none_or(|number| p.number == number));
    let stats = ports.map(|port| {
        let counted = match switch.ofproto.vport_stats(&conn_mgr.bridge, port.number) {
            Some(patch) => vport_stats(&port, &patch),
            None => port_stats(&port, port.datapath().and_then(|no| devices.get(&no))),
        };
        PortStats { duration_ns: nanoseconds(conn_mgr.port_age_ms(port.number)), ..counted }
    });
    Ok(stats.collect())
}

fn vport_stats(port: &PortConfig, patch: &VportStats) -> PortStats {
    let &VportStats { rx_packets, rx_bytes, tx_packets, tx_bytes } = patch;
    PortStats { rx_packets, rx_bytes, tx_packets, tx_bytes, ..PortStats::unknown(port.number) }
}

fn port_stats(port: &PortConfig, device: Option<&Device>) -> PortStats {
    let unknown = PortStats::unknown(port.number);
    let Some(device) = device else { return unknown };
    let counters = &device.counters;
    PortStats {
        rx_packets: counters.rx_packets,
        tx_packets: counters.tx_packets,
        rx_bytes: counters.rx_bytes,
        tx_bytes: counters.tx_bytes,
        rx_dropped: counters.rx_dropped,
        tx_dropped: counters.tx_dropped,
        rx_errors: counters.rx_errors,
        tx_errors: counters.tx_errors,
        custom: counters.custom.clone(),
        ..unknown
    }
}

/// Checks a port-mod; returns the description of its port.
pub fn check_port_mod(switch: &Switch, bridge: &str, m: &PortMod) -> Result<PortDesc, Error> {
    let desc = descriptions(switch, bridge).into_iter().find(|d| d.port == m.port.0);
    let desc = desc.ok_or(Error::PortModBadPort)?;
    if desc.hw_addr == m.hw_addr { Ok(desc) } else { Err(Error::PortModBadHwAddr) }
}

/// Changes a port.
pub fn port_mod(switch: &Switch, conn_mgr: &ConnMgr, by: &ConnHandle, m: &PortMod) -> Result<(), Error> {
    let desc = check_port_mod(switch, &conn_mgr.bridge, m)?;
    let new = desc.config & !m.mask | m.config & m.mask;
    let change = |port: &mut PortConfig| {
        port.down = new & config::PORT_DOWN != 0;
        port.no_receive = new & config::NO_RECV != 0;
        port.no_flood = new & config::NO_FLOOD != 0;
        port.no_forward = new & config::NO_FWD != 0;
        port.no_packet_in = new & config::NO_PACKET_IN != 0;
    };
    switch.ofproto.set_port(&conn_mgr.bridge, &desc.name, change).map_err(|_| Error::PortModBadPort)?;
    switch.revalidate_soon();
    conn_mgr.update_ports(descriptions(switch, &conn_mgr.bridge), Some(by));
    Ok(())
}

impl Connection {
    /// Tells of a change of a port, if the controller wants it and its version shows it. Before OpenFlow 1.5 a controller is
    /// not told of what it has configured itself. Source: Open vSwitch, `connmgr_send_port_status`.
    pub(crate) fn port_status(&mut self, change: &PortChange) {
        let PortChange { reason, before, desc, by } = change;
        let version = self.version();
        let is_own = *by == Some(self.handle.number()) && version < Version::V15;
        if is_own || !self.session.wants(AsyncKind::PortStatus, *reason as u32) {
            return;
        }
        let status =
            |desc: &PortDesc| Message::PortStatus(Box::new(PortStatus { reason: *reason, desc: desc.clone() }));
        let message = status(desc);
        if before.as_ref().is_none_or(|before| status(before).write(version, 0) != message.write(version, 0)) {
            self.session.send(&message);
        }
    }
}

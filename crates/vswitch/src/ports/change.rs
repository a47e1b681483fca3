//! Changes of a port that is there.

use super::{log_notes, polling, queue_dscp, table_mtu};
use crate::assembly::Assembly;
use crate::desired::Port;
use crate::error::Error;
use sluice_action::PortNo;
use sluice_ofproto::TunnelPort;
use sluice_port::TxSteering;
use sluice_tunnel::TunnelConfig;

impl Assembly {
    /// Makes of a port another one of its type: in place as far as its device can, else the device is closed and opened
    /// anew. It keeps its numbers.
    ///
    /// # Errors
    /// If there is no such port. The error in the result is that of a device that could not be opened.
    pub fn change_port(&mut self, bridge: &str, port: &Port) -> Result<Option<Error>, Error> {
        let entry = self.ports.get_mut(&port.name).filter(|entry| entry.bridge == bridge);
        let no_port = || sluice_ofproto::Error::NoPort { bridge: bridge.to_owned(), port: port.name.clone() };
        let entry = entry.ok_or_else(no_port)?;
        let before = std::mem::replace(&mut entry.desired, port.clone());
        let (number, open) = (entry.number, entry.open_number());
        self.ofproto().set_port(bridge, &port.name, |p| {
            (p.vlan, p.priority_tags) = (port.vlan.clone(), port.priority_tags);
            (p.is_protected, p.mtu) = (port.is_protected, table_mtu(port));
            // A new session is down.
            p.bfd_down = port.bfd.is_some() && (p.bfd_down || p.bfd.is_none());
            p.bfd.clone_from(&port.bfd);
            p.lacp_down = port.speaks_lacp && (p.lacp_down || !p.lacp);
            p.lacp = port.speaks_lacp;
            p.queue_dscp = queue_dscp(port);
        })?;
        if let Some(open) = open {
            self.change_qos(open, &before, port);
        }
        if let Some(peer) = port.peer().filter(|_| before.peer() != port.peer()) {
            self.ofproto().set_peer(bridge, &port.name, peer)?;
        }
        let Some(number) = number.filter(|_| !before.has_same_device(port)) else { return Ok(None) };
        if let Some(config) = port.tunnel() {
            return self.change_tunnel(bridge, port, config).map(|()| None);
        }
        // A tap device that is closed is gone, with the addresses that its user gave it.
        if open.is_some_and(|open| self.change_device(open, &before, port).is_ok()) {
            return Ok(None);
        }
        if let Some(open) = open {
            self.datapath().stop_receiving(open)?;
            self.datapath().del_port(open)?;
        }
        let opened = self.open_port(number, port);
        if let Some(entry) = self.ports.get_mut(&port.name) {
            entry.closed = None;
        }
        let Err(error) = opened else { return Ok(None) };
        self.port_failed(&port.name, &error)?;
        Ok(Some(error))
    }

    /// Makes of a tunnel another one.
    fn change_tunnel(&mut self, bridge: &str, port: &Port, config: TunnelConfig) -> Result<(), Error> {
        let backend = self.join_backend(port, &config)?;
        let changed = self.ofproto().set_tunnel(bridge, &port.name, TunnelPort { config: config.clone(), backend });
        let left = match (&changed, self.ports.get_mut(&port.name)) {
            (Ok(()), Some(entry)) => {
                entry.number = Some(backend);
                entry.tunnel.replace(config)
            }
            _ => Some(config),
        };
        if let Some(left) = left {
            self.backends.leave(&left.backend_name(), &mut self.datapath_numbers);
        }
        Ok(changed?)
    }

    /// Changes an open device in place.
    ///
    /// # Errors
    /// If it must be opened again; part of the changes may be in force then.
    fn change_device(&self, number: PortNo, before: &Port, port: &Port) -> std::io::Result<()> {
        let datapath = self.datapath();
        if before.mtu != port.mtu && !port.follows_mtu() {
            let mtu = port.mtu.ok_or(std::io::ErrorKind::Unsupported)?;
            datapath.set_mtu(number, mtu, &mut self.pools().lock())?;
        }
        if (before.n_rxq, &before.options) != (port.n_rxq, &port.options) {
            let notes = datapath.reconfigure_port(number, &self.device_config(port), &polling(port))?;
            log_notes(port, &notes);
            // There may be more or fewer queues to send by.
            datapath.set_tx_steering(number, TxSteering::default()).map_err(std::io::Error::other)?;
        } else if before.rxq_affinity != port.rxq_affinity {
            datapath.set_affinity(number, &polling(port)).map_err(std::io::Error::other)?;
        }
        datapath.set_tx_steering(number, port.tx_steering).map_err(std::io::Error::other)
    }
}

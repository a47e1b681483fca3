//! Ports of a switch that runs: added and taken away by command, watched, and shown.

use super::{Switch, log_unpinned};
use crate::backends::Backends;
use crate::desired::Port;
use crate::error::Error;
use crate::qos::QosStatus;
use sluice_action::{DatapathPortNames, PortNo};
use sluice_datapath::SessionProtocol;
use sluice_flow::{OfPort, PortNames};
use sluice_ofproto::Attach;
use sluice_port::{DpdkConfig, LinkChanges, PortInfo, dpdk_environment};
use sluice_tunnel::TunnelConfig;
use std::collections::BTreeMap;

/// A port, and what became of it.
#[derive(Clone, Debug)]
pub struct PortStatus {
    /// Its name.
    pub name: String,
    /// Its OpenFlow number: the one that was requested, or the one it got.
    pub ofport: OfPort,
    /// Its datapath number, of a tunnel that of the port which serves it; a patch port and a LOCAL port without a device
    /// have none.
    pub number: Option<PortNo>,
    /// Its type; `None` for a LOCAL port without a device.
    pub kind: Option<String>,
    /// What it is as a tunnel, if it is one.
    pub tunnel: Option<TunnelConfig>,
    /// The other end of a patch port.
    pub peer: Option<String>,
    /// Why it is not open, if it should be and is not.
    pub error: Option<String>,
    /// What it is while it is open.
    pub info: Option<PortInfo>,
}

impl Switch {
    /// Adds a port by command.
    ///
    /// # Errors
    /// If the port is not as it must be, cannot be opened, or its name or number is taken.
    pub fn add_port(&self, bridge: &str, port: &Port) -> Result<(), Error> {
        let mut setup = self.setup();
        let checked = port.check().and_then(|()| port.check_affinity(&setup.state.pmd_cores));
        checked.map_err(|invalid| invalid.within("port"))?;
        setup.assembly.add_port(bridge, port)?;
        setup.assembly.follow_mtus();
        drop(setup);
        self.follow_ports();
        Ok(())
    }

    /// Removes a port by command.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn remove_port(&self, bridge: &str, name: &str) -> Result<(), Error> {
        let mut setup = self.setup();
        setup.assembly.remove_port(bridge, name)?;
        setup.assembly.release_number(bridge, name);
        drop(setup);
        self.follow_ports();
        Ok(())
    }

    /// Tells sessions, the tables and controllers of a port that has come or gone.
    fn follow_ports(&self) {
        self.sync_bfd();
        self.sync_bundles();
        self.request_revalidation();
        self.openflow.publish_ports();
    }

    /// Lets ports come back whose devices have, and tells the tables of links that went up or down. Once a second.
    pub fn watch_ports(&self) {
        self.datapath.service_ports();
        self.datapaths.service(self.now_ms());
        self.datapath.take_unpinned().iter().for_each(log_unpinned);
        self.datapath.log_suspicions();
        let mut setup = self.setup();
        setup.assembly.retry_ports();
        setup.assembly.follow_mtus();
        let changed = setup.assembly.watch_links();
        drop(setup);
        self.refresh_devices();
        if changed {
            self.datapath.wake_sessions(SessionProtocol::Lacp);
            self.request_revalidation();
        }
        self.openflow.run();
    }

    /// Tells the tables, and controllers, of links of devices that changed. [`Switch::watch_ports`] would do it up to a
    /// second later.
    pub fn follow_links(&self, changes: &LinkChanges) {
        if self.setup().assembly.follow_links(changes) {
            self.datapath.wake_sessions(SessionProtocol::Lacp);
            self.request_revalidation();
            self.openflow.publish_ports();
        }
    }

    /// Tells controllers of ports that have changed.
    pub fn publish_ports(&self) {
        self.openflow.publish_ports();
    }

    /// Gives a dummy port another datapath number.
    ///
    /// # Errors
    /// In OVS's words, if there is no such port or the number is in use.
    pub fn renumber_port(&self, name: &str, number: PortNo) -> Result<(), &'static str> {
        let mut setup = self.setup();
        setup.assembly.renumber_port(name, number)?;
        drop(setup);
        self.retell_bundles();
        self.request_revalidation();
        Ok(())
    }

    /// The types of all ports.
    pub fn port_kinds(&self) -> Vec<String> {
        self.setup().assembly.ports().values().map(|entry| entry.desired.kind.clone()).collect()
    }

    /// The QoS of a datapath port that is in force, with the counters of its queues.
    pub fn qos(&self, number: PortNo) -> Option<QosStatus> {
        self.qos.status(number)
    }

    /// Starts DPDK for ports yet to come. It can be tried once a process.
    ///
    /// # Errors
    /// With the reason, in one line.
    pub fn start_dpdk(&self, config: &DpdkConfig) -> Result<(), String> {
        dpdk_environment::start(&mut self.pools.lock(), config)
    }

    /// Names of a bridge's ports, for flow text.
    pub fn port_names(&self, bridge: &str) -> PortNames {
        let ports = self.ofproto.ports(bridge).unwrap_or_default();
        ports.iter().map(|port| (port.name.as_str(), port.number)).collect()
    }

    /// No names of datapath ports, but what the options of Geneve in keys stand for.
    pub fn option_names(&self) -> DatapathPortNames {
        DatapathPortNames::default()
    }

    /// Names of datapath ports, for megaflows.
    pub fn datapath_names(&self) -> DatapathPortNames {
        let mut names = self.option_names();
        let setup = self.setup();
        for (name, entry) in setup.assembly.ports().iter().filter(|(_, entry)| entry.tunnel().is_none()) {
            entry.number.into_iter().for_each(|number| names.insert(number, name));
        }
        setup.assembly.backends().iter().for_each(|(name, backend)| names.insert(backend.number, name));
        drop(setup);
        self.datapaths.name_loose(&mut names);
        names
    }

    /// The datapath ports that serve tunnels.
    pub fn backends(&self) -> Backends {
        self.setup().assembly.backends().clone()
    }

    /// The ports of each bridge, by number.
    pub fn port_status(&self) -> BTreeMap<String, Vec<PortStatus>> {
        let infos = self.datapath.port_infos();
        let setup = self.setup();
        let entries = setup.assembly.ports();
        let status = |port: sluice_ofproto::PortConfig| {
            let entry = entries.get(&port.name);
            PortStatus {
                ofport: port.number,
                number: port.datapath(),
                kind: entry.map(|entry| entry.desired.kind.clone()),
                tunnel: entry.and_then(|entry| entry.tunnel()).cloned(),
                peer: if let Attach::Patch(peer) = &port.attach { Some(peer.clone()) } else { None },
                error: entry.and_then(|entry| entry.error()).map(str::to_owned),
                info: port.datapath().and_then(|number| infos.get(&number).cloned()),
                name: port.name,
            }
        };
        let bridges = self.ofproto.bridges().into_iter();
        let of_bridge = |name: &str| self.ofproto.ports(name).unwrap_or_default().into_iter().map(status).collect();
        bridges.map(|bridge| (bridge.name.clone(), of_bridge(&bridge.name))).collect()
    }
}

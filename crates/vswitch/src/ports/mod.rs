//! Ports of an assembly: opened, joined to their bridge and to the datapath, and taken away; [`change`]d, and
//! [`watch`]ed while they are there.

mod change;
mod watch;

use crate::assembly::Assembly;
use crate::desired::{ETHERNET_MTU, Port};
use crate::error::Error;
use crate::pages;
use sluice_action::PortNo;
use sluice_clock::now_ms;
use sluice_datapath::PortPolling;
use sluice_flow::OfPort;
use sluice_mem::FramePool;
use sluice_ofproto::{PortConfig, TunnelPort};
use sluice_port::{PORT_TYPES, Pools};
use sluice_tunnel::TunnelConfig;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A port of a bridge.
#[derive(Clone, Debug)]
pub struct PortEntry {
    /// Its bridge.
    pub bridge: String,
    /// Its OpenFlow number.
    pub ofport: OfPort,
    /// Its datapath number, unless it is a patch port: of a tunnel that of the port which serves it.
    pub number: Option<PortNo>,
    /// As it was asked for.
    pub desired: Port,
    /// What it is as a tunnel, if it is one.
    tunnel: Option<TunnelConfig>,
    /// Whether its link was up when it was last looked at.
    pub(crate) is_up: bool,
    /// Why the datapath has not got it, if so.
    closed: Option<Closed>,
}

/// A port that could not be opened.
#[derive(Clone, Debug)]
struct Closed {
    error: String,
    /// When it is tried again, and how long after that; `None` if only another configuration helps.
    retry: Option<Retry>,
}

#[derive(Clone, Copy, Debug)]
struct Retry {
    at_ms: u64,
    pause_ms: u64,
}

/// Milliseconds from one try to open a port to the next, at first and at most.
const RETRY_FIRST_MS: u64 = 1000;
const RETRY_MAX_MS: u64 = 30_000;

impl PortEntry {
    /// A port that is there and up.
    fn new(bridge: &str, port: &Port, ofport: OfPort, number: Option<PortNo>) -> Self {
        let (bridge, desired) = (bridge.to_owned(), port.clone());
        PortEntry { bridge, ofport, number, desired, tunnel: None, is_up: true, closed: None }
    }

    /// Why it is not open, if it is not.
    pub fn error(&self) -> Option<&str> {
        self.closed.as_ref().map(|closed| closed.error.as_str())
    }

    /// Its number in the datapath while its device is open there.
    fn open_number(&self) -> Option<PortNo> {
        self.number.filter(|_| self.closed.is_none() && self.tunnel.is_none())
    }

    /// What it is as a tunnel, if it is one.
    pub fn tunnel(&self) -> Option<&TunnelConfig> {
        self.tunnel.as_ref()
    }

    fn is_due(&self) -> bool {
        let retry = self.closed.as_ref().and_then(|closed| closed.retry);
        retry.is_some_and(|retry| retry.at_ms <= now_ms())
    }

    /// It could not be opened, for the first time or again.
    fn failed(&mut self, error: &Error) {
        let pause_ms = match self.closed.as_ref().and_then(|closed| closed.retry) {
            Some(before) => (before.pause_ms * 2).min(RETRY_MAX_MS),
            None => RETRY_FIRST_MS,
        };
        let retry = (!error.is_of_configuration()).then(|| Retry { at_ms: now_ms() + pause_ms, pause_ms });
        self.closed = Some(Closed { error: error.to_string(), retry });
    }
}

impl Assembly {
    /// The ports, by name: all but LOCAL ports without a device.
    pub fn ports(&self) -> &BTreeMap<String, PortEntry> {
        &self.ports
    }

    /// Adds a port to a bridge: opens it, and makes it known to the tables and to the datapath.
    ///
    /// # Errors
    /// If it cannot be opened, or its name or number is taken; nothing has changed then.
    pub fn add_port(&mut self, bridge: &str, port: &Port) -> Result<(), Error> {
        match self.add_port_open_or_not(bridge, port)? {
            None => Ok(()),
            Some(error) => {
                self.forget_port(bridge, &port.name)?;
                Err(error)
            }
        }
    }

    /// The same for a port that is to be there for rules to name even if it cannot be opened now, which the error in
    /// the result says: it is down until it can.
    ///
    /// # Errors
    /// If its name or number is taken.
    pub fn add_port_open_or_not(&mut self, bridge: &str, port: &Port) -> Result<Option<Error>, Error> {
        let number = self.announce_port(bridge, port)?;
        let opened = number.map_or(Ok(()), |number| self.open_port(number, port));
        let Err(error) = opened else {
            self.log_added(&port.name);
            return Ok(None);
        };
        self.port_failed(&port.name, &error)?;
        Ok(Some(error))
    }

    /// In Open vSwitch's words, and as there once the port is open. Source: vswitchd/bridge.c, `iface_create`.
    fn log_added(&self, name: &str) {
        if let Some(PortEntry { bridge, ofport, .. }) = self.ports.get(name) {
            tracing::info!(target: "bridge", "bridge {bridge}: added interface {name} on port {}", ofport.0);
        }
    }

    /// Adds a port that has been opened already, such as one in memory.
    ///
    /// # Errors
    /// If its name or number is taken.
    pub fn attach_port(&mut self, bridge: &str, port: &Port, opened: Box<dyn sluice_port::Port>) -> Result<(), Error> {
        let Some(number) = self.announce_port(bridge, port)? else { return Ok(()) };
        self.join_port(number, port, opened)
    }

    /// Makes a port known to the tables; its datapath number, unless it is a patch port.
    fn announce_port(&mut self, bridge: &str, port: &Port) -> Result<Option<PortNo>, Error> {
        if let Some(taken) = self.ports.get(&port.name) {
            return Err(Error::PortName { port: port.name.clone(), bridge: taken.bridge.clone() });
        }
        let ofport = self.number_of(bridge, port)?;
        if let Some(config) = port.tunnel() {
            return self.announce_tunnel(bridge, port, config, ofport).map(|()| None);
        }
        let number = if port.peer().is_none() { Some(self.free_number(ofport.0, port)?) } else { None };
        let config = match (port.peer(), number) {
            (Some(peer), _) => PortConfig::patch(&port.name, ofport.0, peer),
            (None, number) => PortConfig::new(&port.name, ofport.0, number.unwrap_or(PortNo(0))),
        };
        if port.is_local() {
            // It takes the place of the one without a device, if there is one.
            let _ = self.ofproto().remove_port(bridge, &port.name);
        }
        self.ofproto().add_port(bridge, with_settings(config, port))?;
        self.enter(PortEntry::new(bridge, port, ofport, number));
        number.into_iter().for_each(|number| self.datapath_numbers.take(number));
        Ok(number)
    }

    /// Makes a tunnel known to the tables. It has no device.
    fn announce_tunnel(
        &mut self,
        bridge: &str,
        port: &Port,
        config: TunnelConfig,
        ofport: OfPort,
    ) -> Result<(), Error> {
        let backend = self.join_backend(port, &config)?;
        let tunnel = TunnelPort { config: config.clone(), backend };
        let added =
            self.ofproto().add_port(bridge, with_settings(PortConfig::tunnel(&port.name, ofport.0, tunnel), port));
        if let Err(error) = added {
            self.backends.leave(&config.backend_name(), &mut self.datapath_numbers);
            return Err(error.into());
        }
        self.enter(PortEntry { tunnel: Some(config), ..PortEntry::new(bridge, port, ofport, Some(backend)) });
        Ok(())
    }

    fn join_backend(&mut self, port: &Port, config: &TunnelConfig) -> Result<PortNo, Error> {
        let joined = self.backends.join(&config.backend_name(), &mut self.datapath_numbers);
        joined.ok_or_else(|| Error::NoDatapathNumber(port.name.clone()))
    }

    fn enter(&mut self, entry: PortEntry) {
        self.ports.insert(entry.desired.name.clone(), entry);
    }

    /// Opens a port and gives it to the datapath.
    fn open_port(&mut self, number: PortNo, port: &Port) -> Result<(), Error> {
        let opened = self.open_device(port)?;
        self.join_port(number, port, opened)
    }

    /// Opens a port's device.
    pub(crate) fn open_device(&self, port: &Port) -> Result<Box<dyn sluice_port::Port>, Error> {
        let config = self.device_config(port);
        let pools = self.pools();
        let mut pools = pools.lock();
        let before = pools.iter().count();
        let opened = sluice_port::open(&config, &mut pools)?;
        if pools.iter().count() > before {
            log_pools(&pools);
        }
        drop(pools);
        log_notes(port, opened.notes());
        Ok(opened)
    }

    /// The configuration of a port's device.
    pub(crate) fn device_config(&self, port: &Port) -> sluice_port::PortConfig {
        sluice_port::PortConfig {
            name: port.name.clone(),
            kind: port.kind.clone(),
            n_rxq: port.n_rxq,
            mtu: port.mtu.unwrap_or(ETHERNET_MTU),
            keeps_mtu: port.mtu.is_none(),
            options: port.options.clone(),
            base_dir: self.base_dir.clone(),
        }
    }

    fn join_port(&self, number: PortNo, port: &Port, opened: Box<dyn sluice_port::Port>) -> Result<(), Error> {
        let joined = self.datapath().add_port_polled(number, opened, &polling(port));
        let joined = joined.and_then(|()| self.datapath().set_tx_steering(number, port.tx_steering));
        joined.map_err(|error| Error::Port { port: port.name.clone(), error })?;
        self.set_up_qos(number, port);
        Ok(())
    }

    /// A port could not be opened: it is down, and says why.
    fn port_failed(&mut self, name: &str, error: &Error) -> Result<(), Error> {
        let Some(entry) = self.ports.get_mut(name) else { return Ok(()) };
        entry.failed(error);
        entry.is_up = false;
        let bridge = entry.bridge.clone();
        Ok(self.ofproto().set_port(&bridge, name, |port| port.up = false)?)
    }

    /// Takes a port away from its bridge and closes it. Its number waits for a port of the same name.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn remove_port(&mut self, bridge: &str, name: &str) -> Result<(), Error> {
        let entry = self.ports.get(name).filter(|entry| entry.bridge == bridge);
        let (ofport, open) = (entry.map(|entry| entry.ofport), entry.and_then(PortEntry::open_number));
        let refused = |error| Error::Port { port: name.to_owned(), error };
        // What has come by it meets the rules still; then the tables forget it, so that no new megaflow sends to it.
        if let Some(number) = open {
            self.datapath().stop_receiving(number).map_err(refused)?;
        }
        self.forget_port(bridge, name)?;
        if let Some(number) = open {
            self.remove_qos(number);
            self.datapath().del_port(number).map_err(refused)?.delete_device();
        }
        let ofport = ofport.unwrap_or(OfPort::NONE).0;
        tracing::info!(target: "bridge", "bridge {bridge}: deleted interface {name} on port {ofport}");
        Ok(())
    }

    /// Forgets a port that could not be opened, and its number. One that could not even be added is not there.
    pub(crate) fn leave_out(&mut self, bridge: &str, name: &str) -> Result<(), Error> {
        if self.ports.get(name).is_some_and(|entry| entry.bridge == bridge) {
            self.forget_port(bridge, name)?;
        }
        self.release_number(bridge, name);
        Ok(())
    }

    fn forget_port(&mut self, bridge: &str, name: &str) -> Result<(), Error> {
        self.ofproto().remove_port(bridge, name)?;
        let Some(entry) = self.ports.remove(name) else { return Ok(()) };
        match &entry.tunnel {
            Some(config) => self.backends.leave(&config.backend_name(), &mut self.datapath_numbers),
            None => entry.number.into_iter().for_each(|number| self.datapath_numbers.release(number)),
        }
        if entry.desired.is_local() {
            self.add_bare_local_port(bridge)?;
        }
        Ok(())
    }

    /// Gives a port another datapath number.
    pub(crate) fn renumber_port(&mut self, name: &str, number: PortNo) -> Result<(), &'static str> {
        let is_taken = self.datapath_numbers.is_taken(number);
        let datapath = Arc::clone(self.datapath());
        let entry = self.ports.get_mut(name);
        let (entry, before) = entry.and_then(|e| e.open_number().map(|number| (e, number))).ok_or("unknown port")?;
        if is_taken {
            return Err("port number already in use");
        }
        let moved = datapath.stop_receiving(before).and_then(|()| datapath.del_port(before));
        let moved = moved.and_then(|device| datapath.add_port_polled(number, device, &polling(&entry.desired)));
        moved.map_err(|_| "bad port number")?;
        entry.number = Some(number);
        self.datapath_numbers.release(before);
        self.datapath_numbers.take(number);
        let bridge = entry.bridge.clone();
        self.ofproto().renumber_port(&bridge, name, number).map_err(|_| "unknown port")
    }

    /// A datapath number: the wanted one if it is free, else the lowest free one. Nothing depends on it, but people
    /// read megaflows.
    ///
    /// A port wants its OpenFlow number; a dummy port wants the number that is in its name. Ports of OVS's other types
    /// get the lowest number, as there.
    fn free_number(&mut self, ofport: u16, port: &Port) -> Result<PortNo, Error> {
        let is_of_ovs = |name: &str| PORT_TYPES.iter().any(|kind| kind.name == name && kind.ignores_other_options);
        let wanted = match port.kind.as_str() {
            kind if kind.starts_with("dummy") => dummy_number(&port.name),
            kind if is_of_ovs(kind) => None,
            _ => Some(u32::from(ofport)),
        };
        self.datapath_numbers.free(wanted).ok_or_else(|| Error::NoDatapathNumber(port.name.clone()))
    }
}

/// The datapath number that a dummy port's name asks for: the first number in it, 100 more if it begins as bridges are
/// called. Source: OVS lib/dpif-netdev.c, `choose_port`.
pub(crate) fn dummy_number(name: &str) -> Option<u32> {
    let base = if name.starts_with("br") { 100 } else { 0 };
    let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number = digits[..end].parse::<u32>().ok()?.checked_add(base)?;
    (1..sluice_datapath::PORTS_MAX).contains(&number).then_some(number)
}

/// How a port's receive queues are to be polled.
pub(crate) fn polling(port: &Port) -> PortPolling<'_> {
    PortPolling { name: &port.name, affinity: &port.rxq_affinity }
}

/// Says what of a device is not as its options say.
fn log_notes(port: &Port, notes: &[String]) {
    notes.iter().for_each(|note| tracing::warn!("port {}: {note}", port.name));
}

/// Says what memory packets live in.
fn log_pools(pools: &Pools) {
    for pool in pools.iter() {
        let (frames, size) = (FramePool::capacity(&**pool), FramePool::frame_size(&**pool));
        let pages = pages::of_packets(pool.pages(), pool.region().size());
        tracing::info!("packet buffers: {frames} of {size} bytes in {pages}");
    }
}

/// A port as the tables know it, with its settings.
fn with_settings(config: PortConfig, port: &Port) -> PortConfig {
    PortConfig {
        vlan: port.vlan.clone(),
        priority_tags: port.priority_tags,
        is_protected: port.is_protected,
        mtu: table_mtu(port),
        bfd: port.bfd.clone(),
        bfd_down: port.bfd.is_some(),
        lacp: port.speaks_lacp,
        lacp_down: port.speaks_lacp,
        queue_dscp: queue_dscp(port),
        ..config
    }
}

/// The DSCP of its queues as the tables know it.
fn queue_dscp(port: &Port) -> BTreeMap<u32, u8> {
    port.qos.as_ref().map_or_else(BTreeMap::new, |qos| qos.dscp())
}

/// The MTU as the tables know it.
fn table_mtu(port: &Port) -> u16 {
    u16::try_from(port.mtu.unwrap_or(ETHERNET_MTU)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_dummy_port_is_in_its_name() {
        for (name, number) in [("p1", Some(1)), ("br0", Some(100)), ("br12x3", Some(112)), ("vm-7", Some(7))] {
            assert_eq!(dummy_number(name), number, "{name}");
        }
        for name in ["p0", "port", "", "p65536", "p99999999999"] {
            assert_eq!(dummy_number(name), None, "{name}");
        }
    }
}

//! The ports of bridges: adds, changes, removes and finds them.

use crate::bridge::{Bridge, SwitchState};
use crate::bridge_config::BridgeId;
use crate::bridge_mirrors::with_mirrors;
use crate::bridges::position;
use crate::depends::Changes;
use crate::error::Error;
use crate::ofproto::Ofproto;
use crate::port::{Attach, PortConfig, TunnelPort};
use crate::vport_counts::VportStats;
use sluice_flow::OfPort;
use std::sync::Arc;

impl Ofproto {
    /// A bridge's ports, by number.
    pub fn ports(&self, bridge: &str) -> Result<Vec<PortConfig>, Error> {
        let state = self.state();
        let at = position(&state, bridge)?;
        Ok(state.bridges[at].ports.values().cloned().collect())
    }

    /// Adds a port.
    pub fn add_port(&self, bridge: &str, port: PortConfig) -> Result<(), Error> {
        let mut writer = self.writer();
        let mut mirrors = self.mirrors_after(bridge, Some(&port), None);
        let changes = self.change(&mut writer, |state| {
            let at = position(state, bridge)?;
            check_port(state, at, &port)?;
            let id = state.bridges[at].id;
            match &port.attach {
                Attach::Datapath(no) => {
                    state.by_datapath.insert(no.0, (id, port.number));
                }
                Attach::Tunnel(tunnel) => state.tunnels.insert(tunnel, (id, port.number)),
                Attach::Patch(_) | Attach::Nothing => {}
            }
            state.by_name.insert(port.name.clone(), (id, port.number));
            let changes = Changes::of_port(&state.bridges[at], &port);
            state.bridges[at].port_order.push(port.number);
            if matches!(port.attach, Attach::Patch(_) | Attach::Tunnel(_)) {
                state.bridges[at].vport_counts.insert(port.number, Arc::default());
            }
            state.bridges[at].ports.insert(port.number, port);
            Ok(with_mirrors(&mut state.bridges[at], &mut mirrors, changes))
        })?;
        self.announce(&changes);
        Ok(())
    }

    /// Changes a port's VLANs, flags, MTU or link state. Its name, number and attachment stay.
    pub fn set_port(&self, bridge: &str, name: &str, f: impl FnOnce(&mut PortConfig)) -> Result<(), Error> {
        let mut writer = self.writer();
        let changes = self.change(&mut writer, |state| {
            let at = position(state, bridge)?;
            let number = port_number(&state.bridges[at], name)?;
            let port = state.bridges[at].ports.get_mut(&number).expect("invariant: the number was just found");
            let before = port.clone();
            f(port);
            let vlan_changed = port.vlan != before.vlan;
            (port.name, port.number, port.attach) = (before.name, before.number, before.attach);
            if vlan_changed {
                state.bridges[at].macs.get_mut().flush_port(number);
            }
            state.bridges[at].refresh_bonds();
            let bridge = &state.bridges[at];
            Ok(bridge.ports.get(&number).map_or_else(Changes::default, |port| Changes::of_port(bridge, port)))
        })?;
        self.announce(&changes);
        Ok(())
    }

    /// Makes of a port that is a tunnel another tunnel. Nothing else of the port changes.
    ///
    /// # Errors
    /// If there is no such port, or another port is that tunnel.
    pub fn set_tunnel(&self, bridge: &str, name: &str, tunnel: TunnelPort) -> Result<(), Error> {
        let mut writer = self.writer();
        self.change(&mut writer, |state| {
            let at = position(state, bridge)?;
            let number = port_number(&state.bridges[at], name)?;
            check_tunnel(state, name, &tunnel)?;
            let (id, tunnel) = (state.bridges[at].id, Arc::new(tunnel));
            let port = state.bridges[at].ports.get_mut(&number).expect("invariant: the number was just found");
            if let Attach::Tunnel(before) = std::mem::replace(&mut port.attach, Attach::Tunnel(Arc::clone(&tunnel))) {
                state.tunnels.remove(&before);
            }
            state.tunnels.insert(&tunnel, (id, number));
            Ok(())
        })?;
        self.announce(&Changes::everything());
        Ok(())
    }

    /// Removes a port and its MAC entries.
    pub fn remove_port(&self, bridge: &str, name: &str) -> Result<(), Error> {
        let mut writer = self.writer();
        let mut mirrors = self.mirrors_after(bridge, None, Some(name));
        let changes = self.change(&mut writer, |state| {
            let at = position(state, bridge)?;
            let number = port_number(&state.bridges[at], name)?;
            let mut changes = Changes::default();
            // What was behind the port may be behind another bridge's now. Source: OVS, `ofbundle_flush_macs`.
            let addresses = state.bridges[at].macs.get_mut().of_port(number);
            let mut forgotten = Vec::new();
            for other in state.bridges.iter_mut().filter(|other| other.name() != bridge) {
                other.macs.get_mut().forget(&addresses);
                forgotten.push((other.id, other.macs.get_mut().take_changed()));
            }
            let bridge = &mut state.bridges[at];
            bridge.port_order.retain(|n| *n != number);
            bridge.vport_counts.remove(&number);
            bridge.macs.get_mut().flush_port(number);
            if let Some(port) = bridge.ports.remove(&number) {
                changes = Changes::of_port(bridge, &port);
                match &port.attach {
                    Attach::Datapath(no) => _ = state.by_datapath.remove(&no.0),
                    Attach::Tunnel(tunnel) => state.tunnels.remove(tunnel),
                    Attach::Patch(_) | Attach::Nothing => {}
                }
                state.by_name.remove(&port.name);
                changes = with_mirrors(bridge, &mut mirrors, changes);
            }
            forgotten.into_iter().for_each(|(bridge, entries)| changes.add_mac_entries(bridge, entries));
            Ok(changes)
        })?;
        self.announce(&changes);
        Ok(())
    }

    /// The ports that are tunnels, by how specific they are: those of a line of `ofproto/list-tunnels` each.
    pub fn tunnels(&self) -> Vec<String> {
        let state = self.state();
        let port = |(id, number): (BridgeId, OfPort)| state.bridge(id)?.ports.get(&number);
        state.tunnels.iter().filter_map(|at| port(at)?.tunnel_line()).collect()
    }

    /// What went by a patch port or a tunnel; `None` if there is no such port, or it is of another type.
    pub fn vport_stats(&self, bridge: &str, port: OfPort) -> Option<VportStats> {
        let state = self.state();
        state.bridge_named(bridge)?.vport_counts.get(&port).map(|counts| counts.read())
    }

    /// The same of the port of that name.
    pub fn vport_stats_named(&self, name: &str) -> Option<VportStats> {
        let state = self.state();
        let (bridge, port) = state.by_name.get(name)?;
        state.bridge(*bridge)?.vport_counts.get(port).map(|counts| counts.read())
    }
}

/// The number of a bridge's port.
pub(crate) fn port_number(bridge: &Bridge, name: &str) -> Result<OfPort, Error> {
    let found = bridge.port_named(name).map(|p| p.number);
    found.ok_or_else(|| Error::NoPort { bridge: bridge.name().to_owned(), port: name.to_owned() })
}

fn check_port(state: &SwitchState, at: usize, port: &PortConfig) -> Result<(), Error> {
    let name = port.name.clone();
    if !(port.number.is_ordinary() && port.number != OfPort(0) || port.number == OfPort::LOCAL) {
        return Err(Error::BadPortNumber { name, number: port.number.0 });
    }
    if let Some((id, _)) = state.by_name.get(&name) {
        let bridge = state.bridge(*id).map(|b| b.name().to_owned()).unwrap_or_default();
        return Err(Error::PortExists { name, bridge });
    }
    let bridge = &state.bridges[at];
    if let Some(other) = bridge.ports.get(&port.number) {
        let (bridge, name) = (bridge.name().to_owned(), other.name.clone());
        return Err(Error::PortNumberTaken { bridge, number: port.number, name });
    }
    match &port.attach {
        Attach::Datapath(no) if state.by_datapath.contains_key(&no.0) => {
            Err(Error::DatapathPortTaken { name, datapath: no.0 })
        }
        Attach::Tunnel(tunnel) => check_tunnel(state, &name, tunnel),
        _ => Ok(()),
    }
}

/// No two tunnels may want the same packets.
fn check_tunnel(state: &SwitchState, name: &str, tunnel: &TunnelPort) -> Result<(), Error> {
    let Some((id, number)) = state.tunnels.same(tunnel) else { return Ok(()) };
    let other = state.bridge(id).and_then(|bridge| bridge.ports.get(&number));
    match other.filter(|other| other.name != name) {
        None => Ok(()),
        Some(other) => {
            let (name, other, tunnel) = (name.to_owned(), other.name.clone(), tunnel.to_string());
            Err(Error::TunnelTaken { name, other, tunnel })
        }
    }
}

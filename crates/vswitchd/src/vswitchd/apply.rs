//! A plan carried out: the switch is reconfigured, and what came of each interface is found out.

use crate::plan::{OfPortAllocators, Plan, PlannedBridge, PlannedInterface};
use crate::status::{Applied, AppliedBridge, AppliedInterface, LiveInterface, mac};
use sluice_flow::{Mac, OfPort};
use sluice_ofproto::DpFeatures;
use sluice_port::OpenError;
use sluice_vswitch::{Bridge, Change, DesiredState, Error, Outcome, PortStatus, Switch};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Makes the switch what the plan says.
pub fn apply(switch: &Switch, plan: &Plan, numbers: &mut OfPortAllocators) -> Applied {
    let before = switch.state();
    log_new_datapaths(&before, &plan.state);
    // New bridges get their controllers in a second step: these are to find the datapath id, which may depend on the
    // addresses of the bridge's ports.
    let is_new = |bridge: &Bridge| before.bridge(&bridge.name).is_none();
    let has_new = plan.state.bridges.iter().any(|bridge| has_controllers(bridge) && is_new(bridge));
    let errors = match has_new {
        true => reconfigure(switch, &without_new_controllers(&before, &plan.state)),
        false => reconfigure(switch, &plan.state),
    };
    let status = switch.port_status();
    let refused = plan.refused.iter().map(|r| AppliedInterface {
        uuid: r.interface,
        name: String::new(),
        live: Err(r.error.clone()),
    });
    let mut applied =
        Applied { interfaces: refused.collect(), datapaths: plan.datapaths.clone(), ..Applied::default() };
    applied.capabilities = switch.ofproto().features().capabilities().collect();
    let peers = Peers::of(&plan.state);
    let there = switch.ofproto().bridges().into_iter();
    let datapath_ids: HashMap<String, u64> = there.map(|bridge| (bridge.name, bridge.datapath_id)).collect();
    for bridge in &plan.bridges {
        let Some(ports) = status.get(&bridge.name) else { continue };
        applied.bridges.push(apply_bridge(switch, bridge, ports, datapath_ids.get(&bridge.name).copied()));
        applied.bonds.extend_from_slice(&bridge.bonds);
        let by_name: BTreeMap<&str, &PortStatus> = ports.iter().map(|port| (port.name.as_str(), port)).collect();
        for interface in &bridge.interfaces {
            let port = by_name.get(interface.name.as_str()).copied();
            if let (Some(mac), Some(port)) = (interface.mac, port)
                && let Err(error) = set_mac(switch, port, mac)
            {
                tracing::error!(target: "bridge", "interface {}: setting MAC failed ({error})", interface.name);
            }
            let live = match (errors.get(&interface.name), port) {
                (None, Some(port)) => Ok(live_interface(interface, port, &peers)),
                (error, _) => Err(error.cloned()),
            };
            if live.is_err() {
                numbers.entry(bridge.name.clone()).or_default().give_back(&interface.name);
            }
            let name = interface.name.clone();
            applied.interfaces.extend(interface.uuid.map(|uuid| AppliedInterface { uuid, name, live }));
        }
    }
    // Addresses were set. They are the ids of LACP's systems.
    switch.sync_bundles();
    // A controller that connects from now on must not hear of them as changes.
    switch.publish_ports();
    if has_new {
        reconfigure(switch, &with_wanted_controllers(switch.state(), &plan.state));
    }
    applied
}

/// Gives a bridge its address and its datapath id, of which it has the `former` one.
fn apply_bridge(switch: &Switch, bridge: &PlannedBridge, ports: &[PortStatus], former: Option<u64>) -> AppliedBridge {
    let mac = bridge.hwaddr.unwrap_or_else(|| bridge_mac(bridge, ports));
    set_local_mac(switch, bridge, ports, mac);
    let datapath_id = bridge.datapath_id.unwrap_or(mac.number() as u64);
    set_datapath_id(switch, bridge, datapath_id, former);
    AppliedBridge {
        uuid: bridge.uuid,
        name: bridge.name.clone(),
        datapath_id,
        controllers: bridge.controllers.clone(),
        mirrors: bridge.mirrors.clone(),
        lacking: bridge.lacking.clone(),
    }
}

/// What the database is to know of an interface that has its port.
fn live_interface(interface: &PlannedInterface, port: &PortStatus, peers: &Peers<'_>) -> LiveInterface {
    LiveInterface {
        ofport: port.ofport,
        number: port.number.filter(|_| port.tunnel.is_none()),
        kind: port.kind.clone().unwrap_or_default(),
        error: peers.error(&port.name),
        lacking: interface.lacking.clone(),
    }
}

/// Takes the switch to a state, and logs what came of it; the errors of ports, by name.
fn reconfigure(switch: &Switch, state: &DesiredState) -> HashMap<String, String> {
    match switch.reconfigure(state) {
        Ok(outcomes) => log_outcomes(&outcomes),
        Err(error) => {
            tracing::error!(target: "bridge", "the database's configuration cannot be carried out: {error}");
            HashMap::new()
        }
    }
}

/// Logs what a datapath can do when it gets its first bridge, as Open vSwitch does when it has probed it: before it is
/// configured.
fn log_new_datapaths(before: &DesiredState, now: &DesiredState) {
    let types = |state: &DesiredState| -> BTreeSet<String> {
        state.bridges.iter().map(|bridge| bridge.datapath_type.clone()).collect()
    };
    for datapath in types(now).difference(&types(before)) {
        for line in DpFeatures::new(now.datapath.vlan_limit).probed(&format!("{datapath}@ovs-{datapath}")) {
            tracing::info!(target: "ofproto_dpif", "{line}");
        }
    }
}

/// Whether a bridge has controllers.
fn has_controllers(bridge: &Bridge) -> bool {
    !(bridge.controllers.is_empty() && bridge.listeners.is_empty())
}

/// The state that is wanted, but for the controllers of new bridges.
fn without_new_controllers(before: &DesiredState, wanted: &DesiredState) -> DesiredState {
    let there: HashSet<&str> = before.bridges.iter().map(|bridge| bridge.name.as_str()).collect();
    let mut state = wanted.clone();
    for bridge in state.bridges.iter_mut().filter(|bridge| !there.contains(bridge.name.as_str())) {
        (bridge.controllers, bridge.listeners) = Default::default();
    }
    state
}

/// The state that holds, with the controllers that are wanted: what has failed is not tried again.
fn with_wanted_controllers(mut state: DesiredState, wanted: &DesiredState) -> DesiredState {
    let wanted: HashMap<&str, &Bridge> = wanted.bridges.iter().map(|bridge| (bridge.name.as_str(), bridge)).collect();
    for bridge in &mut state.bridges {
        if let Some(wanted) = wanted.get(bridge.name.as_str()) {
            bridge.controllers.clone_from(&wanted.controllers);
            bridge.listeners.clone_from(&wanted.listeners);
        }
    }
    state
}

/// The patch ports: by name, the other end that each names, and its datapath's type.
struct Peers<'a>(HashMap<&'a str, (&'a str, &'a str)>);

impl<'a> Peers<'a> {
    fn of(state: &'a DesiredState) -> Self {
        let patches = state.bridges.iter().flat_map(|bridge| {
            let peers = bridge.ports.iter().filter_map(|port| Some((port.name.as_str(), port.peer()?)));
            peers.map(|(name, peer)| (name, (peer, bridge.datapath_type.as_str())))
        });
        Peers(patches.collect())
    }

    /// What is wrong with a patch port's other end, if so. Source: ofproto/ofproto-dpif.c, `vport_get_status`.
    fn error(&self, name: &str) -> Option<String> {
        let (peer, datapath_type) = self.0.get(name)?;
        let names_it = self.0.get(peer).is_some_and(|(back, _)| *back == name);
        (!names_it).then(|| format!("No usable peer '{peer}' exists in '{datapath_type}' datapath."))
    }
}

/// Logs what failed in Open vSwitch's words; the errors of ports, by name.
fn log_outcomes(outcomes: &[Outcome]) -> HashMap<String, String> {
    let mut errors = HashMap::new();
    let mut failed = |port: &str, error: &Error| {
        let text = error_text(port, error);
        tracing::warn!(target: "bridge", "{text}");
        errors.insert(port.to_owned(), text);
    };
    for Outcome { change, error, port_failures, .. } in outcomes {
        port_failures.iter().for_each(|failure| failed(&failure.port, &failure.error));
        match (change, error) {
            (Change::AddPort { port, .. } | Change::ReconfigurePort { port, .. }, Some(error)) => {
                failed(&port.name, error)
            }
            (_, Some(error)) => tracing::warn!(target: "bridge", "{error}"),
            _ => {}
        }
    }
    errors
}

/// Why a port could not be opened, in Open vSwitch's words. Source: vswitchd/bridge.c, `iface_do_create`; lib/netdev.c.
fn error_text(port: &str, error: &Error) -> String {
    match error {
        Error::Open(OpenError::Device { cause, .. }) => {
            format!("could not open network device {port} ({})", system_text(cause))
        }
        Error::Open(
            OpenError::BadOption { .. } | OpenError::MissingOption { .. } | OpenError::UnknownOption { .. },
        ) => {
            format!("{port}: could not set configuration ({error})")
        }
        Error::Tables(error @ sluice_ofproto::Error::TunnelTaken { .. }) => {
            tracing::warn!(target: "tunnel", "{error}");
            format!("could not add network device {port} to ofproto (File exists)")
        }
        Error::Open(_) => format!("could not open network device {port} ({error})"),
        _ => format!("could not add network device {port} to ofproto ({error})"),
    }
}

/// The system's sentence, without the number that Rust adds.
fn system_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => text.trim_end_matches(&format!(" (os error {number})")).to_owned(),
        None => text,
    }
}

fn set_datapath_id(switch: &Switch, bridge: &PlannedBridge, datapath_id: u64, before: Option<u64>) {
    let name = &bridge.name;
    if before == Some(datapath_id) {
        return;
    }
    match switch.set_datapath_id(name, datapath_id) {
        Ok(()) => tracing::info!(target: "bridge", "bridge {name}: using datapath ID {datapath_id:016x}"),
        Err(error) => tracing::warn!(target: "bridge", "bridge {name}: {error}"),
    }
}

/// The bridge's own device gets the bridge's address.
fn set_local_mac(switch: &Switch, bridge: &PlannedBridge, ports: &[PortStatus], mac: Mac) {
    let Some(local) = ports.iter().find(|port| port.ofport == OfPort::LOCAL) else { return };
    if let Err(error) = set_mac(switch, local, mac) {
        tracing::error!(target: "bridge", "bridge {}: failed to set bridge Ethernet address: {error}", bridge.name);
    }
}

/// Gives a port's device an Ethernet address, if the port is open and its device has another one.
fn set_mac(switch: &Switch, port: &PortStatus, mac: Mac) -> Result<(), String> {
    let has_other = port.info.as_ref().is_some_and(|info| info.mac != mac.0);
    let Some(number) = port.number.filter(|_| has_other) else { return Ok(()) };
    switch.datapath().set_mac(number, mac.0).map_err(|error| system_text(&error))
}

/// The Ethernet address that stands for a bridge: the smallest of its ports that is usable, or one made from its row.
fn bridge_mac(bridge: &PlannedBridge, ports: &[PortStatus]) -> Mac {
    let counts = |port: &&PortStatus| {
        let is_left_out = bridge.mirror_outputs.contains(&port.name) || bridge.unrepresentative.contains(&port.name);
        port.ofport != OfPort::LOCAL && !is_left_out
    };
    let others = ports.iter().filter(counts);
    let mac = |port: &PortStatus| {
        let said = bridge.port_macs.get(&port.name).copied();
        said.or_else(|| port.info.as_ref().map(|info| Mac(info.mac)))
    };
    let macs = others.filter_map(mac);
    mac::smallest_usable(macs).unwrap_or_else(|| mac::from_row(bridge.uuid))
}

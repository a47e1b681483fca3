//! What the records make of the switch.
//!
//! Functions here read and decide; they do nothing. What they find wrong is a [`Note`], logged by the caller, or a
//! [`Refused`] interface, whose row gets the error. What is refused does not keep the rest from being planned.

mod bfd;
mod bridge;
mod bundle;
mod conntrack;
mod global;
mod in_band;
mod kind;
mod mirrors;
mod note;
mod openflow;
mod qos;
mod sflow;
mod tables;
mod tunnel;
mod vlan;

pub(crate) use bridge::DPDK;
pub use kind::DummyOverride;
pub use note::{Level, Note};
pub use openflow::Confinement;

use crate::ofport_allocator::OfPortAllocator;
use crate::records::{Feature, Records};
use sluice_connmgr::ActiveTarget;
use sluice_flow::{Mac, VlanLimit};
use sluice_ovsdb::Uuid;
use sluice_vswitch::{DesiredState, FailedPorts};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// What the switch is to be, and which rows that is about.
#[derive(Debug, Default)]
pub struct Plan {
    /// What the switch is to be.
    pub state: DesiredState,
    /// The bridges that are to be, with their interfaces.
    pub bridges: Vec<PlannedBridge>,
    /// Interfaces that cannot be.
    pub refused: Vec<Refused>,
    /// The rows of datapaths that there can be.
    pub datapaths: Vec<Uuid>,
    /// What is to be logged.
    pub notes: Vec<Note>,
    /// The UDP ports of VXLAN tunnels, and whether they have group based policy.
    vxlan_ports: HashMap<u16, bool>,
}

/// A bridge, and its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedBridge {
    /// Its row.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// The datapath id that it is to have; `None`: its MAC address.
    pub datapath_id: Option<u64>,
    /// The Ethernet address that it is to have; `None`: the smallest of its ports.
    pub hwaddr: Option<Mac>,
    /// Its interfaces.
    pub interfaces: Vec<PlannedInterface>,
    /// The rows and names of its bonds.
    pub bonds: Vec<(Uuid, String)>,
    /// Interfaces that do not stand for their port when the bridge chooses an address: another one does.
    pub unrepresentative: HashSet<String>,
    /// The addresses that ports stand for, by the interface that stands for the port.
    pub port_macs: BTreeMap<String, Mac>,
    /// Its controllers.
    pub controllers: Vec<PlannedController>,
    /// The rows of its mirrors.
    pub mirrors: Vec<Uuid>,
    /// The ports that copies go to.
    pub mirror_outputs: HashSet<String>,
    /// What it asks for and this build lacks.
    pub lacking: Vec<Feature>,
}

/// A controller, and its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedController {
    /// Its row.
    pub uuid: Uuid,
    /// Where it is connected to; `None`: it is listened for.
    pub target: Option<ActiveTarget>,
}

/// An interface, and its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedInterface {
    /// Its row; `None` if it was made up.
    pub uuid: Option<Uuid>,
    /// Its name.
    pub name: String,
    /// The Ethernet address that it is to have; `None`: the one that it has.
    pub mac: Option<Mac>,
    /// What it asks for and this build lacks.
    pub lacking: Vec<Feature>,
}

/// An interface that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its row.
    pub interface: Uuid,
    /// The error; Open vSwitch gives none for some, only a log line.
    pub error: Option<String>,
}

/// What plans depend on besides the records.
#[derive(Clone, Copy, Debug)]
pub struct PlanContext<'a> {
    /// What the switch is as far as the database does not say.
    pub base: &'a DesiredState,
    /// Which types are dummies.
    pub dummies: DummyOverride,
    /// Where sockets may be that the database names.
    pub confinement: Confinement<'a>,
    /// Where sockets of listening vhost-user ports are.
    pub vhost_sock_dir: &'a Path,
    /// Whether DPDK runs.
    pub has_dpdk: bool,
    /// While true, no controller is connected to: flows are being restored.
    pub waits_for_flows: bool,
    /// Milliseconds since any fixed point.
    pub now_ms: u64,
}

/// The numbers of each bridge's ports, by bridge.
pub type OfPortAllocators = BTreeMap<String, OfPortAllocator>;

/// How many VLAN tags are read of a packet; a number below zero is zero.
fn vlan_limit(records: &Records) -> VlanLimit {
    let setting = records.open_vswitch.as_ref().and_then(|row| row.other_config.number::<i64>("vlan-limit"));
    setting.map_or_else(VlanLimit::default, |n| VlanLimit::from_setting(u64::try_from(n).unwrap_or(0)))
}

impl Plan {
    /// Makes a plan, and gives its ports numbers.
    pub fn make(records: &Records, context: &PlanContext<'_>, numbers: &mut OfPortAllocators) -> Plan {
        let (bridges, failed_ports) = (Vec::new(), FailedPorts::LeaveOut);
        let state = DesiredState { bridges, failed_ports, main_worker: true, ..context.base.clone() };
        let mut plan = Plan { state, ..Plan::default() };
        plan.state.datapath.vlan_limit = vlan_limit(records);
        if let Some(row) = &records.open_vswitch {
            plan.set_global(row);
        }
        plan.add_datapaths(records, context.dummies);
        let managers = in_band::managers(records.open_vswitch.as_ref().map_or(&[], |row| &row.managers));
        let mut names = HashSet::new();
        let mut taken: HashSet<String> = records.bridges.iter().map(|record| record.name.clone()).collect();
        plan.note_vxlan_tunnels(records);
        for record in &records.bridges {
            if record.name.contains(['/', '\\']) {
                plan.warn(format!("ignoring bridge with invalid name \"{}\"", record.name));
            } else if !names.insert(record.name.as_str()) {
                plan.warn(format!("bridge {} specified twice", record.name));
            } else if let Err(invalid) = sluice_vswitch::Bridge::new(&record.name).check() {
                let text = format!("failed to create bridge {}: {invalid}", record.name);
                plan.notes.push(Note::new(Level::Error, text));
            } else {
                plan.add_bridge(record, context, numbers.entry(record.name.clone()).or_default(), &mut taken);
                if let Some(bridge) = plan.state.bridges.last_mut().filter(|_| !context.waits_for_flows) {
                    bridge.in_band = in_band::settings(record, &managers);
                }
            }
        }
        numbers.retain(|bridge, _| names.contains(bridge.as_str()));
        plan
    }

    fn warn(&mut self, text: String) {
        self.notes.push(Note::new(Level::Warn, text));
    }

    fn refuse(&mut self, interface: Uuid, error: Option<String>) {
        self.refused.push(Refused { interface, error });
    }
}

#[cfg(test)]
mod tests;

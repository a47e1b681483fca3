//! The steps that lead from one desired state to another, as data: listed, and what each makes of a state.

use crate::desired::{Bridge, Bundle, DesiredState, Port, SFlow, Sources};
use sluice_connmgr::{BridgeSettings, TlsFiles};
use sluice_conntrack::TimeoutPolicy;
use sluice_datapath::{AutoLb, GovernorMode, MissBudget, RxqAssignment, Settings};
use sluice_flow::VlanLimit;
use sluice_ofproto::{MirrorConfig, NormalSettings, TableConfig};
use sluice_port::DpdkConfig;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// A step. [`changes`] lists them in the order in which they are to be taken: what goes, what changes, what comes, and
/// at last what the tables hold, which may name any of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A port goes.
    RemovePort {
        /// Its bridge.
        bridge: String,
        /// Its name.
        port: String,
    },
    /// A bridge goes, with its ports.
    RemoveBridge(String),
    /// How action NORMAL forwards changes.
    SetNormal {
        /// The bridge.
        bridge: String,
        /// How it is to forward.
        normal: NormalSettings,
    },
    /// The configuration of a bridge's tables changes.
    SetTables {
        /// The bridge.
        bridge: String,
        /// Those that differ from the usual ones.
        tables: Vec<TableConfig>,
    },
    /// How a bridge is served changes: its controllers, where it listens, and what it does without controllers.
    SetOpenFlow {
        /// The bridge.
        bridge: String,
        /// How it is to be served.
        settings: BridgeSettings,
    },
    /// Settings of a port change that leave its device open: VLANs, protection, BFD, LACP, policing, QoS.
    SetPort {
        /// Its bridge.
        bridge: String,
        /// The port as it is to be.
        port: Box<Port>,
    },
    /// A port's device changes: its MTU, queues or options, in place if it can, else it is closed and opened anew. The
    /// port keeps its number, and what controllers have set of it.
    ReconfigurePort {
        /// Its bridge.
        bridge: String,
        /// The port as it is to be.
        port: Box<Port>,
    },
    /// Which threads carry packets changes.
    SetWorkers {
        /// The cores of the PMDs.
        pmd_cores: Vec<usize>,
        /// Whether there is a main worker.
        main_worker: bool,
    },
    /// What a receive queue's misses may cost changes.
    SetMissBudget(MissBudget),
    /// How receive queues are assigned to PMDs changes.
    SetRxqAssignment(RxqAssignment),
    /// The longest sleep of an idle PMD changes.
    SetPmdSleepMax(Duration),
    /// PMDs keep metrics of their iterations, or no longer.
    SetPerfMetrics(bool),
    /// When receive queues are assigned again by themselves changes.
    SetAutoLb(AutoLb),
    /// How packets are looked up changes.
    SetLookup(Box<Settings>),
    /// How many VLAN tags are read of a packet changes.
    SetVlanLimit(VlanLimit),
    /// How long the connections of a conntrack zone live changes.
    SetZoneTimeouts {
        /// The zone.
        zone: u16,
        /// How long they are to live; `None`: for the usual times.
        policy: Option<TimeoutPolicy>,
    },
    /// How long unused megaflows stay changes.
    SetMaxIdle(Duration),
    /// A setting changes that is read at the start only.
    AtNextStart(StartSetting),
    /// A bridge comes, with its ports and what its tables hold.
    AddBridge(Box<Bridge>),
    /// A port comes.
    AddPort {
        /// Its bridge.
        bridge: String,
        /// The port.
        port: Box<Port>,
    },
    /// A bridge's mirrors change.
    SetMirrors {
        /// The bridge.
        bridge: String,
        /// The mirrors as they are to be.
        mirrors: Vec<MirrorConfig>,
    },
    /// A bridge's bonds change, or LACP on its ports.
    SetBundles {
        /// The bridge.
        bridge: String,
        /// The bundles as they are to be.
        bundles: Vec<Bundle>,
    },
    /// How a bridge's packets and counters are sampled changes.
    SetSFlow {
        /// The bridge.
        bridge: String,
        /// How they are to be sampled; `None`: not at all.
        sflow: Option<SFlow>,
    },
    /// What the tables of a bridge hold changes.
    SetSources {
        /// The bridge.
        bridge: String,
        /// What they are to hold.
        sources: Sources,
    },
    /// Key and certificates for connections to come change.
    SetTls(Option<TlsFiles>),
    /// How long an OpenFlow bundle may be idle changes.
    SetBundleIdleTimeout(Duration),
    /// How much memory bundles may take changes, bytes.
    SetBundleMemory(usize),
    /// How much memory rules and groups may take changes, bytes.
    SetRuleMemory(usize),
}

/// A setting that is read at the start only.
#[derive(Clone, Debug, PartialEq)]
pub enum StartSetting {
    /// How DPDK is started.
    Dpdk(Option<DpdkConfig>),
    /// Memory for megaflows, bytes.
    FlowMemory(u64),
    /// Which misses install a megaflow.
    Governor(GovernorMode),
}

/// The steps from `old` to `new`, in order. Where relative paths start is no step: it concerns only ports yet to come.
pub fn changes(old: &DesiredState, new: &DesiredState) -> Vec<Change> {
    let mut steps = Steps::default();
    let [had, has] = [old, new].map(|state| by_name(&state.bridges, |bridge| &bridge.name));
    for bridge in &old.bridges {
        match has.get(bridge.name.as_str()).copied() {
            Some(same) if identity(bridge) == identity(same) => steps.compare_bridges(bridge, same),
            other => {
                steps.going.push(Change::RemoveBridge(bridge.name.clone()));
                steps.coming.extend(other.map(|other| Change::AddBridge(Box::new(other.clone()))));
            }
        }
    }
    let added = new.bridges.iter().filter(|bridge| !had.contains_key(bridge.name.as_str()));
    steps.coming.extend(added.map(|bridge| Change::AddBridge(Box::new(bridge.clone()))));
    steps.compare_datapaths(old, new);
    if old.tls != new.tls {
        steps.loading.push(Change::SetTls(new.tls.clone()));
    }
    if old.bundle_idle_timeout != new.bundle_idle_timeout {
        steps.loading.push(Change::SetBundleIdleTimeout(new.bundle_idle_timeout));
    }
    if old.bundle_memory != new.bundle_memory {
        steps.loading.push(Change::SetBundleMemory(new.bundle_memory));
    }
    // Before bridges and rules come.
    if old.rule_memory != new.rule_memory {
        steps.changing.push(Change::SetRuleMemory(new.rule_memory));
    }
    let Steps { going, changing, coming, loading } = steps;
    [going, changing, coming, loading].concat()
}

/// Things by their names: a database may have thousands of them.
fn by_name<T>(things: &[T], name: impl Fn(&T) -> &String) -> HashMap<&str, &T> {
    things.iter().map(|thing| (name(thing).as_str(), thing)).collect()
}

/// What cannot change while the bridge stays: a bridge of the same name that differs in it takes its place.
fn identity(bridge: &Bridge) -> impl PartialEq + use<> {
    let Bridge { datapath_type, datapath_id, prefixes, .. } = bridge.clone();
    (datapath_type, datapath_id, prefixes)
}

/// What cannot change while the port stays, likewise.
fn port_identity(port: &Port) -> impl PartialEq + use<> {
    (port.kind.clone(), port.ofport_request)
}

/// The steps by when they are to be taken.
#[derive(Default)]
struct Steps {
    going: Vec<Change>,
    changing: Vec<Change>,
    coming: Vec<Change>,
    loading: Vec<Change>,
}

impl Steps {
    fn compare_bridges(&mut self, old: &Bridge, new: &Bridge) {
        let name = || new.name.clone();
        if old.normal != new.normal {
            self.changing.push(Change::SetNormal { bridge: name(), normal: new.normal.clone() });
        }
        if old.tables != new.tables {
            self.changing.push(Change::SetTables { bridge: name(), tables: new.tables.clone() });
        }
        if old.openflow() != new.openflow() {
            self.changing.push(Change::SetOpenFlow { bridge: name(), settings: new.openflow() });
        }
        let [had, has] = [old, new].map(|bridge| by_name(&bridge.ports, |port| &port.name));
        for port in &old.ports {
            match has.get(port.name.as_str()).copied() {
                Some(same) if port_identity(port) == port_identity(same) => self.compare_ports(new, port, same),
                other => {
                    self.going.push(Change::RemovePort { bridge: name(), port: port.name.clone() });
                    self.coming.extend(other.map(|port| Change::AddPort { bridge: name(), port: port.clone().into() }));
                }
            }
        }
        let added = new.ports.iter().filter(|port| !had.contains_key(port.name.as_str()));
        self.coming.extend(added.map(|port| Change::AddPort { bridge: name(), port: port.clone().into() }));
        if old.bundles != new.bundles {
            self.loading.push(Change::SetBundles { bridge: name(), bundles: new.bundles.clone() });
        }
        if old.mirrors != new.mirrors {
            self.loading.push(Change::SetMirrors { bridge: name(), mirrors: new.mirrors.clone() });
        }
        if old.sflow != new.sflow {
            self.loading.push(Change::SetSFlow { bridge: name(), sflow: new.sflow.clone() });
        }
        if old.sources != new.sources {
            self.loading.push(Change::SetSources { bridge: name(), sources: new.sources.clone() });
        }
    }

    fn compare_ports(&mut self, bridge: &Bridge, old: &Port, new: &Port) {
        let (bridge, port) = (bridge.name.clone(), Box::new(new.clone()));
        if !old.has_same_device(new) {
            self.changing.push(Change::ReconfigurePort { bridge, port });
        } else if old != new {
            self.changing.push(Change::SetPort { bridge, port });
        }
    }

    fn compare_datapaths(&mut self, old: &DesiredState, new: &DesiredState) {
        let (a, b) = (&old.datapath, &new.datapath);
        let at_start = [
            (old.dpdk != new.dpdk).then(|| StartSetting::Dpdk(new.dpdk.clone())),
            (a.flow_memory_bytes != b.flow_memory_bytes).then_some(StartSetting::FlowMemory(b.flow_memory_bytes)),
            (a.governor != b.governor).then_some(StartSetting::Governor(b.governor)),
        ];
        self.changing.extend(at_start.into_iter().flatten().map(Change::AtNextStart));
        if (&old.pmd_cores, old.main_worker) != (&new.pmd_cores, new.main_worker) {
            let (pmd_cores, main_worker) = (new.pmd_cores.clone(), new.main_worker);
            self.changing.push(Change::SetWorkers { pmd_cores, main_worker });
        }
        if a.miss_budget != b.miss_budget {
            self.changing.push(Change::SetMissBudget(b.miss_budget));
        }
        if a.rxq_assignment != b.rxq_assignment {
            self.changing.push(Change::SetRxqAssignment(b.rxq_assignment));
        }
        if a.pmd_sleep_max != b.pmd_sleep_max {
            self.changing.push(Change::SetPmdSleepMax(b.pmd_sleep_max));
        }
        if a.perf_metrics != b.perf_metrics {
            self.changing.push(Change::SetPerfMetrics(b.perf_metrics));
        }
        if a.auto_lb != b.auto_lb {
            self.changing.push(Change::SetAutoLb(b.auto_lb));
        }
        if a.vlan_limit != b.vlan_limit {
            self.changing.push(Change::SetVlanLimit(b.vlan_limit));
        }
        if a.max_idle != b.max_idle {
            self.changing.push(Change::SetMaxIdle(b.max_idle));
        }
        let zones = a.zone_timeouts.keys().chain(b.zone_timeouts.keys()).collect::<BTreeSet<_>>().into_iter();
        for zone in zones.filter(|zone| a.zone_timeouts.get(zone) != b.zone_timeouts.get(zone)) {
            let policy = b.zone_timeouts.get(zone).cloned();
            self.changing.push(Change::SetZoneTimeouts { zone: *zone, policy });
        }
        if a.lookup != b.lookup {
            self.changing.push(Change::SetLookup(Box::new(b.lookup)));
        }
    }
}

impl DesiredState {
    /// Makes of the state what the step makes of it. A bridge or port that the step is about and that is not there is
    /// left out.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::RemovePort { bridge, port } => {
                self.with_bridge(bridge, |bridge| bridge.ports.retain(|other| other.name != *port));
            }
            Change::RemoveBridge(bridge) => self.bridges.retain(|other| other.name != *bridge),
            Change::SetNormal { bridge, normal } => {
                self.with_bridge(bridge, |bridge| bridge.normal.clone_from(normal));
            }
            Change::SetMirrors { bridge, mirrors } => {
                self.with_bridge(bridge, |bridge| bridge.mirrors.clone_from(mirrors));
            }
            Change::SetBundles { bridge, bundles } => {
                self.with_bridge(bridge, |bridge| bridge.bundles.clone_from(bundles));
            }
            Change::SetSFlow { bridge, sflow } => self.with_bridge(bridge, |bridge| bridge.sflow.clone_from(sflow)),
            Change::SetOpenFlow { bridge, settings } => self.with_bridge(bridge, |bridge| {
                bridge.fail_mode = settings.fail_mode;
                bridge.versions = settings.versions;
                bridge.controllers.clone_from(&settings.controllers);
                bridge.listeners.clone_from(&settings.listeners);
                bridge.description.clone_from(&settings.description);
                bridge.in_band.clone_from(&settings.in_band);
            }),
            Change::SetTables { bridge, tables } => self.with_bridge(bridge, |bridge| bridge.tables.clone_from(tables)),
            Change::SetPort { bridge, port } | Change::ReconfigurePort { bridge, port } => {
                self.with_bridge(bridge, |bridge| {
                    if let Some(old) = bridge.ports.iter_mut().find(|old| old.name == port.name) {
                        old.clone_from(port);
                    }
                })
            }
            Change::SetWorkers { pmd_cores, main_worker } => {
                self.pmd_cores.clone_from(pmd_cores);
                self.main_worker = *main_worker;
            }
            Change::SetMissBudget(budget) => self.datapath.miss_budget = *budget,
            Change::SetRxqAssignment(assignment) => self.datapath.rxq_assignment = *assignment,
            Change::SetPmdSleepMax(longest) => self.datapath.pmd_sleep_max = *longest,
            Change::SetPerfMetrics(is_on) => self.datapath.perf_metrics = *is_on,
            Change::SetAutoLb(auto_lb) => self.datapath.auto_lb = *auto_lb,
            Change::SetLookup(lookup) => self.datapath.lookup = **lookup,
            Change::SetVlanLimit(vlan_limit) => self.datapath.vlan_limit = *vlan_limit,
            Change::SetMaxIdle(max_idle) => self.datapath.max_idle = *max_idle,
            Change::SetZoneTimeouts { zone, policy: Some(policy) } => {
                self.datapath.zone_timeouts.insert(*zone, policy.clone());
            }
            Change::SetZoneTimeouts { zone, policy: None } => {
                self.datapath.zone_timeouts.remove(zone);
            }
            Change::AtNextStart(setting) => self.apply_at_start(setting),
            Change::AddBridge(bridge) => self.bridges.push((**bridge).clone()),
            Change::AddPort { bridge, port } => self.with_bridge(bridge, |bridge| bridge.ports.push((**port).clone())),
            Change::SetSources { bridge, sources } => {
                self.with_bridge(bridge, |bridge| bridge.sources.clone_from(sources));
            }
            Change::SetTls(tls) => self.tls.clone_from(tls),
            Change::SetBundleIdleTimeout(timeout) => self.bundle_idle_timeout = *timeout,
            Change::SetBundleMemory(bytes) => self.bundle_memory = *bytes,
            Change::SetRuleMemory(bytes) => self.rule_memory = *bytes,
        }
    }

    fn apply_at_start(&mut self, setting: &StartSetting) {
        match setting {
            StartSetting::Dpdk(dpdk) => self.dpdk.clone_from(dpdk),
            StartSetting::FlowMemory(bytes) => self.datapath.flow_memory_bytes = *bytes,
            StartSetting::Governor(mode) => self.datapath.governor = *mode,
        }
    }

    fn with_bridge(&mut self, name: &str, change: impl FnOnce(&mut Bridge)) {
        if let Some(bridge) = self.bridges.iter_mut().find(|bridge| bridge.name == name) {
            change(bridge);
        }
    }
}

#[cfg(test)]
mod tests;

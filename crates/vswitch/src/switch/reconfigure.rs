//! From the state that the switch is in to another one, without stopping the rest.
//!
//! Compared are the state that was asked for last and the one that is asked for now: what commands did meanwhile stays,
//! unless the new state says otherwise about the same thing. A step that fails is not taken over into the state that
//! the next reconfiguration starts from, so that one tries it again.

use super::{Setup, Switch};
use crate::change::{Change, changes};
use crate::desired::{Bridge, DesiredState, FailedPorts, Port, Sources, Workers};
use crate::error::{Error, PortFailure};
use crate::sources::{ParsedSources, SourceKind};
use sluice_datapath::Settings;
use std::collections::BTreeMap;

/// What came of a step of a reconfiguration.
#[derive(Debug)]
pub struct Outcome {
    /// The step.
    pub change: Change,
    /// Of a step that sets what tables hold: what was loaded.
    pub loaded: Vec<SourceKind>,
    /// Why it could not be taken, if so. Of a port that cannot be opened, [`DesiredState::failed_ports`] says what becomes.
    pub error: Option<Error>,
    /// Of a bridge that came: its ports that could not be opened or added.
    pub port_failures: Vec<PortFailure>,
}

/// What each bridge's tables are to hold, by its name.
type AllSources = BTreeMap<String, ParsedSources>;

/// How far a step has come.
struct Step {
    loaded: Vec<SourceKind>,
    /// Whether the state takes it over.
    counts: bool,
    error: Option<Error>,
    port_failures: Vec<PortFailure>,
}

impl Step {
    /// Taken; an error that does not undo it.
    fn taken(error: Option<Error>) -> Self {
        Step { loaded: Vec::new(), counts: true, error, port_failures: Vec::new() }
    }
}

impl Switch {
    /// Takes the steps that lead to `desired`; what came of each. Bonds and LACP follow by [`Switch::sync_bundles`], once
    /// bridges have their addresses, which are the ids of LACP's systems.
    ///
    /// # Errors
    /// If there can be no such state, or the text of meters, groups or rules is wrong: nothing has changed then.
    pub fn reconfigure(&self, desired: &DesiredState) -> Result<Vec<Outcome>, Error> {
        desired.check()?;
        let mut setup = self.setup();
        let sources = desired.bridges.iter().map(|bridge| {
            let parsed = setup.assembly.parse_sources(bridge)?;
            Ok((bridge.name.clone(), parsed))
        });
        let sources: AllSources = sources.collect::<Result<_, Error>>()?;
        setup.assembly.set_base_dir(desired.base_dir.clone());
        setup.state.base_dir.clone_from(&desired.base_dir);
        setup.state.failed_ports = desired.failed_ports;
        if desired.failed_ports == FailedPorts::LeaveOut {
            forget_lost_ports(&mut setup);
        }
        let mut outcomes = Vec::new();
        for change in changes(&setup.state, desired) {
            let step = match self.take(&mut setup, &change, &sources) {
                Ok(step) => step,
                Err(error) => Step { counts: false, ..Step::taken(Some(error)) },
            };
            if step.counts {
                setup.state.apply(&change);
            }
            let Step { loaded, error, port_failures, .. } = step;
            outcomes.push(Outcome { change, loaded, error, port_failures });
        }
        setup.assembly.follow_mtus();
        // The first state of a link is no change that controllers are to hear of.
        setup.assembly.watch_links();
        drop(setup);
        self.reread_tls(desired, &mut outcomes);
        self.sync_bfd();
        self.sync_sflow();
        self.openflow.publish_ports();
        self.request_revalidation();
        Ok(outcomes)
    }

    /// Reads key and certificates again, which may have changed under the same names.
    fn reread_tls(&self, desired: &DesiredState, outcomes: &mut Vec<Outcome>) {
        let is_read = |outcome: &Outcome| matches!(outcome.change, Change::SetTls(_));
        if outcomes.iter().any(is_read) {
            return;
        }
        if let Err(error) = self.openflow.set_tls(desired.tls.as_ref()) {
            let (change, error) = (Change::SetTls(desired.tls.clone()), Some(error.into()));
            outcomes.push(Outcome { change, loaded: Vec::new(), error, port_failures: Vec::new() });
        }
    }

    fn take(&self, setup: &mut Setup, change: &Change, sources: &AllSources) -> Result<Step, Error> {
        let Setup { assembly, state } = setup;
        match change {
            Change::RemovePort { bridge, port } if !assembly.ports().contains_key(port) => {
                tracing::info!("bridge {bridge}: port {port} was removed before");
            }
            Change::RemovePort { bridge, port } => assembly.remove_port(bridge, port)?,
            Change::RemoveBridge(bridge) => {
                self.openflow.remove_bridge(bridge);
                assembly.remove_bridge(bridge)?;
            }
            Change::AddBridge(bridge) => return self.take_add_bridge(setup, bridge, &sources[&bridge.name]),
            Change::SetNormal { bridge, normal } => self.ofproto.set_normal(bridge, normal.clone())?,
            Change::SetMirrors { bridge, mirrors } => self.ofproto.set_mirrors(bridge, mirrors)?,
            // Done by `sync_sflow`, once all ports are there.
            Change::SetSFlow { .. } => {}
            Change::SetTables { bridge, tables } => {
                self.ofproto.configure_tables(bridge, tables, self.now_ms())?;
                self.request_revalidation();
            }
            Change::SetOpenFlow { bridge, settings } => self.openflow.serve_bridge(bridge, settings)?,
            Change::SetPort { bridge, port } | Change::ReconfigurePort { bridge, port } => {
                let error = assembly.change_port(bridge, port)?;
                return leave_out_port(setup, bridge, port, error);
            }
            Change::AddPort { bridge, port } => {
                let error = assembly.add_port_open_or_not(bridge, port)?;
                return leave_out_port(setup, bridge, port, error);
            }
            Change::SetSources { bridge, .. } => {
                let loaded = assembly.load(bridge, &sources[bridge], self.now_ms())?;
                return Ok(Step { loaded, ..Step::taken(None) });
            }
            Change::SetVlanLimit(vlan_limit) => assembly.set_vlan_limit(*vlan_limit),
            Change::SetZoneTimeouts { zone, policy: Some(policy) } => {
                self.datapath.conntrack().set_timeouts(*zone, policy);
            }
            Change::SetZoneTimeouts { zone, policy: None } => {
                self.datapath.conntrack().delete_timeouts(*zone);
            }
            Change::SetMaxIdle(max_idle) => self.revalidator.set_max_idle(*max_idle),
            Change::SetWorkers { pmd_cores, main_worker } => {
                let workers = Workers::of(pmd_cores, *main_worker);
                self.datapath.set_workers(&workers.cores, workers.has_main)?;
            }
            Change::SetMissBudget(budget) => self.datapath.set_miss_budget(*budget),
            Change::SetRxqAssignment(assignment) => self.datapath.set_rxq_assignment(*assignment),
            Change::SetAutoLb(auto_lb) => self.datapath.set_auto_lb(*auto_lb),
            Change::SetPerfMetrics(is_on) => self.datapath.set_perf_metrics(*is_on),
            Change::SetPmdSleepMax(longest) => {
                self.datapath.set_sleep_max(u32::try_from(longest.as_micros()).unwrap_or(u32::MAX));
            }
            Change::SetLookup(lookup) => {
                let settings = changed_settings(self.datapath.settings(), &state.datapath.lookup, lookup);
                self.datapath.set_settings(settings)?;
            }
            Change::SetTls(tls) => self.openflow.set_tls(tls.as_ref())?,
            Change::SetBundleMemory(bytes) => self.openflow.bundle_memory().set_limit(*bytes),
            Change::SetRuleMemory(bytes) => self.ofproto.rule_memory().set_limit(*bytes),
            Change::SetBundleIdleTimeout(timeout) => self.openflow.set_bundle_idle_timeout(*timeout),
            // Bundles are made what the state says when all of its ports are there.
            Change::AtNextStart(_) | Change::SetBundles { .. } => {}
        }
        Ok(Step::taken(None))
    }

    /// Adds a bridge. It is there even if its tables refuse what they are to hold, or it cannot be served.
    fn take_add_bridge(&self, setup: &mut Setup, bridge: &Bridge, sources: &ParsedSources) -> Result<Step, Error> {
        let Setup { assembly, state } = setup;
        assembly.create_bridge(bridge, self.now_ms())?;
        let port_failures = assembly.add_ports(bridge);
        // What does not work is not taken over, so that it is tried again.
        let mut there = bridge.clone();
        if state.failed_ports == FailedPorts::Stay {
            port_failures.iter().for_each(|failure| tracing::error!("{}", failure.error));
        } else {
            for PortFailure { port, .. } in &port_failures {
                assembly.leave_out(&bridge.name, port)?;
                there.ports.retain(|other| other.name != *port);
            }
        }
        self.ofproto.set_mirrors(&bridge.name, &bridge.mirrors)?;
        let loaded = assembly.load(&bridge.name, sources, self.now_ms()).map(drop);
        if loaded.is_err() {
            there.sources = Sources::default();
        }
        assembly.watch_links();
        let served = self.openflow.serve_bridge(&bridge.name, &bridge.openflow()).map_err(Error::from);
        if served.is_err() {
            (there.controllers, there.listeners) = Default::default();
        }
        state.bridges.push(there);
        Ok(Step { counts: false, port_failures, ..Step::taken(loaded.and(served).err()) })
    }
}

/// Forgets ports that a command has taken away, so that the steps to come add them again. Source: Open vSwitch, whose
/// database has the last word.
fn forget_lost_ports(setup: &mut Setup) {
    let Setup { assembly, state } = setup;
    for bridge in &mut state.bridges {
        bridge.ports.retain(|port| assembly.ports().contains_key(&port.name));
    }
}

/// Leaves a port out that could not be opened, if that is what becomes of such ports.
fn leave_out_port(setup: &mut Setup, bridge: &str, port: &Port, error: Option<Error>) -> Result<Step, Error> {
    if error.is_none() || setup.state.failed_ports == FailedPorts::Stay {
        return Ok(Step::taken(error));
    }
    setup.assembly.leave_out(bridge, &port.name)?;
    let gone = Change::RemovePort { bridge: bridge.to_owned(), port: port.name.clone() };
    setup.state.apply(&gone);
    Ok(Step { counts: false, ..Step::taken(error) })
}

/// The settings in force, with those changed in which `new` differs from `old`: what was set by command stays.
fn changed_settings(mut settings: Settings, old: &Settings, new: &Settings) -> Settings {
    for (was, (key, value)) in old.values().iter().zip(new.values()) {
        if was.1 != value {
            settings.set(key, &value).expect("invariant: a value that has been printed can be set");
        }
    }
    settings
}

//! The switch: all bridges, and requests to add, change and remove bridges and ports.
//!
//! **Threads.** Any thread may call. Changes are made one at a time. A translation holds the state's lock for reading
//! from its beginning to its end, so it sees one consistent state. Changes take the lock for writing, briefly.
//!
//! **Epoch.** One number for everything that a translation depends on: rules, ports, MAC entries. It increases after
//! each change. A translation carries the epoch in which it began, and its megaflow is installed only if that is still
//! the current one. Then, before the change returns, the megaflows that depend on it (see `depends`) are suspended:
//! from there on no packet follows the old state. The crate's essay has the whole story.

use crate::bridge::{Bridge, SwitchState};
use crate::bridge_config::{BridgeConfig, BridgeId, FailMode, FragmentMode, NormalSettings};
use crate::bridge_mirrors::with_mirrors;
use crate::dependency_index::DependencyIndex;
use crate::depends::Changes;
use crate::effects::{EffectQueue, EffectStats};
use crate::error::Error;
use crate::features::DpFeatures;
use crate::log_limit::LogLimit;
use crate::meter::DatapathMeters;
use crate::neighbours::Neighbours;
use crate::port::{Attach, PortConfig, TunnelPort};
use crate::recirc::Recirculations;
use crate::removed::RemovedRules;
use crate::rule_memory::RuleMemory;
use crate::rule_monitor::RuleMonitor;
use crate::table_capacity::VacancyEvent;
use crate::tables_lock::{TablesGuard, TablesLock};
use crate::usage::WaitingNews;
use crate::vport_counts::VportStats;
use crate::xlate_cache::XlateCache;
use parking_lot::{Mutex, MutexGuard, RwLockReadGuard};
use sluice_action::{FlowMemory, MegaflowStore};
use sluice_flow::geneve::{OptionKind, OptionMap};
use sluice_flow::{OfPort, VlanLimit};
use sluice_ofp::{FlowCommand, FlowMod, OfAction};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

/// The switch's bridges. Clones share them.
#[derive(Clone)]
pub struct Ofproto(pub(crate) Arc<Shared>);

/// What all clones share.
pub(crate) struct Shared {
    pub state: TablesLock<SwitchState>,
    /// Held during a whole change; the state's lock is taken only for moments.
    writer: Mutex<Writer>,
    pub epoch: AtomicU64,
    /// The megaflows that depend on the tables.
    store: OnceLock<Arc<dyn MegaflowStore>>,
    /// What finds them.
    pub dependencies: Mutex<DependencyIndex>,
    visited: AtomicU64,
    pub recirculations: Recirculations,
    /// The next hops of tunnels.
    pub neighbours: Neighbours,
    /// Of what goes wrong with packets.
    pub xlate_errors: LogLimit,
    /// Of traces of packets whose rules recurse.
    pub recursion_traces: LogLimit,
    pub effects: EffectQueue,
    pub rule_memory: RuleMemory,
    pub waiting_news: WaitingNews,
    /// Whether megaflows match only the bits that were looked at. If not, they match every field.
    pub megaflows: AtomicBool,
    /// Whether no packet is answered, since the tables are being filled.
    pub flow_restore_wait: AtomicBool,
    /// Whether dumps name megaflows by their identity alone, which shows in the log.
    pub uses_ufid: AtomicBool,
    /// Packets that showed the address of a static MAC entry at another port.
    pub static_mac_moves: AtomicU64,
    /// Receives every change of rules.
    pub monitor: OnceLock<Arc<dyn RuleMonitor>>,
}

/// What only the thread that makes a change needs.
#[derive(Default)]
pub(crate) struct Writer {
    next_bridge: u32,
    pub next_bond: u32,
    /// Removed rules that controllers are told of.
    pub removed: RemovedRules,
    /// Vacancy events that controllers are told of.
    pub vacancy_events: Vec<VacancyEvent>,
    /// The datapath's meters.
    pub meters: DatapathMeters,
    /// How often the state was locked for a change.
    holds: u64,
}

impl std::fmt::Debug for Ofproto {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.state().bridges.iter().map(|b| b.name())).finish()
    }
}

impl Default for Ofproto {
    fn default() -> Self {
        Self::new()
    }
}

impl Ofproto {
    /// A switch without bridges.
    pub fn new() -> Self {
        Ofproto(Arc::new(Shared {
            state: TablesLock::default(),
            writer: Mutex::default(),
            epoch: AtomicU64::new(1),
            store: OnceLock::new(),
            dependencies: Mutex::default(),
            visited: AtomicU64::new(0),
            recirculations: Recirculations::default(),
            neighbours: Neighbours::default(),
            xlate_errors: LogLimit::with_burst(5),
            recursion_traces: LogLimit::with_burst(1),
            effects: EffectQueue::default(),
            rule_memory: RuleMemory::default(),
            waiting_news: WaitingNews::default(),
            megaflows: AtomicBool::new(true),
            flow_restore_wait: AtomicBool::new(false),
            uses_ufid: AtomicBool::new(true),
            static_mac_moves: AtomicU64::new(0),
            monitor: OnceLock::new(),
        }))
    }

    /// The state, as a control thread reads it: PMDs go on translating, changes wait. Not to be taken twice.
    pub(crate) fn state(&self) -> TablesGuard<'_, SwitchState> {
        self.0.state.read()
    }

    /// The state, as a PMD reads it, unless a change has it.
    pub(crate) fn try_state(&self) -> Option<RwLockReadGuard<'_, SwitchState>> {
        self.0.state.try_read()
    }

    /// A PMD has misses to translate, or none any more: changes wait for it meanwhile, within a bound.
    pub(crate) fn set_asking(&self, is_asking: bool) {
        if is_asking { self.0.state.begin_asking() } else { self.0.state.end_asking() }
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.0.writer.lock()
    }

    /// Changes the state. The caller holds the writer's lock.
    pub(crate) fn change<T>(&self, writer: &mut Writer, f: impl FnOnce(&mut SwitchState) -> T) -> T {
        writer.holds += 1;
        self.0.state.change(f)
    }

    /// How often the tables were locked for a change. Large changes hold the lock for a piece at a time, so that packets
    /// are translated in between.
    pub fn write_holds(&self) -> u64 {
        self.writer().holds
    }

    /// Sets the store in which changes suspend the megaflows that depend on them. Only the first call has an effect.
    pub fn set_store(&self, store: Arc<dyn MegaflowStore>) {
        self.0.store.get_or_init(|| store);
    }

    /// Recirculation ids in use, large states as several, and how many there may be.
    pub fn recirc_usage(&self) -> (usize, usize) {
        self.0.recirculations.usage()
    }

    /// The memory of rules and groups.
    pub fn rule_memory(&self) -> &RuleMemory {
        &self.0.rule_memory
    }

    /// The account of the megaflows' memory, once there is a store.
    pub(crate) fn flow_memory(&self) -> Option<&Arc<FlowMemory>> {
        self.0.store.get().map(|store| store.memory())
    }

    /// Increases the epoch, and suspends the megaflows that the changes affect. The caller must not hold the state's
    /// lock.
    pub(crate) fn announce(&self, changes: &Changes) {
        if changes.is_empty() {
            return;
        }
        self.0.epoch.fetch_add(1, SeqCst);
        if let Some(store) = self.0.store.get() {
            let candidates = {
                let mut index = self.0.dependencies.lock();
                index.catch_up(&**store);
                index.candidates(changes, &**store)
            };
            let mut visited = 0;
            store.suspend(candidates.as_deref(), &mut |_, mask, xcache| {
                visited += 1;
                let record = xcache.0.downcast_ref::<XlateCache>();
                record.is_some_and(|record| changes.affect(mask, record))
            });
            self.0.visited.fetch_add(visited, Relaxed);
        }
    }

    /// How many megaflows changes have been compared with.
    pub fn visited_megaflows(&self) -> u64 {
        self.0.visited.load(Relaxed)
    }

    /// How many VLAN tags are read of a packet.
    pub fn vlan_limit(&self) -> VlanLimit {
        self.state().vlan_limit
    }

    /// Changes how many VLAN tags are read of a packet that a trace or a controller brings. The datapath has the same
    /// limit; no megaflow depends on it, since all match the Ethernet type behind the tags that were read.
    pub fn set_vlan_limit(&self, vlan_limit: VlanLimit) {
        self.change(&mut self.writer(), |state| {
            state.vlan_limit = vlan_limit;
            state.features = DpFeatures::new(vlan_limit);
        });
    }

    /// Whether there is a bridge of that name.
    pub fn has_bridge(&self, name: &str) -> bool {
        self.state().bridge_named(name).is_some()
    }

    /// What translation may use of the datapath.
    pub fn features(&self) -> DpFeatures {
        self.state().features.clone()
    }

    /// Changes what translation may use of the datapath.
    ///
    /// # Errors
    /// With OVS's text, if there is no such feature or value.
    pub fn set_feature(&self, name: &str, value: &str) -> Result<(), &'static str> {
        self.change(&mut self.writer(), |state| state.features.set(name, value))?;
        self.announce(&Changes::everything());
        Ok(())
    }

    /// Changes which options of Geneve the fields `tun_metadata0` and on stand for in a bridge.
    pub fn map_tunnel_options(&self, bridge: &str, mapped: &[(usize, OptionKind)]) {
        let mut options = OptionMap::default();
        mapped.iter().for_each(|(i, kind)| _ = options.set(*i, *kind));
        self.change(&mut self.writer(), |state| {
            if let Some(found) = state.bridges.iter_mut().find(|found| found.name() == bridge) {
                found.tunnel_options = options;
            }
        });
        self.announce(&Changes::everything());
    }

    /// The epoch, which increases with every change that translations depend on.
    pub fn epoch(&self) -> u64 {
        self.0.epoch.load(SeqCst)
    }

    /// `upcall/enable-megaflows` and `upcall/disable-megaflows`. If disabled, a megaflow matches every field of its
    /// packet. Present megaflows are revalidated.
    pub fn enable_megaflows(&self, enabled: bool) {
        self.0.megaflows.store(enabled, SeqCst);
        self.announce(&Changes::everything());
    }

    /// Whether dumps name megaflows by their identity alone. Here that only changes what the log says of them.
    pub fn use_ufid(&self, uses_ufid: bool) {
        self.0.uses_ufid.store(uses_ufid, SeqCst);
    }

    /// Whether the tables are being filled after a restart: until that is done they answer no packet, since rules that are
    /// missing yet would send it the wrong way.
    pub fn set_flow_restore_wait(&self, wait: bool) {
        self.0.flow_restore_wait.store(wait, SeqCst);
    }

    /// Counters of the effects of translations.
    pub fn effects(&self) -> EffectStats {
        self.0.effects.read()
    }
}

/// Bridges and ports.
impl Ofproto {
    /// Adds a bridge. A standalone one starts with the rule `priority=0 actions=NORMAL`.
    pub fn add_bridge(&self, config: BridgeConfig, now_ms: u64) -> Result<(), Error> {
        let standalone = config.fail_mode == FailMode::Standalone;
        let name = config.name.clone();
        let mut writer = self.writer();
        let id = BridgeId(writer.next_bridge);
        self.change(&mut writer, |state| {
            if state.bridge_named(&name).is_some() {
                return Err(Error::BridgeExists(name.clone()));
            }
            state.bridges.push(Bridge::new(id, config, self.0.rule_memory.tables()));
            Ok(())
        })?;
        writer.next_bridge += 1;
        drop(writer);
        self.announce(&Changes::everything());
        if standalone {
            let mut normal = FlowMod::new(FlowCommand::Add);
            normal.priority = 0;
            normal.actions = vec![OfAction::Output { port: OfPort::NORMAL, max_len: 0 }];
            self.flow_mod(&name, &normal, now_ms)?;
        }
        Ok(())
    }

    /// Removes a bridge with its ports and rules.
    pub fn remove_bridge(&self, name: &str) -> Result<(), Error> {
        let mut writer = self.writer();
        // Its rules may be many: they go when the lock is free again.
        let gone = self.change(&mut writer, |state| {
            let at = position(state, name)?;
            let bridge = state.bridges.remove(at);
            state.by_datapath.retain(|_, (id, _)| *id != bridge.id);
            for port in bridge.ports.values() {
                if let Attach::Tunnel(tunnel) = &port.attach {
                    state.tunnels.remove(tunnel);
                }
            }
            state.by_name.retain(|_, (id, _)| *id != bridge.id);
            Ok(bridge)
        })?;
        self.announce(&Changes::everything());
        gone.meters.values().for_each(|meter| writer.meters.remove(meter.datapath));
        drop(gone);
        Ok(())
    }

    /// Changes how action NORMAL forwards.
    pub fn set_normal(&self, name: &str, normal: NormalSettings) -> Result<(), Error> {
        self.change_bridge(name, |bridge| {
            let macs = bridge.macs.get_mut();
            macs.set_age(normal.mac_age_s);
            macs.set_max(normal.mac_table_size);
            macs.set_flood_vlans(&normal.flood_vlans);
            bridge.config.normal = normal;
        })
    }

    /// Changes how rules match fragments.
    pub fn set_fragments(&self, name: &str, fragments: FragmentMode) -> Result<(), Error> {
        self.change_bridge(name, |bridge| bridge.fragments = fragments)
    }

    pub(crate) fn change_bridge(&self, name: &str, change: impl FnOnce(&mut Bridge)) -> Result<(), Error> {
        let mut writer = self.writer();
        let id = self.change(&mut writer, |state| {
            let at = position(state, name)?;
            let bridge = &mut state.bridges[at];
            change(bridge);
            Ok(bridge.id)
        })?;
        self.announce(&Changes::of_bridge(id));
        Ok(())
    }

    /// Sets a bridge's OpenFlow datapath id. Packets do not depend on it.
    pub fn set_datapath_id(&self, name: &str, datapath_id: u64) -> Result<(), Error> {
        let mut writer = self.writer();
        self.change(&mut writer, |state| {
            let at = position(state, name)?;
            state.bridges[at].config.datapath_id = datapath_id;
            Ok(())
        })
    }

    /// Sets whether table misses in table 0 go to controllers, as before OpenFlow 1.3.
    pub fn send_misses_to_controllers(&self, name: &str, send: bool) -> Result<(), Error> {
        let mut writer = self.writer();
        let id = self.change(&mut writer, |state| {
            let at = position(state, name)?;
            state.bridges[at].misses_to_controllers = send;
            Ok(state.bridges[at].id)
        })?;
        self.announce(&Changes::of_bridge(id));
        Ok(())
    }

    /// How a bridge's rules match fragments.
    pub fn fragments(&self, name: &str) -> Result<FragmentMode, Error> {
        let state = self.state();
        let at = position(&state, name)?;
        Ok(state.bridges[at].fragments)
    }

    /// The bridges' configurations, in order of addition.
    pub fn bridges(&self) -> Vec<BridgeConfig> {
        self.state().bridges.iter().map(|b| b.config.clone()).collect()
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

    /// The ports that are tunnels, by how specific they are: those of a line of `ofproto/list-tunnels` each.
    pub fn tunnels(&self) -> Vec<String> {
        let state = self.state();
        let port = |(id, number): (BridgeId, OfPort)| state.bridge(id)?.ports.get(&number);
        state.tunnels.iter().filter_map(|at| port(at)?.tunnel_line()).collect()
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

    /// A bridge's ports, by number.
    pub fn ports(&self, bridge: &str) -> Result<Vec<PortConfig>, Error> {
        let state = self.state();
        let at = position(&state, bridge)?;
        Ok(state.bridges[at].ports.values().cloned().collect())
    }
}

pub(crate) fn position(state: &SwitchState, name: &str) -> Result<usize, Error> {
    state.bridges.iter().position(|b| b.name() == name).ok_or_else(|| Error::NoBridge(name.to_owned()))
}

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

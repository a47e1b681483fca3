//! All bridges of the switch, and the commands on them.
//!
//! **Threads.** Any thread may call; changes are made one after the other. A translation holds the state's lock for
//! reading from beginning to end, so it sees one moment of everything. Changes take it for writing, briefly.
//!
//! **Epoch.** One number for everything a translation depends on: rules, ports, stations. Whatever changes, it goes
//! up after the change; a translation carries the epoch it began in, and its megaflow is installed only if that is
//! still the epoch. Then the megaflows that are there and depend on what has changed (see `depends`) are suspended,
//! before the change returns: from then on no packet follows what was true before.

use crate::bridge::{Bridge, BridgeConfig, BridgeId, FailMode, FragmentMode, State};
use crate::depends::Changes;
use crate::effects::{Effects, Queue};
use crate::error::Error;
use crate::flow_mod::{CHUNK, Change, Changed, Hidden, Pending, is_same, sends_to_group};
use crate::group::GroupEntry;
use crate::meter::Provider;
use crate::port::{Attach, PortConfig};
use crate::recirc::Recirculations;
use crate::removed::Removed;
use crate::rule::Rule;
use crate::trail::TrailRecord;
use sluice_action::MegaflowStore;
use sluice_classifier::LATEST;
use sluice_flow::{FlowCommand, FlowMod, GroupMod, Match, OfAction, OfPort};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The bridges. Cloning makes another handle on the same ones.
#[derive(Clone)]
pub struct Ofproto(pub(crate) Arc<Shared>);

/// What all handles share.
pub(crate) struct Shared {
    state: RwLock<State>,
    /// Held by whoever changes something, all the time; the state's lock only at moments.
    writer: Mutex<Writer>,
    pub epoch: AtomicU64,
    /// Where the megaflows are that follow the tables.
    store: OnceLock<Arc<dyn MegaflowStore>>,
    pub recirculations: Recirculations,
    pub effects: Queue,
    /// Whether megaflows match only what decides; if not, everything.
    pub megaflows: AtomicBool,
}

/// What only the changer needs.
#[derive(Default)]
pub(crate) struct Writer {
    next_bridge: u32,
    /// What happened to rules that somebody wants to hear about.
    pub removed: Removed,
    /// The datapath's meters.
    pub meters: Provider,
}

/// A rule with its match, copied out of its table.
#[derive(Clone, Debug)]
pub struct RuleEntry {
    /// What it matches.
    pub matches: Match,
    /// The rest.
    pub rule: Arc<Rule>,
}

/// How often a table was searched, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Number.
    pub table: u8,
    /// Rules.
    pub rules: usize,
    /// Searches that found a rule.
    pub matched: u64,
    /// Searches that found none.
    pub missed: u64,
}

/// Locks; a panic elsewhere must not stop the switch, and every change leaves whole state behind it.
fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(|poisoned| poisoned.into_inner())
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
    /// No bridge.
    pub fn new() -> Self {
        Ofproto(Arc::new(Shared {
            state: RwLock::default(),
            writer: Mutex::default(),
            epoch: AtomicU64::new(1),
            store: OnceLock::new(),
            recirculations: Recirculations::default(),
            effects: Queue::default(),
            megaflows: AtomicBool::new(true),
        }))
    }

    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        read(&self.0.state)
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.0.writer.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Changes the state; the caller holds the writer's lock.
    pub(crate) fn change<T>(&self, _: &mut Writer, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut write(&self.0.state))
    }

    /// Lets changes suspend the megaflows of this store that depend on them. Once; without it, megaflows are the
    /// caller's affair.
    pub fn set_store(&self, store: Arc<dyn MegaflowStore>) {
        self.0.store.get_or_init(|| store);
    }

    /// Says that translations made until now may no longer hold, and suspends the megaflows of those that are affected.
    /// The caller has let go of the state.
    pub(crate) fn announce(&self, changes: &Changes) {
        if changes.is_empty() {
            return;
        }
        self.0.epoch.fetch_add(1, SeqCst);
        if let Some(store) = self.0.store.get() {
            store.suspend(&mut |mask, trail| {
                let record = trail.0.downcast_ref::<TrailRecord>();
                record.is_some_and(|record| changes.affect(mask, record))
            });
        }
    }

    /// The number that goes up with every change that a translation could notice.
    pub fn epoch(&self) -> u64 {
        self.0.epoch.load(SeqCst)
    }

    /// `upcall/disable-megaflows` and `upcall/enable-megaflows`: without them, a megaflow matches every field of its
    /// packet. The present ones are looked at again.
    pub fn enable_megaflows(&self, enabled: bool) {
        self.0.megaflows.store(enabled, SeqCst);
        self.announce(&Changes::everything());
    }

    /// Side effects of translations: how many wait, and how many were lost because the queue was full.
    pub fn effects(&self) -> Effects {
        self.0.effects.read()
    }
}

/// Bridges and ports.
impl Ofproto {
    /// Adds a bridge. A standalone one begins with the rule `priority=0 actions=NORMAL`.
    pub fn add_bridge(&self, config: BridgeConfig, now_ms: u64) -> Result<(), Error> {
        let standalone = config.fail_mode == FailMode::Standalone;
        let name = config.name.clone();
        let mut writer = self.writer();
        let id = BridgeId(writer.next_bridge);
        self.change(&mut writer, |state| {
            if state.bridge_named(&name).is_some() {
                return Err(Error::BridgeExists(name.clone()));
            }
            state.bridges.push(Bridge::new(id, config));
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
        self.change(&mut writer, |state| {
            let at = position(state, name)?;
            let bridge = state.bridges.remove(at);
            state.by_datapath.retain(|_, (id, _)| *id != bridge.id);
            state.by_name.retain(|_, (id, _)| *id != bridge.id);
            Ok(())
        })?;
        self.announce(&Changes::everything());
        Ok(())
    }

    /// Changes how long a bridge remembers stations, and what rules see of fragments.
    pub fn set_bridge(&self, name: &str, mac_age_s: Option<u64>, fragments: Option<FragmentMode>) -> Result<(), Error> {
        let mut writer = self.writer();
        let id = self.change(&mut writer, |state| {
            let at = position(state, name)?;
            let bridge = &mut state.bridges[at];
            if let Some(age) = mac_age_s {
                bridge.config.mac_age_s = age;
                bridge.macs.get_mut().unwrap_or_else(|p| p.into_inner()).set_age(age);
            }
            bridge.fragments = fragments.unwrap_or(bridge.fragments);
            Ok(bridge.id)
        })?;
        self.announce(&Changes::of_bridge(id));
        Ok(())
    }

    /// Whether packets that no rule of the first table matches go to controllers, as before OpenFlow 1.3.
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

    /// What rules of a bridge see of fragments.
    pub fn fragments(&self, name: &str) -> Result<FragmentMode, Error> {
        let state = self.state();
        let at = position(&state, name)?;
        Ok(state.bridges[at].fragments)
    }

    /// The bridges' settings, in the order they were added.
    pub fn bridges(&self) -> Vec<BridgeConfig> {
        self.state().bridges.iter().map(|b| b.config.clone()).collect()
    }

    /// Adds a port.
    pub fn add_port(&self, bridge: &str, port: PortConfig) -> Result<(), Error> {
        let mut writer = self.writer();
        let changes = self.change(&mut writer, |state| {
            let at = position(state, bridge)?;
            check_port(state, at, &port)?;
            let id = state.bridges[at].id;
            if let Attach::Datapath(no) = port.attach {
                state.by_datapath.insert(no.0, (id, port.number));
            }
            state.by_name.insert(port.name.clone(), (id, port.number));
            let changes = port_changes(id, &port);
            state.bridges[at].port_order.push(port.number);
            state.bridges[at].ports.insert(port.number, port);
            Ok(changes)
        })?;
        self.announce(&changes);
        Ok(())
    }

    /// Changes a port in place: VLANs, flags, MTU, link. Its name, number and attachment stay.
    pub fn set_port(&self, bridge: &str, name: &str, f: impl FnOnce(&mut PortConfig)) -> Result<(), Error> {
        let mut writer = self.writer();
        let changes = self.change(&mut writer, |state| {
            let at = position(state, bridge)?;
            let number = port_number(&state.bridges[at], name)?;
            let id = state.bridges[at].id;
            let port = state.bridges[at].ports.get_mut(&number).expect("invariant: the number was just found");
            let before = port.clone();
            f(port);
            let vlan_changed = port.vlan != before.vlan;
            (port.name, port.number, port.attach) = (before.name, before.number, before.attach);
            let changes = port_changes(id, port);
            if vlan_changed {
                state.bridges[at].macs.get_mut().unwrap_or_else(|p| p.into_inner()).flush_port(number);
            }
            Ok(changes)
        })?;
        self.announce(&changes);
        Ok(())
    }

    /// Removes a port and forgets the stations behind it.
    pub fn remove_port(&self, bridge: &str, name: &str) -> Result<(), Error> {
        let mut writer = self.writer();
        let changes = self.change(&mut writer, |state| {
            let at = position(state, bridge)?;
            let number = port_number(&state.bridges[at], name)?;
            let bridge = &mut state.bridges[at];
            let mut changes = Changes::of_bridge(bridge.id);
            bridge.port_order.retain(|n| *n != number);
            bridge.macs.get_mut().unwrap_or_else(|p| p.into_inner()).flush_port(number);
            if let Some(port) = bridge.ports.remove(&number) {
                changes = port_changes(bridge.id, &port);
                port.datapath().map(|no| state.by_datapath.remove(&no.0));
                state.by_name.remove(&port.name);
            }
            Ok(changes)
        })?;
        self.announce(&changes);
        Ok(())
    }

    /// A bridge's ports, by number.
    pub fn ports(&self, bridge: &str) -> Result<Vec<PortConfig>, Error> {
        let state = self.state();
        let at = position(&state, bridge)?;
        Ok(state.bridges[at].ports.values().cloned().collect())
    }
}

/// Rules.
impl Ofproto {
    /// Makes one change.
    pub fn flow_mod(&self, bridge: &str, fm: &FlowMod, now_ms: u64) -> Result<Changed, Error> {
        self.transact(bridge, std::slice::from_ref(fm), now_ms, Pending::apply).map_err(|(_, error)| error)
    }

    /// Makes many changes, seen all at once or, if one is refused, not at all.
    pub fn bundle(&self, bridge: &str, mods: &[FlowMod], now_ms: u64) -> Result<Changed, Error> {
        let in_bundle = |(i, error): (usize, Error)| Error::InBundle { index: i + 1, error: Box::new(error) };
        self.transact(bridge, mods, now_ms, Pending::apply).map_err(in_bundle)
    }

    /// Makes a bridge's rules these, leaving alone the ones that are there already. An error counts in `flows`.
    pub fn replace_flows(&self, bridge: &str, flows: &[FlowMod], now_ms: u64) -> Result<Changed, Error> {
        let (mods, origins) = {
            let state = self.state();
            let at = position(&state, bridge)?;
            difference(&state.bridges[at], flows)
        };
        self.transact(bridge, &mods, now_ms, Pending::apply).map_err(|(i, error)| match origins.get(i) {
            Some(origin) => Error::InBundle { index: origin + 1, error: Box::new(error) },
            None => error,
        })
    }

    /// A bridge's rules that `wanted` is about (its table, match, cookie and output port), table by table, in the order
    /// OVS dumps them.
    pub fn rules(&self, bridge: &str, wanted: &FlowMod) -> Result<Vec<RuleEntry>, Error> {
        let state = self.state();
        let at = position(&state, bridge)?;
        Ok(crate::flow_mod::selected_rules(&state.bridges[at], wanted, state.tables_version))
    }

    /// What each table that has rules or was searched holds and did.
    pub fn table_stats(&self, bridge: &str) -> Result<Vec<TableStats>, Error> {
        let state = self.state();
        let at = position(&state, bridge)?;
        let rows = state.bridges[at].tables.iter().enumerate().map(|(i, table)| {
            let (matched, missed) = table.counts.read();
            let rules = table.rules.as_ref().map_or(0, |r| r.len());
            TableStats { table: i as u8, rules, matched, missed }
        });
        Ok(rows.filter(|t| t.rules != 0 || t.matched != 0 || t.missed != 0).collect())
    }

    /// Makes one change of the groups.
    pub fn group_mod(&self, bridge: &str, gm: &GroupMod, now_ms: u64) -> Result<Changed, Error> {
        let apply = |pending: &mut Pending, bridge: &mut Bridge, gm: &GroupMod| {
            pending.apply_any(bridge, &Change::Group(gm.clone()))
        };
        self.transact(bridge, std::slice::from_ref(gm), now_ms, apply).map_err(|(_, error)| error)
    }

    /// Makes changes of rules and groups in order, seen all at once or, if one is refused, not at all; then with the
    /// place of the one that was.
    pub fn ordered_bundle(&self, bridge: &str, changes: &[Change], now_ms: u64) -> Result<Changed, (usize, Error)> {
        self.transact(bridge, changes, now_ms, Pending::apply_any)
    }

    /// A bridge's groups, by number.
    pub fn groups(&self, bridge: &str) -> Result<Vec<GroupEntry>, Error> {
        let state = self.state();
        let bridge = &state.bridges[position(&state, bridge)?];
        let users = |id| {
            let tables = bridge.tables.iter().filter_map(|table| table.rules.as_deref());
            let rules = tables.flat_map(|rules| rules.iter(state.tables_version));
            rules.filter(|rule| sends_to_group(&rule.payload().actions, id)).count() as u32
        };
        Ok(bridge.groups.values().map(|group| group.entry(users(group.id))).collect())
    }

    fn transact<C>(
        &self,
        bridge: &str,
        mods: &[C],
        now_ms: u64,
        apply: impl Fn(&mut Pending, &mut Bridge, &C) -> Result<(), Error>,
    ) -> Result<Changed, (usize, Error)> {
        let mut writer = self.writer();
        let (id, version) = {
            let state = self.state();
            let at = position(&state, bridge).map_err(|e| (0, e))?;
            (state.bridges[at].id, state.tables_version + 1)
        };
        let mut pending = Pending::new(version, now_ms);
        for (i, chunk) in mods.chunks(CHUNK).enumerate() {
            let result = self.change(&mut writer, |state| {
                let bridge =
                    state.bridge_mut(id).expect("invariant: only the holder of the writer's lock removes bridges");
                let failed = chunk
                    .iter()
                    .enumerate()
                    .find_map(|(j, change)| apply(&mut pending, bridge, change).err().map(|e| (j, e)));
                failed.map_or(Ok(()), |(j, error)| Err((i * CHUNK + j, error)))
            });
            if let Err(error) = result {
                self.change(&mut writer, |state| {
                    let bridge = state.bridge_mut(id);
                    pending.revert(bridge.expect("invariant: only the holder of the writer's lock removes bridges"));
                });
                return Err(error);
            }
        }
        Ok(self.commit(&mut writer, id, pending))
    }

    /// Shows a transaction to lookups, takes what it hid out, and what hidden rules had learned with them.
    pub(crate) fn commit(&self, writer: &mut Writer, id: BridgeId, pending: Pending) -> Changed {
        let now_ms = pending.now_ms;
        let mut changed = pending.changed;
        let mut next = Some(pending);
        while let Some(mut pending) = next.take() {
            let mut changes = Changes::default();
            let dead = self.change(writer, |state| {
                state.tables_version = pending.version;
                let Some(bridge) = state.bridge_mut(id) else { return Vec::new() };
                pending.changes(bridge, &mut changes);
                if let Some(groups) = pending.groups.take() {
                    bridge.groups = groups;
                    changes.add_bridge(id);
                }
                pending.count_learners(bridge)
            });
            self.announce(&changes);
            self.take_out(writer, id, pending.hidden, now_ms);
            if !dead.is_empty() {
                let mut learned = Pending::new(pending.version + 1, now_ms);
                self.change(writer, |state| {
                    if let Some(bridge) = state.bridge_mut(id) {
                        dead.iter().for_each(|key| learned.hide_learned(bridge, *key));
                    }
                });
                changed.deleted += learned.changed.deleted;
                next = (!learned.hidden.is_empty()).then_some(learned);
            }
        }
        changed
    }

    /// Removes rules that no lookup sees any more.
    fn take_out(&self, writer: &mut Writer, id: BridgeId, hidden: Vec<Hidden>, now_ms: u64) {
        for chunk in hidden.chunks(CHUNK) {
            self.change(writer, |state| {
                let Some(bridge) = state.bridge_mut(id) else { return };
                chunk.iter().for_each(|h| bridge.tables[usize::from(h.table)].take_out(h.id));
            });
        }
        for h in hidden {
            if let Some(why) = h.why {
                writer.removed.note(id, h.matches, &h.rule, why, now_ms);
            }
        }
    }

    /// Removes the rules whose time is over; how many.
    pub(crate) fn expire_rules(&self, writer: &mut Writer, now_ms: u64) -> usize {
        let due: Vec<_> = {
            let state = self.state();
            state.bridges.iter().map(|b| (b.id, b.expired(now_ms))).filter(|(_, due)| !due.is_empty()).collect()
        };
        let mut count = 0;
        for (id, due) in due {
            let version = self.state().tables_version + 1;
            let mut pending = Pending::new(version, now_ms);
            self.change(writer, |state| {
                if let Some(bridge) = state.bridge_mut(id) {
                    due.iter().for_each(|&(table, rule, why)| pending.hide(bridge, table, rule, Some(why)));
                }
            });
            count += self.commit(writer, id, pending).deleted;
        }
        count
    }

    /// Adds or refreshes a learned rule; whether the limit allowed it.
    pub(crate) fn learn(&self, writer: &mut Writer, id: BridgeId, fm: &FlowMod, limit: u32, now_ms: u64) -> bool {
        let version = self.state().tables_version + 1;
        let mut pending = Pending::new(version, now_ms);
        let learned = self.change(writer, |state| match state.bridge_mut(id) {
            Some(bridge) => pending.learn(bridge, fm, limit),
            None => Ok(false),
        });
        match learned {
            Ok(below_limit) => {
                if !pending.added.is_empty() {
                    self.commit(writer, id, pending);
                }
                below_limit
            }
            Err(_) => {
                self.change(writer, |state| state.bridge_mut(id).map(|bridge| pending.revert(bridge)));
                false
            }
        }
    }

    /// Lowers a rule's timeouts because its TCP connection is closing.
    pub(crate) fn lower_timeouts(&self, writer: &mut Writer, id: BridgeId, rule: &Arc<Rule>, idle: u16, hard: u16) {
        if idle == 0 && hard == 0 {
            return;
        }
        rule.lower_timeouts(idle, hard);
        self.change(writer, |state| {
            let (Some(bridge), Some(&rule_id)) = (state.bridge_mut(id), rule.id.get()) else { return };
            let table = &bridge.tables[usize::from(rule.table)];
            let there =
                table.rules.as_ref().and_then(|r| r.rule(rule_id)).is_some_and(|r| Arc::ptr_eq(r.payload(), rule));
            if there {
                bridge.expirable.insert((rule.table, rule_id));
            }
        });
    }
}

/// What a change of a port touches: its bridge, or any, as far as bridges are joined there.
fn port_changes(bridge: BridgeId, port: &PortConfig) -> Changes {
    match port.attach {
        Attach::Patch(_) => Changes::everything(),
        _ => Changes::of_bridge(bridge),
    }
}

pub(crate) fn position(state: &State, name: &str) -> Result<usize, Error> {
    state.bridges.iter().position(|b| b.name() == name).ok_or_else(|| Error::NoBridge(name.to_owned()))
}

fn port_number(bridge: &Bridge, name: &str) -> Result<OfPort, Error> {
    let found = bridge.port_named(name).map(|p| p.number);
    found.ok_or_else(|| Error::NoPort { bridge: bridge.name().to_owned(), port: name.to_owned() })
}

fn check_port(state: &State, at: usize, port: &PortConfig) -> Result<(), Error> {
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
    match port.attach {
        Attach::Datapath(no) if state.by_datapath.contains_key(&no.0) => {
            Err(Error::DatapathPortTaken { name, datapath: no.0 })
        }
        _ => Ok(()),
    }
}

/// The changes that turn a bridge's rules into `flows`, and which of `flows` the first ones come from.
fn difference(bridge: &Bridge, flows: &[FlowMod]) -> (Vec<FlowMod>, Vec<usize>) {
    let mut kept = std::collections::HashSet::new();
    let (mut mods, mut origins) = (Vec::new(), Vec::new());
    for (i, fm) in flows.iter().enumerate() {
        let table = fm.table.unwrap_or(0);
        let rules = bridge.tables.get(usize::from(table)).and_then(|t| t.rules.as_deref());
        let found = rules.and_then(|r| r.find_exact(&fm.matches, fm.priority.into(), LATEST));
        if let Some(found) = found {
            kept.insert((table, found.id()));
        }
        if found.is_none_or(|r| !is_same(r.payload(), fm)) {
            mods.push(FlowMod { command: FlowCommand::Add, ..fm.clone() });
            origins.push(i);
        }
    }
    for (table, rules) in (0..=u8::MAX).zip(&bridge.tables).filter_map(|(i, t)| Some((i, t.rules.as_deref()?))) {
        for rule in rules.iter(LATEST).filter(|r| !kept.contains(&(table, r.id()))) {
            let mut fm = FlowMod::new(FlowCommand::DeleteStrict);
            (fm.table, fm.priority, fm.matches) = (Some(table), rule.payload().priority, rules.match_of(rule));
            mods.push(fm);
        }
    }
    (mods, origins)
}

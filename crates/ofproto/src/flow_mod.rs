//! Changes of rules and groups in a transaction: lookups see all of them at once, or none.
//!
//! A transaction inserts new rules and hides old ones at the next version. Lookups use the current version and notice
//! nothing. Then one change of the version number shows everything. If a change is refused, the inserted rules are
//! removed and the hidden ones unhidden. The lock that translations share is released every [`CHUNK`] changes, so that
//! a bundle of a million flows does not stop the PMDs' upcalls.

use crate::bridge::{Bridge, LearnedCookie};
use crate::check::{check_actions, check_bucket, check_groups, check_match, check_meters, check_options, check_table};
use crate::controller::PacketOutRequest;
use crate::depends::Changes;
use crate::error::Error;
use crate::expiry::RulePlace;
use crate::group;
use crate::groups::Groups;
use crate::rule::{Rule, RuleCounts};
use crate::rule_memory::{RuleCharge, actions_bytes, rule_bytes};
use crate::rule_monitor::{PendingUpdate, Requester, RuleUpdateEvent};
use crate::rule_select::{is_learned, rules_of, select};
use sluice_classifier::{Conjunction, Criteria, EmptySubtable, LATEST, NEVER, RuleId};
use sluice_fate::{MemoryCharge, MemoryShare};
use sluice_flow::Match;
use sluice_ofp::{FlowCommand, FlowMod, FlowRemovedReason, GroupCommand, GroupMod, OfAction};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

/// Changes made before the lock is released: some 20 µs, since PMDs wait meanwhile.
pub(crate) const CHUNK: usize = 16;

/// Rules of a request that are added before the lock is released. More than [`CHUNK`], since subtables of one priority are
/// searched in the order of Open vSwitch, which sorts them once a request, and masks tell the order.
pub(crate) const ADDED_AT_ONCE: usize = 256;

/// One step of an ordered bundle.
#[derive(Clone, Debug, PartialEq)]
pub enum BundleChange {
    /// A change of rules.
    Flow(Box<FlowMod>),
    /// A change of groups.
    Group(GroupMod),
    /// A packet to send. It is translated by the tables as the steps before it leave them.
    Packet(Box<PacketOutRequest>),
}

/// A change that [`Ofproto::transact`](crate::Ofproto) makes.
pub(crate) trait TableChange {
    /// The change if it may select many rules: it is made in pieces then.
    fn selects(&self) -> Option<WideChange<'_>>;

    /// Whether it changes groups.
    fn changes_groups(&self) -> bool {
        false
    }
}

/// A change that may select many rules.
#[derive(Clone, Copy)]
pub(crate) enum WideChange<'a> {
    /// A modification or deletion of rules.
    Rules(&'a FlowMod),
    /// A deletion of groups, with the rules that use them.
    Groups(&'a GroupMod),
}

impl TableChange for &FlowMod {
    fn selects(&self) -> Option<WideChange<'_>> {
        wide_rules(self)
    }
}

fn wide_rules(fm: &FlowMod) -> Option<WideChange<'_>> {
    matches!(fm.command, FlowCommand::Delete | FlowCommand::Modify).then_some(WideChange::Rules(fm))
}

impl TableChange for BundleChange {
    fn selects(&self) -> Option<WideChange<'_>> {
        match self {
            BundleChange::Flow(fm) => wide_rules(fm),
            BundleChange::Group(gm) if gm.command == GroupCommand::Delete => Some(WideChange::Groups(gm)),
            _ => None,
        }
    }

    fn changes_groups(&self) -> bool {
        matches!(self, BundleChange::Group(_))
    }
}

/// How many rules a command touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowModCounts {
    /// Rules added, including those that replaced an equal one.
    pub added: usize,
    /// Rules modified.
    pub modified: usize,
    /// Rules deleted.
    pub deleted: usize,
}

/// A rule that is hidden from the next version on.
pub(crate) struct HiddenRule {
    pub table: u8,
    pub id: RuleId,
    pub rule: Arc<Rule>,
    /// Why it is removed; `None` if another rule replaces it.
    pub reason: Option<FlowRemovedReason>,
    /// Its match, if controllers are told of its removal. On the heap, since a transaction may hide a million rules.
    pub matches: Option<Box<Match>>,
}

/// The actions of rules that one request modifies, and what they take.
pub(crate) struct SharedActions {
    actions: Arc<[OfAction]>,
    charge: Arc<MemoryCharge>,
}

/// The rules that a request modifies.
pub(crate) struct Selected<'a> {
    places: &'a [RulePlace],
    /// Bytes that their actions take now.
    freed: usize,
}

impl<'a> Selected<'a> {
    /// Those rules of a bridge, each of which is looked at.
    pub fn new(bridge: &Bridge, places: &'a [RulePlace]) -> Self {
        let rules = places.iter().filter_map(|&(table, id)| Some(rules_of(bridge, table)?.rule(id)?.payload()));
        Selected { places, freed: rules.map(|rule| rule.charge.actions_bytes()).sum() }
    }
}

/// A transaction on one bridge.
pub(crate) struct PendingTransaction {
    pub version: u64,
    pub now_ms: u64,
    pub added: Vec<(u8, RuleId)>,
    pub hidden: Vec<HiddenRule>,
    /// If it is being undone: of how many hidden rules the places are theirs again.
    restored: usize,
    /// The bridge's groups at the next version, if they change.
    pub groups: Option<Groups>,
    pub changed: FlowModCounts,
    /// State that megaflows depend on and this transaction changed.
    pub changes: Changes,
    /// The updates for the rule monitor, if it wants any.
    pub updates: Option<Vec<PendingUpdate>>,
    /// The request that caused it.
    pub by: Option<Requester>,
    /// The memory of new rules and groups.
    pub memory: Arc<MemoryShare>,
    /// The [`LearnedCookie`]s of added and of hidden rules.
    learners_added: Vec<LearnedCookie>,
    learners_hidden: Vec<LearnedCookie>,
}

impl PendingTransaction {
    /// A transaction that makes a version of the tables, with new rules and groups of that share of memory.
    pub fn new(version: u64, now_ms: u64, memory: Arc<MemoryShare>) -> Self {
        PendingTransaction {
            version,
            now_ms,
            added: Vec::new(),
            hidden: Vec::new(),
            restored: 0,
            groups: None,
            changed: FlowModCounts::default(),
            changes: Changes::default(),
            updates: None,
            by: None,
            memory,
            learners_added: Vec::new(),
            learners_hidden: Vec::new(),
        }
    }

    /// Makes room for what `n` changes note here. Called before the tables are locked: lists that grow are copied, which
    /// takes milliseconds where many rules change, and so does what the allocator puts off until a large request.
    pub fn reserve(&mut self, n: usize) {
        self.added.reserve(n);
        self.hidden.reserve(n);
        self.learners_added.reserve(n);
        self.learners_hidden.reserve(n);
        self.changes.reserve(n);
        if let Some(updates) = &mut self.updates {
            updates.reserve(n);
        }
    }

    /// The same for `n` rules that are hidden in pieces: their list does not grow in between.
    pub fn reserve_hidden(&mut self, n: usize) {
        self.hidden.reserve_exact(n);
    }

    /// Notes an update for the rule monitor.
    fn note_update(&mut self, event: RuleUpdateEvent, table: u8, id: RuleId, old_actions: Option<Arc<[OfAction]>>) {
        if let Some(updates) = &mut self.updates {
            updates.push(PendingUpdate { event, table, id, old_actions });
        }
    }

    /// Changes the groups; returns those that are deleted, whose rules the caller must hide. After an error the caller
    /// must revert the transaction. Only this transaction sees the result: `bridge` is as before.
    pub fn apply_group(&mut self, bridge: &Bridge, gm: &GroupMod) -> Result<Vec<u32>, Error> {
        let groups = self.groups.get_or_insert_with(|| bridge.groups.clone());
        for check in gm.config.buckets.iter().map(|bucket| check_bucket(&bucket.actions)) {
            check?;
        }
        group::apply(groups, gm, self.now_ms, &self.memory)
    }

    /// Checks the actions of a rule.
    fn check(&self, bridge: &Bridge, table: u8, actions: &[OfAction]) -> Result<(), Error> {
        check_actions(table, actions)?;
        check_meters(&bridge.meters, actions)?;
        check_options(&bridge.tunnel_options, &Match::ANY, actions)?;
        check_groups(self.groups.as_ref().unwrap_or(&bridge.groups), actions)
    }

    /// Adds, modifies or deletes rules. After an error the caller must revert the transaction, or at least not add to
    /// the refused change.
    pub fn apply(&mut self, bridge: &mut Bridge, fm: &FlowMod) -> Result<(), Error> {
        if let Some(table) = fm.table.filter(|&t| t != 255) {
            check_table(table)?;
        }
        let completed = bridge.tunnel_options.completed(&fm.matches);
        let completed = completed.map(|matches| FlowMod { matches, ..fm.clone() });
        let fm = completed.as_ref().unwrap_or(fm);
        match fm.command {
            FlowCommand::Add => self.add(bridge, fm),
            FlowCommand::Modify | FlowCommand::ModifyStrict => self.modify(bridge, fm),
            FlowCommand::Delete | FlowCommand::DeleteStrict => {
                let strict = fm.command == FlowCommand::DeleteStrict;
                for (table, id) in select(bridge, fm, strict, true) {
                    self.hide(bridge, table, id, Some(FlowRemovedReason::Delete));
                }
                Ok(())
            }
        }
    }

    fn add(&mut self, bridge: &mut Bridge, fm: &FlowMod) -> Result<(), Error> {
        self.add_at(bridge, fm, fm.priority.into())
    }

    /// Adds a rule with a priority that may be above those of OpenFlow.
    pub fn add_at(&mut self, bridge: &mut Bridge, fm: &FlowMod, priority: u32) -> Result<(), Error> {
        let table = fm.table.unwrap_or(0);
        check_table(table)?;
        check_match(&fm.matches)?;
        check_options(&bridge.tunnel_options, &fm.matches, &[])?;
        self.check(bridge, table, &fm.actions)?;
        let rules = bridge.rules_mut(table);
        let old = rules.find_exact(&fm.matches, priority, LATEST).map(|r| (r.id(), Arc::clone(r.payload())));
        if old.is_none() && fm.flags.check_overlap {
            let criteria = Criteria::new(&fm.matches);
            if rules.overlapping(&criteria, LATEST).any(|r| r.priority() == priority) {
                return Err(Error::Overlap { table, priority: fm.priority });
            }
        }
        if old.is_none() {
            self.make_room(bridge, table)?;
        }
        let freed = old.as_ref().map_or(0, |(_, rule)| rule.charge.bytes());
        let charge = self.charge(bridge, table, fm, freed)?;
        // A reset of the counters does not restart the idle timeout.
        let used_ms = old.as_ref().map_or(self.now_ms, |(_, rule)| rule.stats().used_ms);
        let counts = match &old {
            Some((_, rule)) if fm.keep_counts => Arc::clone(&rule.counts),
            _ => Arc::new(RuleCounts::new(used_ms)),
        };
        let rule = Rule {
            table,
            priority,
            cookie: fm.new_cookie.unwrap_or(0),
            actions: fm.actions.as_slice().into(),
            flags: fm.flags,
            importance: fm.importance,
            created_ms: self.now_ms,
            added_version: self.version,
            version: self.version,
            modified_ms: self.now_ms.into(),
            idle_timeout: fm.idle_timeout.into(),
            hard_timeout: fm.hard_timeout.into(),
            counts,
            id: OnceLock::new(),
            charge,
        };
        self.changed.added += 1;
        let mut old_actions = None;
        if let Some((id, old)) = old {
            self.hide(bridge, table, id, None);
            old_actions = (old.actions != rule.actions).then(|| Arc::clone(&old.actions));
        }
        let is_shown = rule.openflow_priority().is_some();
        let id = self.insert(bridge, &fm.matches, rule);
        if is_shown {
            self.note_update(RuleUpdateEvent::Added, table, id, old_actions);
        }
        Ok(())
    }

    /// The charge of a rule that is added, in the place of one that gives `freed` bytes back.
    fn charge(&self, bridge: &mut Bridge, table: u8, fm: &FlowMod, freed: usize) -> Result<RuleCharge, Error> {
        let own = rule_bytes(bridge.rules_mut(table), &fm.matches);
        let of_actions = actions_bytes(&fm.actions, 1);
        let take = || {
            let actions = MemoryCharge::take(&self.memory, of_actions, freed.saturating_sub(own))?;
            RuleCharge::take(&self.memory, own, &Arc::new(actions), freed)
        };
        take().ok_or(Error::RuleMemory { table })
    }

    /// Evicts a rule if the table is full and evicts; an error if it is full and cannot.
    fn make_room(&mut self, bridge: &mut Bridge, table: u8) -> Result<(), Error> {
        let capacity = &bridge.tables[usize::from(table)].capacity;
        let Some(limit) = capacity.limit().filter(|_| capacity.is_full()) else { return Ok(()) };
        let victim = bridge.victim(table, self.now_ms).ok_or(Error::TableFull { table, limit })?;
        self.hide(bridge, table, victim, Some(FlowRemovedReason::Eviction));
        Ok(())
    }

    fn modify(&mut self, bridge: &mut Bridge, fm: &FlowMod) -> Result<(), Error> {
        let selected = select(bridge, fm, fm.command == FlowCommand::ModifyStrict, false);
        if let Some(actions) = self.begin_modify(bridge, fm, Selected::new(bridge, &selected))? {
            self.modify_selected(bridge, fm, &actions, &selected);
        }
        Ok(())
    }

    /// Checks a modification, and adds the rule if none is selected and the request says so. Returns the new actions of
    /// those that are selected, if any is.
    pub fn begin_modify(
        &mut self,
        bridge: &mut Bridge,
        fm: &FlowMod,
        Selected { places: selected, freed }: Selected<'_>,
    ) -> Result<Option<SharedActions>, Error> {
        // OpenFlow 1.2 and later never add a flow here: they say no new cookie.
        if selected.is_empty() && fm.cookie_mask == 0 && fm.new_cookie.is_some() {
            return self.add(bridge, fm).map(|()| None);
        }
        let Some(&(table, _)) = selected.first() else { return Ok(None) };
        let mut tables = selected.chunk_by(|a, b| a.0 == b.0);
        tables.try_for_each(|of_table| self.check(bridge, of_table[0].0, &fm.actions))?;
        let charge = MemoryCharge::take(&self.memory, actions_bytes(&fm.actions, selected.len()), freed);
        let charge = Arc::new(charge.ok_or(Error::RuleMemory { table })?);
        Ok(Some(SharedActions { actions: fm.actions.as_slice().into(), charge }))
    }

    /// Modifies rules that a request selects.
    pub fn modify_selected(
        &mut self,
        bridge: &mut Bridge,
        fm: &FlowMod,
        actions: &SharedActions,
        selected: &[RulePlace],
    ) {
        let SharedActions { actions, charge } = actions;
        for &(table, id) in selected {
            let in_table = bridge.rules_mut(table);
            let Some(found) = in_table.rule(id) else { continue };
            let matches = in_table.match_of(found);
            let old = Arc::clone(found.payload());
            // It takes as much as the old one, which goes: it gets that in any case.
            let own = rule_bytes(in_table, &matches);
            let Some(charge) = RuleCharge::take(&self.memory, own, charge, own) else { continue };
            let counts = if fm.flags.reset_counts {
                Arc::new(RuleCounts::new(old.stats().used_ms))
            } else {
                Arc::clone(&old.counts)
            };
            let rule = Rule {
                table,
                priority: old.priority,
                cookie: fm.new_cookie.filter(|_| fm.modify_cookie).unwrap_or(old.cookie),
                actions: Arc::clone(actions),
                flags: old.flags,
                importance: old.importance,
                created_ms: old.created_ms,
                added_version: old.added_version,
                version: self.version,
                modified_ms: self.now_ms.into(),
                idle_timeout: old.idle_timeout().into(),
                hard_timeout: old.hard_timeout().into(),
                counts,
                id: OnceLock::new(),
                charge,
            };
            self.changed.modified += 1;
            self.hide(bridge, table, id, None);
            let has_new_cookie = rule.cookie != old.cookie;
            let id = self.insert(bridge, &matches, rule);
            let old_actions = (old.actions != *actions).then(|| Arc::clone(&old.actions));
            if has_new_cookie || old_actions.is_some() {
                self.note_update(RuleUpdateEvent::Modified, table, id, old_actions);
            }
        }
    }

    /// Inserts a rule, visible from the next version on.
    fn insert(&mut self, bridge: &mut Bridge, matches: &Match, rule: Rule) -> RuleId {
        self.changes.add_rule(bridge.id, rule.table, || Some(matches.clone()));
        self.learners_added.extend(learned_cookies(&rule.actions));
        let (table, priority, rule) = (rule.table, rule.priority, Arc::new(rule));
        let conjunctions = conjunctions(&rule.actions);
        let payload = Arc::clone(&rule);
        let rules = bridge.rules_mut(table);
        let (id, displaced) = rules.insert(matches, priority, self.version, &conjunctions, payload);
        debug_assert!(displaced.is_none(), "invariant: an equal rule was hidden first");
        let subtables = rules.subtables_bytes();
        bridge.tables[usize::from(table)].subtables.set(subtables);
        bridge.note_rule(&rule, id);
        _ = rule.id.set(id);
        if let Some(expiry_ms) = rule.expiry_ms() {
            bridge.expirable.insert((table, id), expiry_ms);
        }
        bridge.tables[usize::from(table)].capacity.add(id, matches, rule.importance, rule.expiry_ms());
        self.added.push((table, id));
        id
    }

    /// Hides a rule from the next version on.
    pub fn hide(&mut self, bridge: &mut Bridge, table: u8, id: RuleId, reason: Option<FlowRemovedReason>) {
        let bridge_id = bridge.id;
        let rules = bridge.rules_mut(table);
        let Some(found) = rules.rule(id) else { return };
        let rule = Arc::clone(found.payload());
        self.changes.add_rule(bridge_id, table, || Some(rules.match_of(found)));
        self.learners_hidden.extend(learned_cookies(&rule.actions));
        let matches = (rule.flags.send_flow_rem && reason.is_some()).then(|| Box::new(rules.match_of(found)));
        if found.remove_version() == NEVER {
            bridge.forget_rule(&rule, id);
        }
        bridge.rules_mut(table).set_remove_version(id, self.version);
        bridge.expirable.remove(&(table, id));
        let capacity = &mut bridge.tables[usize::from(table)].capacity;
        match reason {
            Some(FlowRemovedReason::Eviction) => capacity.remove(),
            _ => capacity.remove_unordered(),
        }
        self.changed.deleted += usize::from(reason.is_some());
        if let Some(reason) = reason.filter(|_| rule.openflow_priority().is_some()) {
            self.note_update(RuleUpdateEvent::Removed(reason), table, id, None);
        }
        self.hidden.push(HiddenRule { table, id, rule, reason, matches });
    }

    /// Adds a learned rule, or refreshes an identical one; whether the limit (0: none) allowed it.
    pub fn learn(&mut self, bridge: &mut Bridge, fm: &FlowMod, limit: u32) -> Result<bool, Error> {
        let table = fm.table.unwrap_or(0);
        check_table(table)?;
        if let Some(rule) = is_learned(bridge, fm, limit, LATEST) {
            rule.modified_ms.fetch_max(self.now_ms, Relaxed);
            return Ok(true);
        }
        let cookie = fm.new_cookie.unwrap_or(0);
        if limit != 0 && bridge.tables[usize::from(table)].cookies.of(cookie) >= limit {
            return Ok(false);
        }
        self.modify(bridge, fm).map(|()| true)
    }

    /// Undoes up to [`CHUNK`] of its changes; the caller calls it again while it returns that there are more, and drops
    /// what they leave at the end.
    pub fn revert_piece(&mut self, bridge: &mut Bridge, emptied: &mut Vec<EmptySubtable>) -> bool {
        // Before the rules go: one that was added and hidden again is counted only once.
        if self.restored < self.hidden.len() {
            let piece = self.hidden[self.restored..].iter().take(CHUNK);
            piece.for_each(|hidden| bridge.tables[usize::from(hidden.table)].capacity.restore());
            self.restored += CHUNK;
        } else if !self.added.is_empty() {
            for (table, id) in self.added.drain(self.added.len().saturating_sub(CHUNK)..).rev() {
                // One that was hidden again is forgotten already.
                let added = rules_of(bridge, table).and_then(|rules| rules.rule(id));
                let shown = added.filter(|r| r.remove_version() == NEVER).map(|r| Arc::clone(r.payload()));
                shown.iter().for_each(|rule| bridge.forget_rule(rule, id));
                let of_table = &mut bridge.tables[usize::from(table)];
                of_table.remove(id, emptied);
                of_table.capacity.remove();
                bridge.expirable.remove(&(table, id));
            }
        } else {
            let rest = self.hidden.len().saturating_sub(CHUNK);
            for hidden in self.hidden.drain(rest..) {
                // A rule that was added and hidden within the transaction has been removed before.
                if bridge.rules_mut(hidden.table).set_remove_version(hidden.id, NEVER) {
                    bridge.note_rule(&hidden.rule, hidden.id);
                    if let Some(expiry_ms) = hidden.rule.expiry_ms() {
                        bridge.expirable.insert((hidden.table, hidden.id), expiry_ms);
                    }
                }
            }
            self.restored = rest;
        }
        !(self.added.is_empty() && self.hidden.is_empty())
    }

    /// Counts added and removed learning rules. Returns where no learning rule is left: what was learned there must go.
    pub fn count_learners(&self, bridge: &mut Bridge) -> Vec<LearnedCookie> {
        self.learners_added.iter().for_each(|key| *bridge.learners.entry(*key).or_default() += 1);
        let mut dead = Vec::new();
        for key in &self.learners_hidden {
            let Some(count) = bridge.learners.get_mut(key) else { continue };
            *count -= 1;
            if *count == 0 {
                bridge.learners.remove(key);
                dead.push(*key);
            }
        }
        dead
    }
}

fn conjunctions(actions: &[OfAction]) -> Vec<Conjunction> {
    let parts = actions.iter().filter_map(|action| match *action {
        OfAction::Conjunction { id, clause, n_clauses } => Some(Conjunction { id, clause, n_clauses }),
        _ => None,
    });
    parts.collect()
}

/// The `learn` actions with `delete_learned`: their rules are deleted with the rule that has these actions.
fn learned_cookies(actions: &[OfAction]) -> impl Iterator<Item = LearnedCookie> {
    OfAction::flattened(actions).filter_map(|action| match action {
        OfAction::Learn(learn) if learn.delete_learned => {
            Some(LearnedCookie { table: learn.table, cookie: learn.cookie })
        }
        _ => None,
    })
}

//! Transactions: changes of a bridge's rules and groups that lookups see all at once, or not at all.

use crate::bridge::{Bridge, Rules, SwitchState};
use crate::bridge_config::{BridgeId, N_TABLES};
use crate::bridges::position;
use crate::check::check_table;
use crate::error::Error;
use crate::expiry::RulePlace;
use crate::flow_mod::{
    ADDED_AT_ONCE, CHUNK, FlowModCounts, HiddenRule, PendingTransaction, Selected, TableChange, WideChange,
};
use crate::ofproto::{Ofproto, Writer};
use crate::rule::Rule;
use crate::rule_memory::RuleOwner;
use crate::rule_monitor::Requester;
use crate::rule_select::{is_learned, learned_with, rules_of, select};
use crate::rule_users::Used;
use sluice_classifier::LATEST;
use sluice_fate::Limit;
use sluice_flow::OfPort;
use sluice_ofp::{FlowCommand, FlowMod, FlowRemovedReason, GroupMod};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Why a bridge still exists.
pub(crate) const STAYS: &str = "invariant: only the holder of the writer's lock removes bridges";

/// Vacancy events that wait to be taken, at most.
pub(crate) const VACANCY_EVENTS_MAX: usize = 1024;

/// Rules that one call of `expire_rules` looks at in a bridge, at most.
const EXPIRED_MAX: usize = 1 << 14;

/// From this many changes on it pays to sort the subtables only once, at the end.
const DEFERRED_MIN: usize = 16;

/// Makes `n` changes of a bridge while the caller holds the lock.
fn in_chunk<T>(state: &mut SwitchState, id: BridgeId, n: usize, f: impl FnOnce(&mut SwitchState) -> T) -> T {
    if n < DEFERRED_MIN {
        return f(state);
    }
    for_each_table(state, id, Rules::defer);
    let result = f(state);
    for_each_table(state, id, Rules::publish);
    result
}

fn for_each_table(state: &mut SwitchState, id: BridgeId, f: fn(&mut Rules)) {
    let bridge = state.bridge_mut(id).expect(STAYS);
    bridge.tables.iter_mut().filter_map(|t| t.rules.as_deref_mut()).for_each(f);
}

/// Rules that a request deletes.
struct DeletedRules<'a> {
    places: &'a [RulePlace],
    reason: FlowRemovedReason,
}

/// A rule that a packet taught a bridge.
#[derive(Debug)]
pub(crate) struct LearnedFlow {
    pub bridge: BridgeId,
    /// The port by which the packet came.
    pub port: OfPort,
    pub flow: Arc<FlowMod>,
    /// Rules with its cookie at most; 0: any number.
    pub limit: u32,
    pub now_ms: u64,
}

impl LearnedFlow {
    /// Keeps the rule young if it is there; whether it is.
    fn refresh(&self, bridge: &Bridge) -> bool {
        let found = is_learned(bridge, &self.flow, self.limit, LATEST);
        found.map(|rule| rule.modified_ms.fetch_max(self.now_ms, Relaxed)).is_some()
    }
}

impl PendingTransaction {
    /// Calls `f` with the tables as they are after the changes made so far.
    pub(crate) fn as_of<T>(&mut self, state: &mut SwitchState, id: BridgeId, f: impl FnOnce(&SwitchState) -> T) -> T {
        let shown = std::mem::replace(&mut state.tables_version, self.version);
        let mut swap_groups = |state: &mut SwitchState| {
            if let (Some(groups), Some(bridge)) = (&mut self.groups, state.bridge_mut(id)) {
                std::mem::swap(groups, &mut bridge.groups);
            }
        };
        swap_groups(state);
        let result = f(state);
        swap_groups(state);
        state.tables_version = shown;
        result
    }
}

impl Ofproto {
    /// Begins a transaction on a bridge, which the request `by` has caused, if one has.
    pub(crate) fn begin(
        &self,
        writer: &mut Writer,
        id: BridgeId,
        by: Option<Requester>,
        now_ms: u64,
    ) -> PendingTransaction {
        writer.postponed_free.free();
        let memory = self.0.rule_memory.share(id, by.map_or(RuleOwner::Operator, |by| by.owner));
        let state = self.state();
        let name = state.bridge(id).map(|bridge| bridge.name());
        let is_monitored = self.0.monitor.get().zip(name).is_some_and(|(monitor, name)| monitor.monitors(name));
        let mut pending = PendingTransaction::new(state.tables_version + 1, now_ms, memory);
        (pending.updates, pending.by) = (is_monitored.then(Vec::new), by);
        pending
    }

    /// Makes all changes or none. An error comes with the index of the refused change.
    pub(crate) fn transact<C: TableChange>(
        &self,
        bridge: &str,
        changes: impl IntoIterator<Item = C>,
        by: Option<Requester>,
        now_ms: u64,
        mut apply: impl FnMut(&mut PendingTransaction, &mut SwitchState, BridgeId, &C) -> Result<(), Error>,
    ) -> Result<FlowModCounts, (usize, Error)> {
        let mut writer = self.writer();
        let id = self.bridge_id(bridge).map_err(|e| (0, e))?;
        let mut pending = self.begin(&mut writer, id, by, now_ms);
        let (mut changes, mut done) = (changes.into_iter().peekable(), 0);
        loop {
            // Taken before the lock: the iterator may decode messages.
            let small = std::iter::from_fn(|| changes.next_if(|change| change.selects().is_none()));
            let chunk: Vec<C> = small.take(ADDED_AT_ONCE).collect();
            if pending.groups.is_none() && chunk.iter().any(C::changes_groups) {
                // There may be many: they are copied under the lock for reading.
                pending.groups = self.state().bridge(id).map(|bridge| bridge.groups.clone());
            }
            let wide = if chunk.is_empty() { changes.next() } else { None };
            let result = if let Some(wide) = wide.as_ref().and_then(C::selects) {
                self.change_wide(&mut writer, id, &mut pending, wide).map_err(|error| (done, error))
            } else if chunk.is_empty() {
                return Ok(self.commit(&mut writer, id, pending));
            } else {
                pending.reserve(chunk.len());
                self.change(&mut writer, |state| {
                    in_chunk(state, id, chunk.len(), |state| {
                        let mut places = chunk.iter().enumerate();
                        places.try_for_each(|(i, change)| {
                            apply(&mut pending, state, id, change).map_err(|e| (done + i, e))
                        })
                    })
                })
            };
            if let Err(error) = result {
                let mut emptied = Vec::new();
                let mut revert =
                    |state: &mut SwitchState| pending.revert_piece(state.bridge_mut(id).expect(STAYS), &mut emptied);
                while self.change(&mut writer, &mut revert) {}
                return Err(error);
            }
            done += chunk.len().max(1);
        }
    }

    /// Makes independent changes of rules together, which costs less than one by one. Returns the refused ones by
    /// index; the others are made.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn flow_mods(
        &self,
        bridge: &str,
        changes: &[&FlowMod],
        by: Option<Requester>,
        now_ms: u64,
    ) -> Result<(FlowModCounts, Vec<(usize, Error)>), Error> {
        let mut writer = self.writer();
        let id = self.bridge_id(bridge)?;
        let mut pending = self.begin(&mut writer, id, by, now_ms);
        let mut refused = Vec::new();
        let mut done = 0;
        while let Some(first) = changes.get(done) {
            if let Some(wide) = first.selects() {
                let result = self.change_wide(&mut writer, id, &mut pending, wide);
                refused.extend(result.err().map(|error| (done, error)));
                done += 1;
                continue;
            }
            let small =
                changes[done..].iter().take(ADDED_AT_ONCE).take_while(|change| change.selects().is_none()).count();
            let chunk = &changes[done..done + small];
            pending.reserve(chunk.len());
            self.change(&mut writer, |state| {
                in_chunk(state, id, chunk.len(), |state| {
                    let bridge = state.bridge_mut(id).expect(STAYS);
                    for (i, change) in chunk.iter().enumerate() {
                        if let Err(error) = pending.apply(bridge, change) {
                            refused.push((done + i, error));
                        }
                    }
                });
            });
            done += small;
        }
        Ok((self.commit(&mut writer, id, pending), refused))
    }

    fn change_wide(
        &self,
        writer: &mut Writer,
        id: BridgeId,
        pending: &mut PendingTransaction,
        wide: WideChange<'_>,
    ) -> Result<(), Error> {
        match wide {
            WideChange::Rules(fm) => self.change_selected(writer, id, pending, fm),
            WideChange::Groups(gm) => self.delete_groups(writer, id, pending, gm),
        }
    }

    /// Deletes groups, and the rules that use them: found in one pass, however many groups there are.
    fn delete_groups(
        &self,
        writer: &mut Writer,
        id: BridgeId,
        pending: &mut PendingTransaction,
        gm: &GroupMod,
    ) -> Result<(), Error> {
        let users = {
            let state = self.state();
            let bridge = state.bridge(id).expect(STAYS);
            let gone: HashSet<u32> = pending.apply_group(bridge, gm)?.into_iter().collect();
            if gone.is_empty() {
                return Ok(());
            }
            bridge.users.of(gone.into_iter().map(Used::Group))
        };
        self.hide_all(writer, id, pending, DeletedRules { places: &users, reason: FlowRemovedReason::GroupDelete });
        Ok(())
    }

    /// Deletes the rules that use one of these meters.
    pub(crate) fn hide_users_of_meters(
        &self,
        writer: &mut Writer,
        id: BridgeId,
        pending: &mut PendingTransaction,
        meters: &HashSet<u32>,
    ) {
        let meters = meters.iter().map(|meter| Used::Meter(*meter));
        let users = self.state().bridge(id).map(|bridge| bridge.users.of(meters)).unwrap_or_default();
        self.hide_all(writer, id, pending, DeletedRules { places: &users, reason: FlowRemovedReason::MeterDelete });
    }

    /// Makes a change that may select many rules. They are found under the lock for reading, which lets PMDs translate,
    /// and changed in pieces: nobody else changes rules meanwhile, since the caller holds the writer's lock.
    fn change_selected(
        &self,
        writer: &mut Writer,
        id: BridgeId,
        pending: &mut PendingTransaction,
        fm: &FlowMod,
    ) -> Result<(), Error> {
        if let Some(table) = fm.table.filter(|&table| table != 255) {
            check_table(table)?;
        }
        let deletes = fm.command == FlowCommand::Delete;
        let selected = self.state().bridge(id).map(|bridge| select(bridge, fm, false, deletes)).unwrap_or_default();
        if deletes {
            self.hide_all(writer, id, pending, DeletedRules { places: &selected, reason: FlowRemovedReason::Delete });
            return Ok(());
        }
        let places = Selected::new(self.state().bridge(id).expect(STAYS), &selected);
        let begun = self.change(writer, |state| pending.begin_modify(state.bridge_mut(id).expect(STAYS), fm, places));
        let Some(actions) = begun? else { return Ok(()) };
        for piece in selected.chunks(CHUNK) {
            pending.reserve(piece.len());
            self.change(writer, |state| {
                in_chunk(state, id, piece.len(), |state| {
                    pending.modify_selected(state.bridge_mut(id).expect(STAYS), fm, &actions, piece);
                });
            });
        }
        Ok(())
    }

    /// Hides rules that a request deletes, in pieces.
    fn hide_all(
        &self,
        writer: &mut Writer,
        id: BridgeId,
        pending: &mut PendingTransaction,
        DeletedRules { places, reason }: DeletedRules<'_>,
    ) {
        pending.reserve_hidden(places.len());
        for piece in places.chunks(CHUNK) {
            pending.reserve(piece.len());
            self.change(writer, |state| {
                let bridge = state.bridge_mut(id).expect(STAYS);
                piece.iter().for_each(|&(table, rule)| pending.hide(bridge, table, rule, Some(reason)));
            });
        }
    }

    /// The bridge of that name.
    pub(crate) fn bridge_id(&self, name: &str) -> Result<BridgeId, Error> {
        let state = self.state();
        Ok(state.bridges[position(&state, name)?].id)
    }

    /// Makes a transaction visible, then removes the rules that it hid, and those that they had learned.
    pub(crate) fn commit(&self, writer: &mut Writer, id: BridgeId, pending: PendingTransaction) -> FlowModCounts {
        let now_ms = pending.now_ms;
        let mut changed = pending.changed;
        let mut next = Some(pending);
        while let Some(mut pending) = next.take() {
            let mut changes = std::mem::take(&mut pending.changes);
            if let Some((groups, bridge)) = pending.groups.as_ref().zip(self.state().bridge(id)) {
                changes.add_groups(id, &bridge.groups, groups);
            }
            let mut crossed = Vec::new();
            let dead = self.change(writer, |state| {
                state.tables_version = pending.version;
                let Some(bridge) = state.bridge_mut(id) else { return Vec::new() };
                // The old ones go when the lock is free again.
                if let Some(groups) = &mut pending.groups {
                    std::mem::swap(groups, &mut bridge.groups);
                }
                crossed.extend(bridge.vacancy_events());
                pending.count_learners(bridge)
            });
            // If nobody takes them, the oldest are lost.
            let vacancy_events = &mut writer.vacancy_events;
            vacancy_events.extend(crossed);
            let lost = vacancy_events.len().saturating_sub(VACANCY_EVENTS_MAX);
            vacancy_events.drain(..lost);
            Limit::VacancyEvents.hit_times(lost);
            self.0.pending_events.note(writer);
            self.announce(&changes);
            self.publish_updates(id, &mut pending);
            self.remove_hidden(writer, id, pending.hidden, now_ms);
            if !dead.is_empty() {
                let mut learned = self.begin(writer, id, pending.by, now_ms);
                let rules: Vec<RulePlace> = {
                    let state = self.state();
                    state.bridge(id).map(|bridge| learned_with(bridge, &dead)).unwrap_or_default()
                };
                let learned_rules = DeletedRules { places: &rules, reason: FlowRemovedReason::Delete };
                self.hide_all(writer, id, &mut learned, learned_rules);
                changed.deleted += learned.changed.deleted;
                next = (!learned.hidden.is_empty()).then_some(learned);
            }
        }
        changed
    }

    /// Removes rules that no lookup can see any more. What they took is freed later.
    fn remove_hidden(&self, writer: &mut Writer, id: BridgeId, mut hidden: Vec<HiddenRule>, now_ms: u64) {
        let mut emptied = Vec::new();
        let whole = self.take_hidden_tables(writer, id, &hidden);
        let is_left = |h: &&HiddenRule| whole.iter().all(|(table, _)| *table != h.table);
        for chunk in hidden.chunks(CHUNK).filter(|chunk| chunk.iter().any(|h| is_left(&h))) {
            self.change(writer, |state| {
                let Some(bridge) = state.bridge_mut(id) else { return };
                let left = chunk.iter().filter(is_left);
                left.for_each(|h| bridge.tables[usize::from(h.table)].remove(h.id, &mut emptied));
            });
        }
        for h in &mut hidden {
            if let Some(reason) = h.reason {
                writer.removed.note(id, h.matches.take().map(|matches| *matches), &h.rule, reason, now_ms);
            }
        }
        writer.postponed_free.add(hidden, whole, emptied, now_ms);
        self.0.pending_events.note(writer);
    }

    /// Takes away the rules of tables that have none but these hidden ones: that takes a moment, however many they are.
    fn take_hidden_tables(&self, writer: &mut Writer, id: BridgeId, hidden: &[HiddenRule]) -> Vec<(u8, Box<Rules>)> {
        let mut counts = [0; N_TABLES];
        hidden.iter().for_each(|h| counts[usize::from(h.table)] += 1);
        let whole: Vec<u8> = {
            let state = self.state();
            let Some(bridge) = state.bridge(id) else { return Vec::new() };
            let is_whole = |table: &u8| {
                let count = counts[usize::from(*table)];
                count > CHUNK && rules_of(bridge, *table).is_some_and(|rules| rules.len() == count)
            };
            (0..N_TABLES as u8).filter(is_whole).collect()
        };
        if whole.is_empty() {
            return Vec::new();
        }
        self.change(writer, |state| {
            let bridge = state.bridge_mut(id).expect(STAYS);
            whole.iter().filter_map(|&table| Some((table, bridge.tables[usize::from(table)].take_rules()?))).collect()
        })
    }

    /// Removes rules whose timeout is over, a bounded number; the next call goes on. Returns how many.
    pub(crate) fn expire_rules(&self, writer: &mut Writer, now_ms: u64) -> usize {
        let is_due = |bridge: &&Bridge| bridge.expirable.due(now_ms).is_some();
        let due: Vec<BridgeId> = self.state().bridges.iter().filter(is_due).map(|bridge| bridge.id).collect();
        let mut count = 0;
        for id in due {
            let mut pending = self.begin(writer, id, None, now_ms);
            let mut expired = Vec::with_capacity(CHUNK);
            for _ in 0..EXPIRED_MAX / CHUNK {
                pending.reserve(CHUNK);
                let looked = self.change(writer, |state| {
                    let Some(bridge) = state.bridge_mut(id) else { return 0 };
                    let looked = bridge.take_expired(now_ms, CHUNK, &mut expired);
                    for rule in expired.drain(..) {
                        pending.hide(bridge, rule.table, rule.id, Some(rule.reason));
                    }
                    looked
                });
                if looked < CHUNK {
                    break;
                }
            }
            if !pending.hidden.is_empty() {
                count += self.commit(writer, id, pending).deleted;
            }
        }
        count
    }

    /// Adds or refreshes the rules that packets of a bridge have taught it. Those that are there already are refreshed
    /// under the lock for reading; the others are added in pieces, and become visible at once.
    pub(crate) fn learn(&self, writer: &mut Writer, flows: &[LearnedFlow]) {
        let Some(id) = flows.first().map(|flow| flow.bridge).filter(|id| self.state().bridge(*id).is_some()) else {
            return;
        };
        let mut pending = self.begin(writer, id, None, 0);
        let mut left = flows;
        loop {
            let known =
                self.state().bridge(id).map_or(0, |bridge| left.iter().take_while(|f| f.refresh(bridge)).count());
            left = &left[known..];
            let piece = &left[..left.len().min(CHUNK)];
            if piece.is_empty() {
                break;
            }
            pending.reserve(piece.len());
            self.change(writer, |state| {
                in_chunk(state, id, piece.len(), |state| {
                    let bridge = state.bridge_mut(id).expect(STAYS);
                    for LearnedFlow { port, flow, limit, now_ms, .. } in piece {
                        pending.now_ms = *now_ms;
                        pending.memory = self.0.rule_memory.share(id, RuleOwner::Packets(*port));
                        // A rule that the tables refuse is not learned.
                        let _ = pending.learn(bridge, flow, *limit);
                    }
                });
            });
            left = &left[piece.len()..];
        }
        if !pending.added.is_empty() || !pending.hidden.is_empty() {
            self.commit(writer, id, pending);
        }
    }

    /// Lowers a rule's timeouts because a TCP connection is closing.
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
            if let Some(expiry_ms) = rule.expiry_ms().filter(|_| there) {
                bridge.expirable.insert((rule.table, rule_id), expiry_ms);
            }
        });
    }
}

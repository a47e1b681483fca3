//! Requests about rules and groups: changes and listings.

use crate::action_refs::groups_of;
use crate::bridge::{Bridge, SwitchState};
use crate::bridge_config::BridgeId;
use crate::bridges::position;
use crate::controller::{ExecuteRequest, PreparedPacket};
use crate::error::Error;
use crate::flow_mod::{BundleChange, FlowModCounts, PendingTransaction};
use crate::group::GroupEntry;
use crate::ofproto::Ofproto;
use crate::rule::Rule;
use crate::rule_memory::RuleOwner;
use crate::rule_monitor::Requester;
use crate::rule_select::{RuleSearch, is_same, rules_of, select};
use crate::transaction::STAYS;
use sluice_classifier::{LATEST, RuleId};
use sluice_fate::Limit;
use sluice_flow::Match;
use sluice_ofp::{FlowCommand, FlowMod, GroupMod, OfAction};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A rule with its match, copied out of its table.
#[derive(Clone, Debug)]
pub struct RuleEntry {
    /// Its match.
    pub matches: Match,
    /// Everything else.
    pub rule: Arc<Rule>,
}

/// Counters of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// The table's number.
    pub table: u8,
    /// Number of rules, without hidden ones.
    pub rules: usize,
    /// Searches that found a rule.
    pub matched: u64,
    /// Searches that found none.
    pub missed: u64,
}

/// Groups that are copied while nothing can change.
const GROUPS_AT_ONCE: usize = 64;

/// Actions and effects of a bundle's packets, which are kept until all of it is carried out: some 20 MB.
const BUNDLED_ENTRIES_MAX: usize = 1 << 18;

/// Rules that are looked through while nothing can change: less than a millisecond's.
pub(crate) const RULES_AT_ONCE: u32 = 1 << 12;

/// How many rules use a group or meter, by its number.
pub type Users = HashMap<u32, u32>;

/// Rules.
impl Ofproto {
    /// Makes one change of rules.
    pub fn flow_mod(&self, bridge: &str, fm: &FlowMod, now_ms: u64) -> Result<FlowModCounts, Error> {
        self.transact(bridge, [fm], None, now_ms, apply).map_err(|(_, error)| error)
    }

    /// Makes all changes of rules or none; they become visible at once.
    pub fn bundle(&self, bridge: &str, mods: &[FlowMod], now_ms: u64) -> Result<FlowModCounts, Error> {
        let in_bundle = |(i, error): (usize, Error)| Error::InBundle { index: i + 1, error: Box::new(error) };
        self.transact(bridge, mods, None, now_ms, apply).map_err(in_bundle)
    }

    /// Replaces a bridge's rules by `flows`. Rules that are the same stay, with their counters. The index in an error
    /// counts in `flows`.
    pub fn replace_flows(&self, bridge: &str, flows: &[FlowMod], now_ms: u64) -> Result<FlowModCounts, Error> {
        let (mods, origins) = {
            let state = self.state();
            difference(&state.bridges[position(&state, bridge)?], flows)
        };
        let changed = self.transact(bridge, &mods, None, now_ms, apply);
        changed.map_err(|(i, error)| match origins.get(i) {
            Some(origin) => Error::InBundle { index: origin + 1, error: Box::new(error) },
            None => error,
        })
    }

    /// A bridge's rules that `wanted` selects by table, match, cookie and output port, with their matches. In the order
    /// of OVS's dumps. The memory is that of all matches: where there may be many rules, [`Ofproto::select`] and
    /// [`Ofproto::entries`] take less at a time.
    pub fn rules(&self, bridge: &str, wanted: &FlowMod) -> Result<Vec<RuleEntry>, Error> {
        let rules = self.select(bridge, wanted)?;
        let mut entries = Vec::with_capacity(rules.len());
        for some in rules.chunks(RULES_AT_ONCE as usize) {
            entries.extend(self.entries(bridge, some)?);
        }
        Ok(entries)
    }

    /// The same without matches, which need most of the memory. [`Ofproto::entries`] adds them. The rules are looked through
    /// in pieces, and changes are made in between: a rule that comes or goes meanwhile may be there or not.
    pub fn select(&self, bridge: &str, wanted: &FlowMod) -> Result<Vec<Arc<Rule>>, Error> {
        self.select_in_pieces(bridge, wanted, |_| ())
    }

    /// [`Ofproto::select`]; `between` hears after each piece, while nothing is locked, how many steps it took.
    pub(crate) fn select_in_pieces(
        &self,
        bridge: &str,
        wanted: &FlowMod,
        mut between: impl FnMut(usize),
    ) -> Result<Vec<Arc<Rule>>, Error> {
        if wanted.command == FlowCommand::DeleteStrict {
            let state = self.state();
            let bridge = &state.bridges[position(&state, bridge)?];
            let rules = select(bridge, wanted, true, true).into_iter().filter_map(|(table, id)| {
                let found = rules_of(bridge, table)?.rule(id)?;
                found.is_visible(state.tables_version).then(|| Arc::clone(found.payload()))
            });
            return Ok(rules.collect());
        }
        let (mut search, mut rules) = (RuleSearch::new(wanted), Vec::new());
        loop {
            let mut steps = RULES_AT_ONCE as usize;
            // Grown before the tables are locked.
            rules.reserve(steps);
            let is_done = {
                let state = self.state();
                let bridge = &state.bridges[position(&state, bridge)?];
                search.go_on(bridge, state.tables_version, &mut steps, |rule| rules.push(Arc::clone(rule)))
            };
            between(RULES_AT_ONCE as usize - steps);
            if is_done {
                return Ok(rules);
            }
        }
    }

    /// Rules with their matches. Rules that were removed meanwhile are left out. Nothing changes meanwhile: callers ask for
    /// some at a time.
    pub fn entries(&self, bridge: &str, rules: &[Arc<Rule>]) -> Result<Vec<RuleEntry>, Error> {
        let state = self.state();
        let bridge = &state.bridges[position(&state, bridge)?];
        let entries = rules.iter().filter_map(|rule| {
            let in_table = rules_of(bridge, rule.table)?;
            let found = in_table.rule(*rule.id.get()?).filter(|found| Arc::ptr_eq(found.payload(), rule))?;
            Some(RuleEntry { matches: in_table.match_of(found), rule: Arc::clone(rule) })
        });
        Ok(entries.collect())
    }

    /// Some rules, the first `n` found, and how many there are. What it costs depends on `n` alone.
    pub fn some_rules(&self, bridge: &str, n: usize) -> Result<(Vec<RuleEntry>, usize), Error> {
        let count = self.table_stats(bridge)?.iter().map(|table| table.rules).sum();
        let state = self.state();
        let bridge = &state.bridges[position(&state, bridge)?];
        let tables = bridge.tables.iter().filter_map(|table| table.rules.as_ref());
        let entries = tables.flat_map(|table| {
            let visible = table.iter(LATEST).filter(|rule| rule.payload().openflow_priority().is_some());
            visible.map(|rule| RuleEntry { matches: table.match_of(rule), rule: Arc::clone(rule.payload()) })
        });
        Ok((entries.take(n).collect(), count))
    }

    /// The counters of each table that has rules or was searched.
    pub fn table_stats(&self, bridge: &str) -> Result<Vec<TableStats>, Error> {
        let state = self.state();
        let at = position(&state, bridge)?;
        let rows = state.bridges[at].tables.iter().enumerate().map(|(i, table)| {
            let (matched, missed) = table.counts.read();
            let hidden = if i == 0 { state.bridges[at].hidden_flows.len() } else { 0 };
            let rules = table.rules.as_ref().map_or(0, |r| r.len()).saturating_sub(hidden);
            TableStats { table: i as u8, rules, matched, missed }
        });
        Ok(rows.filter(|t| t.rules != 0 || t.matched != 0 || t.missed != 0).collect())
    }

    /// Makes one change of the groups.
    pub fn group_mod(&self, bridge: &str, gm: &GroupMod, now_ms: u64) -> Result<FlowModCounts, Error> {
        self.group_mod_of(bridge, gm, RuleOwner::Operator, now_ms)
    }

    /// Makes one change of the groups, which belong to that owner.
    pub fn group_mod_of(
        &self,
        bridge: &str,
        gm: &GroupMod,
        owner: RuleOwner,
        now_ms: u64,
    ) -> Result<FlowModCounts, Error> {
        let changes = [BundleChange::Group(gm.clone())];
        let changed = self.transact(bridge, changes, None, now_ms, |pending, state, id, _| {
            pending.memory = self.0.rule_memory.share(id, owner);
            pending.apply_group(state.bridge(id).expect(STAYS), gm).map(drop)
        });
        changed.map_err(|(_, error)| error)
    }

    /// Makes all changes of rules and groups, in order, or none; they become visible at once. An error comes with the
    /// index of the refused change. Packets among the changes are translated by the tables as they are at that point;
    /// the caller sends them.
    pub fn ordered_bundle(
        &self,
        bridge: &str,
        changes: impl IntoIterator<Item = BundleChange>,
        by: Option<Requester>,
        now_ms: u64,
    ) -> Result<(FlowModCounts, Vec<ExecuteRequest>), (usize, Error)> {
        let (mut packets, mut entries) = (Vec::<PreparedPacket>::new(), 0);
        let changed = self.transact(bridge, changes, by, now_ms, |pending, state, id, change| match change {
            BundleChange::Flow(fm) => pending.apply(state.bridge_mut(id).expect(STAYS), fm),
            BundleChange::Group(gm) => pending.apply_group(state.bridge(id).expect(STAYS), gm).map(drop),
            BundleChange::Packet(packet) => {
                let prepared = pending.as_of(state, id, |state| packet.prepare(state, &self.0, id, now_ms))?;
                entries += prepared.entries();
                if entries > BUNDLED_ENTRIES_MAX {
                    Limit::BundledPackets.hit();
                    return Err(Error::BundledPackets(BUNDLED_ENTRIES_MAX));
                }
                packets.push(prepared);
                Ok(())
            }
        })?;
        Ok((changed, packets.into_iter().map(|packet| self.credit(packet)).collect()))
    }

    /// A bridge's groups, by number. Where there may be many, [`Ofproto::group_entries`] takes less memory at a time.
    pub fn groups(&self, bridge: &str) -> Result<Vec<GroupEntry>, Error> {
        let (ids, users) = (self.group_ids(bridge)?, self.group_users(bridge)?);
        let mut entries = Vec::with_capacity(ids.len());
        for some in ids.chunks(GROUPS_AT_ONCE) {
            entries.extend(self.group_entries(bridge, some, &users)?);
        }
        Ok(entries)
    }

    /// The numbers of a bridge's groups, in order.
    pub fn group_ids(&self, bridge: &str) -> Result<Vec<u32>, Error> {
        let state = self.state();
        Ok(state.bridges[position(&state, bridge)?].groups.ids())
    }

    /// How many rules use each of a bridge's groups.
    pub fn group_users(&self, bridge: &str) -> Result<Users, Error> {
        match self.group_ids(bridge)?.is_empty() {
            true => Ok(Users::new()),
            false => self.users(bridge, |actions| groups_of(actions).collect()),
        }
    }

    /// How many rules use each thing that `of` finds in their actions. The rules are looked through in pieces, and changes
    /// are made in between: with a million rules it takes a good part of a second.
    pub(crate) fn users(&self, bridge: &str, of: impl Fn(&[OfAction]) -> BTreeSet<u32>) -> Result<Users, Error> {
        let mut users = Users::new();
        for table in 0..=u8::MAX {
            let mut next = 0;
            loop {
                let state = self.state();
                let bridge = &state.bridges[position(&state, bridge)?];
                let Some(rules) = bridge.tables.get(usize::from(table)).and_then(|table| table.rules.as_deref()) else {
                    break;
                };
                let end = rules.ids_end().min(next + RULES_AT_ONCE);
                let visible = (next..end).filter_map(|id| rules.rule(RuleId(id)));
                for rule in visible.filter(|rule| rule.is_visible(state.tables_version)) {
                    of(&rule.payload().actions).into_iter().for_each(|used| *users.entry(used).or_default() += 1);
                }
                if end == rules.ids_end() {
                    break;
                }
                next = end;
            }
        }
        Ok(users)
    }

    /// Those of some groups that there are, with their users.
    pub fn group_entries(&self, bridge: &str, ids: &[u32], users: &Users) -> Result<Vec<GroupEntry>, Error> {
        let state = self.state();
        let groups = &state.bridges[position(&state, bridge)?].groups;
        let found = ids.iter().filter_map(|id| groups.get(id));
        Ok(found.map(|group| group.entry(users.get(&group.id).copied().unwrap_or(0))).collect())
    }
}

/// Makes one change of a bridge's rules within a transaction.
fn apply(
    pending: &mut PendingTransaction,
    state: &mut SwitchState,
    bridge: BridgeId,
    fm: &&FlowMod,
) -> Result<(), Error> {
    pending.apply(state.bridge_mut(bridge).expect(STAYS), fm)
}

/// The changes that turn a bridge's rules into `flows`: first the additions, with the index of each in `flows`.
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
            let Some(priority) = rule.payload().openflow_priority() else { continue };
            (fm.table, fm.priority, fm.matches) = (Some(table), priority, rules.match_of(rule));
            mods.push(fm);
        }
    }
    (mods, origins)
}

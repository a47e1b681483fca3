//! Finding rules of a bridge: those that a request selects, and those that a change would add.

use crate::action_refs::{outputs_to, sends_to_group};
use crate::bridge::{Bridge, LearnedCookie, Rules};
use crate::bridge_config::N_TABLES;
use crate::expiry::RulePlace;
use crate::rule::Rule;
use sluice_classifier::{Criteria, LATEST, RuleId};
use sluice_flow::OfPort;
use sluice_ofp::{FlowMod, OfAction};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The rules of a table, if it has any.
pub(crate) fn rules_of(bridge: &Bridge, table: u8) -> Option<&Rules> {
    bridge.tables[usize::from(table)].rules.as_deref()
}

/// The rules that a modification or deletion selects, table by table.
pub(crate) fn select(bridge: &Bridge, fm: &FlowMod, strict: bool, by_output: bool) -> Vec<(u8, RuleId)> {
    let tables = match fm.table.filter(|&t| t != 255) {
        Some(table) => table..=table,
        None => 0..=(N_TABLES as u8 - 1),
    };
    let criteria = Criteria::new(&fm.matches);
    let wanted = |rule: &Arc<Rule>| {
        rule.openflow_priority().is_some()
            && (rule.cookie ^ fm.cookie) & fm.cookie_mask == 0
            && (!by_output || fm.out_port.is_none_or(|port| port == OfPort::NONE || outputs_to(&rule.actions, port)))
            && (!by_output || fm.out_group.is_none_or(|group| sends_to_group(&rule.actions, group)))
    };
    let mut out = Vec::new();
    for table in tables {
        let Some(rules) = rules_of(bridge, table) else { continue };
        if strict {
            let found = rules.find_exact(&fm.matches, fm.priority.into(), LATEST);
            out.extend(found.filter(|r| wanted(r.payload())).map(|r| (table, r.id())));
        } else {
            out.extend(rules.covered(&criteria, LATEST).filter(|r| wanted(r.payload())).map(|r| (table, r.id())));
        }
    }
    out
}

/// The rules with such actions.
pub(crate) fn with_actions(bridge: &Bridge, wanted: impl Fn(&[OfAction]) -> bool) -> Vec<RulePlace> {
    let tables = (0..N_TABLES as u8).filter_map(|table| Some((table, rules_of(bridge, table)?)));
    let rules = tables.flat_map(|(table, rules)| rules.iter(LATEST).map(move |rule| (table, rule)));
    rules.filter(|(_, rule)| wanted(&rule.payload().actions)).map(|(table, rule)| (table, rule.id())).collect()
}

/// The rules that were learned into tables with such cookies. Each table is looked through once.
pub(crate) fn learned_with(bridge: &Bridge, learned: &[LearnedCookie]) -> Vec<RulePlace> {
    let mut cookies = BTreeMap::<u8, HashSet<u64>>::new();
    learned.iter().for_each(|one| _ = cookies.entry(one.table).or_default().insert(one.cookie));
    let tables = cookies.iter().filter_map(|(table, cookies)| Some((*table, cookies, rules_of(bridge, *table)?)));
    let places = tables.flat_map(|(table, cookies, rules)| {
        let learned = rules.iter(LATEST).filter(|rule| cookies.contains(&rule.payload().cookie));
        learned.map(move |rule| (table, rule.id()))
    });
    places.collect()
}

/// Whether `replace-flows` leaves a rule as it is, with its counters.
pub(crate) fn is_same(rule: &Rule, fm: &FlowMod) -> bool {
    rule.cookie == fm.new_cookie.unwrap_or(0)
        && rule.idle_timeout() == fm.idle_timeout
        && rule.hard_timeout() == fm.hard_timeout
        && rule.importance == fm.importance
        && *rule.actions == *fm.actions
}

/// The rule that a `learn` would add, if an identical one exists. Its timeouts may differ: a modification keeps them,
/// and `fin_timeout` may have lowered them. Where a limit is checked, such a rule counts as another one, as in OVS.
pub(crate) fn is_learned<'b>(bridge: &'b Bridge, fm: &FlowMod, limit: u32, version: u64) -> Option<&'b Arc<Rule>> {
    let found = rules_of(bridge, fm.table?)?.find_exact(&fm.matches, fm.priority.into(), version)?;
    let same = |rule: &Rule| {
        let timeouts = (rule.idle_timeout(), rule.hard_timeout());
        rule.cookie == fm.new_cookie.unwrap_or(0)
            && rule.flags == fm.flags
            && *rule.actions == *fm.actions
            && (limit == 0 || timeouts == (fm.idle_timeout, fm.hard_timeout))
    };
    Some(found.payload()).filter(|rule| same(rule))
}

/// Whether a table has at least `limit` rules with a cookie.
pub(crate) fn has_at_least(rules: &Rules, cookie: u64, limit: u32) -> bool {
    rules.iter(LATEST).filter(|r| r.payload().cookie == cookie).take(limit as usize).count() == limit as usize
}

//! The clauses that completed a conjunction, for traces. The classifier reports only the final rule, so they are
//! searched for here, rule by rule.

use super::Translator;
use crate::rule::Rule;
use sluice_flow::{FieldId, FlowKey, Match};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// A rule that provides a clause.
pub(super) struct ConjunctionClause {
    matches: Match,
    priority: u32,
}

impl ConjunctionClause {
    /// As OVS 4 prints it.
    pub fn display(&self, names: &sluice_flow::PortNames) -> impl Display {
        self.matches.display(names, self.priority).to_string()
    }
}

impl Translator<'_> {
    /// The clauses that led a packet with this key to `rule`, by number; none if `rule` does not match a conjunction.
    pub(super) fn clauses(&self, rule: &Rule, key: &FlowKey) -> Vec<ConjunctionClause> {
        let (id, mask) = self.match_of(rule).map_or((0, 0), |matches| matches.field(FieldId::ConjId));
        let Some(rules) = self.bridge.tables[usize::from(rule.table)].rules.as_deref().filter(|_| mask != 0) else {
            return Vec::new();
        };
        // For each priority, the clauses with their numbers.
        let mut matched: BTreeMap<u32, Vec<(u8, ConjunctionClause)>> = BTreeMap::new();
        let mut wanted = BTreeMap::new();
        for rule in rules.iter(self.state.tables_version) {
            let Some(part) = rule.conjunctions().iter().find(|part| u128::from(part.id) == id) else { continue };
            let matches = rules.match_of(rule);
            if key.matches(&matches.mask, &matches.key) {
                let priority = rule.priority();
                wanted.insert(priority, usize::from(part.n_clauses));
                let clause = ConjunctionClause { matches, priority };
                matched.entry(priority).or_default().push((part.clause, clause));
            }
        }
        let is_complete = |priority: &u32, clauses: &[(u8, ConjunctionClause)]| {
            let numbers: BTreeSet<u8> = clauses.iter().map(|(number, _)| *number).collect();
            Some(&numbers.len()) == wanted.get(priority)
        };
        let complete = matched.into_iter().rev().find(|(priority, clauses)| is_complete(priority, clauses));
        let mut clauses = complete.map(|(_, clauses)| clauses).unwrap_or_default();
        clauses.sort_by_key(|(number, _)| *number);
        clauses.into_iter().map(|(_, clause)| clause).collect()
    }
}

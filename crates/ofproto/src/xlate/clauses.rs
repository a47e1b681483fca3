//! Which rules made a conjunction whole, for traces. The classifier tells which rule it led to; here its clauses are sought
//! again, rule by rule.

use super::Translator;
use crate::rule::Rule;
use sluice_flow::{FieldId, FlowKey, Match};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// A rule that is a clause.
pub(super) struct ConjunctionClause {
    matches: Match,
    priority: u16,
}

impl ConjunctionClause {
    /// As OVS 4 prints it.
    pub fn display(&self, names: &sluice_flow::PortNames) -> impl Display {
        self.matches.display(names, self.priority).to_string()
    }
}

impl Translator<'_> {
    /// The clauses that a packet of this key met so that it came to `rule`, in the order of their numbers; none if `rule` is
    /// no conjunction's.
    pub(super) fn clauses(&self, rule: &Rule, key: &FlowKey) -> Vec<ConjunctionClause> {
        let (id, mask) = self.match_of(rule).map_or((0, 0), |matches| matches.field(FieldId::ConjId));
        let Some(rules) = self.bridge.tables[usize::from(rule.table)].rules.as_deref().filter(|_| mask != 0) else {
            return Vec::new();
        };
        // By priority: each clause with its number.
        let mut met: BTreeMap<u32, Vec<(u8, ConjunctionClause)>> = BTreeMap::new();
        let mut wanted = BTreeMap::new();
        for rule in rules.iter(self.state.tables_version) {
            let Some(part) = rule.conjunctions().iter().find(|part| u128::from(part.id) == id) else { continue };
            let matches = rules.match_of(rule);
            if key.matches(&matches.mask, &matches.key) {
                let priority = rule.priority();
                wanted.insert(priority, usize::from(part.n_clauses));
                let clause = ConjunctionClause { matches, priority: priority as u16 };
                met.entry(priority).or_default().push((part.clause, clause));
            }
        }
        let is_whole = |priority: &u32, clauses: &[(u8, ConjunctionClause)]| {
            let numbers: BTreeSet<u8> = clauses.iter().map(|(number, _)| *number).collect();
            Some(&numbers.len()) == wanted.get(priority)
        };
        let whole = met.into_iter().rev().find(|(priority, clauses)| is_whole(priority, clauses));
        let mut clauses = whole.map(|(_, clauses)| clauses).unwrap_or_default();
        clauses.sort_by_key(|(number, _)| *number);
        clauses.into_iter().map(|(_, clause)| clause).collect()
    }
}

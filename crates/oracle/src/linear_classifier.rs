//! A table as a list of rules: the specification of `sluice-classifier`.

use sluice_flow::layout;
use sluice_flow::{FlowKey, Match};

/// A rule's part in a conjunctive match: clause `clause` (from 0) of `n_clauses` of conjunction `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Clause {
    /// The conjunction.
    pub id: u32,
    /// Which clause, from 0.
    pub clause: u8,
    /// How many clauses the conjunction has.
    pub n_clauses: u8,
}

/// A rule.
#[derive(Clone, Debug)]
pub struct LinearRule<R> {
    /// What it matches.
    pub matching: Match,
    /// Higher wins.
    pub priority: u32,
    /// The first version that sees it.
    pub add_version: u64,
    /// The first version that no longer sees it.
    pub remove_version: u64,
    /// Its clauses; empty for an ordinary rule.
    pub clauses: Vec<Clause>,
    /// Identifies it.
    pub payload: R,
}

/// Rules in no order.
#[derive(Clone, Debug)]
pub struct LinearClassifier<R> {
    /// The rules.
    pub rules: Vec<LinearRule<R>>,
}

impl<R> Default for LinearClassifier<R> {
    fn default() -> Self {
        LinearClassifier { rules: Vec::new() }
    }
}

impl<R: PartialEq> LinearClassifier<R> {
    /// Adds a rule. It replaces a rule of the same match and priority, unless that is already marked for removal.
    pub fn insert(&mut self, rule: LinearRule<R>) {
        self.rules.retain(|old| {
            old.matching != rule.matching || old.priority != rule.priority || old.remove_version != u64::MAX
        });
        self.rules.push(rule);
    }

    /// The rules that may match `key` at `version`. More than one only if rules of equal priority overlap, or if
    /// several conjunctions are complete at one priority.
    pub fn winners(&self, key: &FlowKey, version: u64) -> Vec<&LinearRule<R>> {
        let matching = self.matching(key, version);
        let mut priorities: Vec<u32> = matching.iter().map(|rule| rule.priority).collect();
        priorities.sort_unstable();
        priorities.dedup();
        for priority in priorities.into_iter().rev() {
            let (soft, ordinary): (Vec<&LinearRule<R>>, Vec<&LinearRule<R>>) = matching
                .iter()
                .copied()
                .filter(|rule| rule.priority == priority)
                .partition(|rule| !rule.clauses.is_empty());
            if !ordinary.is_empty() {
                return ordinary;
            }
            let found: Vec<_> =
                complete(&soft).into_iter().flat_map(|id| self.ordinary_winners(key, version, id)).collect();
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    fn matching(&self, key: &FlowKey, version: u64) -> Vec<&LinearRule<R>> {
        self.rules
            .iter()
            .filter(|rule| rule.add_version <= version && version < rule.remove_version)
            .filter(|rule| rule.matching.contains(key))
            .collect()
    }

    /// The best ordinary rules for the key with this conjunction id. As in Open vSwitch, a rule is hidden by a rule
    /// with clauses, the same match and a higher priority.
    fn ordinary_winners(&self, key: &FlowKey, version: u64, conj_id: u32) -> Vec<&LinearRule<R>> {
        let mut key = key.clone();
        key.set_number(layout::CONJ_ID, conj_id.into());
        let matching = self.matching(&key, version);
        let is_hidden = |rule: &LinearRule<R>| {
            let mut soft = matching.iter().filter(|other| !other.clauses.is_empty());
            soft.any(|soft| soft.matching == rule.matching && soft.priority > rule.priority)
        };
        let mut ordinary = matching.clone();
        ordinary.retain(|rule| rule.clauses.is_empty() && !is_hidden(rule));
        let best = ordinary.iter().map(|rule| rule.priority).max();
        ordinary.retain(|rule| Some(rule.priority) == best);
        ordinary
    }
}

/// The conjunctions of which these rules contain all clauses.
fn complete<R>(rules: &[&LinearRule<R>]) -> Vec<u32> {
    let clauses: Vec<Clause> = rules.iter().flat_map(|rule| rule.clauses.iter().copied()).collect();
    let mut ids: Vec<u32> = clauses.iter().map(|c| c.id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|&id| {
        let of_id: Vec<_> = clauses.iter().filter(|c| c.id == id).collect();
        (0..of_id[0].n_clauses).all(|n| of_id.iter().any(|c| c.clause == n))
    });
    ids
}

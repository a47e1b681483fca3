//! Conjunctive matches: rules that match only together.
//!
//! A rule with conjunctions is a *soft* match: it provides one clause of each. When all clauses of a conjunction have
//! soft matches of the same priority, the key is looked up again with the conjunction's id in `conj_id`, and the rule
//! found there is the answer. As in OVS, that second lookup ignores soft matches and the rules below them in their
//! chains. Otherwise the search goes on at the next lower priority: a soft match may be replaced by the next rule of
//! its chain, and an ordinary rule found before may win.
//!
//! Two corner cases follow the documentation of OVS, not its code: a conjunction of 64 clauses needs all 64, and a
//! rule's further conjunctions count even if one of them was complete and then found no rule.

use crate::rule::{Conjunction, Rule, Slab};

/// The soft matches of a lookup.
pub(crate) struct SoftMatches<'a, R> {
    rules: Vec<&'a Rule<R>>,
}

/// The conjunctions seen at one priority, each with the clauses that are still missing.
struct MissingClauses(Vec<(u32, u64)>);

impl MissingClauses {
    /// Records a clause; whether its conjunction is complete now.
    fn note(&mut self, part: &Conjunction) -> bool {
        let at = self.0.iter().position(|&(id, _)| id == part.id).unwrap_or_else(|| {
            self.0.push((part.id, u64::MAX.checked_shl(part.n_clauses.into()).map_or(u64::MAX, |above| !above)));
            self.0.len() - 1
        });
        self.0[at].1 &= !1u64.checked_shl(part.clause.into()).unwrap_or(0);
        self.0[at].1 == 0
    }
}

impl<'a, R> SoftMatches<'a, R> {
    pub fn new() -> Self {
        SoftMatches { rules: Vec::new() } // allocates at the first soft match
    }

    pub fn push(&mut self, rule: &'a Rule<R>) {
        self.rules.push(rule);
    }

    /// The answer of the lookup. `hard` is the best ordinary match, `lookup` looks up with a conjunction id.
    pub fn resolve(
        mut self,
        rules: &'a Slab<R>,
        mut hard: Option<&'a Rule<R>>,
        version: u64,
        mut lookup: impl FnMut(u32) -> Option<&'a Rule<R>>,
    ) -> Option<&'a Rule<R>> {
        loop {
            self.drop_beaten(hard);
            let Some(priority) = self.rules.iter().map(|rule| rule.priority()).max() else {
                return hard;
            };
            if let Some(rule) = self.complete(priority, &mut lookup) {
                return Some(rule);
            }
            hard = self.fall_back(rules, priority, hard, version);
        }
    }

    /// Drops the soft matches that `hard` beats. The last match takes the index of a dropped one, as in OVS: the order
    /// decides which of several complete conjunctions is looked up first.
    fn drop_beaten(&mut self, hard: Option<&Rule<R>>) {
        let mut i = 0;
        while i < self.rules.len() {
            if hard.is_some_and(|hard| self.rules[i].priority() <= hard.priority()) {
                self.rules.swap_remove(i);
            } else {
                i += 1;
            }
        }
    }

    /// The rule of a complete conjunction of this priority.
    fn complete(&self, priority: u32, lookup: &mut impl FnMut(u32) -> Option<&'a Rule<R>>) -> Option<&'a Rule<R>> {
        let count = self.rules.iter().filter(|rule| rule.priority() == priority).count();
        let mut missing = MissingClauses(Vec::new());
        self.rules
            .iter()
            .filter(|rule| rule.priority() == priority)
            .flat_map(|rule| rule.conjunctions())
            .filter(|part| usize::from(part.n_clauses) <= count)
            .find_map(|part| if missing.note(part) { lookup(part.id) } else { None })
    }

    /// Replaces the soft matches of this priority by the next rules of their chains; returns the best ordinary match.
    fn fall_back(
        &mut self,
        rules: &'a Slab<R>,
        priority: u32,
        mut hard: Option<&'a Rule<R>>,
        version: u64,
    ) -> Option<&'a Rule<R>> {
        let mut i = 0;
        while i < self.rules.len() {
            if self.rules[i].priority() != priority {
                i += 1;
                continue;
            }
            let hidden = rules.chain(self.rules[i].id()).skip(1).find(|rule| rule.is_visible(version));
            match hidden {
                Some(rule) if !rule.conjunctions().is_empty() => {
                    self.rules[i] = rule;
                    i += 1;
                }
                other => {
                    self.rules.swap_remove(i);
                    if let Some(rule) = other
                        && hard.is_none_or(|hard| rule.priority() > hard.priority())
                    {
                        hard = Some(rule);
                    }
                }
            }
        }
        hard
    }
}

//! Which rules of a bridge use a group or a meter, without those that are hidden from the latest version.
//!
//! With a group or a meter its rules go. They are found here: to look through all rules of a bridge takes a good part of a
//! second where there are a million, and the changes of all bridges wait meanwhile.

use crate::action_refs::{groups_of, meters_of};
use crate::expiry::RulePlace;
use crate::rule::Rule;
use sluice_classifier::RuleId;
use std::collections::BTreeSet;

/// What a use takes, bytes.
pub(crate) const USE_BYTES: usize = 40;

/// What rules use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Used {
    Group(u32),
    Meter(u32),
}

/// The uses, in order: what, table, rule. No hash table, which would be copied as it grows.
#[derive(Debug, Default)]
pub(crate) struct RuleUsers(BTreeSet<(Used, u8, RuleId)>);

fn uses(rule: &Rule) -> impl Iterator<Item = Used> {
    groups_of(&rule.actions).map(Used::Group).chain(meters_of(&rule.actions).map(Used::Meter))
}

impl RuleUsers {
    /// A rule has come.
    pub fn add(&mut self, rule: &Rule, id: RuleId) {
        self.0.extend(uses(rule).map(|used| (used, rule.table, id)));
    }

    /// A rule has gone, or is hidden.
    pub fn remove(&mut self, rule: &Rule, id: RuleId) {
        uses(rule).for_each(|used| _ = self.0.remove(&(used, rule.table, id)));
    }

    /// The rules that use any of these, each once, by table.
    pub fn of(&self, used: impl IntoIterator<Item = Used>) -> Vec<RulePlace> {
        let range = |used: Used| self.0.range((used, 0, RuleId(0))..=(used, u8::MAX, RuleId(u32::MAX)));
        let places: BTreeSet<RulePlace> = used.into_iter().flat_map(range).map(|&(_, table, id)| (table, id)).collect();
        places.into_iter().collect()
    }

    /// How many uses there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

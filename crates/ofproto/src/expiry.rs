//! The rules of a bridge that have a timeout, by when to look at them.
//!
//! Packets extend an idle timeout without telling, so the time is the earliest at which a rule can expire. A rule that is
//! looked at too early is put back. So a tick costs what is due, not what there is.

use crate::bridge::{Bridge, ExpiredRule};
use sluice_classifier::RuleId;
use std::collections::{BTreeMap, BTreeSet};

/// A rule: its table and its id.
pub(crate) type RulePlace = (u8, RuleId);

/// The rules with a timeout.
#[derive(Debug, Default)]
pub(crate) struct Expirable {
    /// When to look at each.
    at_ms: BTreeMap<RulePlace, u64>,
    order: BTreeSet<(u64, RulePlace)>,
}

impl Expirable {
    /// Adds a rule that can expire at `expiry_ms`, or changes when.
    pub fn insert(&mut self, rule: RulePlace, expiry_ms: u64) {
        if let Some(before) = self.at_ms.insert(rule, expiry_ms) {
            self.order.remove(&(before, rule));
        }
        self.order.insert((expiry_ms, rule));
    }

    pub fn remove(&mut self, rule: &RulePlace) {
        if let Some(at_ms) = self.at_ms.remove(rule) {
            self.order.remove(&(at_ms, *rule));
        }
    }

    pub fn contains(&self, rule: &RulePlace) -> bool {
        self.at_ms.contains_key(rule)
    }

    pub fn is_empty(&self) -> bool {
        self.at_ms.is_empty()
    }

    /// The rules of a table.
    pub fn of_table(&self, table: u8) -> impl Iterator<Item = RuleId> + '_ {
        self.at_ms.range((table, RuleId(0))..=(table, RuleId(u32::MAX))).map(|((_, id), _)| *id)
    }

    /// The rule to look at first, if its time has come.
    pub fn due(&self, now_ms: u64) -> Option<RulePlace> {
        self.order.first().filter(|(at_ms, _)| *at_ms < now_ms).map(|(_, rule)| *rule)
    }
}

impl Bridge {
    /// Looks at up to `budget` rules that are due. Appends those whose timeout is over, which are due no more; returns
    /// how many it looked at.
    pub fn take_expired(&mut self, now_ms: u64, budget: usize, expired: &mut Vec<ExpiredRule>) -> usize {
        for n in 0..budget {
            let Some((table, id)) = self.expirable.due(now_ms) else { return n };
            self.expirable.remove(&(table, id));
            let rules = self.tables[usize::from(table)].rules.as_ref();
            let Some(rule) = rules.and_then(|rules| rules.rule(id)).map(|rule| rule.payload()) else { continue };
            match (rule.expired(now_ms), rule.expiry_ms()) {
                (Some(reason), _) => expired.push(ExpiredRule { table, id, reason }),
                (None, Some(expiry_ms)) => self.expirable.insert((table, id), expiry_ms),
                (None, None) => {}
            }
        }
        budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_due_in_order_and_once() {
        let mut all = Expirable::default();
        let rule = |n| (1, RuleId(n));
        all.insert(rule(1), 300);
        all.insert(rule(2), 100);
        all.insert((2, RuleId(2)), 200);
        all.insert(rule(1), 50);
        assert_eq!(all.due(50), None, "a timeout is over when more time has passed");
        assert_eq!(all.due(51), Some(rule(1)));
        all.insert(rule(1), 500);
        assert_eq!(all.due(1000), Some(rule(2)));
        assert_eq!(all.of_table(1).collect::<Vec<_>>(), [RuleId(1), RuleId(2)]);
        all.remove(&rule(2));
        all.remove(&rule(2));
        assert_eq!(all.due(1000), Some((2, RuleId(2))));
        all.remove(&(2, RuleId(2)));
        assert!(all.due(500).is_none() && all.contains(&rule(1)) && all.due(501) == Some(rule(1)));
        all.remove(&rule(1));
        assert!(all.is_empty() && all.order.is_empty());
    }
}

//! The order in which a full table evicts its rules.
//!
//! Rules are grouped by bits of the fields that they match. The largest group loses a rule first: the one of the least
//! importance, among these the one that expires first. Source: Open vSwitch, `choose_rule_to_evict`.

use sluice_classifier::RuleId;
use sluice_flow::{Match, SubField};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// A rule that can be evicted: its importance, when it expires, its id.
pub(crate) type Candidate = (u16, u64, RuleId);

/// The rules with a timeout, by group. Some of them may have been removed.
#[derive(Debug, Default)]
pub(crate) struct EvictionOrder {
    /// When it was made. Packets extend the life of rules meanwhile.
    pub made_ms: u64,
    group_of: HashMap<Vec<u128>, usize>,
    groups: Vec<BinaryHeap<Reverse<Candidate>>>,
    /// Groups by size. A group that has changed since is there again with its new size.
    by_size: BinaryHeap<(usize, usize)>,
}

impl EvictionOrder {
    /// No rules yet.
    pub fn new(made_ms: u64) -> Self {
        EvictionOrder { made_ms, ..EvictionOrder::default() }
    }

    /// Adds a rule.
    pub fn add(&mut self, fields: &[SubField], matches: &Match, candidate: Candidate) {
        let key: Vec<u128> = fields.iter().map(|bits| group_value(*bits, matches)).collect();
        let group = *self.group_of.entry(key).or_insert_with(|| {
            self.groups.push(BinaryHeap::new());
            self.groups.len() - 1
        });
        self.groups[group].push(Reverse(candidate));
        self.by_size.push((self.groups[group].len(), group));
    }

    /// Takes the rule that goes first, passing over those that are gone.
    pub fn pop(&mut self, is_there: impl Fn(RuleId) -> bool) -> Option<RuleId> {
        while let Some((size, group)) = self.by_size.pop() {
            let rules = &mut self.groups[group];
            if rules.len() != size {
                continue;
            }
            let first = rules.pop();
            if !rules.is_empty() {
                self.by_size.push((rules.len(), group));
            }
            if let Some(Reverse((.., id))) = first.filter(|Reverse((.., id))| is_there(*id)) {
                return Some(id);
            }
        }
        None
    }
}

/// What a rule matches of some bits; 0 if it cannot match the field.
fn group_value(bits: SubField, matches: &Match) -> u128 {
    let field = bits.field.field();
    if !matches.satisfies(field.prereq) {
        return 0;
    }
    let (value, _) = matches.field(bits.field);
    value & bits.mask()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_flow::{FieldId, PortNames};

    #[test]
    fn the_largest_group_loses_a_rule_first() {
        let fields = [SubField::whole(FieldId::InPort)];
        let mut order = EvictionOrder::new(0);
        for (i, port) in [1, 2, 2, 2, 1].into_iter().enumerate() {
            let matches = Match::parse(&format!("in_port={port}"), &PortNames::NONE).unwrap();
            order.add(&fields, &matches, (0, 10 - i as u64, RuleId(i as u32)));
        }
        let all = |order: &mut EvictionOrder| std::iter::from_fn(|| order.pop(|_| true)).collect::<Vec<_>>();
        let popped = all(&mut order);
        // Port 2 has three rules; then both have two, then one each.
        assert_eq!(popped[0], RuleId(3));
        assert_eq!(popped.len(), 5);
        let ports = popped.iter().map(|RuleId(i)| [1, 2, 2, 2, 1][*i as usize]).collect::<Vec<_>>();
        assert_eq!(ports.iter().filter(|port| **port == 2).count(), 3);
        assert_eq!(ports[1..3].iter().sum::<i32>(), 3, "one of each: {ports:?}");
    }

    #[test]
    fn rules_that_are_gone_are_passed_over() {
        let mut order = EvictionOrder::new(0);
        for i in 0..3 {
            order.add(&[], &Match::ANY, (0, i.into(), RuleId(i)));
        }
        assert_eq!(order.pop(|id| id != RuleId(0)), Some(RuleId(1)));
        assert_eq!((order.pop(|_| true), order.pop(|_| true)), (Some(RuleId(2)), None));
    }
}

//! Going through the rules of a table in pieces, while it changes in between.
//!
//! A table with a million rules is not looked through in one go, since nothing can change meanwhile. A [`Walk`] remembers
//! how far it has come. It goes on behind the last rule that it has visited, and if that one has gone, behind the one before:
//! so it visits every rule that stays once, in the order of [`iter`](Classifier::iter) as it was at the beginning. Rules that
//! come meanwhile are visited if they come behind it.
//!
//! It ends unless rules are added faster, for ever, than it visits them.

use crate::classifier::Classifier;
use crate::iter::Criteria;
use crate::rule::{Rule, RuleId};

/// How far a walk through a table has come.
#[derive(Debug)]
pub struct Walk {
    /// The subtables that are left, the next one last.
    subtables: Vec<u32>,
    /// The rules of the next one that it has visited. An id may be that of another rule by now, but then that rule has
    /// another version.
    visited: Vec<(RuleId, u64)>,
}

impl<R> Classifier<R> {
    /// The beginning of a walk through the rules.
    pub fn walk(&self) -> Walk {
        Walk { subtables: self.order.ranks().iter().rev().map(|rank| rank.subtable).collect(), visited: Vec::new() }
    }

    /// Goes on with a walk. `found` gets the rules visible at `version` that match only packets which `criteria` matches.
    /// Returns true at the end of the walk. Otherwise it has used up `steps`. Each call with at least one step makes progress.
    pub fn go_on<'a>(
        &'a self,
        walk: &mut Walk,
        criteria: &Criteria,
        version: u64,
        steps: &mut usize,
        mut found: impl FnMut(&'a Rule<R>),
    ) -> bool {
        let mut step = || {
            let is_left = *steps > 0;
            *steps = steps.saturating_sub(1);
            is_left
        };
        while let Some(&id) = walk.subtables.last() {
            // Another one may have its number by now: then what it has came meanwhile.
            if let Some(subtable) = self.existing_subtable(id).filter(|it| criteria.covers_rules_of(it)) {
                let mut next = loop {
                    let Some(&(last, added)) = walk.visited.last() else { break subtable.list[0].get() };
                    let stays = |rule: &&Rule<R>| rule.subtable == id && rule.add_version == added;
                    if let Some(last) = self.rules.get(last).filter(stays) {
                        break last.list[1].get();
                    }
                    if !step() {
                        return false;
                    }
                    walk.visited.pop();
                };
                while let Some(id) = next {
                    if !step() {
                        return false;
                    }
                    let rule = self.rules.at(id);
                    walk.visited.push((id, rule.add_version));
                    if rule.is_visible(version) && criteria.agrees(subtable, rule.entry) {
                        found(rule);
                    }
                    next = rule.list[1].get();
                }
            }
            if !step() {
                return false;
            }
            walk.visited.clear();
            walk.subtables.pop();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::LATEST;
    use proptest::prelude::*;
    use sluice_flow::{Match, PortNames};
    use std::collections::BTreeSet;

    /// A match of one of four masks.
    fn matches(n: u32) -> Match {
        let text = match n % 4 {
            0 => format!("tcp,tp_dst={}", n / 4),
            1 => format!("udp,tp_dst={}", n / 4),
            2 => format!("ip,nw_src=10.0.0.{}", n / 4),
            _ => format!("dl_src=02:00:00:00:00:{:02x}", n / 4),
        };
        Match::parse(&text, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn go_through(table: &Classifier<u32>, walk: &mut Walk, steps: usize, seen: &mut Vec<u32>) -> bool {
        let mut left = steps;
        let is_done = table.go_on(walk, &Criteria::new(&Match::ANY), LATEST, &mut left, |rule| seen.push(rule.payload));
        assert!(is_done || left == 0);
        is_done
    }

    #[test]
    fn undisturbed_it_is_as_one_iteration() {
        let mut table = Classifier::<u32>::default();
        for n in 0..200 {
            table.insert(&matches(n), n * 7 % 13, 0, &[], n);
        }
        let all: Vec<u32> = table.iter(LATEST).map(|rule| rule.payload).collect();
        let criteria = Criteria::new(&Match::parse("ip", &PortNames::NONE).unwrap());
        let some: Vec<u32> = table.covered(&criteria, LATEST).map(|rule| rule.payload).collect();
        assert!(some.len() > 100 && some.len() < all.len());
        for steps in [1, 2, 7, 1000] {
            let (mut walk, mut seen, mut pieces) = (table.walk(), Vec::new(), 1);
            while !go_through(&table, &mut walk, steps, &mut seen) {
                pieces += 1;
            }
            assert_eq!(seen, all);
            assert!(pieces >= 200 / steps, "{pieces} pieces of {steps} steps");
            let (mut walk, mut seen) = (table.walk(), Vec::new());
            while !table.go_on(&mut walk, &criteria, LATEST, &mut { steps }, |rule| seen.push(rule.payload)) {}
            assert_eq!(seen, some);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Rules come and go between the pieces, and their ids and those of subtables are used again: each rule that was
        /// there all the time is visited once, in order, and none of the others twice.
        #[test]
        fn what_stays_is_visited_once(
            changes in prop::collection::vec((0..120u32, 0..4u8), 0..200),
            steps in 1..12usize,
            every in 1..6usize,
        ) {
            let mut table = Classifier::<u32>::default();
            let mut ids: Vec<Option<RuleId>> = vec![None; 120];
            let mut number = 1000;
            for n in (0..120).filter(|n| n % 3 != 0) {
                ids[n as usize] = Some(table.insert(&matches(n), n % 5, 1, &[], n).0);
            }
            let before: Vec<u32> = table.iter(LATEST).map(|rule| rule.payload).collect();
            let mut stays: BTreeSet<u32> = before.iter().copied().collect();
            let (mut walk, mut seen, mut version) = (table.walk(), Vec::new(), 1);
            let mut changes = changes.into_iter();
            loop {
                for (n, kind) in changes.by_ref().take(every) {
                    version += 1;
                    match ids[n as usize].take() {
                        // Rules of one number share a mask with 29 others: with most of them gone subtables come and go.
                        Some(id) if kind != 0 => drop(table.remove(id).map(|payload| stays.remove(&payload))),
                        Some(id) => ids[n as usize] = Some(id),
                        None => {
                            number += 1;
                            ids[n as usize] = Some(table.insert(&matches(n), n % 5, version, &[], number).0);
                        }
                    }
                }
                if go_through(&table, &mut walk, steps, &mut seen) {
                    break;
                }
            }
            let kept: Vec<u32> = before.into_iter().filter(|payload| stays.contains(payload)).collect();
            prop_assert_eq!(seen.iter().copied().filter(|it| stays.contains(it)).collect::<Vec<_>>(), kept);
            let once: BTreeSet<u32> = seen.iter().copied().collect();
            prop_assert_eq!(once.len(), seen.len());
        }
    }
}

//! Lookups: visiting the subtables.

use crate::classifier::Classifier;
use crate::conjunction::SoftMatches;
use crate::field_trie::TrieLookups;
use crate::rule::{Rule, RuleLink};
use crate::stage::{KeyWords, words_of};
use sluice_flow::FlowKey;
use sluice_flow::layout;

impl<R> Classifier<R> {
    /// The rule of highest priority that matches `key` and is visible at `version`; if several are, any one of them.
    ///
    /// Adds to `looked_at` the bits of the key that the answer depends on: a key with the same values in these bits,
    /// and in those that `looked_at` had before, gets the same answer.
    pub fn lookup(&self, key: &FlowKey, version: u64, looked_at: Option<&mut FlowKey>) -> Option<&Rule<R>> {
        let words = words_of(key);
        match looked_at {
            Some(mask) => self.resolve(&words, version, Some(mask)),
            None => self.resolve(&words, version, None),
        }
    }

    fn resolve(&self, key: &KeyWords<'_>, version: u64, mut looked_at: Option<&mut FlowKey>) -> Option<&Rule<R>> {
        let mut soft = SoftMatches::new();
        let hard = self.visit_subtables(key, version, looked_at.as_deref_mut(), |rule| soft.push(rule));
        soft.resolve(&self.rules, hard, version, |id| {
            let mut key = *key;
            set_conj_id(&mut key, id);
            self.visit_subtables(&key, version, looked_at.as_deref_mut(), |_| ())
        })
    }

    /// Visits the subtables until none of the rest can beat the best ordinary match, and returns that match. Rules with
    /// conjunctions go to `soft`.
    fn visit_subtables<'a>(
        &'a self,
        key: &KeyWords<'_>,
        version: u64,
        mut looked_at: Option<&mut FlowKey>,
        mut soft: impl FnMut(&'a Rule<R>),
    ) -> Option<&'a Rule<R>> {
        let mut hard: Option<&Rule<R>> = None;
        let mut tries = TrieLookups::new(&self.tries, &key.lines);
        let visible = |head: RuleLink| self.rules.chain(head.get()?).find(|rule| rule.is_visible(version));
        for rank in self.order.ranks() {
            if hard.is_some_and(|rule| rank.priority <= rule.priority()) {
                if self.order.is_sorted() {
                    break;
                }
                continue;
            }
            let subtable = self.subtable(rank.subtable);
            let found = match looked_at.as_deref_mut() {
                Some(mask) => subtable.find_staged(key, &mut tries, mask, visible),
                None => subtable.find(key).and_then(|entry| visible(subtable.head(entry))),
            };
            match found {
                Some(rule) if hard.is_some_and(|best| rule.priority() <= best.priority()) => {}
                Some(rule) if rule.conjunctions().is_empty() => hard = Some(rule),
                Some(rule) => soft(rule),
                None => {}
            }
        }
        hard
    }
}

fn set_conj_id(key: &mut KeyWords<'_>, id: u32) {
    const SHIFT: usize = layout::CONJ_ID.offset % 8 * 8;
    let word = &mut key.lines[layout::CONJ_ID.offset / 8];
    *word = *word & !(0xffff_ffff << SHIFT) | u64::from(id.swap_bytes()) << SHIFT;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conjunction_ids_are_written_to_their_field() {
        let mut key = FlowKey::ZERO;
        key.set_number(layout::CONJ_ID, 0xfefe_fefe);
        key.set_number(layout::ACTSET_OUTPUT, 7);
        let before = key.clone();
        let mut words = words_of(&before);
        set_conj_id(&mut words, 0x0102_0304);
        key.set_number(layout::CONJ_ID, 0x0102_0304);
        assert_eq!(words.lines, words_of(&key).lines);
    }
}

//! Iterating over rules: all of a table, those that a match covers, those that overlap a match.

use crate::classifier::Classifier;
use crate::mask::mask_words;
use crate::rule::Rule;
use crate::stage::{KeyWords, words_of};
use crate::subtable::Subtable;
use sluice_flow::Match;

/// A match to compare rules with.
#[derive(Clone)]
pub struct Criteria {
    key: KeyWords,
    mask: KeyWords,
}

impl Criteria {
    /// Compares rules with this match.
    pub fn new(matching: &Match) -> Self {
        let mut criteria = Criteria { key: words_of(&matching.key), mask: [0; crate::stage::WORDS] };
        mask_words(&matching.mask).iter().for_each(|w| criteria.mask[usize::from(w.index)] |= w.bits);
        criteria
    }

    /// The bits that the match has.
    pub(crate) fn mask(&self) -> &KeyWords {
        &self.mask
    }

    /// Whether an entry and this match have the same values in the bits of both masks.
    pub(crate) fn agrees(&self, subtable: &Subtable, entry: u32) -> bool {
        subtable.mask.words().iter().zip(subtable.entry_words(entry)).all(|(w, value)| {
            let at = usize::from(w.index);
            (value ^ self.key[at]) & self.mask[at] & w.bits == 0
        })
    }
}

impl<R> Classifier<R> {
    /// The rules visible at `version` in the order of OVS's dumps: subtables by falling maximum priority, and the rules
    /// of each in order of insertion.
    pub fn iter(&self, version: u64) -> impl Iterator<Item = &Rule<R>> {
        self.iter_all().filter(move |rule| rule.is_visible(version))
    }

    /// Every rule, visible or not, in the order of [`iter`](Self::iter).
    pub fn iter_all(&self) -> impl Iterator<Item = &Rule<R>> {
        self.order.ranks().iter().flat_map(|rank| self.rules.list(&self.subtable(rank.subtable).list))
    }

    /// The rules visible at `version`, the highest priority first, equals in the order of [`iter`](Self::iter).
    pub fn by_priority(&self, version: u64) -> Vec<&Rule<R>> {
        let mut rules: Vec<_> = self.iter(version).collect();
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.priority()));
        rules
    }

    /// The rules visible at `version` that match only packets which `criteria` matches, in the order of
    /// [`iter`](Self::iter). These are the rules that a non-strict command modifies, deletes or lists.
    pub fn covered<'a>(&'a self, criteria: &'a Criteria, version: u64) -> impl Iterator<Item = &'a Rule<R>> {
        self.order
            .ranks()
            .iter()
            .map(|rank| self.subtable(rank.subtable))
            .filter(|subtable| subtable.mask.covers(&criteria.mask))
            .flat_map(move |subtable| {
                self.rules.list(&subtable.list).filter(move |rule| criteria.agrees(subtable, rule.entry))
            })
            .filter(move |rule| rule.is_visible(version))
    }

    /// The rules visible at `version` that share at least one packet with `criteria`, in the order of
    /// [`iter`](Self::iter). A check for overlaps compares their priorities.
    pub fn overlapping<'a>(&'a self, criteria: &'a Criteria, version: u64) -> impl Iterator<Item = &'a Rule<R>> {
        self.order
            .ranks()
            .iter()
            .map(|rank| self.subtable(rank.subtable))
            .flat_map(move |subtable| {
                self.rules.list(&subtable.list).filter(move |rule| criteria.agrees(subtable, rule.entry))
            })
            .filter(move |rule| rule.is_visible(version))
    }
}

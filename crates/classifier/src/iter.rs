//! Iterating over rules: all of a table, those that a match covers, those that overlap a match.

use crate::classifier::Classifier;
use crate::mask::mask_words;
use crate::rule::Rule;
use crate::stage::{LineWords, WORDS, words_of};
use crate::subtable::Subtable;
use sluice_flow::{Match, TunMetadata};

/// A match to compare rules with.
#[derive(Clone)]
pub struct Criteria {
    key: LineWords,
    mask: LineWords,
    /// The same of a tunnel's options.
    options: TunMetadata,
    options_mask: TunMetadata,
}

impl Criteria {
    /// Compares rules with this match.
    pub fn new(matching: &Match) -> Self {
        let mut mask = [0; WORDS];
        let of_lines = mask_words(&matching.mask).into_iter().filter(|w| usize::from(w.index) < WORDS);
        of_lines.for_each(|w| mask[usize::from(w.index)] |= w.bits);
        let (options, options_mask) = (matching.key.tun_metadata.clone(), matching.mask.tun_metadata.clone());
        Criteria { key: words_of(&matching.key).lines, mask, options, options_mask }
    }

    /// Whether rules of a subtable look at every bit that the match has.
    pub(crate) fn covers_rules_of(&self, subtable: &Subtable) -> bool {
        subtable.mask.covers(&self.mask, &self.options_mask)
    }

    /// Whether an entry and this match have the same values in the bits of both masks.
    pub(crate) fn agrees(&self, subtable: &Subtable, entry: u32) -> bool {
        subtable.mask.words().iter().zip(subtable.entry_words(entry)).all(|(w, value)| {
            let at = usize::from(w.index);
            let (key, mask) = match at.checked_sub(WORDS) {
                None => (self.key[at], self.mask[at]),
                Some(at) => (self.options.word(at), self.options_mask.word(at)),
            };
            (value ^ key) & mask & w.bits == 0
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
            .filter(|subtable| criteria.covers_rules_of(subtable))
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

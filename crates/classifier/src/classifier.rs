//! Changing a table: rules are inserted, hidden and removed.

use crate::field_trie::{FieldTrie, MAX_TRIES, TrieField, trie_lens};
use crate::hash::spread;
use crate::mask::{MaskWords, hash_mask, mask_words};
use crate::order::VisitOrder;
use crate::rule::{Conjunction, NEVER, Rule, RuleId, RuleLink, Slab};
use crate::stage::{KeyWords, words_of};
use crate::subtable::Subtable;
use hashbrown::HashTable;
use sluice_flow::Match;

/// A table's rules.
///
/// Shape:  one subtable per mask; a match is stored as the words in which its mask has bits. At most 2^32 - 1 rules.
/// Units:  versions count changes of the tables; priorities are OpenFlow's, or higher for the switch's own rules.
/// Errors: none; removing an unknown rule gives `None`.
/// Source: OVS 3.1 lib/classifier.c, lib/pvector.c.
pub struct Classifier<R> {
    pub(crate) rules: Slab<R>,
    pub(crate) order: VisitOrder,
    pub(crate) tries: Vec<FieldTrie>,
    subtables: Vec<Option<Box<Subtable>>>,
    free_subtables: Vec<u32>,
    by_mask: HashTable<(u32, u32)>,
    hash_key: u64,
}

/// A rule that a new one replaced: they have the same match and priority, and it was not marked for removal.
#[derive(Debug)]
pub struct Displaced<R> {
    /// Its id, which may be reused.
    pub id: RuleId,
    /// The caller's data.
    pub payload: R,
}

/// What a mask's rules have left: memory to free, that of a million rules maybe.
pub struct EmptySubtable(#[expect(dead_code, reason = "it is there to be dropped")] Box<Subtable>);

impl<R> Default for Classifier<R> {
    fn default() -> Self {
        Classifier::new(TrieField::DEFAULT, 0)
    }
}

impl<R> Classifier<R> {
    /// An empty table with prefix tries for these fields (at most four different ones) and a key for its hashes.
    pub fn new(trie_fields: &[TrieField], hash_key: u64) -> Self {
        Classifier {
            rules: Slab::new(),
            order: VisitOrder::default(),
            tries: tries_for(trie_fields),
            subtables: Vec::new(),
            free_subtables: Vec::new(),
            by_mask: HashTable::new(),
            hash_key,
        }
    }

    /// Gives the table prefix tries for other fields. It visits every rule.
    pub fn set_trie_fields(&mut self, fields: &[TrieField]) {
        self.tries = tries_for(fields);
        for subtable in self.subtables.iter_mut().flatten() {
            subtable.trie_lens = trie_lens(&self.tries, &subtable.mask);
        }
        for rule in self.rules.iter() {
            let subtable = self.subtables[rule.subtable as usize].as_deref().expect(SUBTABLE);
            // Rules of one match share an entry.
            if subtable.head(rule.entry).get() != Some(rule.id) {
                continue;
            }
            let key = subtable.mask.unpack_words(subtable.entry_words(rule.entry).iter().copied());
            for (trie, &len) in self.tries.iter_mut().zip(&subtable.trie_lens).filter(|(_, len)| **len != 0) {
                trie.insert(&words_of(&key).lines, len);
            }
        }
    }

    /// The number of rules, visible or not.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of different masks.
    pub fn subtable_count(&self) -> usize {
        self.order.ranks().len()
    }

    /// Every rule's id is below. What looks at the rules by their ids may let go of the classifier in between, and may miss
    /// rules that come meanwhile.
    pub fn ids_end(&self) -> u32 {
        self.rules.ids_end()
    }

    /// The rule with that id.
    pub fn rule(&self, id: RuleId) -> Option<&Rule<R>> {
        self.rules.get(id)
    }

    /// The caller's data of a rule.
    pub fn payload_mut(&mut self, id: RuleId) -> Option<&mut R> {
        self.rules.get_mut(id).map(|rule| &mut rule.payload)
    }

    /// Replaces a rule's conjunctions; whether there is such a rule.
    pub fn set_conjunctions(&mut self, id: RuleId, conjunctions: &[Conjunction]) -> bool {
        let Some(rule) = self.rules.get_mut(id) else { return false };
        rule.conjunctions = boxed(conjunctions);
        true
    }

    /// What a rule of this classifier matches.
    pub fn match_of(&self, rule: &Rule<R>) -> Match {
        let subtable = self.subtable(rule.subtable);
        let key = subtable.mask.unpack_words(subtable.entry_words(rule.entry).iter().copied());
        Match { key, mask: subtable.mask.unpack() }
    }

    /// Leaves the subtables unsorted until [`publish`](Self::publish), so that many changes sort them once. Until then
    /// lookups find the same rules but visit more subtables.
    pub fn defer(&mut self) {
        self.order.defer();
    }

    /// Sorts the subtables after [`defer`](Self::defer).
    pub fn publish(&mut self) {
        self.order.publish();
    }

    /// Adds a rule that is visible from `version` on.
    ///
    /// It replaces a rule of the same match and priority at once, unless that one is marked for removal.
    pub fn insert(
        &mut self,
        matching: &Match,
        priority: u32,
        version: u64,
        conjunctions: &[Conjunction],
        payload: R,
    ) -> (RuleId, Option<Displaced<R>>) {
        let key = words_of(&matching.key);
        let subtable_id = self.find_or_add_subtable(&mask_words(&matching.mask));
        let id = self.rules.insert(|id| Rule {
            payload,
            conjunctions: boxed(conjunctions),
            add_version: version,
            remove_version: NEVER,
            priority,
            id,
            subtable: subtable_id,
            entry: 0,
            next: RuleLink::NONE,
            list: [RuleLink::NONE; 2],
        });
        (id, self.link(id, subtable_id, &key, priority))
    }

    /// Puts a new rule into its chain and its subtable's list.
    fn link(&mut self, id: RuleId, subtable_id: u32, key: &KeyWords<'_>, priority: u32) -> Option<Displaced<R>> {
        let subtable = self.subtables[subtable_id as usize].as_deref_mut().expect(SUBTABLE);
        let hashes = subtable.hashes(key);
        if let Some(entry) = subtable.find_entry(key, hashes.whole) {
            self.rules.at_mut(id).entry = entry;
            let chained = self.rules.add_to_chain(subtable.head(entry).get().expect(HEAD), id);
            if chained.is_head {
                subtable.set_head(entry, id);
            }
            if let Some(old) = chained.replaced {
                self.rules.replace_in_list(&mut subtable.list, old, id);
                return self.rules.remove(old).map(|rule| Displaced { id: rule.id, payload: rule.payload });
            }
        } else {
            for (trie, &len) in self.tries.iter_mut().zip(&subtable.trie_lens).filter(|(_, len)| **len != 0) {
                trie.insert(&key.lines, len);
            }
            self.rules.at_mut(id).entry = subtable.add_entry(key, &hashes, id);
        }
        let is_first = subtable.list[0] == RuleLink::NONE;
        self.rules.append_to_list(&mut subtable.list, id);
        let raised = subtable.add_priority(priority);
        if is_first {
            self.order.insert(subtable_id, priority);
        } else if let Some(max) = raised {
            self.order.change(subtable_id, max);
        }
        None
    }

    /// Removes a rule, visible or not. Returns the caller's data, if there is such a rule.
    pub fn remove(&mut self, id: RuleId) -> Option<R> {
        self.remove_leaving(id, &mut Vec::new())
    }

    /// As [`remove`](Self::remove). If it was the last rule of its mask, appends the mask's subtable, which may be large:
    /// the caller drops it where nobody waits.
    pub fn remove_leaving(&mut self, id: RuleId, emptied: &mut Vec<EmptySubtable>) -> Option<R> {
        let rule = self.rules.get(id)?;
        let (entry, next, subtable_id, priority) = (rule.entry, rule.next, rule.subtable, rule.priority);
        let subtable = self.subtables[subtable_id as usize].as_deref_mut().expect(SUBTABLE);
        self.rules.remove_from_list(&mut subtable.list, id);
        let was_head = self.rules.remove_from_chain(subtable.head(entry).get().expect(HEAD), id);
        let mut is_last = false;
        match next.get() {
            _ if !was_head => {}
            Some(next) => subtable.set_head(entry, next),
            None => {
                let key = subtable.mask.unpack_words(subtable.entry_words(entry).iter().copied());
                let key = words_of(&key);
                for (trie, &len) in self.tries.iter_mut().zip(&subtable.trie_lens).filter(|(_, len)| **len != 0) {
                    trie.remove(&key.lines, len);
                }
                is_last = subtable.remove_entry(entry, &key);
            }
        }
        if is_last {
            emptied.push(EmptySubtable(self.remove_subtable(subtable_id)));
        } else if let Some(max) = subtable.drop_priority(priority) {
            self.order.change(subtable_id, max);
        }
        self.rules.remove(id).map(|rule| rule.payload)
    }

    /// Hides a rule from `version` on; [`NEVER`] unhides it. Whether there is such a rule.
    pub fn set_remove_version(&mut self, id: RuleId, version: u64) -> bool {
        let Some(rule) = self.rules.get_mut(id) else { return false };
        rule.remove_version = version;
        true
    }

    /// The rule of exactly this match and priority that is visible at `version`.
    pub fn find_exact(&self, matching: &Match, priority: u32, version: u64) -> Option<&Rule<R>> {
        let subtable = self.subtable(self.find_subtable(&mask_words(&matching.mask))?);
        let head = subtable.head(subtable.find_exact(&words_of(&matching.key))?).get()?;
        self.rules
            .chain(head)
            .take_while(|rule| rule.priority >= priority)
            .find(|rule| rule.priority == priority && rule.is_visible(version))
    }

    pub(crate) fn subtable(&self, id: u32) -> &Subtable {
        self.subtables[id as usize].as_deref().expect(SUBTABLE)
    }

    /// The subtable of that number, if there is one.
    pub(crate) fn existing_subtable(&self, id: u32) -> Option<&Subtable> {
        self.subtables.get(id as usize)?.as_deref()
    }

    fn find_subtable(&self, words: &MaskWords) -> Option<u32> {
        let hash = hash_mask(words);
        self.by_mask
            .find(spread(hash), |&(h, id)| h == hash && self.subtable(id).mask.words() == words.as_slice())
            .map(|&(_, id)| id)
    }

    fn find_or_add_subtable(&mut self, words: &MaskWords) -> u32 {
        if let Some(id) = self.find_subtable(words) {
            return id;
        }
        let lens = |mask: &_| trie_lens(&self.tries, mask);
        let subtable = Box::new(Subtable::new(words, lens, self.hash_key));
        let id = self.free_subtables.pop().unwrap_or_else(|| {
            self.subtables.push(None);
            self.subtables.len() as u32 - 1
        });
        self.subtables[id as usize] = Some(subtable);
        let hash = hash_mask(words);
        self.by_mask.insert_unique(spread(hash), (hash, id), |&(h, _)| spread(h));
        id
    }

    fn remove_subtable(&mut self, id: u32) -> Box<Subtable> {
        let subtable = self.subtables[id as usize].take().expect(SUBTABLE);
        let hash = hash_mask(subtable.mask.words());
        if let Ok(found) = self.by_mask.find_entry(spread(hash), |&(_, i)| i == id) {
            found.remove();
        }
        self.order.remove(id);
        self.free_subtables.push(id);
        subtable
    }
}

/// An empty trie for each of the fields: at most four different ones.
fn tries_for(fields: &[TrieField]) -> Vec<FieldTrie> {
    let mut tries = Vec::<FieldTrie>::new();
    for &field in fields {
        if tries.len() < MAX_TRIES && tries.iter().all(|trie| trie.field != field) {
            tries.push(FieldTrie::new(field));
        }
    }
    tries
}

const HEAD: &str = "invariant: an entry has a rule";
const SUBTABLE: &str = "invariant: rules and the visiting order name existing subtables";

fn boxed(conjunctions: &[Conjunction]) -> Option<Box<[Conjunction]>> {
    (!conjunctions.is_empty()).then(|| conjunctions.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_flow::PortNames;

    #[test]
    fn the_last_rule_of_a_mask_leaves_its_subtable() {
        let mut classifier = Classifier::<()>::default();
        let add = |classifier: &mut Classifier<()>, text: &str| {
            let matches = Match::parse(text, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"));
            classifier.insert(&matches, 1, 0, &[], ()).0
        };
        let ids =
            ["ip,nw_src=10.0.0.1", "ip,nw_src=10.0.0.2", "ip,nw_dst=10.0.0.1"].map(|text| add(&mut classifier, text));
        let mut emptied = Vec::new();
        let left = ids.map(|id| {
            assert_eq!(classifier.remove_leaving(id, &mut emptied), Some(()));
            (emptied.len(), classifier.subtable_count(), classifier.len())
        });
        assert_eq!(left, [(0, 2, 2), (1, 1, 1), (2, 0, 0)]);
        // The latest place is used first.
        assert_eq!(add(&mut classifier, "ip,nw_src=10.0.0.3"), ids[2]);
    }
}

//! The rules of one mask: an array of masked keys, a hash map to find them, and for each earlier stage an index of
//! hashes.

use crate::field_trie::{MAX_TRIES, TrieLookups};
use crate::growing::GrowingTable;
use crate::hash::MaskedHash;
use crate::mask::{MaskWord, StagedMask};
use crate::rule::{RuleId, RuleLink};
use crate::stage::{KeyWords, TRIE_STAGE, or_word};
use crate::trie::Trie;
use arrayvec::ArrayVec;
use sluice_flow::FlowKey;
use sluice_flow::layout;
use std::collections::BTreeMap;

/// The word that holds both L4 ports in its second half.
pub(crate) const PORTS_WORD: usize = layout::TP_SRC.offset / 8;
const _: () = assert!(layout::TP_SRC.offset % 8 == 4 && layout::TP_DST.offset == layout::TP_SRC.offset + 2);

/// Both L4 ports of a key or of a mask, the source in the upper half.
#[inline]
fn ports_of(word: u64) -> u32 {
    word.swap_bytes() as u32
}

/// The inverse of [`ports_of`].
#[inline]
fn ports_word(ports: u32) -> u64 {
    u64::from(ports).swap_bytes()
}

/// One mask's rules.
///
/// Shape: an *entry* is a masked key of `mask.words().len()` words and the chain of the rules that have it, the highest
/// priority first. `by_hash` finds entries; `stage_hashes[i]` counts them by the hash of their words up to stage `i`.
pub(crate) struct Subtable {
    pub mask: StagedMask,
    stage_hashes: ArrayVec<GrowingTable, 3>,
    by_hash: GrowingTable,
    words: Vec<u64>,
    /// Of an entry, its first rule; of an unused one, the next that is unused, so that removing allocates nothing.
    heads: Vec<RuleLink>,
    /// The first unused entry.
    unused: RuleLink,
    /// The number of rules of each priority.
    priorities: BTreeMap<u32, u32>,
    /// The first and the last of its rules in order of insertion.
    pub list: [RuleLink; 2],
    /// For each trie, the prefix length of its field in this mask, 0 if none.
    pub trie_lens: [u8; MAX_TRIES],
    ports_mask: u32,
    ports_len: u32,
    ports: Trie<u32>,
    hash_key: u64,
}

/// The hashes of a masked key: up to each stage but the last, and of the whole.
pub(crate) struct EntryHashes {
    stages: ArrayVec<u32, 3>,
    pub whole: u32,
}

impl Subtable {
    pub fn new(words: &[MaskWord], trie_lens: impl Fn(&StagedMask) -> [u8; MAX_TRIES], hash_key: u64) -> Self {
        let mask = StagedMask::new(words);
        let ports_mask = ports_of(mask.bits_at(PORTS_WORD));
        Subtable {
            stage_hashes: mask.stages().iter().skip(1).map(|_| GrowingTable::default()).collect(),
            by_hash: GrowingTable::default(),
            words: Vec::new(),
            heads: Vec::new(),
            unused: RuleLink::NONE,
            priorities: BTreeMap::new(),
            list: [RuleLink::NONE; 2],
            trie_lens: trie_lens(&mask),
            ports_mask,
            ports_len: 32 - ports_mask.trailing_zeros(),
            ports: Trie::new(),
            hash_key,
            mask,
        }
    }

    /// The masked key of an entry.
    pub fn entry_words(&self, entry: u32) -> &[u64] {
        let n = self.mask.words().len();
        &self.words[entry as usize * n..(entry as usize + 1) * n]
    }

    pub fn head(&self, entry: u32) -> RuleLink {
        self.heads[entry as usize]
    }

    pub fn set_head(&mut self, entry: u32, head: RuleId) {
        self.heads[entry as usize] = head.into();
    }

    pub fn hashes(&self, key: &KeyWords<'_>) -> EntryHashes {
        let mut hash = MaskedHash::start(self.hash_key);
        let mut stages = ArrayVec::new();
        let mut from = 0;
        for (i, &(_, end)) in self.mask.stages().iter().enumerate() {
            hash = self.hash_range(hash, key, from, end.into());
            if i < self.stage_hashes.len() {
                stages.push(hash.end());
            }
            from = end.into();
        }
        EntryHashes { stages, whole: hash.end() }
    }

    #[inline]
    fn hash_range(&self, hash: MaskedHash, key: &KeyWords<'_>, from: usize, to: usize) -> MaskedHash {
        self.mask.words()[from..to].iter().fold(hash, |h, w| h.with(key.at(w.index.into()) & w.bits))
    }

    /// The entry that `key` matches.
    #[inline]
    pub fn find_entry(&self, key: &KeyWords<'_>, hash: u32) -> Option<u32> {
        self.by_hash.find(hash, |entry| self.matches(entry, key))
    }

    pub fn find_exact(&self, key: &KeyWords<'_>) -> Option<u32> {
        self.find_entry(key, self.hashes(key).whole)
    }

    #[inline]
    fn matches(&self, entry: u32, key: &KeyWords<'_>) -> bool {
        let words = self.mask.words();
        let at = entry as usize * words.len();
        self.words[at..at + words.len()].iter().zip(words).all(|(&v, w)| key.at(w.index.into()) & w.bits == v)
    }

    /// Adds an entry with its first rule, for a key that has none.
    pub fn add_entry(&mut self, key: &KeyWords<'_>, hashes: &EntryHashes, head: RuleId) -> u32 {
        let n = self.mask.words().len();
        let entry = self.unused.get().map_or_else(
            || {
                self.heads.push(RuleLink::NONE);
                self.words.resize(self.words.len() + n, 0);
                self.heads.len() as u32 - 1
            },
            |unused| unused.0,
        );
        self.unused = self.heads[entry as usize];
        let at = entry as usize * n;
        for (to, w) in self.words[at..at + n].iter_mut().zip(self.mask.words()) {
            *to = key.at(w.index.into()) & w.bits;
        }
        self.heads[entry as usize] = head.into();
        for (index, &hash) in self.stage_hashes.iter_mut().zip(&hashes.stages) {
            match index.find_mut(hash) {
                Some(count) => *count += 1,
                None => index.insert(hash, 1),
            }
        }
        self.by_hash.insert(hashes.whole, entry);
        if self.ports_len != 0 {
            self.ports.insert(ports_of(key.lines[PORTS_WORD]) & self.ports_mask, self.ports_len);
        }
        entry
    }

    /// Removes an entry that has lost its last rule; whether the subtable is empty now.
    pub fn remove_entry(&mut self, entry: u32, key: &KeyWords<'_>) -> bool {
        let hashes = self.hashes(key);
        if self.ports_len != 0 {
            self.ports.remove(ports_of(key.lines[PORTS_WORD]) & self.ports_mask, self.ports_len);
        }
        for (index, &hash) in self.stage_hashes.iter_mut().zip(&hashes.stages) {
            if let Some(count) = index.find_mut(hash) {
                *count -= 1;
                if *count == 0 {
                    index.remove(hash, |_| true);
                }
            }
        }
        self.by_hash.remove(hashes.whole, |other| other == entry);
        self.heads[entry as usize] = std::mem::replace(&mut self.unused, RuleLink(entry));
        self.by_hash.is_empty()
    }

    /// Adds a rule's priority; returns the maximum priority if this changed it.
    pub fn add_priority(&mut self, priority: u32) -> Option<u32> {
        let before = self.max_priority();
        *self.priorities.entry(priority).or_default() += 1;
        (before < Some(priority)).then_some(priority)
    }

    /// Removes a rule's priority; returns the maximum priority if this changed it and rules are left.
    pub fn drop_priority(&mut self, priority: u32) -> Option<u32> {
        let count = self.priorities.get_mut(&priority).expect("invariant: every rule's priority is counted");
        *count -= 1;
        if *count > 0 {
            return None;
        }
        self.priorities.remove(&priority);
        self.max_priority().filter(|&max| max < priority)
    }

    fn max_priority(&self) -> Option<u32> {
        self.priorities.last_key_value().map(|(&priority, _)| priority)
    }

    /// The entry that matches `key`, without a record of the bits looked at.
    #[inline]
    pub fn find(&self, key: &KeyWords<'_>) -> Option<u32> {
        let hash = self.hash_range(MaskedHash::start(self.hash_key), key, 0, self.mask.words().len());
        self.find_entry(key, hash.end())
    }

    /// As [`find`](Self::find), but stage by stage, and only entries that `wanted` accepts. Adds the bits that decided
    /// the answer to `looked_at`.
    #[inline]
    pub fn find_staged<T>(
        &self,
        key: &KeyWords<'_>,
        tries: &mut TrieLookups<'_>,
        looked_at: &mut FlowKey,
        wanted: impl FnOnce(RuleLink) -> Option<T>,
    ) -> Option<T> {
        let mut hash = MaskedHash::start(self.hash_key);
        let mut from = 0;
        for (i, &(stage, end)) in self.mask.stages().iter().enumerate() {
            let end = usize::from(end);
            if usize::from(stage) == TRIE_STAGE && tries.rule_out(&self.trie_lens, looked_at) {
                self.look_at(from, looked_at);
                return None;
            }
            hash = self.hash_range(hash, key, from, end);
            if let Some(index) = self.stage_hashes.get(i) {
                let stage_hash = hash.end();
                if index.find(stage_hash, |_| true).is_none() {
                    self.look_at(end, looked_at);
                    return None;
                }
            }
            from = end;
        }
        let found = self.find_entry(key, hash.end()).and_then(|entry| wanted(self.heads[entry as usize]));
        if found.is_none() && self.ports_len != 0 {
            self.look_at_few_ports(key, looked_at);
        } else {
            self.look_at(from, looked_at);
        }
        found
    }

    /// Adds the first `n` words of the mask.
    #[inline]
    fn look_at(&self, n: usize, looked_at: &mut FlowKey) {
        self.mask.words()[..n].iter().for_each(|w| or_word(looked_at, w.index.into(), w.bits));
    }

    /// Adds the mask, but of the ports only as many leading bits as prove that no rule has such ports.
    ///
    /// The proof concerns only the ports. The decision used the whole mask, so the rest of it is added.
    fn look_at_few_ports(&self, key: &KeyWords<'_>, looked_at: &mut FlowKey) {
        let proof_bits = self.ports.lookup(ports_of(key.lines[PORTS_WORD]) & self.ports_mask).proof_bits;
        let few = self.ports_mask & u32::MAX.checked_shl(32 - proof_bits).unwrap_or(0);
        let without = !ports_word(self.ports_mask);
        for w in self.mask.words() {
            let index = usize::from(w.index);
            or_word(looked_at, index, if index == PORTS_WORD { w.bits & without } else { w.bits });
        }
        or_word(looked_at, PORTS_WORD, ports_word(few));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::words_of;

    #[test]
    fn ports_are_read_and_written_source_first() {
        let mut key = FlowKey::ZERO;
        key.set_number(layout::TP_SRC, 0x1234);
        key.set_number(layout::TP_DST, 0x5678);
        let word = words_of(&key).lines[PORTS_WORD];
        assert_eq!(ports_of(word), 0x1234_5678);
        assert_eq!(ports_word(ports_of(word)), word);
    }
}

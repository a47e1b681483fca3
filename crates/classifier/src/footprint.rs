//! The memory of a table, for bounds on it. It is counted at least as high as it is; vectors that grow count twice.

use crate::classifier::Classifier;
use crate::field_trie::FieldTrie;
use crate::mask::{MaskWord, mask_words};
use crate::rule::{Conjunction, RuleLink, Slab};
use crate::stage::{STAGE_WORD_COUNT, STAGES};
use crate::subtable::Subtable;
use sluice_flow::Match;

/// What an allocation takes beside its content.
const ALLOCATION: usize = 32;

/// An entry of a hash table that is growing: 8 bytes and a control byte; 7 of 16 places are in use, and the old table with half
/// as many places is still there.
const HASH_ENTRY: usize = 9 * (16 + 8) / 7;

/// A hash table with few entries.
const HASH_TABLE: usize = ALLOCATION + 4 * 8 + 2 * 16;

/// A priority in a subtable's tree of them, and a tree of one node.
const PRIORITY: usize = 24;
const PRIORITIES: usize = 160;

/// A subtable's places in the order of visits, in the index of masks and in the list of subtables.
const SUBTABLE_PLACES: usize = 96;

impl<R> Classifier<R> {
    /// What a rule takes in the table beside the caller's data, its conjunctions and its subtable.
    pub fn rule_bytes(&self, matching: &Match) -> usize {
        let words = mask_words(&matching.mask).len();
        let in_vectors = Slab::<R>::SLOT_SIZE + words * size_of::<u64>() + size_of::<RuleLink>();
        // A prefix takes two nodes of a trie. Ports have a trie, too.
        let tries: usize = self.tries.iter().map(|trie| 4 * trie.node_size()).sum();
        2 * in_vectors + STAGES * HASH_ENTRY + PRIORITY + tries + 4 * FieldTrie::SHORT_NODE_SIZE
    }

    /// What a rule's conjunctions take.
    pub fn conjunctions_bytes(conjunctions: usize) -> usize {
        if conjunctions == 0 { 0 } else { ALLOCATION + conjunctions * size_of::<Conjunction>() }
    }

    /// What the subtables take beside their rules.
    pub fn subtables_bytes(&self) -> usize {
        let mask = ALLOCATION + size_of::<MaskWord>() * STAGE_WORD_COUNT;
        let each = ALLOCATION + size_of::<Subtable>() + mask + STAGES * HASH_TABLE + PRIORITIES + SUBTABLE_PLACES;
        self.subtable_count() * each
    }
}

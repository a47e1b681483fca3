//! OpenFlow tuple space: priorities, staged lookup, tries, un-wildcarding.
//!
//! **What it answers.** Which rule of a table matches a key at a version of the tables, and which bits of the key the
//! answer depended on. The second answer becomes the megaflow's mask: every key that agrees with the looked-up one on
//! those bits gets the same rule. A bit too many costs speed, a bit too few misroutes, so where the two meet the
//! classifier takes the bit.
//!
//! **How.** Rules with the same mask share a subtable (`subtable.rs`), a hash map keyed by the masked words. A lookup
//! walks the subtables by falling maximum priority (`order.rs`) and stops when nothing left can beat the best match.
//! Each subtable is asked in stages, metadata, L2, L3, L4 (`stage.rs`): a stage whose values no rule has ends the search
//! there, so later fields stay out of the mask. Before the L3 stage a prefix trie (`trie.rs`) over all rules tells which
//! prefix lengths can match at all, and how many bits prove it; when the last stage fails, a trie over the subtable's
//! ports says how many port bits were needed. Conjunctions (`conjunction.rs`) join rules that match only together.
//!
//! **Versions.** A rule is seen at version `v` when `add ≤ v < remove`. A writer inserts and hides rules at the next
//! version while readers look at the present one, then bumps the number all readers use; a bundle commits by one bump.
//!
//! **Threads.** One writer or many readers: there is no lock inside. Lookups take `&self`.
//!
//! **Costs.** A lookup is linear in the subtables that can still win. Memory a rule: the masked words, some 60 bytes of
//! record, 20 to 40 of hash maps, and 20 to 80 of tries; measured in `benches/`.
//!
//! Masks come out as those of Open vSwitch 3.1 with Debian's fixes (`lib/classifier.c` there); `tests/data` holds
//! what it answered for random tables. The order among subtables of equal maximum priority is part of
//! that, since it decides what is looked at: see `order.rs`.
#![forbid(unsafe_code)]

mod buckets;
mod chain;
mod classifier;
mod conjunction;
mod hash;
#[cfg(test)]
mod invariants;
mod iter;
mod lookup;
mod mask;
mod order;
mod rule;
mod stage;
mod subtable;
mod trie;

pub use classifier::{Classifier, Displaced};
pub use iter::Criteria;
pub use lookup::TrieField;
pub use rule::{Conjunction, LATEST, NEVER, Rule, RuleId};

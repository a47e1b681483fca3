//! The rules of an OpenFlow table: tuple space search with priorities, staged lookup, prefix tries and un-wildcarding.
//!
//! **What it answers.** Two questions about a key at a version of the tables. Which rule matches it? Which bits of the
//! key does that answer depend on? The second answer becomes the megaflow's mask: every key with the same values in
//! those bits gets the same rule. One bit too many costs speed, one bit too few forwards packets wrongly, so the
//! classifier adds a bit in doubt.
//!
//! **An example.** A table has the rules `priority=2, tcp, tp_dst=80` and `priority=1, ip, nw_dst=10.0.0.0/8`. They
//! have different masks, so each is alone in a *subtable*. A UDP packet to 10.1.2.3 is looked up:
//!
//! 1. The subtable of priority 2 comes first. Its rule's IP protocol is TCP, the packet's is UDP. The search of this
//!    subtable ends at the L3 stage, so the mask gets the Ethernet type and the IP protocol, but no port.
//! 2. The subtable of priority 1 matches. The mask gets the first 8 bits of the destination.
//! 3. The megaflow therefore matches all UDP packets to 10.0.0.0/8, whatever their ports.
//!
//! **How.** Rules with the same mask share a subtable (`subtable.rs`), a hash map keyed by the masked words. A lookup
//! visits the subtables by falling maximum priority (`order.rs`) and stops when no remaining one can beat the best
//! match. It searches each subtable in stages: metadata, L2, L3, L4 (`stage.rs`). If no rule has the packet's values in
//! a stage, the search of the subtable ends there, and fields of later stages stay out of the mask. Before the L3
//! stage, a prefix trie over all rules (`field_trie.rs`, `trie.rs`) tells which prefix lengths can match and how many
//! address bits prove it. After the last stage, a trie over the subtable's ports does the same for ports. Conjunctions
//! (`conjunction.rs`) combine rules that match only together.
//!
//! **Versions.** A rule is visible at version `v` when `add ≤ v < remove`. A writer inserts and hides rules at the next
//! version while readers use the current one; then it publishes the next version's number, and all changes become
//! visible at once. This is how bundles commit.
//!
//! **Threads.** One writer or many readers. There is no lock inside; lookups take `&self`.
//!
//! **Costs.** A lookup is linear in the number of subtables that can still win. A rule takes its masked words, about 60
//! bytes of record, 20 to 40 bytes of hash maps and 20 to 80 bytes of tries; `benches/` measures it.
//!
//! Masks equal those of Open vSwitch 3.1 with Debian's fixes (`lib/classifier.c`); `tests/data` holds its answers for
//! random tables. The order among subtables of equal maximum priority is part of that, because it decides which bits
//! are looked at: see `order.rs`.
#![forbid(unsafe_code)]

mod buckets;
mod chain;
mod classifier;
mod conjunction;
mod field_trie;
mod footprint;
mod growing;
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
mod walk;

pub use classifier::{Classifier, Displaced, EmptySubtable};
pub use field_trie::TrieField;
pub use iter::Criteria;
pub use rule::{Conjunction, LATEST, NEVER, Rule, RuleId};
pub use walk::Walk;

//! From a packet's key to its megaflow.
//!
//! # Records and indexes
//!
//! [`MegaflowTable`] holds the [`Megaflow`] records of all PMDs in one arena, under stable ids. Installing and removing
//! take its lock; lookups never do.
//!
//! Each PMD has indexes of its own, `&mut` and without locks. They are asked one after the other about the packets that
//! still miss:
//!
//! - [`Emc`], the exact match cache: one entry for each key.
//! - [`Smc`], the signature match cache: the same with 16 bits of the key's hash, so that a line of the cache holds ten
//!   flows.
//! - [`Distributor`]: remembers which subtable a key is in, four bytes a flow.
//! - [`Subtables`]: tuple space search, one subtable for each mask. Where there are many, only those are asked whose
//!   prefix lengths can match the packet.
//!
//! # Every entry is a hint
//!
//! A hit is verified: the record is live, and the packet's key under the record's mask equals the record's key. So a
//! stale entry, or one whose id names another megaflow by now, costs a compare and never applies wrong actions.
//! Deleting a megaflow is one store, and no sweep races with lookups. A distributor's hint is weaker: it names the
//! subtable to ask.
//!
//! # Tables grow with the flows
//!
//! A cache uses only as many of its lines as the flows need (`fill.rs`), so a thousand flows stay in the processor's
//! first-level cache even if the table has room for millions. It uses more lines when flows replace each other often,
//! and requests more memory when its resident lines are in use. A control thread provides the memory: a PMD never waits
//! for a page fault (see `sluice-mem`).
#![forbid(unsafe_code)]

mod bucket;
mod counters;
mod distributor;
mod emc;
mod fill;
mod footprint;
mod id_set;
mod key_hash;
mod lineage;
mod masks;
mod node_pool;
mod parts;
mod prefixes;
mod prune_index;
#[cfg(test)]
mod pruned_twin;
mod pruning;
mod quota;
mod record;
mod smc;
mod stage;
#[cfg(test)]
mod stateful;
mod subtable;
mod subtables;
mod table;
mod tag_index;
mod tuple_space;

/// Entries that a cache or a distributor may be told to have, at most.
pub const CACHE_ENTRIES_MAX: usize = 1 << 28;

pub use counters::{CountersAt, FlowCounters};
pub use distributor::{Distributor, DistributorAnswers, DistributorTable};
pub use emc::{Emc, EmcUsage};
pub use key_hash::{flow_hash, hashes_together, key_hash, key_hashes};
pub use record::{FlowMatch, FlowVerdict, Mask, Megaflow};
pub use smc::Smc;
pub use stage::{Hits, LookupBatch, LookupStage};
pub use subtables::Subtables;
pub use table::{FlowDeleted, FlowView, Installed, MegaflowTable, NOTICES_MAX, PmdSide, PutError, ufid};
pub use tag_index::TagIndex;
pub use tuple_space::SubtableSearch;
pub use tuple_space::parts::{SearchPart, SearchRecord};

//! From a packet's key to its megaflow: the records all PMDs share, and each PMD's own indexes over them.
//!
//! - [`MegaflowTable`]: the [`Megaflow`] records in one arena, under stable ids; who installs, who removes, what each
//!   PMD has counted. Control threads and upcalls take its lock; lookups never do.
//! - [`Emc`], [`Smc`], [`Subtables`]: one PMD's indexes, `&mut`, no locks. They narrow the set of packets still
//!   missing: the caches are [`LookupStage`]s. A [`Distributor`] stands in front of the subtables and says which one to ask.
//!
//! An index entry is a hint. A hit is: the record is live, and the packet's key under the record's mask equals the
//! record's key. So a stale entry, or one whose id now names another megaflow, costs a compare and never an action.
#![forbid(unsafe_code)]

mod bucket;
mod counters;
mod distributor;
mod emc;
mod fill;
mod masks;
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

pub use counters::FlowCounters;
pub use distributor::{Distributor, DistributorAnswers, DistributorTable};
pub use emc::{Emc, EmcUsage};
pub use record::{FlowVerdict, Mask, Megaflow};
pub use smc::Smc;
pub use stage::{Hits, LookupBatch, LookupStage, key_hash, key_hashes};
pub use subtables::Subtables;
pub use table::{FlowDeleted, FlowView, Installed, MegaflowTable, PmdSide, ufid};

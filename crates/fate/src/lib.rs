//! Why a packet ended, and how packets are counted.
//!
//! Every packet meets one named fate, and the counters add up:
//!
//! ```text
//! received + originated + cloned = sent + delivered + dropped + held
//! ```
//!
//! A PMD counts into a [`Tally`], plain numbers on its own stack, and publishes it once a batch into its
//! [`PmdStats`], which anyone may read as a [`Snapshot`]. One writer, so publishing needs no locked add.
#![forbid(unsafe_code)]

mod counter;
mod drop_reason;
mod tally;

pub use counter::Counter;
pub use drop_reason::DropReason;
pub use tally::{Imbalance, PmdStats, Snapshot, Tally};

//! Drop reasons, packet counters and the conservation law.
//!
//! Every packet ends in exactly one way: sent, delivered to a controller or a local port, held, or dropped for a
//! [`DropReason`]. So at the end of every test, scenario and soak run the counters add up:
//!
//! ```text
//! received + originated + cloned + released = sent + delivered + dropped + held
//! ```
//!
//! Left are the packets that came into being, right is where they went. `cloned` counts copies. `held` counts packets
//! that began to wait (fragments, for instance) and `released` those that continued; neither ever decreases, so a
//! released packet appears again on the right with what became of it. Each receive queue has a tally of its own, so the
//! law also holds for the packets that each port received.
//!
//! A PMD counts into a [`Tally`], plain numbers on its own stack, and publishes it once a batch into its [`PmdStats`],
//! which any thread may read as a [`Snapshot`]. With a single writer, publishing needs no atomic addition.
//!
//! Bounds on shared resources are counted apart: see [`Limit`], [`SharedMemory`] for those on bytes, and [`FairRoom`] for
//! queues that several parties fill.
#![forbid(unsafe_code)]

mod counter;
mod drop_reason;
mod fair_room;
mod limit;
mod shared_memory;
mod tally;

pub use counter::Counter;
pub use drop_reason::DropReason;
pub use fair_room::FairRoom;
pub use limit::{Held, Limit, LimitWatch};
pub use shared_memory::{MemoryCharge, MemoryShare, SharedMemory};
pub use tally::{Imbalance, PmdStats, Snapshot, Tally};

//! Scenarios: rules in `ovs-ofctl` syntax, packets in, packets and counters out.
//!
//! A scenario is a text file beside this crate ([`script`] says what it may hold). It runs through tables and datapath
//! put together as the switch does it, once in every [`Setting`]: caches on and off, batches of 1 and 32, one PMD and
//! two with three queues, in the caller's thread and in their own. In all of them the same packets leave and the same
//! counters stand, and in the end every packet is accounted for.
#![forbid(unsafe_code)]

pub mod frame_text;
pub mod script;
mod switch;
mod verdict;
pub mod wire;

pub use script::{Script, Step};
pub use switch::{Setting, run};
pub use wire::Wire;

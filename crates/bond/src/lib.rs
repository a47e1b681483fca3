//! Bonds: several links that serve as one port, as Open vSwitch does them.
//!
//! A [`Bond`] decides which member a packet leaves by, which received packets are admitted, and how load moves between
//! members. It has no clock, socket or thread: time, the state of links and measured loads are its arguments.
//!
//! **Buckets.** What leaves a bond belongs to one of [`BUCKETS`] buckets: by its source address and VLAN, or by the hash of
//! its connection. Each bucket has a member. A failover or a rebalancing changes members of buckets, and nothing else, so
//! the code that forwards packets needs only this table ([`Bond::member_of`]).
//!
//! | module | what |
//! |---|---|
//! | [`config`] | what a bond is asked for |
//! | [`bond`] | members and their links, delays, the active member |
//! | [`buckets`] | the members of buckets, and rebalancing |
//! | [`admission`] | which received packets are admitted |
//! | [`command`] | what commands do to a bond |
//! | [`hash`] | the bucket of a source address and VLAN |
//! | [`text`] | a bond as `bond/show` shows it |

#![forbid(unsafe_code)]

mod admission;
mod bond;
mod buckets;
mod command;
mod config;
mod hash;
mod text;

pub use admission::{Admission, Verdict};
pub use bond::{Balance, Bond, MemberLink};
pub use buckets::BUCKETS;
pub use config::{Config, Mode};
pub use hash::bucket_of_source;
pub use text::LIST_HEADER;

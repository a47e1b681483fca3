//! Traffic profiles: which flows there are, which one comes next, what its frame looks like, and when it is due.
//!
//! A [`Profile`] is the configuration of traffic. [`Profile::streams`] turns it into one [`FlowStream`] for each
//! receive queue. Flows are spread over queues by a hash, as in a NIC. Each stream picks flows
//! ([`pick`](FlowStream::pick)) and writes their frames ([`writer`](FlowStream::writer)). A [`Pacer`] computes how many
//! packets are due.
//!
//! All random numbers come from the profile's seed, by generators of this crate, and time is an argument. So a profile
//! gives the same packets on every machine, in every version and for every batch size.
#![forbid(unsafe_code)]

mod divider;
mod flow_space;
mod frame_template;
mod pacer;
mod parse;
mod profile;
mod rng;
mod stream;
mod zipf;

pub use flow_space::{Flow, FlowSpace};
pub use frame_template::FRAME_SIZE_MIN;
pub use pacer::Pacer;
pub use parse::count as parse_count;
pub use profile::{Choice, Profile, ProfileError, Range, Rate, subtable_source};
pub use rng::SplitMix64;
pub use stream::{FlowStream, FrameWriter, flow_hash};

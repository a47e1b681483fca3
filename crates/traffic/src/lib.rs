//! Traffic profiles: which flows there are, which one comes next, what its frame looks like, and when it is due.
//!
//! A [`Profile`] is what the configuration says. [`Profile::streams`] makes it into one [`FlowStream`] a receive
//! queue: flows are split over queues by a hash, as a NIC would, and each stream picks flows ([`pick`](FlowStream::pick))
//! and writes their frames ([`writer`](FlowStream::writer)). A [`Pacer`] says how many packets are due.
//!
//! Randomness comes from the profile's seed through our own generator, time is an argument: the same profile is the
//! same packets, on every machine and in every version, whatever the size of the batches.
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

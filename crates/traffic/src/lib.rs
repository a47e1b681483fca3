//! Traffic profiles: flows, frames, rates, arrivals.
#![forbid(unsafe_code)]

//! The few vector verbs, each with a scalar twin that is its specification, and the processor's cycle counter.
//!
//! A verb works on whole cache lines (`[u8; 64]`) or on the eight little-endian words of one. What stands here now is
//! portable code in a shape that the compiler vectorises for whatever it may assume; a hand-written kernel goes into a
//! file of its own beside its twin, chosen once when a PMD starts.
#![deny(unsafe_code)]

pub mod compare;
pub mod hash;
pub mod lanes;
#[allow(unsafe_code)]
pub mod prefetch;
pub mod signature;
#[allow(unsafe_code)]
pub mod tsc;

pub use hash::HashKey;

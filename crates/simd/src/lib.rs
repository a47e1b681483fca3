//! The few vector verbs, each with a scalar twin that is its specification, and the processor's cycle counter.
//!
//! A verb works on whole cache lines (`[u8; 64]`) or on the eight little-endian words of one. Portable code stands in a
//! shape that the compiler vectorises for whatever it may assume; a hand-written kernel has a file of its own beside its
//! twin. Kernels beyond the program's own instruction set work on batches and take an [`Isa`].
#![deny(unsafe_code)]

pub mod compare;
pub mod hash;
pub mod hints;
pub mod isa;
pub mod lanes;
#[allow(unsafe_code)]
pub mod prefetch;
pub mod signature;
#[allow(unsafe_code)]
pub mod tsc;

pub use hash::HashKey;
pub use isa::Isa;

//! The few vector operations, each with a scalar twin that is its specification, and the processor's cycle counter.
//!
//! An operation works on whole cache lines (`[u8; 64]`) or on the eight little-endian words of one. Portable code stands in a
//! shape that the compiler vectorises for whatever it may assume; what is written by hand stands in one file an
//! instruction set beside its twin. VectorOps inside a batch's loop are [`VectorOps`], handed out by [`Isa::run`]; kernels that
//! take a batch whole take an [`Isa`].
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
pub mod vector_ops;

pub use hash::HashKey;
pub use isa::Isa;
pub use vector_ops::VectorOps;

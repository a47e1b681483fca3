//! The vector operations, each with a scalar twin that is its specification, and what the processor tells of itself: cycles, sizes of
//! caches, whether its core is shared.
//!
//! An operation works on whole cache lines (`[u8; 64]`) or on the eight little-endian words of one. Portable code is
//! written in a shape that the compiler vectorises for the instruction set it compiles for. Handwritten code is in one
//! file for each instruction set, beside its twin.
//!
//! There are two ways to use an instruction set. Code that processes packets in a loop is a [`Kernel`](isa::Kernel): it
//! is written once, compiled for each instruction set by [`Isa::run`], and receives that set's [`VectorOps`]. So the
//! choice is made once a batch, and the operations are inlined into the loop. Operations that process a whole batch
//! themselves ([`hints::find`], [`rows::intersect`], [`words::sum`]) take an [`Isa`].
#![deny(unsafe_code)]

pub mod cache_size;
pub mod compare;
pub mod core_share;
pub mod hash;
pub mod hints;
pub mod isa;
pub mod lanes;
#[allow(unsafe_code)]
pub mod prefetch;
pub mod rows;
pub mod signature;
#[allow(unsafe_code)]
pub mod tsc;
pub mod vector_ops;
pub mod words;

pub use hash::HashKey;
pub use isa::Isa;
pub use vector_ops::VectorOps;

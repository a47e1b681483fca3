//! Naive twins: linear classifier, map caches, byte-by-byte parser.
//!
//! Each is short enough to be right by reading it, shares no code with what it judges, and is as slow as it likes.
#![forbid(unsafe_code)]

mod linear_classifier;
pub mod parse;
pub mod pipeline;

pub use linear_classifier::{Clause, LinearClassifier, LinearRule};

//! Naive twins: linear classifier, map caches, byte-by-byte parser.
//!
//! Each is short enough to be verified by reading, shares no code with what it judges, and may be slow.
#![forbid(unsafe_code)]

mod linear_classifier;
pub mod parse;
pub mod pipeline;

pub use linear_classifier::{Clause, LinearClassifier, LinearRule};

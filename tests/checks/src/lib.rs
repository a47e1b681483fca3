//! What the tree promises about itself, checked from its text: who imports whom, where `unsafe` lives, how long files
//! and functions are. The promises are tests (`tests/`), the sizes a report (`src/bin/sizes.rs`).
#![forbid(unsafe_code)]

mod code;
mod tree;

pub use code::{blank, functions, words};
pub use tree::{Source, root, sources};

//! What the tree promises about itself, checked from its text: which crate imports which, where `unsafe` is, how long
//! files and functions are, which files import each other in a circle. The promises are tests (`tests/`), sizes and
//! circles reports (`src/bin`).
#![forbid(unsafe_code)]

mod circles;
mod code;
mod modules;
mod packages;
mod tree;

pub use circles::{Imports, circles};
pub use code::{blank, functions, words};
pub use modules::Modules;
pub use packages::{metadata, metadata_with_dependencies};
pub use tree::{Source, root, sources};

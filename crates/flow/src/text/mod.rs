//! The text of fields and matches as `ovs-ofctl` reads and writes it, and the tools that read other texts.
//!
//! Reading never panics, whatever the text, and its depth is bounded; an error says where it is, what stands there and
//! what was expected. What is written is what Open vSwitch 3.1 writes, byte for byte.

pub mod flags;
mod match_parse;
mod match_print;
pub mod number;
mod packet_print;
mod piece;
pub mod value;

pub use match_parse::{MatchReader, expect_no_tail};
pub use match_print::DisplayMatch;
pub use piece::{Delimiter, Pair, Piece};

/// An error in one piece of text, by its place in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Bytes from the start of the text.
    pub at: usize,
    /// What stands there.
    pub found: String,
    /// What should.
    pub expected: String,
}

/// What is wrong with a flow's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: found {found}, expected {expected}")]
pub struct FlowTextError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What stands there.
    pub found: String,
    /// What should.
    pub expected: String,
}

impl SyntaxError {
    /// The error with line and column, given the whole text.
    pub fn located(self, text: &str) -> FlowTextError {
        // A place may be anywhere, even in the middle of nothing, but never in the middle of a character.
        let before = text.get(..self.at).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |n| n + 1);
        FlowTextError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            found: self.found,
            expected: self.expected,
        }
    }
}

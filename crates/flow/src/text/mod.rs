//! The text of flows as `ovs-ofctl` reads and writes it.
//!
//! Reading never panics, whatever the text, and its depth is bounded; an error says where it is, what stands there and
//! what was expected. What is written is what Open vSwitch 3.1 writes, byte for byte.

mod action_args;
mod action_check;
mod action_parse;
mod action_print;
mod ct_args;
mod datapath_parse;
mod flags;
mod flow_parse;
mod flow_print;
mod group_parse;
mod group_print;
mod learn_args;
mod match_parse;
mod match_print;
mod meter_text;
mod number;
mod packet_print;
mod piece;
mod value;

pub use action_print::DisplayActions;
pub use datapath_parse::DatapathFlow;
pub use flow_print::{FlowLine, FlowLineStats};
pub use group_print::DisplayGroup;
pub use match_print::DisplayMatch;

/// An error in one piece of text, by its place in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    at: usize,
    found: String,
    expected: String,
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
    fn located(self, text: &str) -> FlowTextError {
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

//! The text of flows, groups and meters as `ovs-ofctl` reads and writes it.
//!
//! Reading never panics, whatever the text, and its depth is bounded; an error says where it is, what stands there and
//! what was expected. What is written is what Open vSwitch 3.1 writes, byte for byte.

mod action_args;
mod action_check;
mod action_parse;
mod action_print;
mod ct_args;
mod declared;
mod flow_parse;
mod flow_print;
mod group_parse;
mod group_print;
mod learn_args;
mod meter_text;

pub use action_print::DisplayActions;
pub use flow_print::{FlowLine, FlowLineStats};
pub use group_print::DisplayGroup;

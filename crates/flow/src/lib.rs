//! Flow keys and masks as whole cache lines, their extraction from bytes, and the `ovs-ofctl` text syntax.
//!
//! [`PacketKey`] is what the datapath knows of a packet, [`FlowKey`] adds what OpenFlow tables work with
//! (registers, metadata). Both have one fixed layout (see [`layout`]), so masking is one AND and comparing one
//! instruction a line; there is no sparse miniflow to gather from.
#![forbid(unsafe_code)]

mod extract;
mod key;
pub mod layout;

pub use extract::{Metadata, ParseError, extract, extract_again};
pub use key::{FlowKey, LINE_SIZE, Line, PacketKey};

//! Flow keys and masks as whole cache lines, their extraction from bytes, and the fields that OpenFlow has for them.
//!
//! [`PacketKey`] is what the datapath knows of a packet, [`FlowKey`] adds what OpenFlow tables work with
//! (registers, metadata). Both have one fixed layout (see [`layout`]), so masking is one AND and comparing one
//! instruction a line; there is no sparse miniflow to gather from.
//!
//! [`field`] is the table of fields and [`Match`] what a rule matches; [`text`] reads and writes both as `ovs-ofctl`
//! does. What rules do, and whole flows, groups and meters, are in the crate `ofp`.
#![forbid(unsafe_code)]

mod compact_key;
mod compose;
pub mod ct_state;
mod extract;
pub mod field;
mod flow_match;
pub mod geneve;
pub mod hash;
mod key;
pub mod layout;
mod mac;
mod of_port;
mod option_filter;
mod prereq;
mod subfield;
pub mod text;
mod tun_metadata;
mod tunnel_key;
mod wide;

pub use compact_key::CompactKey;
pub use compose::{compose, compose_of_size};
pub use extract::{Metadata, ParseError, extract, extract_again, extract_with};
pub use field::{Field, FieldId};
pub use flow_match::{DEFAULT_PRIORITY, Match};
pub use key::{FlowKey, LINE_SIZE, Line, PacketKey};
pub use mac::Mac;
pub use of_port::{OfPort, PortNames};
pub use option_filter::{NotFilterable, OptionFilter, PacketFilter};
pub use sluice_packet::VlanLimit;
pub use subfield::SubField;
pub use text::FlowTextError;
pub use tun_metadata::{TUN_METADATA_BYTES, TUN_METADATA_FIELDS, TunMetadata};
pub use tunnel_key::{TunnelKey, tunnel_flags};
pub use wide::{FieldValue, WIDE_WORDS, Wide};

//! Flow keys and masks as whole cache lines, their extraction from bytes, and the `ovs-ofctl` text syntax.
//!
//! [`PacketKey`] is what the datapath knows of a packet, [`FlowKey`] adds what OpenFlow tables work with
//! (registers, metadata). Both have one fixed layout (see [`layout`]), so masking is one AND and comparing one
//! instruction a line; there is no sparse miniflow to gather from.
//!
//! The flow language: [`field`] is the table of fields, [`Match`] what a rule matches, [`OfAction`] what it does,
//! [`FlowMod`] a whole line of flow text; [`GroupMod`] and [`MeterMod`] change groups and meters.
#![forbid(unsafe_code)]

mod compact_key;
pub mod consistency;
mod extract;
pub mod field;
mod flow_match;
mod flow_mod;
mod group;
pub mod hash;
mod key;
pub mod layout;
mod meter;
mod of_port;
pub mod ofpact;
mod paused;
mod prereq;
mod subfield;
pub mod text;

pub use compact_key::CompactKey;
pub use extract::{Metadata, ParseError, extract, extract_again, extract_with};
pub use field::{Field, FieldId};
pub use flow_match::Match;
pub use flow_mod::{DEFAULT_PRIORITY, FlowCommand, FlowFlags, FlowMod};
pub use group::{
    BUCKET_ALL, BUCKET_FIRST, BUCKET_LAST, BUCKET_MAX, Bucket, GROUP_ALL, GROUP_ANY, GROUP_MAX, GroupCommand,
    GroupConfig, GroupKind, GroupMod, Selection,
};
pub use key::{FlowKey, LINE_SIZE, Line, PacketKey};
pub use meter::{
    Band, BandKind, METER_ALL, METER_CONTROLLER, METER_MAX, METER_SLOWPATH, MeterCommand, MeterConfig, MeterMod,
};
pub use of_port::{OfPort, PortNames};
pub use ofpact::{Mac, OfAction};
pub use paused::{Paused, Stretch};
pub use subfield::SubField;
pub use text::FlowTextError;

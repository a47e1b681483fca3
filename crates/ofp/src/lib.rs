//! The OpenFlow language: what rules do, flow-mods, groups and meters, and their `ovs-ofctl` text both ways.
//!
//! [`OfAction`] is what a rule does, [`FlowMod`] a whole line of flow text; [`GroupMod`] and [`MeterMod`] change groups
//! and meters. What a rule matches, its fields and their text are in the crate `flow`; the same things as messages on a
//! wire are in the crate `openflow`.
#![forbid(unsafe_code)]

pub mod consistency;
mod flow_mod;
mod footprint;
mod group;
mod meter;
pub mod ofpact;
mod paused;
mod subfields;
pub mod text;
mod version;

pub use flow_mod::{FlowCommand, FlowFlags, FlowMod, FlowRemovedReason};
pub use group::{
    BUCKET_ALL, BUCKET_FIRST, BUCKET_LAST, BUCKET_MAX, Bucket, GROUP_ALL, GROUP_ANY, GROUP_MAX, GroupCommand,
    GroupConfig, GroupKind, GroupMod, Selection,
};
pub use meter::{
    Band, BandKind, METER_ALL, METER_CONTROLLER, METER_MAX, METER_SLOWPATH, MeterCommand, MeterConfig, MeterMod,
};
pub use ofpact::OfAction;
pub use paused::{Paused, Stretch};
pub use version::{Version, VersionBitmap};

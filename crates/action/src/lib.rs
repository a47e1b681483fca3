//! The instructions of the datapath: actions as plain data, megaflow records, and the [`Upcall`] trait behind which the
//! OpenFlow tables stand.
//!
//! The datapath knows keys, masks and actions; it never learns about rules. The tables know rules and produce
//! [`Translation`]s; they never learn about caches. This crate is all that both see of each other.
#![forbid(unsafe_code)]

mod action;
mod bond;
pub mod ct;
mod edit;
mod flow_memory;
mod megaflow;
mod meter;
mod sflow;
mod text;
mod upcall;

pub use action::{Action, Actions, HashAlgorithm, Header, MaskedField, PortNo, SetTunnel, TunnelPush};
pub use bond::{BondTable, BondTarget};
pub use ct::Ct;
pub use edit::edit;
pub use flow_memory::{ALLOCATION_BYTES, FlowCharge, FlowMemory, actions_bytes};
pub use megaflow::{
    AffectedFlow, FlowDump, FlowId, FlowModification, FlowStats, MegaflowMatch, MegaflowStore, Xcache, XcacheHandle,
    agree_under,
};
pub use meter::{MeterStats, MeterStore};
pub use sflow::{LABELS_MAX, LabelChange, SFlowAction};
pub use text::{
    DatapathFlow, DatapathPortNames, parse_actions, parse_option_filter, show_actions, show_flow, show_packet_key,
    show_put_flow, show_stats, show_ufid,
};
pub use upcall::{Miss, Translation, Upcall, UpcallResult};

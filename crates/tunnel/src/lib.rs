//! Tunnels: their types, what a port's options say of one, and their headers.
//!
//! Functions here read, write and decide on what they are given; there is no I/O and no state. Which packet belongs to
//! which tunnel port is decided by `sluice-ofproto`.
#![forbid(unsafe_code)]

mod c_number;
mod config;
pub mod header;
mod kind;
mod options;
mod show;
mod solicit;

pub use config::{Endpoint, Erspan, Inherited, Key, PayloadKind, TunnelConfig};
pub use kind::TunnelKind;
pub use options::{OptionsError, Parsed, parse};
pub use solicit::{solicit, solicited_node};

/// The time to live of a tunnel packet whose port does not say. Source: Open vSwitch lib/netdev.h, `DEFAULT_TTL`.
pub const DEFAULT_TTL: u8 = 64;

//! OpenFlow: messages and session state, bytes in, bytes out; no sockets.
//!
//! OpenFlow 1.0 to 1.5 with Nicira's extensions, as Open vSwitch 3.1 speaks them. [`Framer`] cuts a stream
//! into messages, [`Message`] reads and writes them. Fields are declared in the crate `flow`, actions in the crate
//! `ofp`, each once for wire and text.
#![forbid(unsafe_code)]

mod action;
mod bundle;
mod conn_memory;
mod consistency;
mod continuation;
mod error;
mod flow_removed;
mod frame;
mod instruction;
mod match10;
mod match11;
pub mod message;
mod option_lengths;
mod oxm;
mod packet_in;
mod packet_in_limit;
mod property;
mod session;
mod text;
mod wire;

pub use bundle::{BUNDLE_MEMORY, BUNDLES_MAX, bundled};
pub use conn_memory::ConnMemory;
pub use consistency::check_prerequisites;
pub use continuation::Continuation;
pub use error::{Error, ErrorCode, NICIRA, ONF};
pub use flow_removed::FlowRemoved;
pub use frame::{Framer, HEADER_SIZE, Header, MESSAGE_MAX};
pub use message::{Format, Message};
pub use option_lengths::OptionLengths;
pub use packet_in::{PacketIn, PacketInFormat, PacketOut};
pub use packet_in_limit::{PacketInCounts, PacketInLimit};
pub use session::{BundleCommit, Event, Peer, Request, Session};
pub use sluice_ofp::{Version, VersionBitmap};
pub use text::MessageText;

/// Tables of a bridge that controllers see. The number 255 means all of them. In table 254 Open vSwitch keeps rules of
/// its own.
pub const N_TABLES: u8 = 254;

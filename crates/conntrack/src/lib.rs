//! Connection tracking: which connection a packet belongs to, what state that is in, and its NAT.
//!
//! The act room calls [`Conntrack::execute`] with a packet, its key and a [`Ct`] (the arguments of `ct(…)`); it
//! finds or makes the connection, writes `ct_state`, `ct_zone`, `ct_mark`, `ct_label` and the original tuple into the
//! key, and rewrites packet and key for NAT. What it answers is what Open vSwitch 3.1's userspace tracker answers.
//!
//! ```text
//!  packet ──► tuple (extract) ──► connection (table) ──► state (tcp, states) ──► NAT (rewrite) ──► stamp
//!                                     │ none                                      ▲
//!                                     └──► admit (limits) ──► choose (nat) ───────┘
//! ```
//!
//! Threads: any number may call at once; the two directions of a connection may be on different ones. The table is in
//! shards, each behind a lock that is held for a lookup; a connection's state is behind its own. Nothing here reads a
//! clock or draws random numbers: both are in [`CtInput`].
//!
//! Each PMD keeps the connections it met lately ([`ConnCache`]); a packet of one of them meets no lock but the connection's.
//!
//! Fragments are held until their packet can be tracked whole: see [`fragments`].
//!
//! Expiry: a packet stores the connection's new end, nothing more. A connection past its end is not found any more;
//! [`Conntrack::expire`], called by a control thread, takes it out (see [`wheel`](mod@wheel)).
//!
//! Where it leaves Open vSwitch 3.1 on purpose: `force` in the reply direction replaces connections with NAT too;
//! `nat` without `src` or `dst` makes no translation for a new connection (there it makes one to address zero); a
//! connection that has ended but is not yet swept is the same as none (there a reply to one with NAT is invalid).
#![forbid(unsafe_code)]

mod conn_cache;
mod conn_key;
mod connection;
mod dump;
mod expectation;
pub mod fragments;
mod ftp;
mod inner;
mod key_fields;
mod limits;
mod nat;
mod request;
mod rewrite;
mod states;
mod table;
mod tcp;
pub mod text;
mod timeouts;
mod track;
mod tuple;
mod wheel;

pub use conn_cache::ConnCache;
pub use dump::{ConnEntry, Filter, TcpInfo, TupleFilter};
pub use key_fields::{clear, ct_state, invalid};
pub use limits::ZoneLimit;
pub use request::{CachedConn, Checksums, CommitError, CtInput, CtOutcome, CtPacket};
pub use sluice_action::ct::{Ct, Helper, Masked, NatSpec, NatTarget, PortChoice};
pub use table::Swept;
pub use tcp::TcpState;
pub use timeouts::{Timeout, TimeoutPolicy};
pub use track::{Config, ConnRef, Conntrack, CtMetadata, Diverged, L4Bytes, LookupRef};
pub use tuple::{Endpoint, Tuple};

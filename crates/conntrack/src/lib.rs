//! Connection tracking: which connection a packet belongs to, the state of the connection, and its NAT.
//!
//! The datapath calls [`Conntrack::execute`] with a packet, its key and a [`Ct`] (the arguments of `ct(…)`). It finds
//! the connection or begins one, writes `ct_state`, `ct_zone`, `ct_mark`, `ct_label` and the original tuple into the
//! key, and rewrites packet and key for NAT. The results are those of Open vSwitch 3.1's userspace tracker.
//!
//! ```text
//!  packet ──► key (conn_key) ──► connection (table) ──► state (states, tcp) ──► NAT (rewrite) ──► key_fields
//!                                     │ none                                      ▲
//!                                     └──► commit: admission (limits), address and port (nat)
//! ```
//!
//! # Three paths
//!
//! - The slow path (`track/slow_path.rs`) does everything for any packet.
//! - The fast path (`track/fast_path.rs`) is for packets whose connection is in the PMD's [`ConnCache`]. It takes no
//!   lock except the connection's own. For a batch it runs in three steps, so that cache misses overlap:
//!   [`Conntrack::extract`] for all packets, then [`Conntrack::prefetch`], then [`Conntrack::execute_extracted`].
//! - The replay (`track/replay.rs`) is for composed entries of the datapath, which know a packet's connection and the
//!   expected result. It only moves the connection's state on, and reports a result that diverges.
//!
//! # Sharing
//!
//! All PMDs share the connections; the two directions of a connection may be on different PMDs. The table is split into
//! shards, each behind a lock that is held for one lookup. A connection's own state is behind a lock in the connection.
//! A PMD keeps the connections that it used recently in its [`ConnCache`] and then needs only the latter. No code here
//! reads a clock or draws random numbers: both are in [`CtInput`].
//!
//! # Several passes
//!
//! A packet may meet several `ct` actions, with recirculation in between. What was found travels with the packet as
//! [`CachedConn`], so a second `ct` in the same zone does not count the packet twice.
//!
//! # Expiry
//!
//! A packet only stores the connection's new expiry time. Lookups do not find a connection that has expired;
//! [`Conntrack::expire`], which a control thread calls, removes it (see [`wheel`](mod@wheel)).
//!
//! # Fragments
//!
//! Fragments are held until their packet can be tracked as a whole: see [`fragments`].
//!
//! # Differences from Open vSwitch 3.1, on purpose
//!
//! - `force` in the reply direction also replaces connections with NAT.
//! - `nat` without `src` or `dst` makes no translation for a new connection; there it translates to address zero.
//! - A connection that has expired but is not yet removed counts as none; there a reply to one with NAT is invalid.
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
pub use track::{Config, ConnRef, Conntrack, CtMetadata, Diverged, HeadersAt, LookupRef, SHARDS};
pub use tuple::{Endpoint, Tuple};

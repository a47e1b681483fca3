//! A client of OVSDB servers: RFC 7047 with Open vSwitch's extensions.
//!
//! **Use.** Declare tables and columns ([`Table`], [`Column`]), make a [`Client`] for them, and give it time whenever
//! its socket is ready or its deadline has come ([`Client::run`]). Then read events ([`Session::next_event`]), changes
//! ([`Session::take_changes`]) and rows ([`Session::replica`]), and write the state that is wanted
//! ([`Session::commit`]): only what differs is sent.
//!
//! ```
//! use sluice_ovsdb::{AtomicType, Client, Column, Config, Remote, Table, Txn};
//!
//! let open_vswitch = Table::new("Open_vSwitch", [
//!     Column::scalar("next_cfg", AtomicType::Integer),
//!     Column::scalar("cur_cfg", AtomicType::Integer).omit_alert(),
//! ]);
//! let remotes = Remote::parse_list("unix:/run/openvswitch/db.sock")?;
//! let mut config = Config::new("Open_vSwitch", vec![open_vswitch], remotes);
//! config.lock = Some("ovs_vswitchd".into());
//! let mut client = Client::new(config, None)?;
//! client.run(0);
//! if client.session_mut().take_changes().alert() {
//!     let mut txn = Txn::new();
//!     if let Some(row) = client.session().replica().first("Open_vSwitch") {
//!         txn.set("Open_vSwitch", row.uuid(), "cur_cfg", row.get::<i64>("next_cfg"));
//!     }
//!     client.session_mut().commit(&txn)?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Layers**, each a test's size: [`Framer`] cuts the stream into JSON, [`Message`] reads JSON-RPC, [`Session`] holds
//! the conversation without I/O or clock, [`Client`] joins it to a socket. Beneath the session are the [`Replica`] and
//! its changes, and the [`Txn`] that is compared with it.
//!
//! **Limits.** A message has at most [`MESSAGE_MAX_BYTES`] and [`NESTING_MAX`] levels; bytes from a server never panic.
//! Every row of a declared table is monitored; conditions are not offered. Host names are not resolved.
//!
//! **Threads.** None of its own; everything is `Send` and has one owner.
//!
//! Names are those of OVS lib/jsonrpc, lib/reconnect, lib/ovsdb-cs and lib/ovsdb-idl.
#![forbid(unsafe_code)]

mod atom;
mod client;
mod column;
mod datum;
mod error;
mod framer;
mod jsonrpc;
mod reconnect;
mod remote;
mod replica;
mod schema;
mod session;
mod txn;
mod uuid;

pub use atom::{Atom, AtomicType, Real};
pub use client::{Client, Interest};
pub use column::{Column, ColumnType, Table};
pub use datum::Datum;
pub use error::{ConfigError, DatumError, FrameError, ProtocolError, TxnError};
pub use framer::{Framer, MESSAGE_MAX_BYTES, NESTING_MAX};
pub use jsonrpc::Message;
pub use reconnect::{BACKOFF_MAX_MS, BACKOFF_MIN_MS, PROBE_INTERVAL_MS};
pub use remote::{OVSDB_PORT, Remote};
/// How TLS is spoken to servers.
pub use rustls::ClientConfig as TlsConfig;

pub use replica::{Change, ChangeKind, Changes, FromDatum, Lacking, Replica, Row};
pub use schema::Schema;
pub use session::{Action, Config, DisconnectReason, Event, LockState, Session};
pub use txn::{Commit, Mutation, Txn, TxnId, TxnStatus};
pub use uuid::{BadUuid, Uuid};

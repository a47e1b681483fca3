//! The OpenFlow service of bridges: the connections of their controllers, and what these connections ask for.
//!
//! [`OpenFlowService`] serves every bridge on a Unix socket, on the TCP and TLS addresses it is told, and connects to the
//! bridge's controllers. What it needs of the switch around it is a [`Backend`]; the tables are [`sluice_ofproto`]'s.
//!
//! | module | what |
//! |---|---|
//! | [`service`], [`settings`], [`backend`] | what the switch calls, what it says, what it provides |
//! | [`listener`], [`stream`], [`tls`], [`unix_socket`], [`target`] | sockets |
//! | [`connection`] | one connection, a thread of its own |
//! | [`controllers`], [`fail_open`] | controllers that the switch connects to, and a bridge without them |
//! | [`snoop`] | clients that listen to the messages of a controller |
//! | [`hub`], [`switch`] | the connections of a bridge, and asynchronous messages for them; all bridges |
//! | [`request`], [`flow_mods`], [`flows`], [`groups`], [`meters`], [`monitor`], [`ports`], [`packets`] within [`limits`], [`tables`] | requests carried out |
//!
//! **Threads.** One for each listener, each controller and each connection. None of them holds a lock while it waits for
//! a peer.
#![forbid(unsafe_code)]

mod backend;
mod connection;
mod controllers;
mod error;
mod fail_open;
mod flow_mods;
mod flows;
mod groups;
mod hub;
mod limits;
mod listener;
mod meters;
mod monitor;
mod packets;
mod ports;
mod request;
mod service;
mod settings;
mod snoop;
mod stream;
mod switch;
mod tables;
mod target;
mod tls;
pub mod unix_socket;

pub use backend::{Backend, ControllerUpcall, Device, DeviceCounters, NoBuffer, PacketOut};
pub use error::Error;
pub use service::OpenFlowService;
pub use settings::{BridgeSettings, ControllerSettings, RateLimit};
pub use target::{ActiveTarget, PassiveTarget, TargetError};
pub use tls::{TlsError, TlsFile, TlsFiles};
pub use unix_socket::SocketError;

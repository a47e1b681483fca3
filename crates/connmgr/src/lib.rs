//! The OpenFlow service of bridges: the connections of their controllers, and what these connections ask for.
//!
//! [`OpenFlowService`] listens for a bridge's clients on a Unix socket and on TCP and TLS addresses, and connects to the
//! bridge's controllers. The switch around it is a [`Backend`]; the tables are those of [`sluice_ofproto`].
//!
//! | module | what |
//! |---|---|
//! | [`service`], [`settings`], [`backend`] | what the switch calls, what it sets, what it provides |
//! | [`switch`], [`conn_mgr`], [`conn_handle`] | all bridges, the connections of a bridge, a connection as others see it |
//! | [`async_msg`], [`known_ports`] | what connections are told without asking |
//! | [`listener`], [`stream`], [`tls`], [`unix_socket`], [`target`] | sockets |
//! | [`connection`], [`close_reason`] | one connection, a thread of its own |
//! | [`served_bridge`], [`serve_context`], [`end_signal`] | the sockets and controllers of a bridge, which come and go |
//! | [`controllers`], [`controller_status`], [`fail_open`], [`in_band`] | controllers that the switch connects to, a bridge without them, and the way to them |
//! | [`snoop`] | clients that get a copy of a controller's messages |
//! | [`request`], [`flow_mods`], [`flow_mod_report`], [`flows`], [`groups`], [`meters`], [`ports`], [`queues`], [`tables`], [`ct_flush`], [`tlv_table`] | requests carried out |
//! | [`packets`], [`packet_in_limits`] | packet-outs and packet-ins |
//! | [`flow_monitor`], [`flow_updates`] | flow monitors, and what they are told |
//!
//! **Threads.** One for each listener, each controller and each connection. None of them holds a lock while it waits for
//! a peer.
#![forbid(unsafe_code)]

mod async_msg;
mod backend;
mod close_reason;
mod conn_handle;
mod conn_mgr;
mod conn_origin;
mod connection;
mod controller_status;
mod controllers;
mod ct_flush;
mod end_signal;
mod error;
mod fail_open;
mod flow_mod_report;
mod flow_mods;
mod flow_monitor;
mod flow_updates;
mod flows;
mod groups;
mod in_band;
mod known_ports;
mod listener;
mod meters;
mod packet_in_limits;
mod packets;
mod ports;
mod queues;
mod request;
mod serve_context;
mod served_bridge;
mod service;
mod settings;
mod snoop;
mod stream;
mod switch;
mod tables;
mod target;
mod tls;
mod tlv_table;
pub mod unix_socket;
mod usage;

pub use backend::{Backend, ControllerUpcall, Device, DeviceCounters, NoBuffer, PacketOut, QueueCounters};
pub use controller_status::{ControllerState, ControllerStatus};
pub use error::Error;
pub use served_bridge::openflow_sockets;
pub use service::OpenFlowService;
pub use settings::{
    BUNDLE_IDLE_TIMEOUT, BridgeDescription, BridgeSettings, ControllerKind, ControllerSettings, InBandSettings,
    RateLimit,
};
pub use sluice_openflow::{BUNDLE_MEMORY, ConnMemory};
pub use target::{ActiveTarget, PassiveTarget, TargetError};
pub use tls::{Tls, TlsError, TlsFile, TlsFiles};
pub use unix_socket::{SocketError, SocketMode};

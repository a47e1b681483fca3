//! The control socket: the protocol of `ovs-appctl`, which is JSON-RPC 1.0 over a Unix stream socket.
//!
//! A request is `{"id": …, "method": "name", "params": ["arg", …]}`, the reply `{"id": …, "result": "text",
//! "error": null}` or the other way round. What comes from the socket is bounded in length, in time and in
//! connections; whatever it is, it costs its own connection at most.
#![forbid(unsafe_code)]

mod client;
mod reply;
mod request;
mod server;

pub use client::{ClientError, follow, transact};
pub use reply::{Pieces, reply};
pub use request::{REQUEST_TIME_MAX, Request, Requests};
pub use server::{CONNECTIONS_MAX, Commands, Server, Streamed};

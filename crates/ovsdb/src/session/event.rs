//! What a session asks of its driver, and what it tells its user.

use crate::jsonrpc::Message;
use crate::replica::Lacking;
use crate::{FrameError, ProtocolError, Remote, TxnId, TxnStatus};
use std::fmt;

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Connect; then say [`crate::Session::connected`] or [`crate::Session::disconnected`].
    Connect(Remote),
    /// Send a message over the connection.
    Send(Message),
    /// Close the connection, or the attempt at one. Nothing need be said back.
    Disconnect,
}

/// The session's lock. Source: RFC 7047 section 4.1.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// There is no lock to hold, or the server's answer has not come.
    Unknown,
    /// This client owns it: it may write.
    Held,
    /// Another client owns it; the server will say when it no longer does.
    Contended,
}

/// Why a connection, or an attempt at one, ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DisconnectReason {
    /// The attempt failed, with the system's reason.
    ConnectFailed(String),
    /// The attempt took too long.
    ConnectTimeout,
    /// The peer closed the connection.
    ClosedByPeer,
    /// The connection broke, with the system's reason, or TLS's.
    Dropped(String),
    /// The peer sent something that is not JSON-RPC.
    Frame(FrameError),
    /// The peer does not answer.
    Silence {
        /// How long it was asked, in milliseconds.
        ms: u64,
    },
    /// The peer breaks the protocol, or refuses what the client needs.
    Protocol(ProtocolError),
    /// The server cannot serve this client now; another may.
    Unsuitable(&'static str),
}

/// What happened. As text: Open vSwitch's log lines.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An attempt to connect begins.
    Connecting(Remote),
    /// There is a connection; contents follow.
    Connected(Remote),
    /// The connection, or the attempt at one, ended.
    Disconnected {
        /// The remote.
        remote: Remote,
        /// Why.
        reason: DisconnectReason,
        /// The pause until the next attempt, in milliseconds.
        retry_ms: u64,
    },
    /// What is declared and the server's schema lacks; told when it changes.
    Lacking(Vec<Lacking>),
    /// The replica has the database's contents, whole: after a connection, or after a conversion of the database.
    Synced,
    /// The database is being converted to another schema; [`Event::Synced`] follows.
    MonitorCanceled,
    /// The lock's state changed.
    Lock(LockState),
    /// A transaction came to its end.
    Finished(TxnId, TxnStatus),
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DisconnectReason::ConnectFailed(why) => write!(f, "connection attempt failed ({why})"),
            DisconnectReason::ConnectTimeout => f.write_str("connection attempt timed out"),
            DisconnectReason::ClosedByPeer => f.write_str("connection closed by peer"),
            DisconnectReason::Dropped(why) => write!(f, "connection dropped ({why})"),
            DisconnectReason::Frame(error) => write!(f, "connection dropped ({error})"),
            DisconnectReason::Silence { ms } => {
                write!(f, "no response to inactivity probe after {} seconds, disconnecting", ms / 1000)
            }
            DisconnectReason::Protocol(error) => write!(f, "connection dropped ({error})"),
            DisconnectReason::Unsuitable(why) => write!(f, "{why}; trying another server"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Connecting(remote) => write!(f, "{remote}: connecting..."),
            Event::Connected(remote) => write!(f, "{remote}: connected"),
            Event::Disconnected { remote, reason, .. } => write!(f, "{remote}: {reason}"),
            Event::Lacking(list) => {
                let name = |l: &Lacking| l.column.map_or(l.table.to_owned(), |column| format!("{}.{column}", l.table));
                write!(f, "the database schema lacks {}", list.iter().map(name).collect::<Vec<_>>().join(", "))
            }
            Event::Synced => f.write_str("database contents received"),
            Event::MonitorCanceled => f.write_str("database monitor canceled"),
            Event::Lock(LockState::Unknown) => f.write_str("lock state unknown"),
            Event::Lock(LockState::Held) => f.write_str("lock acquired"),
            Event::Lock(LockState::Contended) => f.write_str("lock held by another client"),
            Event::Finished(TxnId(id), status) => write!(f, "transaction {id}: {status:?}"),
        }
    }
}

//! Why a bridge cannot be served.

use crate::target::PassiveTarget;
use crate::unix_socket::SocketError;
use std::io;

/// Why a bridge cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A Unix socket cannot be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A TCP or TLS socket cannot be made.
    #[error("bridge {bridge}: {target}: {source}")]
    Listen {
        /// The bridge.
        bridge: String,
        /// The address.
        target: PassiveTarget,
        /// What the system says.
        source: io::Error,
    },
    /// The system is out of threads or descriptors.
    #[error("bridge {bridge}: OpenFlow: {source}")]
    System {
        /// The bridge.
        bridge: String,
        /// What the system says.
        source: io::Error,
    },
}

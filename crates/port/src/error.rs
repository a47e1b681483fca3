//! Why a port could not be opened, in one line that includes the remedy.

use crate::pcap::CaptureError;
use sluice_mem::PoolError;
use std::io;

/// Why a port could not be opened. The text includes the cause, which is therefore not a `source` and not printed
/// twice.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Unknown type.
    #[error("port {port}: type \"{kind}\" is not known; expected one of {}", known.join(", "))]
    #[expect(missing_docs, reason = "the names say it")]
    UnknownType { port: String, kind: String, known: Vec<&'static str> },

    /// Unknown option for the type.
    #[error("port {port}: option \"{key}\" is not known to type {kind}; expected one of {}", known.join(", "))]
    #[expect(missing_docs, reason = "the names say it")]
    UnknownOption { port: String, kind: &'static str, key: String, known: Vec<&'static str> },

    /// An invalid option value.
    #[error("port {port}: {key} = \"{value}\": expected {expected}")]
    #[expect(missing_docs, reason = "the names say it")]
    BadOption { port: String, key: &'static str, value: String, expected: String },

    /// A required option is missing.
    #[error("port {port}: type {kind} needs option {key}: {expected}")]
    #[expect(missing_docs, reason = "the names say it")]
    MissingOption { port: String, kind: &'static str, key: &'static str, expected: &'static str },

    /// A failure of the device or file.
    #[error("port {port}: {what}: {cause}; {remedy}")]
    #[expect(missing_docs, reason = "the names say it")]
    Device { port: String, what: String, cause: io::Error, remedy: &'static str },

    /// A failure of DPDK or one of its devices; or this program was built without DPDK.
    #[error("port {port}: {reason}")]
    #[expect(missing_docs, reason = "the names say it")]
    Dpdk { port: String, reason: String },

    /// The capture is invalid.
    #[error("port {port}: {cause}")]
    #[expect(missing_docs, reason = "the names say it")]
    Capture { port: String, cause: CaptureError },

    /// No memory for its packets.
    #[error("port {port}: {cause}")]
    #[expect(missing_docs, reason = "the names say it")]
    Pool { port: String, cause: PoolError },
}

impl OpenError {
    /// Whether only another configuration helps: trying again would fail in the same way.
    pub fn is_of_configuration(&self) -> bool {
        matches!(
            self,
            OpenError::UnknownType { .. }
                | OpenError::UnknownOption { .. }
                | OpenError::BadOption { .. }
                | OpenError::MissingOption { .. }
        )
    }
}

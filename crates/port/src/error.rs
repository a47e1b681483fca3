//! Why a port could not be opened: each in one line with its remedy.

use crate::pcap::CaptureError;
use sluice_mem::PoolError;
use std::io;

/// Why a port could not be opened. Each says all there is to say: what caused it stands in the line, and so is no `source`, which
/// would be told twice.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No such type.
    #[error("port {port}: type \"{kind}\" is not known; expected one of {}", known.join(", "))]
    #[expect(missing_docs, reason = "the names say it")]
    UnknownType { port: String, kind: String, known: Vec<&'static str> },

    /// The type has no such option.
    #[error("port {port}: option \"{key}\" is not known to type {kind}; expected one of {}", known.join(", "))]
    #[expect(missing_docs, reason = "the names say it")]
    UnknownOption { port: String, kind: &'static str, key: String, known: Vec<&'static str> },

    /// An option's value is wrong.
    #[error("port {port}: {key} = \"{value}\": expected {expected}")]
    #[expect(missing_docs, reason = "the names say it")]
    BadOption { port: String, key: &'static str, value: String, expected: String },

    /// An option is missing that the type cannot do without.
    #[error("port {port}: type {kind} needs option {key}: {expected}")]
    #[expect(missing_docs, reason = "the names say it")]
    MissingOption { port: String, kind: &'static str, key: &'static str, expected: &'static str },

    /// The device or file did not do as asked.
    #[error("port {port}: {what}: {cause}; {remedy}")]
    #[expect(missing_docs, reason = "the names say it")]
    Device { port: String, what: String, cause: io::Error, remedy: &'static str },

    /// DPDK, or one of its devices, did not do as asked; or this program was built without it.
    #[error("port {port}: {reason}")]
    #[expect(missing_docs, reason = "the names say it")]
    Dpdk { port: String, reason: String },

    /// Its capture is not one.
    #[error("port {port}: {cause}")]
    #[expect(missing_docs, reason = "the names say it")]
    Capture { port: String, cause: CaptureError },

    /// No memory for its packets.
    #[error("port {port}: {cause}")]
    #[expect(missing_docs, reason = "the names say it")]
    Pool { port: String, cause: PoolError },
}

impl OpenError {
    /// Whether nothing but another configuration helps: a second try would fail in the same way.
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

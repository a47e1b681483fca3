//! What can go wrong when a state is carried out.

use crate::desired::Invalid;
use sluice_datapath::DatapathError;
use sluice_mem::PoolError;
use sluice_port::OpenError;

/// Why a step could not be taken. Each says all there is to say in one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The state asks for what cannot be.
    #[error("{0}")]
    Invalid(Invalid),
    /// The datapath refused it.
    #[error("{0}")]
    Datapath(DatapathError),
    /// The tables refused it.
    #[error("{0}")]
    Tables(sluice_ofproto::Error),
    /// A port could not be opened.
    #[error("{0}")]
    Open(OpenError),
    /// The datapath refused a port.
    #[error("port {port}: {error}")]
    Port {
        /// Its name.
        port: String,
        /// Why.
        error: DatapathError,
    },
    /// Another port has the name.
    #[error("port {port}: bridge {bridge} already has a port of that name")]
    PortName {
        /// The name.
        port: String,
        /// Whose port that is.
        bridge: String,
    },
    /// No number is left for a port.
    #[error("port {port}: all port numbers of bridge {bridge} are taken")]
    NoPortNumber {
        /// Its name.
        port: String,
        /// Its bridge.
        bridge: String,
    },
    /// No number is left for a port of the datapath.
    #[error("port {0}: all port numbers of the datapath are taken")]
    NoDatapathNumber(String),
    /// There is no memory for packets.
    #[error("{0}")]
    Pool(PoolError),
    /// Meters, groups or rules are written wrongly, or the tables refused them.
    #[error("{origin}: {message}")]
    Source {
        /// The file.
        origin: String,
        /// The place in it, and what is wrong.
        message: String,
    },
}

impl Error {
    /// Whether nothing but another configuration helps: a second try would fail in the same way.
    pub fn is_of_configuration(&self) -> bool {
        matches!(self, Error::Open(error) if error.is_of_configuration())
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Error::Invalid(invalid)
    }
}

impl From<DatapathError> for Error {
    fn from(error: DatapathError) -> Self {
        Error::Datapath(error)
    }
}

impl From<sluice_ofproto::Error> for Error {
    fn from(error: sluice_ofproto::Error) -> Self {
        Error::Tables(error)
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        Error::Open(error)
    }
}

impl From<PoolError> for Error {
    fn from(error: PoolError) -> Self {
        Error::Pool(error)
    }
}

//! What can go wrong when a state is carried out.

use crate::desired::Invalid;
use sluice_connmgr::TlsError;
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
    #[error("port {port}: bridge {bridge} has one of that name already")]
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
    /// A bridge could not be served.
    #[error("{0}")]
    OpenFlow(sluice_connmgr::Error),
    /// Key and certificates are of no use.
    #[error("{0}")]
    Tls(TlsError),
    /// There can be no thread.
    #[error("{thread} thread: {error}")]
    Thread {
        /// Its name.
        thread: &'static str,
        /// What the system says.
        error: std::io::Error,
    },
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

/// A port that could not be opened or added.
#[derive(Debug)]
pub struct PortFailure {
    /// Its name.
    pub port: String,
    /// Why.
    pub error: Error,
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

impl From<sluice_connmgr::Error> for Error {
    fn from(error: sluice_connmgr::Error) -> Self {
        Error::OpenFlow(error)
    }
}

impl From<TlsError> for Error {
    fn from(error: TlsError) -> Self {
        Error::Tls(error)
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

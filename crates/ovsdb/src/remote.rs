//! Where a database server listens.

use crate::ConfigError;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// The port of `tcp:` and `ssl:` without one. Source: IANA; OVS lib/ovsdb-server, `OVSDB_PORT`.
pub const OVSDB_PORT: u16 = 6640;

/// A server's address.
///
/// Shape:  `unix:PATH`, `tcp:IP[:PORT]` or `ssl:IP[:PORT]`, IPv6 addresses in brackets. Host names are refused:
/// resolving them blocks. Source: ovsdb(7), "Active OVSDB Connections".
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Remote {
    /// A socket in the file system.
    Unix(PathBuf),
    /// TCP.
    Tcp(SocketAddr),
    /// TLS over TCP.
    Ssl(SocketAddr),
}

impl Remote {
    /// Reads a list with commas between the remotes, as `ovs-vswitchd` takes it for a cluster.
    ///
    /// # Errors
    /// With the first remote that cannot be understood, or if there is none.
    pub fn parse_list(text: &str) -> Result<Vec<Remote>, ConfigError> {
        let remotes: Vec<Remote> =
            text.split(',').filter(|part| !part.is_empty()).map(str::parse).collect::<Result<_, _>>()?;
        if remotes.is_empty() { Err(ConfigError::NoRemote) } else { Ok(remotes) }
    }

    /// Whether silence is a reason to ask if the server is still there. The kernel tells when the other end of a socket
    /// in the file system is gone. Source: OVS lib/stream-unix.c, no `needs_probes`.
    pub(crate) fn needs_probes(&self) -> bool {
        !matches!(self, Remote::Unix(_))
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remote::Unix(path) => write!(f, "unix:{}", path.display()),
            Remote::Tcp(address) => write!(f, "tcp:{address}"),
            Remote::Ssl(address) => write!(f, "ssl:{address}"),
        }
    }
}

impl FromStr for Remote {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let bad = |problem| ConfigError::Remote { text: text.to_owned(), problem };
        match text.split_once(':') {
            Some(("unix", "")) => Err(bad("expected a path behind \"unix:\"")),
            Some(("unix", path)) => Ok(Remote::Unix(PathBuf::from(path))),
            Some(("tcp", address)) => parse_address(address).map(Remote::Tcp).ok_or_else(|| bad("expected IP[:PORT]")),
            Some(("ssl", address)) => parse_address(address).map(Remote::Ssl).ok_or_else(|| bad("expected IP[:PORT]")),
            _ => Err(bad("expected unix:PATH, tcp:IP[:PORT] or ssl:IP[:PORT]")),
        }
    }
}

fn parse_address(text: &str) -> Option<SocketAddr> {
    let without_brackets = |ip: &str| ip.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    text.parse().ok().or_else(|| Some(SocketAddr::new(without_brackets(text)?, OVSDB_PORT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remotes_are_read_and_written() {
        for text in ["unix:/run/db.sock", "tcp:127.0.0.1:6640", "ssl:[::1]:6641"] {
            assert_eq!(text.parse::<Remote>().unwrap().to_string(), text);
        }
        assert_eq!("tcp:127.0.0.1".parse::<Remote>().unwrap().to_string(), "tcp:127.0.0.1:6640");
        assert_eq!("ssl:[::1]".parse::<Remote>().unwrap().to_string(), "ssl:[::1]:6640");
        assert_eq!(Remote::parse_list("tcp:1.1.1.1:1,tcp:1.1.1.2:1").unwrap().len(), 2);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "unix:", "tcp:", "tcp:example.org:6640", "ptcp:6640", "/run/db.sock", "tcp:1.1.1.1:1,x"] {
            assert!(Remote::parse_list(text).is_err(), "{text}");
        }
    }
}

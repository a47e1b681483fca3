//! Where OpenFlow is spoken: `ptcp:PORT`, `tcp:HOST:PORT` and the like. Source: `ovs-vswitchd(8)`, connection methods.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// OpenFlow's port. Source: IANA.
const OPENFLOW_PORT: u16 = 6653;

/// Where to listen: a passive connection method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassiveTarget {
    /// `ptcp:[PORT][:ADDRESS]`.
    Tcp(SocketAddr),
    /// `pssl:[PORT][:ADDRESS]`.
    Tls(SocketAddr),
    /// `punix:FILE`.
    Unix(PathBuf),
}

/// Where to connect to: an active connection method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActiveTarget {
    /// `tcp:ADDRESS[:PORT]`.
    Tcp(SocketAddr),
    /// `ssl:ADDRESS[:PORT]`.
    Tls(SocketAddr),
    /// `tcp:NAME[:PORT]` or `ssl:NAME[:PORT]`: the name is looked up at each attempt.
    Named(NamedTarget),
    /// `unix:FILE`.
    Unix(PathBuf),
    /// Something that cannot be connected to. A front end that must keep a wrong controller has it; every attempt fails.
    Unresolved(String),
}

/// A controller by the name of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTarget {
    /// Whether TLS is spoken.
    pub is_tls: bool,
    /// The host.
    pub name: String,
    /// Its port.
    pub port: u16,
}

/// A text that is no connection method.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\"; expected {expected}")]
pub struct TargetError {
    text: String,
    expected: &'static str,
}

impl FromStr for PassiveTarget {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let expected = "\"ptcp:[PORT][:ADDRESS]\", \"pssl:[PORT][:ADDRESS]\" or \"punix:FILE\"";
        let wrong = || TargetError { text: text.to_owned(), expected };
        let (kind, rest) = text.split_once(':').ok_or_else(wrong)?;
        let make = match kind {
            "ptcp" => PassiveTarget::Tcp,
            "pssl" => PassiveTarget::Tls,
            "punix" if !rest.is_empty() => return Ok(PassiveTarget::Unix(rest.into())),
            _ => return Err(wrong()),
        };
        let (port, address) = rest.split_once(':').unwrap_or((rest, ""));
        let port = if port.is_empty() { OPENFLOW_PORT } else { port.parse().map_err(|_| wrong())? };
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let address = if address.is_empty() { any } else { ip(address).ok_or_else(wrong)? };
        Ok(make(SocketAddr::new(address, port)))
    }
}

impl fmt::Display for PassiveTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, address) = match self {
            PassiveTarget::Tcp(address) => ("ptcp", address),
            PassiveTarget::Tls(address) => ("pssl", address),
            PassiveTarget::Unix(path) => return write!(f, "punix:{}", path.display()),
        };
        match address.ip() {
            IpAddr::V4(ip) => write!(f, "{kind}:{}:{ip}", address.port()),
            IpAddr::V6(ip) => write!(f, "{kind}:{}:[{ip}]", address.port()),
        }
    }
}

impl FromStr for ActiveTarget {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let expected = "\"tcp:HOST[:PORT]\", \"ssl:HOST[:PORT]\" or \"unix:FILE\"";
        let wrong = || TargetError { text: text.to_owned(), expected };
        let (kind, rest) = text.split_once(':').filter(|(_, rest)| !rest.is_empty()).ok_or_else(wrong)?;
        let make = match kind {
            "unix" => return Ok(ActiveTarget::Unix(rest.into())),
            "tcp" => ActiveTarget::Tcp,
            "ssl" => ActiveTarget::Tls,
            _ => return Err(wrong()),
        };
        // An IPv6 address stands in brackets, so the last colon outside of them is the port's.
        let (address, port) = match rest.rsplit_once(':') {
            Some((address, port)) if !port.contains(']') => (address, port.parse().map_err(|_| wrong())?),
            _ => (rest, OPENFLOW_PORT),
        };
        if let Some(address) = ip(address) {
            return Ok(make(SocketAddr::new(address, port)));
        }
        if !is_host_name(address) {
            return Err(wrong());
        }
        Ok(ActiveTarget::Named(NamedTarget { is_tls: kind == "ssl", name: address.to_owned(), port }))
    }
}

/// Whether a text may be the name of a host.
fn is_host_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

impl fmt::Display for ActiveTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ActiveTarget::Tcp(address) => write!(f, "tcp:{address}"),
            ActiveTarget::Tls(address) => write!(f, "ssl:{address}"),
            ActiveTarget::Named(NamedTarget { is_tls, name, port }) => {
                write!(f, "{}:{name}:{port}", if *is_tls { "ssl" } else { "tcp" })
            }
            ActiveTarget::Unix(path) => write!(f, "unix:{}", path.display()),
            ActiveTarget::Unresolved(text) => f.write_str(text),
        }
    }
}

fn ip(text: &str) -> Option<IpAddr> {
    text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_addresses_may_be_left_out() {
        let listen = |text: &str| match text.parse() {
            Ok(PassiveTarget::Tcp(address)) => Ok(address.to_string()),
            Ok(PassiveTarget::Tls(address)) => Ok(format!("TLS {address}")),
            Ok(PassiveTarget::Unix(path)) => Ok(path.display().to_string()),
            Err(wrong) => Err(wrong),
        };
        assert_eq!(listen("ptcp:"), Ok("0.0.0.0:6653".into()));
        assert_eq!(listen("ptcp:6633"), Ok("0.0.0.0:6633".into()));
        assert_eq!(listen("ptcp:0:127.0.0.1"), Ok("127.0.0.1:0".into()));
        assert_eq!(listen("ptcp:1:[::1]"), Ok("[::1]:1".into()));
        assert_eq!(listen("pssl:7"), Ok("TLS 0.0.0.0:7".into()));
        assert!(["tcp:1", "ptcp:x", "ptcp:1:host", "punix:", ""].iter().all(|t| t.parse::<PassiveTarget>().is_err()));
    }

    #[test]
    fn controllers_are_addresses_or_files() {
        let tcp = |text: &str| ActiveTarget::Tcp(text.parse().unwrap());
        assert_eq!("tcp:1.2.3.4".parse(), Ok(tcp("1.2.3.4:6653")));
        assert_eq!("tcp:[fe80::1]:66".parse(), Ok(tcp("[fe80::1]:66")));
        assert_eq!("tcp:[fe80::1]".parse(), Ok(tcp("[fe80::1]:6653")));
        assert_eq!("ssl:1.2.3.4:5".parse(), Ok(ActiveTarget::Tls("1.2.3.4:5".parse().unwrap())));
        assert_eq!("unix:/run/c.sock".parse(), Ok(ActiveTarget::Unix("/run/c.sock".into())));
        let named = NamedTarget { is_tls: true, name: "controller.example".into(), port: 6653 };
        assert_eq!("ssl:controller.example".parse(), Ok(ActiveTarget::Named(named)));
        assert!(
            ["tcp:", "tcp:a host", "tcp:host:x", "unix:", "udp:1.2.3.4"]
                .iter()
                .all(|t| t.parse::<ActiveTarget>().is_err())
        );
    }

    #[test]
    fn targets_are_shown_as_they_are_read() {
        for text in ["ptcp:6633:0.0.0.0", "pssl:1:[::1]", "punix:/run/br0.x"] {
            assert_eq!(text.parse::<PassiveTarget>().unwrap().to_string(), text);
        }
        for text in ["tcp:1.2.3.4:5", "ssl:[fe80::1]:6653", "tcp:host.example:6653", "unix:/run/c.sock"] {
            assert_eq!(text.parse::<ActiveTarget>().unwrap().to_string(), text);
        }
    }
}

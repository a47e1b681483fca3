//! Where OpenFlow is spoken: `ptcp:PORT`, `tcp:HOST:PORT` and the like. Source: `ovs-vswitchd(8)`, connection methods.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// OpenFlow's port. Source: IANA.
const OPENFLOW_PORT: u16 = 6653;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// `ptcp:[PORT][:ADDRESS]`.
    Tcp(SocketAddr),
    /// `pssl:[PORT][:ADDRESS]`.
    Tls(SocketAddr),
}

impl Listen {
    /// Reads a listener.
    ///
    /// # Errors
    /// With what was expected.
    pub fn parse(text: &str) -> Result<Listen, String> {
        let wrong = || format!("\"{text}\"; expected \"ptcp:[PORT][:ADDRESS]\" or \"pssl:[PORT][:ADDRESS]\"");
        let (kind, rest) = text.split_once(':').ok_or_else(wrong)?;
        let make = match kind {
            "ptcp" => Listen::Tcp,
            "pssl" => Listen::Tls,
            _ => return Err(wrong()),
        };
        let (port, address) = rest.split_once(':').unwrap_or((rest, ""));
        let port = if port.is_empty() { OPENFLOW_PORT } else { port.parse().map_err(|_| wrong())? };
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let address = if address.is_empty() { any } else { ip(address).ok_or_else(wrong)? };
        Ok(make(SocketAddr::new(address, port)))
    }
}

/// A controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Controller {
    /// `tcp:ADDRESS[:PORT]`.
    Tcp(SocketAddr),
    /// `ssl:ADDRESS[:PORT]`.
    Tls(SocketAddr),
    /// `unix:FILE`.
    Unix(PathBuf),
}

impl Controller {
    /// Reads a controller.
    ///
    /// # Errors
    /// With what was expected.
    pub fn parse(text: &str) -> Result<Controller, String> {
        let wrong = || format!("\"{text}\"; expected \"tcp:ADDRESS[:PORT]\", \"ssl:ADDRESS[:PORT]\" or \"unix:FILE\"");
        let (kind, rest) = text.split_once(':').filter(|(_, rest)| !rest.is_empty()).ok_or_else(wrong)?;
        let make = match kind {
            "unix" => return Ok(Controller::Unix(rest.into())),
            "tcp" => Controller::Tcp,
            "ssl" => Controller::Tls,
            _ => return Err(wrong()),
        };
        // An address of IPv6 stands in brackets, so the last colon outside of them is the port's.
        let (address, port) = match rest.rsplit_once(':') {
            Some((address, port)) if !port.contains(']') => (address, port.parse().map_err(|_| wrong())?),
            _ => (rest, OPENFLOW_PORT),
        };
        Ok(make(SocketAddr::new(ip(address).ok_or_else(wrong)?, port)))
    }
}

impl std::fmt::Display for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Controller::Tcp(address) => write!(f, "tcp:{address}"),
            Controller::Tls(address) => write!(f, "ssl:{address}"),
            Controller::Unix(path) => write!(f, "unix:{}", path.display()),
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
        let listen = |text| match Listen::parse(text) {
            Ok(Listen::Tcp(address)) => Ok(address.to_string()),
            Ok(Listen::Tls(address)) => Ok(format!("TLS {address}")),
            Err(wrong) => Err(wrong),
        };
        assert_eq!(listen("ptcp:"), Ok("0.0.0.0:6653".into()));
        assert_eq!(listen("ptcp:6633"), Ok("0.0.0.0:6633".into()));
        assert_eq!(listen("ptcp:0:127.0.0.1"), Ok("127.0.0.1:0".into()));
        assert_eq!(listen("ptcp:1:[::1]"), Ok("[::1]:1".into()));
        assert_eq!(listen("pssl:7"), Ok("TLS 0.0.0.0:7".into()));
        assert!(["tcp:1", "ptcp:x", "ptcp:1:host", ""].iter().all(|t| Listen::parse(t).is_err()));
    }

    #[test]
    fn controllers_are_addresses_or_files() {
        let tcp = |text: &str| Controller::Tcp(text.parse().unwrap());
        assert_eq!(Controller::parse("tcp:1.2.3.4"), Ok(tcp("1.2.3.4:6653")));
        assert_eq!(Controller::parse("tcp:[fe80::1]:66"), Ok(tcp("[fe80::1]:66")));
        assert_eq!(Controller::parse("tcp:[fe80::1]"), Ok(tcp("[fe80::1]:6653")));
        assert_eq!(Controller::parse("ssl:1.2.3.4:5"), Ok(Controller::Tls("1.2.3.4:5".parse().unwrap())));
        assert_eq!(Controller::parse("unix:/run/c.sock"), Ok(Controller::Unix("/run/c.sock".into())));
        assert!(["tcp:", "tcp:host", "unix:", "udp:1.2.3.4"].iter().all(|t| Controller::parse(t).is_err()));
    }
}

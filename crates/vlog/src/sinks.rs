//! Where lines go that do not go to the console: the log file and the system's log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// The socket of the C library's syslog(3).
const DEV_LOG: &str = "/dev/log";

/// The log file.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    /// Opens the file at `path` to append to it.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o660).open(path)?;
        Ok(LogFile { path: path.to_owned(), file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether both are the same file of the system.
    pub(crate) fn is_same(&self, other: &LogFile) -> bool {
        let identity = |log: &LogFile| log.file.metadata().map(|meta| (meta.dev(), meta.ino()));
        matches!((identity(self), identity(other)), (Ok(own), Ok(others)) if own == others)
    }

    /// Writes a line in one piece: other processes may append to the file, too.
    pub(crate) fn write(&mut self, line: &str) {
        // There is no place to report that the log cannot be written.
        let _ = self.file.write_all(format!("{line}\n").as_bytes());
    }
}

/// How messages get to the system's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogMethod {
    /// Not at all.
    Null,
    /// As the C library does it.
    Libc,
    /// By datagrams to this socket.
    Unix(PathBuf),
    /// By UDP to this address.
    Udp(String),
}

/// A method that there is not.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unsupported syslog method '{0}'")]
pub struct UnknownSyslogMethod(String);

impl std::str::FromStr for SyslogMethod {
    type Err = UnknownSyslogMethod;

    fn from_str(text: &str) -> Result<Self, UnknownSyslogMethod> {
        match (text, text.split_once(':')) {
            ("null", _) => Ok(SyslogMethod::Null),
            ("libc", _) => Ok(SyslogMethod::Libc),
            (_, Some(("unix", path))) => Ok(SyslogMethod::Unix(path.into())),
            (_, Some(("udp", address))) => Ok(SyslogMethod::Udp(address.into())),
            _ => Err(UnknownSyslogMethod(text.to_owned())),
        }
    }
}

/// The way to the system's log. A daemon of the system that is not there costs the messages, nothing else.
#[derive(Debug)]
pub(crate) enum Syslog {
    Null,
    /// The socket takes the C library's form of a line.
    Libc(Option<UnixDatagram>),
    Unix(Option<UnixDatagram>),
    Udp(Option<UdpSocket>),
}

impl Syslog {
    pub(crate) fn new(method: &SyslogMethod) -> Self {
        match method {
            SyslogMethod::Null => Syslog::Null,
            SyslogMethod::Libc => Syslog::Libc(unix_socket(DEV_LOG.as_ref())),
            SyslogMethod::Unix(path) => Syslog::Unix(unix_socket(path)),
            SyslogMethod::Udp(address) => Syslog::Udp(udp_socket(address)),
        }
    }

    /// What `vlog/list-pattern` shows as the prefix of a line.
    pub(crate) fn prefix(&self) -> &'static str {
        match self {
            Syslog::Null => "",
            Syslog::Libc(_) => "<%B> %D{%h %e %T} %E %A: ",
            Syslog::Unix(_) | Syslog::Udp(_) => "<%B>",
        }
    }

    /// Sends a line. `ident` names the time and the program, as the C library does it.
    pub(crate) fn send(&mut self, priority: u32, ident: &str, line: &str) {
        let datagram = format!("<{priority}>{line}");
        let _ = match self {
            Syslog::Null => Ok(0),
            Syslog::Libc(socket) => {
                // The daemon of the system may have been started again.
                let sent = socket.as_ref().map(|socket| socket.send(format!("<{priority}>{ident}{line}").as_bytes()));
                match sent {
                    Some(Ok(sent)) => Ok(sent),
                    _ => {
                        *socket = unix_socket(DEV_LOG.as_ref());
                        Ok(0)
                    }
                }
            }
            Syslog::Unix(Some(socket)) => socket.send(datagram.as_bytes()),
            Syslog::Udp(Some(socket)) => socket.send(datagram.as_bytes()),
            Syslog::Unix(None) | Syslog::Udp(None) => Ok(0),
        };
    }
}

fn unix_socket(path: &Path) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(path).ok()?;
    // A slow daemon of the system must not stop the switch.
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

/// A socket to `ADDRESS[:PORT]`.
pub(crate) fn udp_socket(address: &str) -> Option<UdpSocket> {
    let with_port = || address.parse::<std::net::SocketAddr>().ok();
    let without = || address.trim_matches(['[', ']']).parse().ok().map(|ip| std::net::SocketAddr::new(ip, 514));
    let to = with_port().or_else(without)?;
    let any: std::net::IpAddr =
        if to.is_ipv4() { std::net::Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_named_as_in_open_vswitch() {
        assert_eq!("null".parse(), Ok(SyslogMethod::Null));
        assert_eq!("unix:/run/log".parse(), Ok(SyslogMethod::Unix("/run/log".into())));
        assert_eq!("udp:127.0.0.1:514".parse(), Ok(SyslogMethod::Udp("127.0.0.1:514".into())));
        let error = "tcp:1".parse::<SyslogMethod>().unwrap_err().to_string();
        assert_eq!(error, "unsupported syslog method 'tcp:1'");
    }

    #[test]
    fn a_datagram_has_its_priority() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let receiver = UnixDatagram::bind(&path).unwrap();
        Syslog::new(&SyslogMethod::Unix(path)).send(29, "ident ", "text");
        let mut bytes = [0; 64];
        let size = receiver.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..size], b"<29>text");
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = receiver.local_addr().unwrap().to_string();
        Syslog::new(&SyslogMethod::Udp(address)).send(28, "ident ", "more");
        let size = receiver.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..size], b"<28>more");
    }

    #[test]
    fn a_log_daemon_that_is_not_there_is_no_error() {
        Syslog::new(&SyslogMethod::Unix("/nonexistent".into())).send(29, "", "text");
        Syslog::new(&SyslogMethod::Udp("nonsense".into())).send(29, "", "text");
    }
}

//! The transports: sockets in the file system, TCP, and TLS over it. None of them blocks.

use super::tls::TlsStream;
use crate::Remote;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// A connection's transport.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Begins to connect.
    pub(super) fn connect(remote: &Remote, tls: Option<&Arc<rustls::ClientConfig>>) -> io::Result<Stream> {
        match (remote, tls) {
            (Remote::Unix(path), _) => connect_unix(path).map(Stream::Unix),
            (Remote::Tcp(address), _) => connect_tcp(address).map(Stream::Tcp),
            (Remote::Ssl(address), Some(tls)) => {
                let stream = TlsStream::new(connect_tcp(address)?, Arc::clone(tls), address.ip())?;
                Ok(Stream::Tls(Box::new(stream)))
            }
            (Remote::Ssl(_), None) => Err(io::Error::other("no TLS configuration")),
        }
    }

    /// Goes on connecting; whether it is done.
    pub(super) fn establish(&mut self) -> io::Result<bool> {
        match self {
            Stream::Unix(_) => Ok(true),
            Stream::Tcp(socket) => is_connected(socket),
            Stream::Tls(stream) => stream.establish(),
        }
    }

    /// Whether to wait until the socket can be read, and until it can be written, apart from what its user will write.
    pub(super) fn interest(&self, is_established: bool) -> (bool, bool) {
        match self {
            Stream::Unix(_) | Stream::Tcp(_) => (is_established, !is_established),
            Stream::Tls(stream) => stream.interest(),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(socket) => socket.as_fd(),
            Stream::Tcp(socket) => socket.as_fd(),
            Stream::Tls(stream) => stream.socket().as_fd(),
        }
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(socket) => socket.read(buffer),
            Stream::Tcp(socket) => socket.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(socket) => socket.write(bytes),
            Stream::Tcp(socket) => socket.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    /// Sends what was written and is still held.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Unix(_) | Stream::Tcp(_) => Ok(()),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
}

fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let socket = socket(AddressFamily::UNIX)?;
    match SocketAddrUnix::new(path) {
        Err(Errno::NAMETOOLONG) => connect_long_path(&socket, path)?,
        address => rustix::net::connect(&socket, &address?)?,
    }
    Ok(socket.into())
}

/// A socket's address has room for 107 bytes. A longer path is reached through a descriptor of its directory. Source:
/// OVS lib/socket-util-unix.c, `make_sockaddr_un`.
fn connect_long_path(socket: &OwnedFd, path: &Path) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::NAMETOOLONG.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    Ok(rustix::net::connect(socket, &SocketAddrUnix::new(short)?)?)
}

fn connect_tcp(address: &SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family)?;
    match rustix::net::connect(&socket, address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let socket = TcpStream::from(socket);
    // Messages are small and their replies awaited.
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Whether an attempt to connect has succeeded.
pub(super) fn is_connected(socket: &TcpStream) -> io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

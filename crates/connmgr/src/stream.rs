//! The transports that OpenFlow goes over.

use crate::tls::TlsStream;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A connection's transport; it never blocks.
pub enum Stream {
    /// A Unix socket.
    Unix(UnixStream),
    /// TCP.
    Tcp(TcpStream),
    /// TLS over TCP.
    Tls(Box<TlsStream>),
}

impl Stream {
    /// # Errors
    /// If the socket cannot be made not to block.
    pub fn unix(stream: UnixStream) -> io::Result<Stream> {
        stream.set_nonblocking(true)?;
        Ok(Stream::Unix(stream))
    }

    /// # Errors
    /// If the socket cannot be made not to block.
    pub fn tcp(stream: TcpStream) -> io::Result<Stream> {
        stream.set_nonblocking(true)?;
        // Replies are small, and the peer waits for them.
        stream.set_nodelay(true)?;
        Ok(Stream::Tcp(stream))
    }

    /// Reads the bytes that have come. `Ok(None)`: none; `Ok(Some(0))`: the peer has closed the connection.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        would_block(match self {
            Stream::Unix(stream) => stream.read(buffer),
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        })
    }

    /// Writes as many bytes as the socket takes. `Ok(None)`: none.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        would_block(match self {
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        })
    }

    /// The transport's name in connection methods.
    pub fn kind(&self) -> &'static str {
        match self {
            Stream::Unix(_) => "unix",
            Stream::Tcp(_) => "tcp",
            Stream::Tls(_) => "ssl",
        }
    }

    /// The peer's address, if it has one.
    pub fn peer_address(&self) -> Option<IpAddr> {
        let address = match self {
            Stream::Unix(_) => return None,
            Stream::Tcp(stream) => stream.peer_addr(),
            Stream::Tls(stream) => stream.peer_addr(),
        };
        address.ok().map(|address| address.ip())
    }

    /// Sends bytes that [`Stream::write`] took and TLS still holds.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Stream::Tls(stream) = self { stream.flush() } else { Ok(()) }
    }

    /// Whether TLS holds bytes to be sent.
    pub fn wants_write(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.wants_write())
    }

    /// Whether TLS holds bytes to be read: the socket may be unreadable then.
    pub fn has_buffered(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.has_buffered())
    }

    /// What was wrong with the peer's certificate or bytes.
    pub fn tls_error(&self) -> Option<&rustls::Error> {
        if let Stream::Tls(stream) = self { stream.error() } else { None }
    }
}

fn would_block(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(n) => Ok(Some(n)),
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(e) => Err(e),
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Tls(stream) => stream.as_fd(),
        }
    }
}

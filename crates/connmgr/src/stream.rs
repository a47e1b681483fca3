//! The transports that OpenFlow goes over.

use crate::tls::TlsStream;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A connection's transport; it never blocks.
pub enum Stream {
    /// A socket in the file system.
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
        // Answers are small and awaited.
        stream.set_nodelay(true)?;
        Ok(Stream::Tcp(stream))
    }

    /// Reads what has come. `Ok(None)`: nothing has; `Ok(Some(0))`: nothing will.
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

    /// Writes what fits. `Ok(None)`: nothing does.
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

    /// Sends what has been taken and not been sent yet.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Stream::Tls(stream) = self { stream.flush() } else { Ok(()) }
    }

    /// Whether something that has been taken waits to be sent.
    pub fn wants_write(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.wants_write())
    }

    /// Whether there is something to read that the socket does not announce.
    pub fn has_waiting(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.has_waiting())
    }

    /// What TLS had against the peer.
    pub fn trouble(&self) -> Option<&rustls::Error> {
        if let Stream::Tls(stream) = self { stream.trouble() } else { None }
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

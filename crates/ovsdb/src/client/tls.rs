//! TLS over a socket that does not block.

use super::stream::is_connected;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct TlsStream {
    tls: ClientConnection,
    socket: TcpStream,
    /// Whether the TCP connection is there, on which the handshake needs to wait.
    has_socket: bool,
}

impl TlsStream {
    pub(super) fn new(socket: TcpStream, config: Arc<ClientConfig>, peer: IpAddr) -> io::Result<Self> {
        let tls = ClientConnection::new(config, ServerName::IpAddress(peer.into())).map_err(io::Error::other)?;
        Ok(TlsStream { tls, socket, has_socket: false })
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Goes on with connection and handshake; whether both are done.
    pub(super) fn establish(&mut self) -> io::Result<bool> {
        self.has_socket = self.has_socket || is_connected(&self.socket)?;
        if !self.has_socket {
            return Ok(false);
        }
        self.flush()?;
        while self.tls.is_handshaking() {
            match self.receive() {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => self.flush()?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether to wait until the socket can be read, and until it can be written.
    pub(super) fn interest(&self) -> (bool, bool) {
        (self.has_socket, !self.has_socket || self.tls.wants_write())
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The peer ended TCP without ending TLS: as an end, for JSON shows where a message is cut.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if self.receive()? == 0 {
                return Ok(0);
            }
            self.flush()?;
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.tls.writer().write(bytes)?;
        self.flush()?;
        if taken == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// Sends what the socket takes of the enciphered bytes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes enciphered bytes from the socket; how many.
    fn receive(&mut self) -> io::Result<usize> {
        let count = self.tls.read_tls(&mut self.socket)?;
        if let Err(error) = self.tls.process_new_packets() {
            // The peer is told why, as far as it listens.
            let _ = self.flush();
            return Err(io::Error::other(error));
        }
        Ok(count)
    }
}

//! TLS: keys and certificates, and a socket that speaks TLS.
//!
//! As in Open vSwitch, both sides show a certificate, which an authority that the other side trusts must have signed. The
//! names in it do not matter.

mod peer_authority;

use peer_authority::{PeerAuthority, PeerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, Connection, Error, RootCertStore, ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Files in PEM: the switch's key and certificate, and the authority that it trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The switch's private key.
    pub private_key: PathBuf,
    /// Its certificate, and those between it and the peers' authority.
    pub certificate: PathBuf,
    /// The authority that must have signed the peers' certificates.
    pub ca_cert: PathBuf,
    /// Whether the first peer is trusted if there is no such file, and the file written.
    pub bootstraps_ca_cert: bool,
}

/// One of [`TlsFiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// [`TlsFiles::private_key`].
    PrivateKey,
    /// [`TlsFiles::certificate`].
    Certificate,
    /// [`TlsFiles::ca_cert`].
    CaCert,
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or has nothing of use in it.
    #[error("{}: no {expected} in PEM: {source}", path.display())]
    Pem {
        /// Which one.
        file: TlsFile,
        /// Where it is.
        path: PathBuf,
        /// What should be in it.
        expected: &'static str,
        /// What is wrong.
        source: pem::Error,
    },
    /// The certificates of the authority cannot be used.
    #[error("{}: no authority: {reason}", path.display())]
    Authority {
        /// Where they are.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Key and certificate do not belong together.
    #[error("{} and {}: {source}", private_key.display(), certificate.display())]
    KeyPair {
        /// The key.
        private_key: PathBuf,
        /// The certificate.
        certificate: PathBuf,
        /// What is wrong.
        source: Error,
    },
}

/// The switch's certificate, and the authority that it trusts.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    key: PrivateKeyDer<'static>,
    chain: Vec<CertificateDer<'static>>,
    authority: Arc<PeerAuthority>,
    client: Arc<ClientConfig>,
    /// Made once the authority is known.
    server: OnceLock<Arc<ServerConfig>>,
}

/// Why a configuration can be made: it speaks both versions of TLS.
const VERSIONS: &str = "invariant: the provider has suites of both versions";

impl Tls {
    /// Reads key and certificates.
    ///
    /// # Errors
    /// With the file that cannot be read or has nothing of use in it.
    pub fn load(files: &TlsFiles) -> Result<Tls, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let key = PrivateKeyDer::from_pem_file(&files.private_key)
            .map_err(|source| pem_error(TlsFile::PrivateKey, &files.private_key, source))?;
        let chain = certificates(TlsFile::Certificate, &files.certificate)?;
        let authority = Arc::new(PeerAuthority::load(&provider, &files.ca_cert, files.bootstraps_ca_cert)?);
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect(VERSIONS)
            .dangerous()
            .with_custom_certificate_verifier(PeerVerifier::new(&authority))
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(|source| files.key_pair_error(source))?;
        let (files, client, server) = (files.clone(), Arc::new(client), OnceLock::new());
        let tls = Tls { files, provider, key, chain, authority, client, server };
        if let Some(roots) = tls.authority.roots() {
            tls.server_config(roots)?;
        }
        Ok(tls)
    }

    /// How the switch speaks TLS to those that have connected to it, whose certificates `roots` must have signed.
    fn server_config(&self, roots: Arc<RootCertStore>) -> Result<Arc<ServerConfig>, TlsError> {
        let clients = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&self.provider));
        let clients = clients.build().map_err(|error| bad_authority(&self.files.ca_cert, &error))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .expect(VERSIONS)
            .with_client_cert_verifier(clients)
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|source| self.files.key_pair_error(source))?;
        Ok(Arc::clone(self.server.get_or_init(|| Arc::new(server))))
    }

    /// How the switch speaks TLS to those that it connects to, one connection at a time.
    pub fn client_config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    /// The switch's end of a connection that a peer has made.
    ///
    /// # Errors
    /// If the socket cannot be made ready, or no authority is known yet.
    pub fn accept(&self, socket: TcpStream) -> io::Result<TlsStream> {
        let config = match (self.server.get(), self.authority.roots()) {
            (Some(config), _) => Arc::clone(config),
            (None, Some(roots)) => self.server_config(roots).map_err(io::Error::other)?,
            (None, None) => return Err(io::Error::new(ErrorKind::NotFound, "no peer has shown its authority yet")),
        };
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        TlsStream::new(Connection::Server(connection), socket)
    }

    /// The switch's end of a connection that it has made.
    ///
    /// # Errors
    /// If the socket cannot be made ready.
    pub fn connect(&self, socket: TcpStream, peer: ServerName<'static>) -> io::Result<TlsStream> {
        let connection = ClientConnection::new(self.config_of_one(), peer).map_err(io::Error::other)?;
        TlsStream::new(Connection::Client(connection), socket)
    }

    /// [`Tls::client_config`] for one of several connections at a time: what a peer has shown of an authority that is not
    /// known yet belongs to its connection.
    fn config_of_one(&self) -> Arc<ClientConfig> {
        if self.authority.roots().is_some() {
            return Arc::clone(&self.client);
        }
        let mut config = ClientConfig::clone(&self.client);
        config.dangerous().set_certificate_verifier(PeerVerifier::new(&self.authority));
        Arc::new(config)
    }
}

impl TlsFiles {
    fn key_pair_error(&self, source: Error) -> TlsError {
        let (private_key, certificate) = (self.private_key.clone(), self.certificate.clone());
        TlsError::KeyPair { private_key, certificate, source }
    }
}

fn certificates(file: TlsFile, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |source| pem_error(file, path, source);
    let all = CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if all.is_empty() { Err(wrong(pem::Error::NoItemsFound)) } else { Ok(all) }
}

/// The certificates of a file, as what is trusted.
fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    roots(certificates(TlsFile::CaCert, path)?, path)
}

/// Certificates that are, or will be, in a file, as what is trusted.
fn roots(all: Vec<CertificateDer<'_>>, path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    all.into_iter().try_for_each(|one| roots.add(one).map_err(|error| bad_authority(path, &error)))?;
    Ok(roots)
}

fn pem_error(file: TlsFile, path: &Path, source: pem::Error) -> TlsError {
    let expected = if file == TlsFile::PrivateKey { "private key" } else { "certificate" };
    TlsError::Pem { file, path: path.to_owned(), expected, source }
}

fn bad_authority(path: &Path, error: &impl ToString) -> TlsError {
    TlsError::Authority { path: path.to_owned(), reason: error.to_string() }
}

/// A connection that speaks TLS; it never blocks.
pub struct TlsStream {
    tls: Connection,
    socket: TcpStream,
    /// Decrypted bytes that have not been read yet.
    buffered: usize,
    error: Option<Error>,
}

impl TlsStream {
    fn new(tls: Connection, socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(TlsStream { tls, socket, buffered: 0, error: None })
    }

    /// The peer's address.
    ///
    /// # Errors
    /// If the socket is not connected any more.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// What was wrong with the peer's certificate or bytes.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Whether decrypted bytes can be read: the socket may be unreadable then.
    pub fn has_buffered(&self) -> bool {
        self.buffered != 0
    }

    /// Whether encrypted bytes wait to be sent.
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Reads the bytes that have come, as [`Read::read`] on a socket that does not block.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(buffer) {
                Ok(n) => {
                    self.buffered = self.buffered.saturating_sub(n);
                    return Ok(n);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.buffered = 0,
                // The peer closed the socket without closing TLS.
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                Err(e) => return Err(e),
            }
            if self.tls.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            match self.tls.process_new_packets() {
                Ok(state) => self.buffered = state.plaintext_bytes_to_read(),
                Err(error) => {
                    // Tells the peer why, if it still reads.
                    let _ = self.flush();
                    self.error = Some(error.clone());
                    return Err(io::Error::other(error));
                }
            }
            // A handshake message asks for an answer.
            self.flush()?;
        }
    }

    /// Encrypts as many bytes as fit and sends what the socket takes, as [`Write::write`] on a socket that does not block.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let taken = self.tls.writer().write(bytes)?;
        self.flush()?;
        if taken == 0 && !bytes.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// Sends as many encrypted bytes as the socket takes.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

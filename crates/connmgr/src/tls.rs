//! TLS: keys and certificates, and a socket that speaks TLS.
//!
//! As in Open vSwitch, both sides show a certificate, which an authority that the other side trusts must have signed. The
//! names in it do not matter.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files in PEM: the switch's key and certificate, and the authority that it trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The switch's private key.
    pub private_key: PathBuf,
    /// Its certificate, and those between it and the peers' authority.
    pub certificate: PathBuf,
    /// The authority that must have signed the peers' certificates.
    pub ca_cert: PathBuf,
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
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

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
        let authorities = Arc::new(authorities(&files.ca_cert)?);
        let key_pair = |source| TlsError::KeyPair {
            private_key: files.private_key.clone(),
            certificate: files.certificate.clone(),
            source,
        };
        let versions = "invariant: the provider has suites of both versions";
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&authorities), Arc::clone(&provider));
        let clients = clients.build().map_err(|error| bad_authority(&files.ca_cert, &error))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect(versions)
            .with_client_cert_verifier(clients)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(key_pair)?;
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect(versions)
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(SignedByAuthority { authorities, provider }))
            .with_client_auth_cert(chain, key)
            .map_err(key_pair)?;
        Ok(Tls { client: Arc::new(client), server: Arc::new(server) })
    }

    /// How the switch speaks TLS to those that it connects to.
    pub fn client_config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    /// The switch's end of a connection that a peer has made.
    ///
    /// # Errors
    /// If the socket cannot be made ready.
    pub fn accept(&self, socket: TcpStream) -> io::Result<TlsStream> {
        let connection = ServerConnection::new(Arc::clone(&self.server)).map_err(io::Error::other)?;
        TlsStream::new(Connection::Server(connection), socket)
    }

    /// The switch's end of a connection that it has made.
    ///
    /// # Errors
    /// If the socket cannot be made ready.
    pub fn connect(&self, socket: TcpStream, peer: ServerName<'static>) -> io::Result<TlsStream> {
        let connection = ClientConnection::new(Arc::clone(&self.client), peer).map_err(io::Error::other)?;
        TlsStream::new(Connection::Client(connection), socket)
    }
}

fn certificates(file: TlsFile, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |source| pem_error(file, path, source);
    let all = CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if all.is_empty() { Err(wrong(pem::Error::NoItemsFound)) } else { Ok(all) }
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut authorities = RootCertStore::empty();
    for authority in certificates(TlsFile::CaCert, path)? {
        authorities.add(authority).map_err(|error| bad_authority(path, &error))?;
    }
    Ok(authorities)
}

fn pem_error(file: TlsFile, path: &Path, source: pem::Error) -> TlsError {
    let expected = if file == TlsFile::PrivateKey { "private key" } else { "certificate" };
    TlsError::Pem { file, path: path.to_owned(), expected, source }
}

fn bad_authority(path: &Path, error: &impl ToString) -> TlsError {
    TlsError::Authority { path: path.to_owned(), reason: error.to_string() }
}

/// Trusts every certificate that the authority has signed, whatever name is in it.
#[derive(Debug)]
struct SignedByAuthority {
    authorities: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for SignedByAuthority {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.authorities, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
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

//! The authority that must have signed the peers' certificates: known from the start, or taken over from the first peer.
//!
//! A peer whose authority is not known yet sends that certificate last in its chain. Once the peer has proven that it has
//! its own certificate's key, the authority's goes into the file and is trusted from then on. Other connections that
//! began before are refused: nothing has checked their peers. Source: Open vSwitch lib/stream-ssl.c,
//! `do_ca_cert_bootstrap`.

use super::{TlsError, authorities, roots};
use parking_lot::Mutex;
use pem_rfc7468::LineEnding;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The authority that must have signed the peers' certificates.
#[derive(Debug)]
pub(super) struct PeerAuthority {
    provider: Arc<CryptoProvider>,
    /// Where its certificate is, or will be.
    path: PathBuf,
    /// `None`: no peer has shown it yet.
    roots: Mutex<Option<Arc<RootCertStore>>>,
}

/// Checks the certificates of the peers of one connection after the other.
#[derive(Debug)]
pub(super) struct PeerVerifier {
    authority: Arc<PeerAuthority>,
    /// What the peer has shown whose certificate nothing has checked: its authority's certificate.
    shown: Mutex<Option<CertificateDer<'static>>>,
}

impl PeerAuthority {
    /// Reads the authority's certificates. If `bootstraps` and there is no such file, the first peer shows them.
    pub fn load(provider: &Arc<CryptoProvider>, path: &Path, bootstraps: bool) -> Result<Self, TlsError> {
        let is_awaited = bootstraps && !path.exists();
        let roots = if is_awaited { None } else { Some(Arc::new(authorities(path)?)) };
        Ok(PeerAuthority { provider: Arc::clone(provider), path: path.to_owned(), roots: Mutex::new(roots) })
    }

    /// The certificates, once they are known.
    pub fn roots(&self) -> Option<Arc<RootCertStore>> {
        self.roots.lock().clone()
    }

    /// Takes over a certificate that a peer has shown.
    fn adopt(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let mut trusted = self.roots.lock();
        let path = self.path.display();
        if trusted.is_some() {
            tracing::info!(target: "stream_ssl", "rejecting SSL connection during bootstrap race window");
            return Err(Error::General("its authority was not known when it connected".to_owned()));
        }
        match self.write(certificate) {
            Ok(()) => {
                *trusted = Some(Arc::new(roots(vec![certificate.clone()], &self.path).map_err(refused)?));
                tracing::info!(target: "stream_ssl", "successfully bootstrapped CA cert to {path}");
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                tracing::info!(target: "stream_ssl", "reading CA cert {path} created by another process");
                *trusted = Some(Arc::new(authorities(&self.path).map_err(refused)?));
                Err(Error::General("another connection's authority is trusted now".to_owned()))
            }
            Err(error) => {
                tracing::error!(
                    target: "stream_ssl", rate_limit = 12,
                    "could not bootstrap CA cert: creating {path} failed: {error}"
                );
                Err(refused(error))
            }
        }
    }

    /// Writes a certificate into the file, which must not exist.
    fn write(&self, certificate: &CertificateDer<'_>) -> io::Result<()> {
        let text = pem_rfc7468::encode_string("CERTIFICATE", LineEnding::LF, certificate).map_err(io::Error::other)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o444).open(&self.path)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).inspect_err(|_| {
            let _ = std::fs::remove_file(&self.path);
        })
    }
}

fn refused(error: impl ToString) -> Error {
    Error::General(error.to_string())
}

impl PeerVerifier {
    /// For connections that `authority` decides about.
    pub fn new(authority: &Arc<PeerAuthority>) -> Arc<Self> {
        Arc::new(PeerVerifier { authority: Arc::clone(authority), shown: Mutex::default() })
    }

    /// The peer has proven that it has its certificate's key.
    fn settle(&self, proof: HandshakeSignatureValid) -> Result<HandshakeSignatureValid, Error> {
        let shown = self.shown.lock().take();
        shown.map_or(Ok(()), |certificate| self.authority.adopt(&certificate))?;
        Ok(proof)
    }

    fn algorithms(&self) -> &rustls::crypto::WebPkiSupportedAlgorithms {
        &self.authority.provider.signature_verification_algorithms
    }
}

/// The authority's certificate in a chain: the last one, if it has signed itself.
fn shown_authority<'a>(chain: &'a [CertificateDer<'a>]) -> Result<&'a CertificateDer<'a>, Error> {
    let complain = |text: &str| tracing::error!(target: "stream_ssl", rate_limit = 12, "{text}");
    let last = chain.last().ok_or_else(|| {
        complain("could not bootstrap CA cert: obtained certificate is not self-signed");
        complain(
            "only one certificate was received, so probably the peer is not configured to send its CA certificate",
        );
        refused("it sends no certificate of its authority")
    })?;
    let parsed =
        webpki::EndEntityCert::try_from(last).map_err(|_| Error::General("a broken certificate".to_owned()))?;
    if parsed.issuer() != parsed.subject() {
        complain("could not bootstrap CA cert: obtained certificate is not self-signed");
        return Err(refused("it sends no certificate that has signed itself"));
    }
    Ok(last)
}

impl ServerCertVerifier for PeerVerifier {
    /// Trusts every certificate that the authority has signed, whatever name is in it.
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let (trusted, shown) = match self.authority.roots() {
            Some(trusted) => (trusted, None),
            None => {
                let shown = shown_authority(intermediates)?.clone().into_owned();
                (Arc::new(roots(vec![shown.clone()], &self.authority.path).map_err(refused)?), Some(shown))
            }
        };
        let certificate = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.algorithms().all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &trusted, intermediates, now, algorithms)?;
        *self.shown.lock() = shown;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.settle(verify_tls12_signature(message, certificate, signature, self.algorithms())?)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.settle(verify_tls13_signature(message, certificate, signature, self.algorithms())?)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}

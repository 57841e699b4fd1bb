//! Certificates and keys in PEM.
//!
//! # Invariants
//!
//! * **Checked when read.** [`Authorities`] and [`Identity`] can always be used for a connection. Unreadable input is
//!   refused, and so is a key that does not match its certificate.
//! * **No secrets shown.** No error quotes the text, and no `Debug` output shows a key.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, SignatureScheme};

use crate::secret::Secret;

/// The number of characters per line of PEM.
const LINE: usize = 64;

/// Why a PEM text cannot be used. The message is a predicate: the caller puts the name of the file before the message.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum PemError {
    #[error("holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    #[error("holds no private key in PEM (PKCS#8, PKCS#1 or SEC1, and not encrypted)")]
    NoKey,
    #[error("is not complete PEM")]
    Damaged,
    #[error("cannot be used: {0}")]
    Unusable(rustls::Error),
}

/// Authorities whose certificates are trusted.
#[derive(Clone, PartialEq, Eq)]
pub struct Authorities(Vec<CertificateDer<'static>>);

impl Authorities {
    /// # Errors
    /// [`PemError`] if the text contains no certificate, or one that cannot be used as an authority.
    pub fn from_pem(text: &str) -> Result<Self, PemError> {
        let authorities = Self(certificates(text)?);
        authorities.store().map_err(PemError::Unusable)?;
        Ok(authorities)
    }

    /// The certificates in PEM, for a library that accepts no other form.
    pub fn to_pem(&self) -> String {
        self.0.iter().map(|certificate| encoded("CERTIFICATE", certificate)).collect()
    }

    pub(super) fn store(&self) -> Result<RootCertStore, rustls::Error> {
        let mut store = RootCertStore::empty();
        self.0.iter().try_for_each(|certificate| store.add(certificate.clone()))?;
        Ok(store)
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authorities({})", self.0.len())
    }
}

/// A certificate, its chain up to the authority, and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
}

impl Identity {
    /// # Errors
    /// [`PemError`] if the key does not belong to the first certificate, or if its kind is not supported.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, PemError> {
        let identity = Self { chain, key: Arc::new(key) };
        identity.certified().map_err(PemError::Unusable)?;
        Ok(identity)
    }

    /// The certificate and its chain in PEM.
    pub fn chain_to_pem(&self) -> String {
        self.chain.iter().map(|certificate| encoded("CERTIFICATE", certificate)).collect()
    }

    /// The key in PEM.
    pub fn key_to_pem(&self) -> Secret {
        let label = match &*self.key {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        Secret::new(encoded(label, self.key.secret_der()))
    }

    /// The settings of a server with this certificate, for HTTP/1.1. Clients need no certificate.
    ///
    /// # Errors
    /// If the certificate cannot be used.
    pub fn server(&self) -> Result<ServerConfig, rustls::Error> {
        let server = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let server = server.with_safe_default_protocol_versions()?.with_no_client_auth();
        let mut server = server.with_single_cert(self.chain.clone(), self.key.clone_key())?;
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(server)
    }

    pub(super) fn certified(&self) -> Result<CertifiedKey, rustls::Error> {
        CertifiedKey::from_der(self.chain.clone(), self.key.clone_key(), &default_provider())
    }
}

/// Answers a server's request for a client certificate.
#[derive(Debug)]
pub(super) struct CertificateResolver {
    pub(super) certified: Option<Arc<CertifiedKey>>,
    pub(super) asked: Arc<AtomicBool>,
}

impl ResolvesClientCert for CertificateResolver {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.asked.store(true, Ordering::Relaxed);
        self.certified.clone()
    }

    fn has_certs(&self) -> bool {
        self.certified.is_some()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity(certificates: {})", self.chain.len())
    }
}

fn encoded(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(LINE).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// Returns all certificates in a text, in order. The result has at least one.
///
/// # Errors
/// [`PemError`] if the text contains no certificate or is damaged.
pub fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let found = found.map_err(|_| PemError::Damaged)?;
    if found.is_empty() { Err(PemError::NoCertificate) } else { Ok(found) }
}

/// Returns the first private key in a text.
///
/// # Errors
/// [`PemError`] if the text contains no private key or is damaged.
pub fn private_key(text: &str) -> Result<PrivateKeyDer<'static>, PemError> {
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| match error {
        pem::Error::NoItemsFound => PemError::NoKey,
        _ => PemError::Damaged,
    })
}

#[cfg(test)]
mod tests;

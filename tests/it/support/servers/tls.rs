//! Certificates for a test, and a TLS listener that requests them.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::serve::Listener;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{ClientCertVerifierBuilder, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

/// A certificate authority.
pub(crate) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Writes the authority's own certificate to a file.
    pub(crate) fn write(&self, path: &Path) -> String {
        std::fs::write(path, &self.pem).unwrap();
        path.display().to_string()
    }

    /// Writes a certificate and its key to files.
    pub(crate) fn issue(&self, certificate: &Path, key: &Path) -> [String; 2] {
        self.issue_to("channeld", certificate, key)
    }

    /// Writes a certificate for a server with the name `localhost`, and its key.
    pub(crate) fn issue_server(&self, certificate: &Path, key: &Path) -> [String; 2] {
        self.issue_to("localhost", certificate, key)
    }

    /// Writes a certificate for this name, and its key.
    pub(crate) fn issue_to(&self, name: &str, certificate: &Path, key: &Path) -> [String; 2] {
        let (made, its_key) = self.make(name);
        std::fs::write(certificate, made).unwrap();
        std::fs::write(key, its_key).unwrap();
        [certificate, key].map(|path| path.display().to_string())
    }

    fn make(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A server with the name `localhost` that accepts only clients with a certificate of this authority.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        let (certificate, key) = self.make("localhost");
        config(self.clients().build().unwrap(), &certificate, &key)
    }

    /// A server with the name `localhost` that requests a client certificate, and also accepts clients without a
    /// certificate.
    pub(crate) fn asking_server(&self) -> Arc<ServerConfig> {
        let (certificate, key) = self.make("localhost");
        config(self.clients().allow_unauthenticated().build().unwrap(), &certificate, &key)
    }

    fn clients(&self) -> ClientCertVerifierBuilder {
        let mut known = RootCertStore::empty();
        known.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        WebPkiClientVerifier::builder_with_provider(Arc::new(known), Arc::new(default_provider()))
    }

    /// A server that presents the authority's own certificate.
    pub(crate) fn own_server(&self) -> Arc<ServerConfig> {
        config(WebPkiClientVerifier::no_client_auth(), &self.pem, &self.issuer.key().serialize_pem())
    }

    /// A server with the name `localhost` that accepts every client.
    pub(crate) fn open_server(&self) -> Arc<ServerConfig> {
        let (certificate, key) = self.make("localhost");
        config(WebPkiClientVerifier::no_client_auth(), &certificate, &key)
    }
}

fn config(clients: Arc<dyn ClientCertVerifier>, certificate: &str, key: &str) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

pub(crate) struct TlsListener {
    pub(crate) tcp: TcpListener,
    pub(crate) tls: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.tcp).await;
            // A client whose handshake fails is ignored, and the next client is accepted.
            if let Ok(stream) = self.tls.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}

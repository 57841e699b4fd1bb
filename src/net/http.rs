//! What all HTTP clients share: user agent, TLS, no redirects, `Retry-After`.
//!
//! Over TLS they speak HTTP/2 where the server agrees (ALPN), otherwise HTTP/1.1.
//!
//! # Invariants
//!
//! * **No redirects.** Keys and events go only to the configured server.
//! * **One list of authorities.** Those that an operator names replace the system's: a certificate of a public authority is
//!   then not enough.
//! * **Public means every address.** Where only public addresses may be reached, all addresses of a look-up are checked and
//!   then connected to, and no proxy is used, because a proxy looks names up by itself.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use reqwest::ClientBuilder;
use reqwest::redirect::Policy;
use rustls::client::WantsClientCert;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use rustls_platform_verifier::BuilderVerifierExt;
use url::Url;

mod error;
mod excerpt;
mod header;
mod proxy;
mod public;
mod retry_after;
mod tls;

pub use error::{advice, explained, find, reason, root_cause};
pub use excerpt::excerpt;
pub use header::{basic, sensitive};
pub use proxy::Proxy;
pub use public::{NotPublic, check_public};
pub use retry_after::{MAX_RETRY_AFTER, retry_after};
pub use tls::{Authorities, Identity, PemError, certificates, private_key};

use public::PublicOnly;
use tls::CertificateResolver;

const USER_AGENT: &str = concat!("channeld/", env!("CARGO_PKG_VERSION"));

/// Between two pings of an HTTP/2 connection, and how long a pong may take: all requests share the connection, and would
/// wait for a dead one.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// How a server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// The authorities that TLS trusts instead of the system's.
    pub authorities: Option<Authorities>,
    /// The client's certificate, where the server asks for one.
    pub identity: Option<Identity>,
    /// Directly or through a proxy.
    pub proxy: Proxy,
    /// Whether addresses that are not of the public internet are refused.
    pub public_only: bool,
}

/// A client for `url`.
///
/// # Errors
/// If the system's certificates cannot be used.
pub fn client_for(url: &Url) -> Result<ClientBuilder, rustls::Error> {
    Ok(client_with(tls(url, &Connection::default(), Arc::default())?))
}

/// A client for `url` by these settings. `asked` becomes true where the server asks it for a certificate: a server that
/// refuses a certificate often just closes the connection, and this then tells why.
///
/// # Errors
/// If the certificates or the proxy cannot be used, or the address is one that may not be reached.
pub fn client_by(
    url: &Url,
    connection: &Connection,
    asked: Arc<AtomicBool>,
) -> Result<ClientBuilder, Box<dyn Error + Send + Sync>> {
    if connection.public_only {
        check_public(url)?;
    }
    let mut client = client_with(tls(url, connection, asked)?);
    if connection.public_only {
        // A proxy of the environment would look the name up by itself.
        client = client.no_proxy().dns_resolver(Arc::new(PublicOnly));
    }
    Ok(connection.proxy.apply(client).map_err(reqwest::Error::without_url)?)
}

fn client_with(tls: ClientConfig) -> ClientBuilder {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(USER_AGENT)
        .redirect(Policy::none())
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(KEEP_ALIVE)
}

/// TLS to a database server, which may ask for the client's certificate. Where it `is_used`, the server's is checked.
///
/// # Errors
/// If the certificates cannot be used.
pub fn server_tls(
    authorities: Option<&Authorities>,
    identity: Option<&Identity>,
    is_used: bool,
) -> Result<ClientConfig, rustls::Error> {
    let builder = tls_builder()?;
    let builder: ConfigBuilder<_, WantsClientCert> = match authorities {
        Some(authorities) => builder.with_root_certificates(authorities.store()?),
        None if is_used => builder.with_platform_verifier()?,
        None => builder.with_root_certificates(RootCertStore::empty()),
    };
    let certified = identity.map(Identity::certified).transpose()?.map(Arc::new);
    Ok(builder.with_client_cert_resolver(Arc::new(CertificateResolver { certified, asked: Arc::default() })))
}

fn tls_builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
}

/// TLS by ring, for this client and not for the process.
///
/// A client of plain http needs no certificates, and works where none are installed.
fn tls(url: &Url, connection: &Connection, asked: Arc<AtomicBool>) -> Result<ClientConfig, rustls::Error> {
    let builder = tls_builder()?;
    let builder: ConfigBuilder<_, WantsClientCert> = match &connection.authorities {
        Some(authorities) => builder.with_root_certificates(authorities.store()?),
        None if url.scheme() == "https" || connection.proxy.speaks_tls() => builder.with_platform_verifier()?,
        None => builder.with_root_certificates(RootCertStore::empty()),
    };
    let certified = connection.identity.as_ref().map(Identity::certified).transpose()?.map(Arc::new);
    let mut config = builder.with_client_cert_resolver(Arc::new(CertificateResolver { certified, asked }));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

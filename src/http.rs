//! What every HTTP client here has in common: who it says it is, TLS, no redirects, and how it reads `Retry-After`.
//!
//! Over TLS it is HTTP/2 where the server agrees to that (ALPN), and HTTP/1.1 otherwise; over plain http always HTTP/1.1.
//!
//! # Invariants
//!
//! * **No redirects.** Neither a key nor an event goes where no operator sent it.
//! * **Whom to trust is one list.** Authorities that an operator names stand in for the system's, and are not added to
//!   them: who can have a certificate made by a public authority does not become the operator's own server by that.
//! * **Public means every address.** Where only public addresses may be reached, it is the connection that is refused:
//!   by the addresses that it would be made to, all of them, so that no answer of a name server gets around it, and
//!   through no proxy, which would look names up for itself.

use std::sync::Arc;
use std::time::Duration;

use reqwest::ClientBuilder;
use reqwest::redirect::Policy;
use rustls::client::WantsClientCert;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use url::Url;

mod header;
mod proxy;
mod public;
mod retry_after;
mod tls;

pub use header::{basic, sensitive};
pub use proxy::{NamedProxy, Proxy};
pub use public::{NotPublic, Reach};
pub use retry_after::{MAX_RETRY_AFTER, retry_after};
pub use tls::{Asked, Authorities, Identity, PemError, PrivateKey, certificates, private_key};

use public::PublicOnly;
use tls::Introduction;

const USER_AGENT: &str = concat!("channeld/", env!("CARGO_PKG_VERSION"));

/// Between two signs of life of an HTTP/2 connection, and how long one may take: requests share the connection, and
/// would all wait for one that is dead.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// How a server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// Whom TLS trusts instead of the system's authorities.
    pub authorities: Option<Authorities>,
    /// Who we are, where the server asks.
    pub identity: Option<Identity>,
    /// By which way.
    pub proxy: Proxy,
    /// At which addresses.
    pub reach: Reach,
}

/// Why a client could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The system's certificates cannot be used, or those that an operator gave.
    #[error("TLS could not be set up")]
    Tls(#[from] rustls::Error),
    /// The proxy cannot be used.
    #[error("the proxy cannot be used")]
    Proxy(#[source] reqwest::Error),
    /// The address is one that may not be reached.
    #[error(transparent)]
    NotPublic(#[from] NotPublic),
}

/// A client for `url`.
///
/// # Errors
/// If the system's certificates cannot be used.
pub fn client_for(url: &Url) -> Result<ClientBuilder, rustls::Error> {
    Ok(client_with(tls(url, &Connection::default(), &Asked::default())?))
}

/// A client that reaches `url` so, and whether it is asked for a certificate.
///
/// # Errors
/// [`SetupError`], where it cannot.
pub fn client_by(url: &Url, connection: &Connection) -> Result<(ClientBuilder, Asked), SetupError> {
    connection.reach.check(url)?;
    let asked = Asked::default();
    let client = client_with(tls(url, connection, &asked)?);
    let client = match connection.reach {
        Reach::Anything => client,
        // A proxy that the environment names would look the name up where we cannot see it.
        Reach::PublicOnly => client.no_proxy().dns_resolver(Arc::new(PublicOnly)),
    };
    let client = connection.proxy.apply(client).map_err(|error| SetupError::Proxy(error.without_url()))?;
    Ok((client, asked))
}

fn client_with(tls: ClientConfig) -> ClientBuilder {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(USER_AGENT)
        .redirect(Policy::none())
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(KEEP_ALIVE)
}

/// TLS by ring, given to this client alone and not to the process.
///
/// A client that speaks plain http with everybody needs no certificates, and works where none are installed.
fn tls(url: &Url, connection: &Connection, asked: &Asked) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder: ConfigBuilder<_, WantsClientCert> = match &connection.authorities {
        Some(authorities) => builder.with_root_certificates(authorities.store()?),
        None if url.scheme() == "https" || connection.proxy.speaks_tls() => builder.with_platform_verifier()?,
        None => builder.with_root_certificates(RootCertStore::empty()),
    };
    let introduction = Introduction::new(connection.identity.as_ref(), asked)?;
    let mut config = builder.with_client_cert_resolver(Arc::new(introduction));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

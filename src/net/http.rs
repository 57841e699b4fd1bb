//! The common parts of all HTTP clients: user agent, TLS, no redirects, `Retry-After`.
//!
//! Over TLS the clients use HTTP/2 if the server agrees (ALPN), otherwise HTTP/1.1.
//!
//! # Invariants
//!
//! * **No redirects.** Keys and events go only to the configured server.
//! * **One list of authorities.** If an operator names authorities, they replace the system's authorities: a
//!   certificate of a public authority is then not accepted.
//! * **Public means every address.** If only public addresses are allowed, the client checks all addresses of a lookup and
//!   connects only to these. It uses no proxy, because a proxy looks up names itself.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use reqwest::ClientBuilder;
use reqwest::header::HeaderValue;
use reqwest::redirect::Policy;
use rustls::client::WantsClientCert;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use url::Url;

mod client;
mod error;
mod excerpt;
mod header;
mod public;
mod tls;

pub use client::{Client, RequestError, credentials};
pub use error::{advice, explained, find, reason, root_cause};
pub use excerpt::excerpt;
pub use header::{MAX_RETRY_AFTER, basic, retry_after, sensitive};
pub use public::{NotPublic, check_public};
pub use rustls::pki_types::PrivateKeyDer;
pub use tls::{Authorities, Identity, PemError, certificates, private_key};

use public::PublicOnly;
use tls::CertificateResolver;

const USER_AGENT: &str = concat!("channeld/", env!("CARGO_PKG_VERSION"));

/// The most headers of a response over HTTP/1.1.
const MAX_HEADERS: usize = 1_000;

/// The time between two pings of an HTTP/2 connection, and the longest wait for a pong. All requests share the connection,
/// and without pings they would all wait for a dead one.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// How to reach a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// The authorities that TLS trusts instead of the system's.
    pub authorities: Option<Authorities>,
    /// The client's certificate, for servers that request one.
    pub identity: Option<Identity>,
    /// Whether to use a proxy.
    pub proxy: Proxy,
    /// Whether to refuse addresses that are not on the public internet.
    pub public_only: bool,
}

/// Whether requests go through a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the texts describe the fields")]
pub enum Proxy {
    /// The proxy that the environment variables select: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`.
    #[default]
    Environment,
    /// No proxy, regardless of the environment.
    Direct,
    /// Always this proxy, regardless of the environment. The URL is http or https, without credentials. For an https server
    /// the client requests a tunnel (CONNECT) from the proxy. For an http server the proxy sees the requests.
    Named { url: Url, authorization: Option<HeaderValue> },
}

impl Proxy {
    fn apply(&self, client: ClientBuilder) -> Result<ClientBuilder, reqwest::Error> {
        Ok(match self {
            // The matcher of the environment compares `*` only with names, not with addresses.
            Self::Environment if excludes_everything() => client.no_proxy(),
            Self::Environment => client,
            Self::Direct => client.no_proxy(),
            Self::Named { url, authorization } => {
                let proxy = reqwest::Proxy::all(url.clone())?;
                client.proxy(match authorization {
                    Some(authorization) => proxy.custom_http_auth(authorization.clone()),
                    None => proxy,
                })
            }
        })
    }
}

/// Whether `NO_PROXY` contains `*`.
fn excludes_everything() -> bool {
    let excluded = ["NO_PROXY", "no_proxy"].into_iter().find_map(|name| std::env::var(name).ok());
    excluded.is_some_and(|names| names.split(',').any(|name| name.trim() == "*"))
}

/// Why a client cannot be set up: its certificates or its proxy cannot be used, or the address is not allowed.
pub type SetupError = Box<dyn Error + Send + Sync>;

/// Returns a client builder for `url` with default settings.
///
/// # Errors
/// If the system's certificates cannot be used.
pub fn client_for(url: &Url) -> Result<ClientBuilder, SetupError> {
    client_by(url, &ConnectionSettings::default(), Arc::default())
}

/// Returns a client builder for `url` with these settings. `asked` becomes true when the server requests a client
/// certificate. A server that refuses a certificate often just closes the connection. `asked` then helps to explain the
/// closed connection.
///
/// # Errors
/// [`SetupError`].
pub fn client_by(
    url: &Url,
    connection: &ConnectionSettings,
    asked: Arc<AtomicBool>,
) -> Result<ClientBuilder, SetupError> {
    let ConnectionSettings { proxy, public_only, .. } = connection;
    if *public_only {
        check_public(url)?;
    }
    let mut client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls_of_client(url, connection, asked)?)
        .user_agent(USER_AGENT)
        .redirect(Policy::none())
        // Some servers send headers that RFC 9112 forbids. Common clients accept such a response, and its status is clear.
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .http1_allow_spaces_after_header_name_in_responses(true)
        .http1_ignore_invalid_headers_in_responses(true)
        .http1_max_headers(MAX_HEADERS)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(KEEP_ALIVE);
    if *public_only {
        // A proxy from the environment would look up the name itself.
        client = client.no_proxy().dns_resolver(Arc::new(PublicOnly));
    }
    Ok(proxy.apply(client).map_err(reqwest::Error::without_url)?)
}

fn tls_of_client(
    url: &Url,
    connection: &ConnectionSettings,
    asked: Arc<AtomicBool>,
) -> Result<ClientConfig, rustls::Error> {
    let ConnectionSettings { authorities, identity, proxy, .. } = connection;
    // A client of plain http needs no certificates, so it works on systems without any.
    let is_used = url.scheme() == "https" || matches!(proxy, Proxy::Named { url, .. } if url.scheme() == "https");
    let mut tls = tls(authorities.as_ref(), identity.as_ref(), is_used, asked)?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

/// Configures TLS with ring, for one client and not for the whole process. If `is_used` is true, the server's
/// certificate is checked against `authorities`, or against the system's authorities if `authorities` is `None`. `asked`
/// becomes true when the server requests the client's certificate.
///
/// # Errors
/// If the certificates cannot be used.
pub fn tls(
    authorities: Option<&Authorities>,
    identity: Option<&Identity>,
    is_used: bool,
    asked: Arc<AtomicBool>,
) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder: ConfigBuilder<_, WantsClientCert> = match authorities {
        Some(authorities) => builder.with_root_certificates(authorities.store()?),
        None if is_used => builder.with_platform_verifier()?,
        None => builder.with_root_certificates(RootCertStore::empty()),
    };
    let certified = identity.map(Identity::certified).transpose()?.map(Arc::new);
    Ok(builder.with_client_cert_resolver(Arc::new(CertificateResolver { certified, asked })))
}

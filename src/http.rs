//! What every HTTP client here has in common: who it says it is, TLS, no redirects, and how it reads `Retry-After`.

use std::sync::Arc;

use reqwest::ClientBuilder;
use reqwest::redirect::Policy;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use url::Url;

mod retry_after;

pub use retry_after::{MAX_RETRY_AFTER, retry_after};

const USER_AGENT: &str = concat!("channeld/", env!("CARGO_PKG_VERSION"));

/// A client for `url` that follows no redirect: neither a key nor an event goes where no operator sent it.
///
/// # Errors
/// If the system's certificates cannot be used.
pub fn client_for(url: &Url) -> Result<ClientBuilder, rustls::Error> {
    Ok(reqwest::Client::builder().tls_backend_preconfigured(tls(url)?).user_agent(USER_AGENT).redirect(Policy::none()))
}

/// TLS by ring and the system's certificates, given to this client alone and not to the process.
///
/// A client for plain http needs no certificates, and works where none are installed.
fn tls(url: &Url) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = if url.scheme() == "https" {
        builder.with_platform_verifier()?
    } else {
        builder.with_root_certificates(RootCertStore::empty())
    };
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

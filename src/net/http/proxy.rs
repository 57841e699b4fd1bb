//! Proxy settings.

use reqwest::ClientBuilder;
use reqwest::header::HeaderValue;
use url::Url;

/// Whether requests go through a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proxy {
    /// As the environment variables say: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`.
    #[default]
    Environment,
    /// No proxy, regardless of the environment.
    Direct,
    /// Always this proxy, regardless of the environment. For an https server the client asks the proxy for a tunnel
    /// (CONNECT). The proxy sees the requests to an http server.
    Named {
        /// The proxy's URL: http or https, without credentials.
        url: Url,
        /// The credentials for the proxy.
        authorization: Option<HeaderValue>,
    },
}

impl Proxy {
    pub(super) fn speaks_tls(&self) -> bool {
        matches!(self, Self::Named { url, .. } if url.scheme() == "https")
    }

    pub(super) fn apply(&self, client: ClientBuilder) -> Result<ClientBuilder, reqwest::Error> {
        Ok(match self {
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

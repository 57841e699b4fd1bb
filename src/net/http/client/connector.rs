//! Opens connections, through a proxy if one applies.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use reqwest::header::{HeaderMap, HeaderValue, USER_AGENT as USER_AGENT_HEADER};
use rustls::ClientConfig;
use tower_service::Service;

use super::status_line::Watched;
use crate::http::{Proxy, SetupError, USER_AGENT, excludes_everything, public};

/// How long a connection is silent before the system checks that it still exists, and the time between two checks.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The number of checks without an answer after which a connection is broken.
const TCP_CHECKS: u32 = 3;

/// How long sent data may remain unacknowledged before a connection is broken.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);

type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, SetupError>> + Send>>;

/// The proxy of a client.
#[derive(Clone)]
pub(super) struct ProxyServer {
    uri: hyper::Uri,
    pub(super) authorization: Option<HeaderValue>,
}

impl ProxyServer {
    /// The proxy for the requests to a server, if any.
    pub(super) fn of(proxy: &Proxy, server: &hyper::Uri) -> Option<Self> {
        let (matcher, authorization) = match proxy {
            Proxy::Environment if excludes_everything() => return None,
            Proxy::Environment => (Matcher::from_env(), None),
            Proxy::Direct => return None,
            Proxy::Named { url, authorization } => {
                (Matcher::builder().all(url.as_str()).build(), authorization.clone())
            }
        };
        let found = matcher.intercept(server)?;
        let authorization = authorization.or_else(|| found.basic_auth().cloned());
        Some(Self { uri: found.uri().clone(), authorization })
    }
}

#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector<Lookup>,
    tls: Arc<ClientConfig>,
    /// For the connection to a proxy, which uses HTTP/1.1.
    tls_to_proxy: Arc<ClientConfig>,
    proxy: Option<ProxyServer>,
}

impl Connector {
    pub(super) fn new(tls: ClientConfig, proxy: Option<ProxyServer>, public_only: bool) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(Lookup { public_only });
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(TCP_KEEP_ALIVE));
        tcp.set_keepalive_interval(Some(TCP_KEEP_ALIVE));
        tcp.set_keepalive_retries(Some(TCP_CHECKS));
        tcp.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));
        let mut tls_to_proxy = tls.clone();
        tls_to_proxy.alpn_protocols.clear();
        Self { tcp, tls: Arc::new(tls), tls_to_proxy: Arc::new(tls_to_proxy), proxy }
    }
}

impl Service<hyper::Uri> for Connector {
    type Response = TokioIo<Watched>;
    type Error = SetupError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: hyper::Uri) -> Self::Future {
        let to_proxy = || HttpsConnector::from((self.tcp.clone(), self.tls_to_proxy.clone()));
        match &self.proxy {
            None => watched(HttpsConnector::from((self.tcp.clone(), self.tls.clone())).call(server), false),
            Some(proxy) if server.scheme_str() == Some("https") => {
                let agent = HeaderMap::from_iter([(USER_AGENT_HEADER, HeaderValue::from_static(USER_AGENT))]);
                let mut tunnel = Tunnel::new(proxy.uri.clone(), to_proxy()).with_headers(agent);
                if let Some(authorization) = &proxy.authorization {
                    tunnel = tunnel.with_auth(authorization.clone());
                }
                watched(HttpsConnector::from((tunnel, self.tls.clone())).call(server), false)
            }
            Some(proxy) => watched(to_proxy().call(proxy.uri.clone()), true),
        }
    }
}

fn watched<T>(connecting: Connecting<MaybeHttpsStream<T>>, is_proxy: bool) -> Connecting<TokioIo<Watched>>
where
    T: hyper::rt::Read + hyper::rt::Write + Connection + Send + Unpin + 'static,
{
    Box::pin(async move {
        let stream = TokioIo::new(connecting.await?);
        Ok(TokioIo::new(Watched::new(stream, is_proxy)))
    })
}

/// Looks up the addresses of a name.
#[derive(Clone)]
struct Lookup {
    public_only: bool,
}

impl Service<Name> for Lookup {
    type Response = vec::IntoIter<std::net::SocketAddr>;
    type Error = SetupError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let public_only = self.public_only;
        Box::pin(async move {
            if public_only {
                return public::lookup(name.as_str()).await;
            }
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(found.into_iter())
        })
    }
}

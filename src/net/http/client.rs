//! A client that knows the status of every response.
//!
//! A server may accept a request and send a response whose head the HTTP library refuses: two lengths, a header that is too
//! long, or a head that ends early. The status line has already said whether the request was accepted. The response then
//! consists of its status alone, and its connection is not used again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hyper::http;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::client::legacy::{self, Builder};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use percent_encoding::percent_decode_str;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT as USER_AGENT_HEADER,
};
use reqwest::{Body, Request, Response, StatusCode};
use url::Url;

use super::{
    ConnectionSettings, KEEP_ALIVE, MAX_HEADERS, SetupError, USER_AGENT, basic, check_public, find, tls_of_client,
};
use connector::{Connector, ProxyServer};
use status_line::StatusLine;

mod connector;
mod status_line;

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum RequestError {
    #[error("the server did not answer in time")]
    Timeout,
    #[error("the request failed")]
    Failed(#[source] legacy::Error),
    #[error("the request is not valid")]
    Invalid(#[source] SetupError),
}

impl RequestError {
    /// Whether the time was too short.
    pub fn is_timeout(&self) -> bool {
        let is_late = |error: &std::io::Error| error.kind() == std::io::ErrorKind::TimedOut;
        matches!(self, Self::Timeout)
            || find::<std::io::Error>(self).is_some_and(is_late)
            || find::<hyper::Error>(self).is_some_and(hyper::Error::is_timeout)
    }

    /// Whether no connection was established.
    pub fn is_connect(&self) -> bool {
        matches!(self, Self::Failed(error) if error.is_connect())
    }

    /// Whether the connection was established, and then ended before any response. Bytes that are no response do not count:
    /// their sender has received the request.
    pub fn is_broken_off(&self) -> bool {
        let is_unreadable = find::<hyper::Error>(self).is_some_and(hyper::Error::is_parse);
        let is_tls = find::<rustls::Error>(self).is_some();
        matches!(self, Self::Failed(_)) && !(self.is_connect() || self.is_timeout() || is_unreadable || is_tls)
    }
}

/// Sends requests to one server.
pub struct Client {
    inner: legacy::Client<Connector, Body>,
    headers: HeaderMap,
    /// The credentials for a proxy that sees the requests.
    proxy_authorization: Option<HeaderValue>,
    timeout: Duration,
}

impl Client {
    /// Creates a client for `url`, with these `headers` in each request. A response must begin within `timeout`. At most
    /// `idle` connections are kept for later requests. `asked` becomes true when the server requests a client certificate.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn new(
        url: &Url,
        connection: &ConnectionSettings,
        headers: HeaderMap,
        timeout: Duration,
        idle: usize,
        asked: Arc<AtomicBool>,
    ) -> Result<Self, SetupError> {
        if connection.public_only {
            check_public(url)?;
        }
        let uri: http::Uri = url.as_str().parse()?;
        // A proxy would look up the name itself.
        let proxy = ProxyServer::of(&connection.proxy, &uri).filter(|_| !connection.public_only);
        let proxy_authorization = proxy.as_ref().and_then(|proxy| proxy.authorization.clone());
        let proxy_authorization = proxy_authorization.filter(|_| uri.scheme_str() == Some("http"));
        let connector = Connector::new(tls_of_client(url, connection, asked)?, proxy, connection.public_only);
        let mut all = HeaderMap::new();
        all.insert(ACCEPT, HeaderValue::from_static("*/*"));
        all.insert(USER_AGENT_HEADER, HeaderValue::from_static(USER_AGENT));
        all.extend(headers);
        all.extend(credentials(url).map(|credentials| (AUTHORIZATION, credentials)));
        Ok(Self { inner: builder(idle).build(connector), headers: all, proxy_authorization, timeout })
    }

    /// Sends a request and waits for the head of its response. Redirects are not followed.
    ///
    /// # Errors
    /// [`RequestError`] if no status arrived.
    pub async fn execute(&self, request: Request) -> Result<Response, RequestError> {
        let mut request = self.completed(request).map_err(|error| RequestError::Invalid(error.into()))?;
        let connection = capture_connection(&mut request);
        let answer = tokio::time::timeout(self.timeout, self.inner.request(request)).await;
        let error = match answer {
            Ok(Ok(response)) => {
                response.extensions().get::<StatusLine>().inspect(|line| line.forget());
                return Ok(response.map(Body::wrap).into());
            }
            Ok(Err(error)) => RequestError::Failed(error),
            Err(_) => RequestError::Timeout,
        };
        let mut extras = http::Extensions::new();
        connection.connection_metadata().as_ref().inspect(|connected| connected.get_extras(&mut extras));
        let status = extras.get::<StatusLine>().and_then(StatusLine::status);
        status.map(status_alone).ok_or(error)
    }

    /// Adds the headers of all requests.
    fn completed(&self, mut request: Request) -> reqwest::Result<http::Request<Body>> {
        // Both fail only for a URL without a host.
        let url = request.url_mut();
        let _ = (url.set_username(""), url.set_password(None));
        let of_proxy = self.proxy_authorization.as_ref().map(|value| (&PROXY_AUTHORIZATION, value));
        for (name, value) in self.headers.iter().chain(of_proxy) {
            request.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
        request.try_into()
    }
}

/// The value of the header `Authorization` for the user and password in a URL. `None` if the URL has none.
pub fn credentials(url: &Url) -> Option<HeaderValue> {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let (username, password) = (decoded(url.username()), url.password().map(decoded));
    let is_given = !username.is_empty() || password.is_some();
    is_given.then(|| basic(&username, &password.unwrap_or_default()))
}

fn builder(idle: usize) -> Builder {
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(idle)
        // The same exceptions as for the other clients.
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .http1_allow_spaces_after_header_name_in_responses(true)
        .http1_ignore_invalid_headers_in_responses(true)
        .http1_max_headers(MAX_HEADERS)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(KEEP_ALIVE);
    builder
}

fn status_alone(status: StatusCode) -> Response {
    let mut response = http::Response::new(Body::default());
    *response.status_mut() = status;
    response.into()
}

//! HTTP below the client: one connection pool, bounded bodies, answers classified by status.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode};
use url::Url;

use super::buffers::Buffers;
use super::envelope::{self, MAX_ENVELOPE};
use super::error::Missing;
use super::{ApiError, BadAnswer, Settings, SettingsError, Trouble};
use crate::http;

/// Between two pings of an HTTP/2 connection in use, and how long a pong may take. Without pings a dead connection would
/// cost every request its whole timeout.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Idle connections that are kept. All channels share them. More are open only while more requests are under way; HTTP/2
/// needs one.
const KEPT_CONNECTIONS: usize = 16;

/// Where and how requests go. Its `Debug` says where only.
#[derive(Clone)]
pub(super) struct Transport {
    http: reqwest::Client,
    base_url: Url,
    api_key: Arc<str>,
    authorization: HeaderValue,
    max_body: usize,
    buffers: Arc<Buffers>,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("base_url", &self.base_url.as_str()).finish_non_exhaustive()
    }
}

impl Transport {
    pub(super) fn new(settings: Settings, max_body: usize) -> Result<Self, SettingsError> {
        let authorization = authorization(&settings.api_key)?;
        let base_url = base(settings.base_url)?;
        let http = http::client_for(&base_url)
            .map_err(SettingsError::Tls)?
            .connect_timeout(settings.connect_timeout)
            .timeout(settings.request_timeout)
            .pool_max_idle_per_host(KEPT_CONNECTIONS)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .http2_keep_alive_timeout(KEEP_ALIVE)
            .gzip(true)
            .build()
            .map_err(SettingsError::Http)?;
        Ok(Self { http, base_url, api_key: settings.api_key.into(), authorization, max_body, buffers: Arc::default() })
    }

    /// The body of a 2xx.
    pub(super) async fn get(
        &self,
        path: &[&str],
        query: &[(&'static str, String)],
        missing: Missing,
    ) -> Result<Bytes, ApiError> {
        let request = self.request(path).query(query).header(AUTHORIZATION, self.authorization.clone());
        self.send(request, missing).await
    }

    /// The body of a 2xx of an endpoint that needs no key.
    pub(super) async fn get_anonymously(&self, path: &[&str]) -> Result<Bytes, ApiError> {
        self.send(self.request(path), Missing::Nothing).await
    }

    fn request(&self, path: &[&str]) -> RequestBuilder {
        let mut url = self.base_url.clone();
        url.path_segments_mut().expect("an http URL has a path").pop_if_empty().extend(path);
        self.http.get(url).header(ACCEPT, HeaderValue::from_static("application/json"))
    }

    async fn send(&self, request: RequestBuilder, missing: Missing) -> Result<Bytes, ApiError> {
        let mut response = request.send().await.map_err(broken)?;
        if response.status().is_success() {
            return self.body(&mut response, self.max_body).await;
        }
        let retry_after = http::retry_after(response.headers());
        let status = response.status();
        // The body is for people only: the status counts though it cannot be read.
        let said = self.body(&mut response, MAX_ENVELOPE).await.unwrap_or_default();
        Err(self.classify(status, &said, retry_after, missing))
    }

    /// Reads a body, decompressed, up to `bound` bytes.
    async fn body(&self, response: &mut Response, bound: usize) -> Result<Bytes, ApiError> {
        let announced = response.content_length().and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
        let mut body = self.buffers.body(announced.min(bound));
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if chunk.len() > bound - body.len() {
                return Err(ApiError::Malformed(BadAnswer::TooLong { bound }));
            }
            body.push(&chunk);
        }
        Ok(body.freeze())
    }

    fn classify(&self, status: StatusCode, said: &[u8], retry_after: Option<Duration>, missing: Missing) -> ApiError {
        let answer = || envelope::read(status.as_u16(), said, &self.api_key);
        match (status.as_u16(), missing) {
            (404, Missing::Channel) => ApiError::ChannelGone(answer()),
            (404, Missing::Resource) => ApiError::NotFound(answer()),
            (429, _) => ApiError::RateLimited { retry_after },
            (400..=499, _) => ApiError::Refused(answer()),
            (500..=599, _) => ApiError::Transient { trouble: Trouble::Status(answer()), retry_after },
            (status @ 300..=399, _) => ApiError::Malformed(BadAnswer::Redirect(status)),
            (status, _) => ApiError::Malformed(BadAnswer::Status(status)),
        }
    }
}

fn authorization(api_key: &str) -> Result<HeaderValue, SettingsError> {
    if api_key.is_empty() {
        return Err(SettingsError::NoKey);
    }
    let header = HeaderValue::try_from(format!("Apikey {api_key}"));
    let mut header = header.map_err(|_| SettingsError::KeyCharacters)?;
    header.set_sensitive(true);
    Ok(header)
}

/// The base URL without slashes at its end. One with a user in it would send a second set of credentials.
fn base(mut url: Url) -> Result<Url, SettingsError> {
    let plain = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if !plain {
        return Err(SettingsError::BaseUrl);
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

/// Classifies a request without a whole answer.
fn broken(error: reqwest::Error) -> ApiError {
    // The operator knows the address, and it would hide the cause in a long line.
    let error = error.without_url();
    if is_not_gzip(&error) {
        return ApiError::Malformed(BadAnswer::Compression);
    }
    let trouble = if error.is_timeout() {
        Trouble::Timeout
    } else if error.is_connect() {
        Trouble::Connect(error)
    } else {
        Trouble::Network(error)
    };
    ApiError::Transient { trouble, retry_after: None }
}

/// Whether the decoder, and not the network, is the cause.
fn is_not_gzip(error: &reqwest::Error) -> bool {
    let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
    error.is_decode()
        && causes.any(|cause| cause.downcast_ref().map(io::Error::kind) == Some(io::ErrorKind::InvalidData))
}

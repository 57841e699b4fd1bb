//! HTTP for the client: one connection pool, bounded bodies, and classification of answers by status.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode};
use rustls::InvalidMessage;
use tokio::task::yield_now;
use url::Url;

use super::buffers::Buffers;
use super::error::{ApiError, ErrorResponse, InvalidResponse, MAX_ENVELOPE, Resource, SettingsError, TransientError};
use super::keys::Keys;
use super::{AccountName, Client, MAX_BODY, Settings};
use net::http;
use net::memory::Reserved;

/// The interval between pings of an HTTP/2 connection in use, and the timeout of a pong. Without pings, a dead
/// connection would cost every request its whole timeout.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The number of idle connections that are kept. All channels share them. More connections are open only while more
/// requests are running. HTTP/2 needs one connection.
pub const KEPT_CONNECTIONS: usize = 16;

/// After this many bytes of a body, other tasks get a turn. Decompressing this many bytes takes less than a millisecond.
const GIVE_WAY: usize = 256 << 10;

impl Client {
    /// A client with these settings. Sends nothing to the service yet.
    ///
    /// # Errors
    /// [`SettingsError`] if the settings could never work.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        Self::over(settings, |settings| Ok((connections(settings)?, Arc::default())))
    }

    /// A client of another account, which shares the buffers of this client. If the settings [suit](Self::suits) this client, it
    /// also shares the connections and the TLS settings. Sends nothing to the service yet.
    ///
    /// # Errors
    /// [`SettingsError`] if the settings could never work.
    pub fn beside(&self, settings: Settings) -> Result<Self, SettingsError> {
        Self::over(settings, |settings| {
            let http = if self.suits(settings) { self.http.clone() } else { connections(settings)? };
            Ok((http, self.buffers.clone()))
        })
    }

    /// Whether a client with these settings can share the connections of this client.
    pub fn suits(&self, settings: &Settings) -> bool {
        let reach = |of: &Settings| (of.base_url.scheme() == "https", of.connect_timeout, of.request_timeout);
        reach(settings) == reach(&self.settings)
    }

    fn over(
        mut settings: Settings,
        open: impl FnOnce(&Settings) -> Result<(reqwest::Client, Arc<Buffers>), SettingsError>,
    ) -> Result<Self, SettingsError> {
        let keys = Arc::new(Keys::new(&settings.api_keys)?);
        settings.base_url = base(settings.base_url)?;
        let (http, buffers) = open(&settings)?;
        let (settings, memory, turns) = (Arc::new(settings), Arc::default(), Arc::default());
        Ok(Self { http, settings, keys, max_body: MAX_BODY, buffers, memory, turns })
    }

    /// A request without the key.
    pub(super) fn get(&self, path: &[&str]) -> RequestBuilder {
        let mut url = self.settings.base_url.clone();
        url.path_segments_mut().expect("an http URL has a path").pop_if_empty().extend(path);
        self.http.get(url).header(ACCEPT, HeaderValue::from_static("application/json"))
    }

    /// The body of a 2xx response. Waits for memory if the body is long.
    pub(super) async fn send_until_whole(
        &self,
        request: &RequestBuilder,
        missing: fn(ErrorResponse) -> ApiError,
    ) -> Result<Bytes, ApiError> {
        let mut reserved = self.memory.free();
        loop {
            let (request, had) = (request.try_clone().expect("the request has no body"), reserved.bytes());
            match self.send(request, missing, reserved).await {
                Err(ApiError::TooLong { bytes }) if had < self.longest() => {
                    reserved = self.memory.reserve(bytes.min(self.longest())).await;
                }
                answer => return answer,
            }
        }
    }

    /// The body of a 2xx response. If no memory is free, exceeds the memory limit.
    pub(super) async fn send_beyond(
        &self,
        request: &RequestBuilder,
        missing: fn(ErrorResponse) -> ApiError,
    ) -> Result<Bytes, ApiError> {
        let again = || request.try_clone().expect("the request has no body");
        match self.send(again(), missing, self.memory.free()).await {
            Err(ApiError::TooLong { bytes }) if bytes < self.longest() => {
                let _alone = self.memory.alone().await;
                self.send(again(), missing, self.memory.exceed(0)).await
            }
            answer => answer,
        }
    }

    /// Sends a request with a key, and returns the body of a 2xx response, if memory for it is available. A 404 of the service
    /// is the error `missing`.
    pub(super) async fn send(
        &self,
        request: RequestBuilder,
        missing: fn(ErrorResponse) -> ApiError,
        reserved: Reserved,
    ) -> Result<Bytes, ApiError> {
        let response = self.ask(&request).await?;
        self.read(response, missing, reserved).await
    }

    /// Sends a request with a key. While the service refuses the key, repeats the request with the next one.
    pub(super) async fn ask(&self, request: &RequestBuilder) -> Result<Response, ApiError> {
        let mut attempt = self.keys.attempt();
        loop {
            let again = request.try_clone().expect("the request has no body");
            let response = self.ask_without_key(attempt.sign(again)).await?;
            if response.status() == StatusCode::UNAUTHORIZED && attempt.refused() {
                continue;
            }
            // Only a success shows that the service accepts the key: a proxy can answer with an error before it is checked.
            if response.status().is_success() {
                attempt.accepted();
            }
            return Ok(response);
        }
    }

    /// Waits for a turn, and sends the request as it is.
    pub(super) async fn ask_without_key(&self, request: RequestBuilder) -> Result<Response, ApiError> {
        let turn = self.turns.turn().await;
        let response = request.send().await.map_err(|error| broken(error, self.account()))?;
        match response.status().as_u16() {
            429 => self.turns.refused(turn, http::retry_after(response.headers())),
            _ => self.turns.accepted(turn),
        }
        Ok(response)
    }

    /// Returns the body of a 2xx response, if memory for it is available. A 404 of the service is the error `missing`.
    pub(super) async fn read(
        &self,
        mut response: Response,
        missing: fn(ErrorResponse) -> ApiError,
        reserved: Reserved,
    ) -> Result<Bytes, ApiError> {
        let (status, retry_after) = (response.status().as_u16(), http::retry_after(response.headers()));
        if response.status().is_success() {
            return self.body(&mut response, self.longest(), reserved).await;
        }
        // The status counts even if the body cannot be read.
        let said = self.body(&mut response, MAX_ENVELOPE, self.memory.exceed(0)).await.unwrap_or_default();
        let (mut answer, is_envelope) = ErrorResponse::read(status, &said, &self.keys.secrets());
        let account = self.account();
        answer.account = account.clone();
        answer.resource = Some(Resource::of(response.url().path())).filter(|_| status == 403 && is_envelope);
        if status == 400 && !is_envelope && self.settings.base_url.scheme() == "http" {
            answer.message.get_or_insert_with(|| {
                // The server may be a port that requires TLS.
                format!("not from the service itself: should {account}.base_url begin with https://?").into()
            });
        }
        Err(match status {
            404 if is_envelope => missing(answer),
            404 => InvalidResponse(
                format!(
                    "HTTP 404, and not from the service itself: is {account}.base_url correct, and does it end with the version (such as /v1)?"
                )
                .into(),
            )
            .into(),
            429 => ApiError::RateLimited { retry_after },
            400..=499 => ApiError::Refused(answer),
            500..=599 => ApiError::Transient(TransientError::Status { answer, retry_after }),
            300..=399 => InvalidResponse(
                format!(
                    "the service answered with a redirect (HTTP {status}), which is never followed: is {account}.base_url correct?"
                )
                .into(),
            )
            .into(),
            _ => InvalidResponse(format!("the service answered with the unexpected status {status}").into()).into(),
        })
    }

    fn longest(&self) -> usize {
        self.max_body.min(self.memory.largest())
    }

    /// Reads a body, decompressed, up to `bound` bytes.
    async fn body(&self, response: &mut Response, bound: usize, reserved: Reserved) -> Result<Bytes, ApiError> {
        let announced = response.content_length().and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
        let mut body = self.buffers.body(announced.min(bound), reserved)?;
        while let Some(chunk) = response.chunk().await.map_err(|error| broken(error, self.account()))? {
            if chunk.len() > bound - body.bytes.len() {
                return Err(ApiError::TooLong { bytes: bound });
            }
            body.extend(&chunk)?;
            // Without this, the loop would rarely yield, because decompressed data is usually ready and seldom waits
            // for the network.
            if body.bytes.len() / GIVE_WAY > (body.bytes.len() - chunk.len()) / GIVE_WAY {
                yield_now().await;
            }
        }
        Ok(body.freeze())
    }
}

/// The base URL without trailing slashes. A URL with a user is refused, because the user would be sent as a second set
/// of credentials.
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

/// Opens nothing yet.
fn connections(settings: &Settings) -> Result<reqwest::Client, SettingsError> {
    http::client_for(&settings.base_url)
        .map_err(SettingsError::Tls)?
        .connect_timeout(settings.connect_timeout)
        .timeout(settings.request_timeout)
        .pool_max_idle_per_host(KEPT_CONNECTIONS)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(KEEP_ALIVE)
        .gzip(true)
        .build()
        .map_err(SettingsError::Http)
}

fn broken(error: reqwest::Error, account: &AccountName) -> ApiError {
    // The message omits the address: the operator knows it, and it would only hide the cause in a long line.
    let is_plain = error.url().is_some_and(|url| url.scheme() == "http");
    let error = error.without_url();
    if error.is_decode() && http::find::<io::Error>(&error).is_some_and(|it| it.kind() == io::ErrorKind::InvalidData) {
        return InvalidResponse("the answer could not be decompressed".into()).into();
    }
    if let Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) = http::find(&error) {
        let why = format!(
            "the server there does not use TLS: should {account}.base_url begin with http://, or is the port wrong?"
        );
        return InvalidResponse(why.into()).into();
    }
    if is_plain && http::find(&error).is_some_and(hyper::Error::is_parse) {
        let why = format!(
            "the server there does not use plain HTTP: should {account}.base_url begin with https://, or is the port wrong?"
        );
        return InvalidResponse(why.into()).into();
    }
    ApiError::Transient(if error.is_timeout() {
        TransientError::Timeout
    } else if error.is_connect() {
        TransientError::Connect(error)
    } else {
        TransientError::Network(error)
    })
}

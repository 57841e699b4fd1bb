//! Access tokens: OAuth 2.0 client credentials (RFC 6749, section 4.4).
//!
//! # Invariants
//!
//! * **One fetch at a time.** While a token is being fetched, all requests that need a token wait for it. If the fetch fails,
//!   they fail too: otherwise they would fetch one after the other, and the last one would wait for many timeouts.
//! * **A token is renewed before it expires,** and once more if the endpoint answers 401. If no new token can be fetched,
//!   the current token is used until it expires.
//! * **Nothing leaks.** Neither the client secret nor a token appears in an error or in `Debug`. The only part of a
//!   response that is shown is the error code. The specification defines its values.
//! * **Bounded.** The webhook's timeout limits the wait for a response and the wait for its body, and the size of a response is limited.
//!
//! # Cancellation
//!
//! If a fetch is dropped, the previous token stays in use.

use std::fmt;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Request, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use strum::{EnumString, IntoStaticStr, VariantNames};
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;
use url::form_urlencoded::byte_serialize;

use super::response::{self, RefusalScope, RequestRefusal};
use crate::{Fault, SinkError};
use net::http::{self, Client, basic, sensitive};
use net::secret::Secret;

/// The lifetime of a token if the response does not state one.
const LIFE: Duration = Duration::from_secs(5 * 60);

/// The maximum lifetime, so that adding it to the current time cannot overflow.
const LONGEST_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How long before its expiry a token is renewed. If a fifth of its lifetime is shorter than this, the token is renewed a
/// fifth of its lifetime before its expiry.
const EARLY: Duration = Duration::from_secs(60);

/// The wait after a failed renewal, if the current token is still valid.
const AGAIN: Duration = Duration::from_secs(10);

/// The longest error code that is shown, in bytes.
const CODE_LIMIT: usize = 40;

/// How access tokens are obtained.
#[derive(Clone, PartialEq, Eq)]
pub struct OAuth2 {
    /// The token endpoint.
    pub token_url: Url,
    /// The client id that the authorization server knows.
    pub client_id: Box<str>,
    /// The client secret.
    pub client_secret: Secret,
    /// Which part of the request contains the client id and secret.
    pub credentials: Credentials,
    /// The requested scope, if the server needs one.
    pub scope: Option<Box<str>>,
    /// The audience of the token, if the server needs one.
    pub audience: Option<Box<str>>,
}

impl fmt::Debug for OAuth2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth2").field("host", &self.token_url.host_str()).finish_non_exhaustive()
    }
}

/// Which part of a token request contains the client id and secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Credentials {
    /// The header `authorization`. The specification requires every server to accept it.
    #[default]
    Header,
    /// The body.
    Body,
}

/// Fetches the access token when it is needed, and caches it.
pub(super) struct Tokens {
    settings: OAuth2,
    client: Client,
    timeout: Duration,
    cached: Mutex<LastFetch>,
}

#[derive(Default)]
struct LastFetch {
    token: Option<CachedToken>,
    /// When the last failed fetch ended, and why it failed.
    failure: Option<(Instant, RequestRefusal)>,
}

struct CachedToken {
    authorization: HeaderValue,
    renew_at: Instant,
    ends_at: Instant,
}

/// The successful response of a token endpoint. It contains a secret, and therefore has no `Debug`.
#[derive(Deserialize)]
struct Granted {
    access_token: String,
    token_type: Option<String>,
    /// The lifetime in seconds. The specification requires a number, but some servers send a string.
    expires_in: Option<Value>,
}

impl Tokens {
    pub(super) fn new(settings: OAuth2, client: Client, timeout: Duration) -> Self {
        Self { settings, client, timeout, cached: Mutex::default() }
    }

    pub(super) async fn authorization(&self) -> Result<HeaderValue, RequestRefusal> {
        let began = Instant::now();
        let mut cached = self.cached.lock().await;
        let LastFetch { token, failure } = &mut *cached;
        if let Some(token) = token.as_ref().filter(|token| Instant::now() < token.renew_at) {
            return Ok(token.authorization.clone());
        }
        if let Some((_, refusal)) = failure.as_ref().filter(|(ended, _)| began < *ended) {
            return Err(refusal.clone());
        }
        match (self.fetch().await, token) {
            (Ok(fetched), token) => Ok(token.insert(fetched).authorization.clone()),
            (Err(_), Some(token)) if Instant::now() < token.ends_at => {
                token.renew_at = Instant::now() + AGAIN;
                Ok(token.authorization.clone())
            }
            (Err(refusal), _) => {
                *failure = Some((Instant::now(), refusal.clone()));
                Err(refusal)
            }
        }
    }

    pub(super) async fn forget(&self, refused: &HeaderValue) {
        let token = &mut self.cached.lock().await.token;
        if token.as_ref().is_some_and(|token| token.authorization == *refused) {
            *token = None;
        }
    }

    async fn fetch(&self) -> Result<CachedToken, RequestRefusal> {
        let OAuth2 { token_url, client_id, client_secret, credentials, scope, audience } = &self.settings;
        let mut form = vec![("grant_type", "client_credentials")];
        form.extend(scope.as_deref().map(|scope| ("scope", scope)));
        form.extend(audience.as_deref().map(|audience| ("audience", audience)));
        let mut request = Request::new(Method::POST, token_url.clone());
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        match credentials {
            Credentials::Header => drop(headers.insert(AUTHORIZATION, credentials_of(client_id, client_secret))),
            Credentials::Body => form.extend([("client_id", &**client_id), ("client_secret", client_secret.expose())]),
        }
        let form = serde_urlencoded::to_string(form).expect("pairs of texts are a form");
        *request.body_mut() = Some(form.into());
        let asked = Instant::now();
        let response = self.client.execute(request).await.map_err(|error| {
            match response::unanswered(&error, self.timeout, "no response arrived") {
                SinkError::Refused { message, fault, .. } => {
                    self.refused(&format!("the request to the token endpoint failed: {message}"), fault, None)
                }
                error => RequestRefusal { error, about: RefusalScope::Endpoint },
            }
        })?;
        let (status, retry_after) = (response.status(), http::retry_after(response.headers()));
        let body = tokio::time::timeout(self.timeout, response::body(response)).await.ok().flatten();
        if !status.is_success() {
            let is_temporary = status.is_server_error()
                || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
            let fault = if is_temporary { Fault::Target } else { Fault::Operator };
            return Err(self.refused(&refusal(status, body.as_deref()), fault, retry_after));
        }
        let granted = body.as_ref().and_then(|body| serde_json::from_slice(body).ok());
        granted.and_then(|granted| cached_token(granted, asked)).ok_or_else(|| {
            let message = format!("the token endpoint answered {} without a bearer token", status.as_u16());
            // A response that was cut off has no body.
            let is_cut = body.is_none_or(|body| body.is_empty());
            self.refused(&message, if is_cut { Fault::Target } else { Fault::Operator }, None)
        })
    }

    fn refused(&self, message: &str, fault: Fault, retry_after: Option<Duration>) -> RequestRefusal {
        let origin = self.settings.token_url.origin().ascii_serialization();
        let message = format!("no access token from {origin}: {message}");
        RequestRefusal { error: SinkError::Refused { message, retry_after, fault }, about: RefusalScope::Endpoint }
    }
}

/// The `Basic` credentials. Both parts are form-encoded first (RFC 6749, section 2.3.1).
fn credentials_of(client_id: &str, client_secret: &Secret) -> HeaderValue {
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    basic(&encoded(client_id), &encoded(client_secret.expose()))
}

fn refusal(status: StatusCode, body: Option<&[u8]>) -> String {
    let said: Option<Value> = body.and_then(|body| serde_json::from_slice(body).ok());
    let code = said.as_ref().and_then(|said| said.get("error")?.as_str());
    let is_code =
        |code: &&str| code.len() <= CODE_LIMIT && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let code = code.filter(is_code);
    let advice = match code {
        Some("invalid_client" | "unauthorized_client") => ": check oauth2.client_id and its secret",
        Some("invalid_scope") => ": check oauth2.scope",
        None if status == StatusCode::UNAUTHORIZED => ": check oauth2.client_id and its secret, and oauth2.credentials",
        None if status == StatusCode::NOT_FOUND || status.is_redirection() => ": check oauth2.token_url",
        _ => "",
    };
    let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
    format!("it answered {}{code}{advice}", status.as_u16())
}

fn cached_token(
    Granted { access_token: token, token_type, expires_in }: Granted,
    asked: Instant,
) -> Option<CachedToken> {
    if token.is_empty() || token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return None;
    }
    let seconds = expires_in.and_then(|value| match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    });
    let life = seconds.filter(|seconds| *seconds > 0.0).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let life = life.unwrap_or(LIFE).min(LONGEST_LIFE);
    let (renew_at, ends_at) = (asked + life - EARLY.min(life / 5), asked + life);
    Some(CachedToken { authorization: sensitive(&format!("Bearer {token}"))?, renew_at, ends_at })
}

#[cfg(test)]
mod tests;

//! Access tokens: OAuth 2.0 client credentials (RFC 6749, section 4.4).
//!
//! # Invariants
//!
//! * **One at a time.** Requests that need a token wait for the one that is being fetched.
//! * **Renewed before it ends,** and once where the endpoint answers 401. A token that still holds is used on where no new one
//!   can be had.
//! * **Nothing leaks.** Neither the client's secret nor a token shows in an error or in `Debug`. Of an answer only the code of
//!   the error is shown, which the specification fixes.
//! * **Bounded.** A fetch by the webhook's timeout, an answer by its size.
//!
//! # Cancellation
//!
//! A fetch that is dropped leaves the token that there was.

use std::fmt;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use strum::{EnumString, IntoStaticStr, VariantNames};
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;
use url::form_urlencoded::byte_serialize;

use super::answer::{self, About, Refusal};
use crate::SinkError;
use net::http::{self, basic, sensitive};
use net::secret::Secret;

/// The life of a token that does not say how long it lives.
const LIFE: Duration = Duration::from_secs(5 * 60);

/// No clock counts further.
const LONGEST_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// So long before its end a token is renewed, or a fifth of its life where that is less.
const EARLY: Duration = Duration::from_secs(60);

/// After a renewal that failed, while the token still holds.
const AGAIN: Duration = Duration::from_secs(10);

/// The largest answer.
const MAX_ANSWER: usize = 64 * 1024;

/// The longest code of an error.
const CODE_LIMIT: usize = 40;

/// Where access tokens come from.
#[derive(Clone, PartialEq, Eq)]
pub struct OAuth2 {
    /// The token endpoint.
    pub token_url: Url,
    /// The client, as the authorization server knows it.
    pub client_id: Box<str>,
    /// Its secret.
    pub client_secret: Secret,
    /// Where both stand in the request.
    pub credentials: Credentials,
    /// What is asked for, where that has to be said.
    pub scope: Option<Box<str>>,
    /// Whom the token is for, where that has to be said.
    pub audience: Option<Box<str>>,
}

impl fmt::Debug for OAuth2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth2").field("host", &self.token_url.host_str()).finish_non_exhaustive()
    }
}

/// Where the client's id and secret stand in the request for a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Credentials {
    /// In the header `authorization`, which every server takes by the specification.
    #[default]
    Header,
    /// In the body.
    Body,
}

/// The token, fetched when it is needed.
pub(super) struct Tokens {
    settings: OAuth2,
    client: Client,
    timeout: Duration,
    held: Mutex<Option<Held>>,
}

struct Held {
    authorization: HeaderValue,
    renew_at: Instant,
    ends_at: Instant,
}

/// What a token endpoint answers.
#[derive(Deserialize)]
struct Granted {
    access_token: Secretly,
    token_type: Option<String>,
    /// Seconds: by the specification a number, by some servers a text.
    expires_in: Option<Value>,
}

/// A text that is never shown.
#[derive(Deserialize)]
#[serde(transparent)]
struct Secretly(String);

#[derive(Deserialize)]
struct Refused {
    error: String,
}

impl Tokens {
    pub(super) fn new(settings: OAuth2, client: Client, timeout: Duration) -> Self {
        Self { settings, client, timeout, held: Mutex::new(None) }
    }

    /// The header `authorization`, with a token that holds.
    pub(super) async fn authorization(&self) -> Result<HeaderValue, Refusal> {
        let mut held = self.held.lock().await;
        let now = Instant::now();
        if let Some(held) = held.as_ref().filter(|held| now < held.renew_at) {
            return Ok(held.authorization.clone());
        }
        match (self.fetch().await, held.as_mut()) {
            (Ok(fetched), _) => Ok(held.insert(fetched).authorization.clone()),
            (Err(_), Some(held)) if Instant::now() < held.ends_at => {
                held.renew_at = Instant::now() + AGAIN;
                Ok(held.authorization.clone())
            }
            (Err(refusal), _) => Err(refusal),
        }
    }

    /// Gives up a token that was not accepted.
    pub(super) async fn forget(&self, refused: &HeaderValue) {
        let mut held = self.held.lock().await;
        if held.as_ref().is_some_and(|held| held.authorization == *refused) {
            *held = None;
        }
    }

    async fn fetch(&self) -> Result<Held, Refusal> {
        let OAuth2 { token_url, client_id, client_secret, credentials, scope, audience } = &self.settings;
        let mut form = vec![("grant_type", "client_credentials")];
        form.extend(scope.as_deref().map(|scope| ("scope", scope)));
        form.extend(audience.as_deref().map(|audience| ("audience", audience)));
        let mut request = self.client.post(token_url.clone()).header(ACCEPT, "application/json");
        match credentials {
            Credentials::Header => request = request.header(AUTHORIZATION, credentials_of(client_id, client_secret)),
            Credentials::Body => form.extend([("client_id", &**client_id), ("client_secret", client_secret.expose())]),
        }
        let form = serde_urlencoded::to_string(form).expect("pairs of texts are a form");
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(form);
        let asked = Instant::now();
        let response = request.send().await.map_err(|error| {
            let (why, needs_attention) = answer::unanswered(error, self.timeout, "could not ask for one");
            self.refused(&format!("the token endpoint {why}"), needs_attention, None)
        })?;
        let (status, retry_after) = (response.status(), http::retry_after(response.headers()));
        let body = read(response).await;
        if !status.is_success() {
            let needs_attention = !(status.is_server_error()
                || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS));
            return Err(self.refused(&refusal(status, body.as_deref()), needs_attention, retry_after));
        }
        let granted = body.and_then(|body| serde_json::from_slice(&body).ok());
        granted.and_then(|granted| held(granted, asked)).ok_or_else(|| {
            let message = format!("the token endpoint answered {} without a bearer token", status.as_u16());
            self.refused(&message, true, None)
        })
    }

    fn refused(&self, message: &str, needs_attention: bool, retry_after: Option<Duration>) -> Refusal {
        let origin = self.settings.token_url.origin().ascii_serialization();
        let message = format!("no access token from {origin}: {message}");
        Refusal { error: SinkError::Refused { message, retry_after, needs_attention }, about: About::Endpoint }
    }
}

/// Both are encoded first (RFC 6749, section 2.3.1).
fn credentials_of(client_id: &str, client_secret: &Secret) -> HeaderValue {
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    basic(&encoded(client_id), &encoded(client_secret.expose()))
}

/// What an endpoint says that gives no token.
fn refusal(status: StatusCode, body: Option<&[u8]>) -> String {
    let code = body.and_then(|body| serde_json::from_slice(body).ok()).map(|Refused { error }| error);
    let is_code =
        |code: &String| code.len() <= CODE_LIMIT && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let code = code.filter(is_code);
    let advice = match code.as_deref() {
        Some("invalid_client" | "unauthorized_client") => ": check oauth2.client_id and its secret",
        Some("invalid_scope") => ": check oauth2.scope",
        None if status == StatusCode::UNAUTHORIZED => ": check oauth2.client_id and its secret, and oauth2.credentials",
        None if status == StatusCode::NOT_FOUND || status.is_redirection() => ": check oauth2.token_url",
        _ => "",
    };
    let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
    format!("it answered {}{code}{advice}", status.as_u16())
}

fn held(Granted { access_token: Secretly(token), token_type, expires_in }: Granted, asked: Instant) -> Option<Held> {
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
    Some(Held { authorization: sensitive(&format!("Bearer {token}"))?, renew_at, ends_at })
}

/// A body; `None` where it is too large, or does not come.
async fn read(mut response: Response) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ANSWER {
            return None;
        }
    }
    Some(body)
}

#[cfg(test)]
mod tests;

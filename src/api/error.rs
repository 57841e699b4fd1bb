//! Errors of the service, grouped by the caller's next step.
//!
//! The error envelope is shown to people. It decides only one thing: whether a 404 comes from the service.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::account::AccountName;
use net::http::SetupError;
use proof::event::{UnknownPart, UnknownValue};
use serde_json::Value;

/// The maximum length of an answer, after decompression.
pub const MAX_BODY: usize = 64 * 1024 * 1024;

/// The number of bytes of an error's body that are read. An envelope has a few hundred bytes.
pub(super) const MAX_ENVELOPE: usize = 64 * 1024;

const MAX_MESSAGE: usize = 200;

const MAX_CODE: usize = 64;

const REDACTED: &str = "[api key]";

/// Why a call returned no result.
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[expect(missing_docs, reason = "the texts describe the fields")]
pub enum ApiError {
    /// 404 on poll or search. If a poll is answered so, the channel stops, and the other channels continue.
    #[error("the channel does not exist or is archived ({0})")]
    ChannelGone(ErrorResponse),
    /// 404 on one event or watcher. [`ErrorResponse::code`], if present, tells whether the channel itself is gone.
    #[error("the channel does not contain the requested event or watcher ({0})")]
    NotFound(ErrorResponse),
    /// Any other 4xx: the service will refuse the same request again until the key, the settings or the service change.
    #[error("the service refused the request ({0}){advice}", advice = .0.advice())]
    Refused(ErrorResponse),
    /// 429: retry after a wait. The service may request a wait, of at most
    /// [`MAX_RETRY_AFTER`](net::http::MAX_RETRY_AFTER).
    #[error("the service limits the request rate (HTTP 429)")]
    RateLimited { retry_after: Option<Duration> },
    /// A 5xx or a network error: retry after a wait.
    #[error(transparent)]
    Transient(TransientError),
    /// Memory for the complete answer is not available: request fewer events. `bytes` is the expected length: the
    /// announced length or, if memory ran out while the body arrived, twice the length that has arrived, as a guess.
    #[error("{}", too_long(*bytes))]
    TooLong { bytes: usize },
    /// The response does not answer the request, because of a proxy or a defect of the service. A retry may help.
    /// Otherwise an operator must investigate.
    #[error(transparent)]
    Malformed(#[from] InvalidResponse),
}

impl ApiError {
    /// A short constant name for log fields and metric labels.
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// The wait before the next request, if the service requested one.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after } | Self::Transient(TransientError::Status { retry_after, .. }) => {
                *retry_after
            }
            _ => None,
        }
    }
}

impl ApiError {
    /// The `type` of the service's error envelope, if this version does not know it.
    pub fn unknown_type(&self) -> Option<&UnknownValue> {
        match self {
            Self::ChannelGone(answer)
            | Self::NotFound(answer)
            | Self::Refused(answer)
            | Self::Transient(TransientError::Status { answer, .. }) => answer.unknown_type.as_ref(),
            Self::RateLimited { .. } | Self::Transient(_) | Self::TooLong { .. } | Self::Malformed(_) => None,
        }
    }
}

fn too_long(bytes: usize) -> String {
    if bytes == MAX_BODY {
        let most = MAX_BODY >> 20;
        return format!("the answer is longer than {most} MiB, the fixed limit for one answer");
    }
    format!("not enough memory for an answer of {bytes} bytes: see limits.memory")
}

/// An unsuccessful answer: its status, and the parts of its envelope that can be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorResponse {
    /// The HTTP status.
    pub status: u16,
    /// The envelope's `code`, or its `type` if it has no `code`. New values can appear.
    pub code: Option<Box<str>>,
    /// The envelope's `message`, for people. It is bounded, and contains neither control characters nor a key.
    pub message: Option<Box<str>>,
    /// The envelope's `type`, if this version does not know it.
    pub unknown_type: Option<UnknownValue>,
    /// The account whose key was sent.
    pub account: AccountName,
    /// The resource for which the key lacks the scope. Set only for a 403 of the service itself.
    pub resource: Option<Resource>,
}

/// A resource of the service. To read it, a key needs a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are clear")]
pub enum Resource {
    Events,
    Watchers,
    Channels,
    Networks,
}

impl Resource {
    /// The resource at the path of a request.
    pub(super) fn of(path: &str) -> Self {
        let named = |segment: &str| match segment {
            "events" => Some(Self::Events),
            "watchers" => Some(Self::Watchers),
            "networks" => Some(Self::Networks),
            _ => None,
        };
        path.rsplit('/').find_map(named).unwrap_or(Self::Channels)
    }

    /// The scope that is needed, in words. Only the scope of events is published.
    fn scope(self) -> &'static str {
        match self {
            Self::Events => "crec:event:read, which is needed to read events",
            Self::Watchers => "that is needed to read watchers",
            Self::Channels => "that is needed to read channels",
            Self::Networks => "that is needed to read networks",
        }
    }
}

impl ErrorResponse {
    /// Returns the parts of the envelope that can be read, and whether the body is an envelope. An envelope has a
    /// `type` or a `code`, or both. All other fields may be missing or new.
    pub(super) fn read(status: u16, body: &[u8], keys: &[&str]) -> (Self, bool) {
        let envelope: Value = serde_json::from_slice(body).unwrap_or_default();
        let field = |name, bound| envelope.get(name)?.as_str().and_then(|text| presentable(text, keys, bound));
        let kind = field("type", MAX_CODE).filter(|kind| !knows_type(status, kind));
        let answer = Self {
            status,
            unknown_type: kind.map(|kind| UnknownValue::new(UnknownPart::ErrorType, &kind)),
            code: field("code", MAX_CODE).or_else(|| field("type", MAX_CODE)),
            message: field("message", MAX_MESSAGE),
            account: AccountName::default(),
            resource: None,
        };
        (answer, ["type", "code"].iter().any(|name| envelope.get(name).is_some_and(Value::is_string)))
    }

    fn advice(&self) -> Cow<'static, str> {
        match (self.status, self.code.as_deref(), self.resource) {
            (401, Some("ORGANIZATION_NOT_FOUND"), _) => {
                "; the service does not know the organization of this key: ask the service's operator".into()
            }
            (401, _, _) => format!("; check {}.api_key", self.account).into(),
            (403, _, Some(resource)) => format!(
                "; the key lacks the scope {}: ask the service's operator to add the scope, or use a key that has it",
                resource.scope()
            )
            .into(),
            (403, _, None) => "; not from the service itself: does a proxy in between refuse the request?".into(),
            _ => "".into(),
        }
    }
}

/// Whether this version knows the `type` of an error envelope. The type of a 401 for a wrong key is not documented.
fn knows_type(status: u16, name: &str) -> bool {
    let is_documented = matches!(
        name,
        "VALIDATION_ERROR"
            | "ORGANIZATION_NOT_FOUND"
            | "NOT_FOUND"
            | "CONFLICT"
            | "INTERNAL_ERROR"
            | "PERMISSION_DENIED"
    );
    is_documented || status == 401
}

/// Makes a text of the service safe to show: without control characters and keys, and at most `bound` characters long.
///
/// The keys are replaced before the text is truncated, so that the end contains no part of a key.
fn presentable(text: &str, keys: &[&str], bound: usize) -> Option<Box<str>> {
    let redacted = |text: &str| keys.iter().fold(text.to_owned(), |text, key| text.replace(key, REDACTED));
    let text = redacted(&redacted(text).replace(char::is_control, " "));
    let text: String = text.trim().chars().take(bound).collect();
    (!text.is_empty()).then(|| text.into())
}

impl fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP {}", self.status)?;
        if let Some(code) = &self.code {
            write!(f, " {code}")?;
        }
        if let Some(message) = &self.message {
            write!(f, ": {message}")?;
        }
        Ok(())
    }
}

/// A temporary error.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts describe the fields")]
pub enum TransientError {
    /// The service answered with a 5xx. It may request a wait, as in [`ApiError::RateLimited`].
    #[error("the service failed ({answer})")]
    Status { answer: ErrorResponse, retry_after: Option<Duration> },
    /// The answer did not arrive completely within `request_timeout` or `connect_timeout`.
    #[error("the service did not answer in time")]
    Timeout,
    /// The connection failed because of the name, the network, the port or TLS.
    #[error("the service could not be reached")]
    Connect(#[source] reqwest::Error),
    /// The connection broke before the answer was complete.
    #[error("the connection to the service was lost")]
    Network(#[source] reqwest::Error),
}

/// Why an answer does not match the request. The text names the problem and never includes the content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidResponse(pub Cow<'static, str>);

/// Settings that no client can work with.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum SettingsError {
    #[error("the base URL must be http:// or https:// with a host, and no user, query or fragment")]
    BaseUrl,
    #[error("the API key is empty")]
    NoKey,
    #[error("there are too many API keys")]
    TooManyKeys,
    #[error("the API key has characters that cannot be sent in an HTTP header, such as a line break")]
    KeyCharacters,
    /// TLS cannot work here. The usual cause is that the system's certificates are not installed.
    #[error("TLS could not be initialized: are the system's CA certificates installed?")]
    Tls(#[source] SetupError),
    #[error("the HTTP client could not be created")]
    Http(#[source] reqwest::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "k3y-secret";

    #[test]
    fn a_partial_unknown_or_missing_envelope_is_accepted() {
        for body in ["", "<html>", "{", "[]", "7", r#"{"code":7,"message":null}"#, r#"{"code":" "}"#] {
            let (answer, _) = ErrorResponse::read(503, body.as_bytes(), &[KEY]);
            assert_eq!((answer.status, answer.code, answer.message), (503, None, None), "{body}");
            assert_eq!((answer.unknown_type, answer.resource), (None, None), "{body}");
        }
    }

    #[test]
    fn a_message_is_bounded_and_hides_control_characters_and_key() {
        let message = format!("no\n\u{1b}[31mkey {KEY}: {}", "x".repeat(500));
        let body = serde_json::json!({"code": "NEW_CODE", "message": message}).to_string();
        let (answer, _) = ErrorResponse::read(401, body.as_bytes(), &[KEY]);
        assert_eq!(answer.code.as_deref(), Some("NEW_CODE"));
        let shown = answer.message.expect("the answer has a message");
        assert!(shown.starts_with("no  [31mkey [api key]: xx"), "{shown}");
        assert_eq!(shown.chars().count(), MAX_MESSAGE);
    }

    #[test]
    fn a_key_at_the_cut_is_hidden_entirely() {
        let message = format!("{}{KEY}", "x".repeat(MAX_MESSAGE - 3));
        let body = serde_json::json!({ "message": message, "code": KEY }).to_string();
        let (answer, _) = ErrorResponse::read(400, body.as_bytes(), &[KEY]);
        assert!(!answer.to_string().contains("k3y"), "{answer}");
    }

    #[test]
    fn an_error_type_that_is_not_documented_is_unknown() {
        let unknown = |status, kind: &str| {
            let body = serde_json::json!({"type": kind, "code": "A_CODE"}).to_string();
            let answer = ErrorResponse::read(status, body.as_bytes(), &[KEY]).0;
            ApiError::Refused(answer).unknown_type().map(|unknown| unknown.value.to_string())
        };
        for (status, kind) in [
            (400, "VALIDATION_ERROR"),
            (401, "ORGANIZATION_NOT_FOUND"),
            (403, "PERMISSION_DENIED"),
            (404, "NOT_FOUND"),
            (409, "CONFLICT"),
            (500, "INTERNAL_ERROR"),
        ] {
            assert_eq!(unknown(status, kind), None, "{kind}");
        }
        assert_eq!(unknown(418, "TEAPOT").as_deref(), Some("TEAPOT"));
        assert_eq!(unknown(418, &format!("KEY {KEY}")).as_deref(), Some("KEY [api key]"));
        assert_eq!(unknown(401, "UNAUTHENTICATED"), None, "its type is not documented");
    }

    #[test]
    fn a_401_says_whether_the_key_or_its_organization_is_unknown() {
        for (body, advice) in [
            (r#"{"type":"ORGANIZATION_NOT_FOUND"}"#, "does not know the organization of this key"),
            (r#"{"type":"UNAUTHORIZED"}"#, "check api.api_key"),
            ("<html>", "check api.api_key"),
        ] {
            let answer = ErrorResponse::read(401, body.as_bytes(), &[KEY]).0;
            let said = ApiError::Refused(answer).to_string();
            assert!(said.contains(advice), "{said}");
        }
    }

    #[test]
    fn only_a_body_with_type_or_code_is_the_envelope() {
        for (body, is_envelope) in [
            (r#"{"type":"NOT_FOUND"}"#, true),
            (r#"{"code":"CHANNEL_NOT_FOUND"}"#, true),
            (r#"{"code":404,"type":null}"#, false),
            (r#"{"message":"no Route matched with those values"}"#, false),
            ("<html>", false),
            ("", false),
        ] {
            assert_eq!(ErrorResponse::read(404, body.as_bytes(), &[KEY]).1, is_envelope, "{body}");
        }
    }
}

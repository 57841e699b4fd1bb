//! Errors of the service, grouped by the caller's next step.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// The maximum length of an answer, after decompression.
pub const MAX_BODY: usize = 64 * 1024 * 1024;

/// Why a call returned no result.
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum ApiError {
    /// 404 on poll or search: the channel stops, and the other channels continue.
    #[error("the channel does not exist or is archived ({0})")]
    ChannelGone(Answer),
    /// 404 on one event or watcher. [`Answer::code`], if present, tells whether the channel itself is gone.
    #[error("the channel does not contain this ({0})")]
    NotFound(Answer),
    /// Any other 4xx: the service will refuse the same request again until the key, the settings or the service change.
    #[error("the service refused the request ({0}){advice}", advice = .0.advice())]
    Refused(Answer),
    /// 429: retry after a wait.
    #[error("the service limits the request rate (HTTP 429)")]
    RateLimited {
        /// The wait that the service requested, at most [`MAX_RETRY_AFTER`](net::http::MAX_RETRY_AFTER).
        retry_after: Option<Duration>,
    },
    /// A 5xx or a network error: retry after a wait.
    #[error(transparent)]
    Transient(Trouble),
    /// Memory for the complete answer is not available: request fewer events.
    #[error("{}", too_long(*bytes))]
    TooLong {
        /// The announced length, or twice the length that has arrived.
        bytes: usize,
    },
    /// The response does not answer the request, because of a proxy or a defect of the service. A retry may help.
    /// Otherwise an operator must investigate.
    #[error(transparent)]
    Malformed(#[from] BadAnswer),
}

impl ApiError {
    /// A short constant name for log fields and metric labels.
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// The wait before the next request, if the service requested one.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after } | Self::Transient(Trouble::Status { retry_after, .. }) => *retry_after,
            _ => None,
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
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The envelope's `code`, or its `type` if it has no `code`. New values can appear.
    pub code: Option<Box<str>>,
    /// The envelope's `message`, for people. It is bounded, and contains neither control characters nor the key.
    pub message: Option<Box<str>>,
}

impl Answer {
    /// The operator's remedy for a refusal.
    fn advice(&self) -> &'static str {
        match (self.status, self.code.as_deref()) {
            (401, Some("ORGANIZATION_NOT_FOUND")) => {
                "; the service does not know the organization of this key: ask the service's operator"
            }
            (401, _) => "; check api.api_key",
            (403, _) => "; is the key allowed to read this channel?",
            _ => "",
        }
    }
}

impl fmt::Display for Answer {
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
pub enum Trouble {
    /// The service answered with a 5xx.
    #[error("the service failed ({answer})")]
    Status {
        /// The answer.
        answer: Answer,
        /// The wait that the service requested, at most [`MAX_RETRY_AFTER`](net::http::MAX_RETRY_AFTER).
        retry_after: Option<Duration>,
    },
    /// The answer did not arrive completely within `request_timeout` or `connect_timeout`.
    #[error("the service did not answer in time")]
    Timeout,
    /// The connection failed because of the name, the network, the port or TLS.
    #[error("the service could not be reached")]
    Connect(#[source] reqwest::Error),
    /// The connection broke.
    #[error("the connection to the service was lost")]
    Network(#[source] reqwest::Error),
}

/// Why an answer does not match the request. The text names the problem and never includes the content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadAnswer(pub Cow<'static, str>);

/// Settings that no client can work with.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The base URL is not an `http` or `https` address without user, query and fragment.
    #[error("the base URL must be http:// or https:// with a host, and no user, query or fragment")]
    BaseUrl,
    /// The key is empty.
    #[error("the API key is empty")]
    NoKey,
    /// The key contains characters that are not allowed in an HTTP header.
    #[error("the API key has characters that cannot be sent in an HTTP header, such as a line break")]
    KeyCharacters,
    /// TLS cannot work here. The usual cause is that the system's certificates are not installed.
    #[error("TLS could not be initialized: are the system's CA certificates installed?")]
    Tls(#[source] rustls::Error),
    /// The HTTP client could not be created.
    #[error("the HTTP client could not be created")]
    Http(#[source] reqwest::Error),
}

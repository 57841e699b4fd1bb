//! Errors of the service, by what the caller does next.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::MAX_BODY;

/// Why a call gave no result.
#[derive(Debug, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum ApiError {
    /// 404 on poll or search: the channel ends, the others go on.
    #[error("the channel does not exist or is archived ({0})")]
    ChannelGone(Answer),
    /// 404 on one event or watcher. [`Answer::code`] tells, if it is there, whether the channel itself is gone.
    #[error("there is no such thing in this channel ({0})")]
    NotFound(Answer),
    /// Any other 4xx: the same request will be refused again until the key, the settings or the service change.
    #[error("the service refused the request ({0}){advice}", advice = .0.advice())]
    Refused(Answer),
    /// 429: ask again after a wait.
    #[error("the service limits how often it may be asked (HTTP 429)")]
    RateLimited {
        /// How long the service asked to wait, at most [`MAX_RETRY_AFTER`](net::http::MAX_RETRY_AFTER).
        retry_after: Option<Duration>,
    },
    /// A 5xx or the network: ask again after a wait.
    #[error(transparent)]
    Transient(Trouble),
    /// There is no memory for the whole answer: ask for fewer events.
    #[error("{}", too_long(*bytes))]
    TooLong {
        /// As many bytes are announced, or twice as many have arrived.
        bytes: usize,
    },
    /// Not the answer to the request: a proxy, or a fault of the service. Asking again may help; otherwise an operator has to
    /// look.
    #[error(transparent)]
    Malformed(#[from] BadAnswer),
}

impl ApiError {
    /// A short constant name, fit for a log field or a metric's label.
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// How long the service asked to wait before the next request, where it said so.
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
        return format!("the answer is longer than {most} MiB: no longer one is read, and no setting changes that");
    }
    format!("there is no memory for an answer of {bytes} bytes: see limits.memory")
}

/// An answer that is not a success: its status, and what of its envelope is fit to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The envelope's `code` or else its `type`, where it has one. New ones can appear.
    pub code: Option<Box<str>>,
    /// The envelope's `message`, for people: bounded, without control characters, without the key.
    pub message: Option<Box<str>>,
}

impl Answer {
    /// What to do about a refusal.
    fn advice(&self) -> &'static str {
        match (self.status, self.code.as_deref()) {
            (401, Some("ORGANIZATION_NOT_FOUND")) => {
                "; the service does not know the organisation of this key: ask its operator"
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

/// A fault that may pass by itself.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The service answered with a 5xx.
    #[error("the service failed ({answer})")]
    Status {
        /// What it answered.
        answer: Answer,
        /// How long the service asked to wait, at most [`MAX_RETRY_AFTER`](net::http::MAX_RETRY_AFTER).
        retry_after: Option<Duration>,
    },
    /// The answer did not come, or not in full, within `request_timeout` or `connect_timeout`.
    #[error("the service did not answer in time")]
    Timeout,
    /// No connection: the name, the network, the port or TLS.
    #[error("the service could not be reached")]
    Connect(#[source] reqwest::Error),
    /// The connection broke.
    #[error("the connection to the service broke")]
    Network(#[source] reqwest::Error),
}

/// Why an answer is not what was asked for. Says what is wrong, never what stood there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadAnswer(pub Cow<'static, str>);

/// Settings with which no client can work.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The base URL is not an `http` or `https` address without user, query and fragment.
    #[error("the base URL must be http:// or https:// with a host, and no user, query or fragment")]
    BaseUrl,
    /// The key is empty.
    #[error("the API key is empty")]
    NoKey,
    /// The key has characters that no HTTP header may have.
    #[error("the API key has characters that cannot be sent in an HTTP header, such as a line break")]
    KeyCharacters,
    /// TLS cannot work here: most often the system's certificates are not installed.
    #[error("TLS could not be set up: are the system's CA certificates installed?")]
    Tls(#[source] rustls::Error),
    /// The HTTP client could not be made.
    #[error("the HTTP client could not be set up")]
    Http(#[source] reqwest::Error),
}

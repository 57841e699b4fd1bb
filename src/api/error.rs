//! Errors of the service, by what the caller does next.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Why a call gave no result.
#[derive(Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum ApiError {
    /// 404 on poll or search: the channel ends, the others go on.
    ChannelGone(Answer),
    /// 404 on one event or watcher. [`Answer::code`] tells, if it is there, whether the channel itself is gone.
    NotFound(Answer),
    /// Any other 4xx: the same request will be refused again until the key, the settings or the service change.
    Refused(Answer),
    /// 429: ask again after a wait.
    RateLimited {
        /// How long the service asked to wait, at most [`MAX_RETRY_AFTER`](crate::http::MAX_RETRY_AFTER).
        retry_after: Option<Duration>,
    },
    /// A 5xx or the network: ask again after a wait.
    Transient {
        /// What happened.
        trouble: Trouble,
        /// How long the service asked to wait, at most [`MAX_RETRY_AFTER`](crate::http::MAX_RETRY_AFTER).
        retry_after: Option<Duration>,
    },
    /// Not the answer to the request: a proxy, or a fault of the service. Asking again may help; otherwise an operator has to
    /// look.
    Malformed(BadAnswer),
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ChannelGone(answer) => write!(f, "the channel does not exist or is archived ({answer})"),
            Self::NotFound(answer) => write!(f, "there is no such thing in this channel ({answer})"),
            Self::Refused(answer) => write!(f, "the service refused the request ({answer})"),
            Self::RateLimited { .. } => f.write_str("the service limits how often it may be asked (HTTP 429)"),
            Self::Transient { trouble, .. } => trouble.fmt(f),
            Self::Malformed(bad) => bad.fmt(f),
        }
    }
}

/// `Display` shows the trouble in full, so the next in the chain is its cause.
impl Error for ApiError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Transient { trouble, .. } => trouble.source(),
            _ => None,
        }
    }
}

impl ApiError {
    /// A short constant name, fit for a log field or a metric's label.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// How long the service asked to wait before the next request, where it said so.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after } | Self::Transient { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// An answer that is not a success: its status, and what of its envelope is fit to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The envelope's `code`, where it has one. New ones can appear.
    pub code: Option<Box<str>>,
    /// The envelope's `message`, for people: bounded, without control characters, without the key.
    pub message: Option<Box<str>>,
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
    #[error("the service failed ({0})")]
    Status(Answer),
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
pub enum BadAnswer {
    /// A redirect. Not followed, because the key would go along.
    #[error("the service answered with a redirect (HTTP {0}), which is never followed: is api.base_url right?")]
    Redirect(u16),
    /// A status outside 200 to 599.
    #[error("the service answered with the unexpected status {0}")]
    Status(u16),
    /// The body is longer than the bound, after decompression.
    #[error("the answer is longer than {bound} bytes")]
    TooLong {
        /// The bound, in bytes.
        bound: usize,
    },
    /// The body is not the gzip stream that it is said to be.
    #[error("the answer could not be decompressed")]
    Compression,
    /// Nothing at all.
    #[error("the answer is empty")]
    Empty,
    /// Not JSON: most often a proxy's page.
    #[error("the answer is not JSON: does a proxy stand in between?")]
    NotJson,
    /// JSON that ends too early.
    #[error("the answer is cut short")]
    CutShort,
    /// JSON of another shape: no `events`, no `has_more`, a `null` in their place, no `status`.
    #[error("the answer does not have the documented shape")]
    WrongShape,
    /// More records than [`MAX_RECORDS`](super::MAX_RECORDS).
    #[error("the page has too many records")]
    TooManyRecords,
    /// A record whose place in the channel cannot be read: it can be neither delivered nor set aside.
    #[error("record {index} of the page has no readable offset")]
    NoOffset {
        /// Its place in the page, from zero.
        index: usize,
    },
    /// The records are not in strictly descending order, so nothing can be said about what lies between them.
    #[error("record {index} of the page is not below the one before it")]
    NotDescending {
        /// Its place in the page, from zero.
        index: usize,
    },
    /// Another event than the one that was asked for.
    #[error("the service answered with another event than the one asked for")]
    AnotherEvent,
}

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

/// What a 404 says, by the endpoint that it comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Missing {
    /// The channel is gone.
    Channel,
    /// The event or watcher, or its channel, is not there.
    Resource,
    /// Nothing that could be missing: the base URL is wrong.
    Nothing,
}

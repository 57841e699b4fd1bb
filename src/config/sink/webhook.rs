//! `[sinks.NAME]` of type `webhook`.

use std::fmt;
use std::time::Duration;

use reqwest::header::HeaderMap;
use url::Url;

use crate::config::keys::{Key, Keys, Reported};
use crate::config::secret;
use crate::config::values::{http_url, positive_duration, retry_waits};
use crate::http::Connection;
use crate::sink::{Dispatch, SigningKeys};

mod connection;
mod dispatch;
mod headers;

/// `timeout` of a webhook where none is set.
const TIMEOUT: Duration = Duration::from_secs(30);

/// `retry_wait` and `retry_wait_max` of a webhook where none is set.
const RETRY_WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60 * 60));

/// An endpoint that events are posted to.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    /// The endpoint: http or https, no credentials, no fragment. Its query may hold a token: show
    /// [`Webhook::shown_url`] instead.
    pub url: Url,
    /// What deliveries are signed with. Without keys they are not signed.
    pub keys: SigningKeys,
    /// Headers of every request, beside those that the sink makes itself. The values are not shown.
    pub headers: HeaderMap,
    /// How the endpoint is reached.
    pub connection: Connection,
    /// How events go into requests.
    pub dispatch: Dispatch,
    /// The longest wait for an answer. Never zero.
    pub timeout: Duration,
    /// The wait after a first refusal. Never zero.
    pub retry_wait: Duration,
    /// What that wait grows to while refusals last. Not shorter than `retry_wait`.
    pub retry_wait_max: Duration,
    /// After this time of refusals an event becomes a dead letter; without it, never.
    pub give_up_after: Option<Duration>,
}

impl Webhook {
    /// The endpoint without its query, fit for logs and people.
    #[must_use]
    pub fn shown_url(&self) -> Url {
        let mut url = self.url.clone();
        url.set_query(None);
        url
    }

    pub(super) fn read(keys: &mut Keys, sink: &Key) -> Result<Self, Reported> {
        let url = keys.required(&sink.at("url"), http_url);
        let parse = |text: &str| SigningKeys::parse(text).map_err(|error| error.to_string());
        let secrets = secret::read_as(keys, sink, "secret", parse);
        let headers = headers::read(keys, sink);
        let connection = connection::read(keys, sink, url.as_ref().ok());
        let dispatch = dispatch::read(keys, sink);
        let timeout = keys.optional(&sink.at("timeout"), positive_duration);
        let (retry_wait, retry_wait_max) = retry_waits(keys, sink, Some(RETRY_WAITS))?;
        let give_up_after = keys.optional(&sink.at("give_up_after"), positive_duration);
        Ok(Self {
            url: url?,
            keys: secrets?.unwrap_or_default(),
            headers: headers?,
            connection: connection?,
            dispatch: dispatch?,
            timeout: timeout?.unwrap_or(TIMEOUT),
            retry_wait,
            retry_wait_max,
            give_up_after: give_up_after?,
        })
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("url", &self.shown_url().as_str())
            .field("keys", &self.keys)
            .field("headers", &self.headers)
            .field("connection", &self.connection)
            .field("dispatch", &self.dispatch)
            .field("timeout", &self.timeout)
            .field("retry_wait", &self.retry_wait)
            .field("retry_wait_max", &self.retry_wait_max)
            .field("give_up_after", &self.give_up_after)
            .finish()
    }
}

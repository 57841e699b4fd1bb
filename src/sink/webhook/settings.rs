//! What an operator decides about a webhook, already checked.

use std::fmt;
use std::time::Duration;

use reqwest::header::HeaderMap;
use url::Url;

use super::signature::SigningKeys;
use crate::http::Connection;

/// An endpoint that events are posted to.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSettings {
    /// The endpoint: http or https. Its query may hold a token: show [`shown_url`](Self::shown_url) instead.
    pub url: Url,
    /// What deliveries are signed with. Without keys they are not signed.
    pub keys: SigningKeys,
    /// Headers of every request, beside those that the sink makes itself. The values are not shown.
    pub headers: HeaderMap,
    /// How the endpoint is reached.
    pub connection: Connection,
    /// How events go into requests.
    pub dispatch: Dispatch,
    /// Bounds each request from connecting to the end of the answer. Never zero.
    pub timeout: Duration,
}

/// How events go into requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// One event a request.
    Single {
        /// Requests at a time, at least one.
        concurrency: usize,
    },
    /// Several events a request, one request at a time.
    Batches {
        /// The most events in one, at least two.
        events: usize,
        /// The largest body, in bytes.
        bytes: usize,
        /// How long to wait for more events where there are fewer.
        wait: Duration,
    },
}

impl Default for Dispatch {
    fn default() -> Self {
        Self::Single { concurrency: 1 }
    }
}

impl Dispatch {
    /// The largest body of a batch, in bytes.
    pub(super) fn batch_bytes(&self) -> Option<usize> {
        match self {
            Self::Single { .. } => None,
            Self::Batches { bytes, .. } => Some(*bytes),
        }
    }
}

impl WebhookSettings {
    /// The endpoint without its query, fit for logs and people.
    pub fn shown_url(&self) -> Url {
        let mut url = self.url.clone();
        url.set_query(None);
        url
    }
}

impl fmt::Debug for WebhookSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSettings").field("url", &self.shown_url().as_str()).finish_non_exhaustive()
    }
}

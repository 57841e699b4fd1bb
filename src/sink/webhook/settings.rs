//! What an operator decides about a webhook. Checked where it is read; everything here trusts it.

use std::fmt;
use std::time::Duration;

use reqwest::header::HeaderMap;
use url::Url;

use super::{Dispatch, SigningKeys};
use crate::http::Connection;
use crate::retry::RetryPolicy;

/// An endpoint that events are posted to.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSettings {
    /// The endpoint: http or https, no credentials, no fragment. Its query may hold a token: show
    /// [`shown_url`](Self::shown_url) instead.
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
    /// Waits while the endpoint refuses.
    pub retry: RetryPolicy,
    /// After this time of refusals an event becomes a dead letter; without it, never.
    pub give_up_after: Option<Duration>,
}

impl WebhookSettings {
    /// The endpoint without its query, fit for logs and people.
    #[must_use]
    pub fn shown_url(&self) -> Url {
        let mut url = self.url.clone();
        url.set_query(None);
        url
    }
}

impl fmt::Debug for WebhookSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSettings")
            .field("url", &self.shown_url().as_str())
            .field("keys", &self.keys)
            .field("headers", &self.headers)
            .field("connection", &self.connection)
            .field("dispatch", &self.dispatch)
            .field("timeout", &self.timeout)
            .field("retry", &self.retry)
            .field("give_up_after", &self.give_up_after)
            .finish()
    }
}

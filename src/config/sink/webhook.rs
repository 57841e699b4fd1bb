//! `[sinks.NAME]` of type `webhook`.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use url::Url;

use crate::config::keys::{Key, Keys, Reported};
use crate::config::secret::{self, Secret};
use crate::config::values::{http_url, positive_duration, retry_waits};

/// `timeout` of a webhook where none is set.
const TIMEOUT: Duration = Duration::from_secs(30);

/// `retry_wait` and `retry_wait_max` of a webhook where none is set.
const RETRY_WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5 * 60));

/// The lengths of a webhook secret, in bytes (Standard Webhooks, "Signature scheme").
const SECRET_LENGTH: std::ops::RangeInclusive<usize> = 24..=64;

/// An endpoint that events are posted to.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    /// The endpoint: http or https, no credentials, no fragment. Its query may hold a token: show
    /// [`Webhook::shown_url`] instead.
    pub url: Url,
    /// What deliveries are signed with: `whsec_` and base64 of 24 to 64 bytes.
    pub secret: Option<Secret>,
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
        let secret = secret::read(keys, sink, "secret", check_secret);
        let timeout = keys.optional(&sink.at("timeout"), positive_duration);
        let (retry_wait, retry_wait_max) = retry_waits(keys, sink, Some(RETRY_WAITS))?;
        let give_up_after = keys.optional(&sink.at("give_up_after"), positive_duration);
        let timeout = timeout?.unwrap_or(TIMEOUT);
        Ok(Self { url: url?, secret: secret?, timeout, retry_wait, retry_wait_max, give_up_after: give_up_after? })
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("url", &self.shown_url().as_str())
            .field("secret", &self.secret)
            .field("timeout", &self.timeout)
            .field("retry_wait", &self.retry_wait)
            .field("retry_wait_max", &self.retry_wait_max)
            .field("give_up_after", &self.give_up_after)
            .finish()
    }
}

fn check_secret(text: &str) -> Result<(), &'static str> {
    let encoded = text.strip_prefix("whsec_");
    match encoded.and_then(|encoded| STANDARD.decode(encoded).ok()) {
        Some(bytes) if SECRET_LENGTH.contains(&bytes.len()) => Ok(()),
        Some(_) => Err("must hold 24 to 64 bytes; make one with: echo whsec_$(openssl rand -base64 32)"),
        None => Err("must be whsec_ followed by base64; make one with: echo whsec_$(openssl rand -base64 32)"),
    }
}

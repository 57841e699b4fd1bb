//! Webhooks: one signed POST an event, in order.
//!
//! Follows Standard Webhooks 1.0 (standardwebhooks.com): `webhook-id` is the event's own id, the same at each attempt;
//! `webhook-timestamp` is the time of the attempt; `webhook-signature` is there where a key is given.
//!
//! # Invariants
//!
//! * **2xx or it did not arrive.** Redirects are not followed: an event must not go where no operator sent it.
//! * **In order.** An event is posted when the one before it has been answered with 2xx, and not earlier.
//! * **Nothing leaks.** Neither the URL (it may carry credentials), nor the key, nor a body shows in an error or `Debug`.
//! * **Bounded.** A request ends within the timeout; of an answer's body at most [`DRAINED`] bytes are read, for at most
//!   [`DRAINING`], and only so that the connection can be used again.
//!
//! # Cancellation
//!
//! A delivery that is dropped leaves it unknown whether the event in hand arrived; posted again it carries the same id.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response, StatusCode};
use url::Url;

use super::{Sink, SinkError, Undelivered};
use crate::http;
use crate::record::{ChannelRef, Message};

mod signature;

pub use signature::{SecretError, signing_key};

/// Requests between two records of what has arrived.
const AT_ONCE: usize = 8;

/// The largest body for which a connection is kept.
const DRAINED: usize = 64 * 1024;

/// The longest time spent on a body: the answer itself is known by then.
const DRAINING: Duration = Duration::from_secs(1);

/// Posts each event to a URL.
pub struct Webhook {
    client: Client,
    url: Url,
    key: Option<Vec<u8>>,
    timeout: Duration,
}

impl Webhook {
    /// Posts to `url`, signing with `key` where there is one; `timeout` bounds each request from connecting to the end
    /// of the answer. Credentials in the URL are sent as basic authentication.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(url: Url, key: Option<Vec<u8>>, timeout: Duration) -> Result<Self, SinkError> {
        let failed = |error: &dyn Error| SinkError::Io {
            doing: "setting up a webhook's client".to_owned(),
            source: io::Error::other(root_cause(error)),
        };
        let client = http::client_for(&url).map_err(|error| failed(&error))?.timeout(timeout).no_gzip();
        let client = client.build().map_err(|error| failed(&error.without_url()))?;
        Ok(Self { client, url, key, timeout })
    }

    async fn post(&self, record: &Message) -> Result<(), SinkError> {
        let id = record.key();
        let now = SystemTime::now();
        let timestamp = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, record.content_type())
            .header("webhook-id", &id)
            .header("webhook-timestamp", timestamp)
            .body(record.body().clone());
        if let Some(key) = &self.key {
            request = request.header("webhook-signature", signature::sign(key, &id, timestamp, record.body()));
        }
        let response = request.send().await.map_err(|error| self.not_answered(error))?;
        let outcome = judge(&response);
        drain(response).await;
        outcome
    }

    fn not_answered(&self, error: reqwest::Error) -> SinkError {
        let message = if error.is_timeout() {
            format!("did not answer within {:?}", self.timeout)
        } else {
            let doing = if error.is_connect() { "could not connect" } else { "could not send the event" };
            format!("{doing}: {}", root_cause(&error.without_url()))
        };
        SinkError::Refused { message, retry_after: None, needs_attention: false }
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("host", &self.url.host_str()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Sink for Webhook {
    fn at_once(&self) -> usize {
        AT_ONCE
    }

    async fn deliver(&self, _: &ChannelRef, batch: &[Message]) -> Result<(), Undelivered> {
        for (delivered, record) in batch.iter().enumerate() {
            self.post(record).await.map_err(|error| Undelivered::after(delivered, error))?;
        }
        Ok(())
    }
}

fn judge(response: &Response) -> Result<(), SinkError> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let hint = if status.is_redirection() { ", and redirects are not followed: name the final URL" } else { "" };
    Err(SinkError::Refused {
        message: format!("answered {}{hint}", status.as_u16()),
        retry_after: http::retry_after(response.headers()),
        needs_attention: !passes(status),
    })
}

/// Whether an answer that is no success speaks of the moment, and not of the event or of us.
fn passes(status: StatusCode) -> bool {
    let of_the_moment = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    status.is_server_error() || of_the_moment.contains(&status)
}

/// Reads a short body to its end, so that the connection can be used again. A long or slow one costs the connection.
async fn drain(mut response: Response) {
    let to_the_end = async {
        let mut read = 0;
        while let Ok(Some(chunk)) = response.chunk().await {
            read += chunk.len();
            if read > DRAINED {
                break;
            }
        }
    };
    // Whatever comes of it, the status has been seen.
    let _ = tokio::time::timeout(DRAINING, to_the_end).await;
}

/// The innermost error: what the system or the TLS library said.
fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests;

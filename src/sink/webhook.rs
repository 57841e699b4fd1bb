//! Webhooks: signed POSTs of one event each, or of a batch, in order.
//!
//! Follows Standard Webhooks 1.0 (standardwebhooks.com): `webhook-id` is the event's own id, the same at each attempt;
//! `webhook-timestamp` is the time of the attempt; `webhook-signature` is there where keys are given, one signature a
//! key. A batch has an id of its own, made of those in it.
//!
//! # Invariants
//!
//! * **2xx or it did not arrive.** Redirects are not followed: an event must not go where no operator sent it.
//! * **In order.** An event is posted after the one before it was answered with 2xx; with several requests at a time that
//!   holds for the events of one subject.
//! * **Nothing is sent after a 410.** The endpoint says that it wants no more events. An operator finds out whether that
//!   was meant, and resumes the sink.
//! * **Nothing leaks.** Neither the URL (it may carry credentials), nor a key, a header's value or a body shows in an
//!   error or `Debug`.
//! * **Bounded.** A request ends within the timeout; of an answer's body at most [`DRAINED`](answer::DRAINED) bytes are
//!   read, for at most [`DRAINING`](answer::DRAINING), and only so that the connection can be used again.
//!
//! # Cancellation
//!
//! After a delivery is dropped it is not known whether its events arrived. Posted again they carry the same ids.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::Client;
use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;
use url::Url;

use super::{Delivery, Sink, SinkError, Undelivered};
use crate::http;
use crate::record::Message;
use crate::telemetry::trace::traceparent;

mod answer;
mod batches;
mod settings;
mod signature;
mod subjects;

use answer::Refusal;

pub use settings::{Batching, Dispatch, WebhookSettings};
pub use signature::{SecretError, SigningKeys};

/// Events offered at once, for each request at a time: after each offer it is recorded what has arrived.
const AT_ONCE: usize = 8;

/// Posts events to a URL.
pub struct Webhook {
    client: Client,
    url: Url,
    keys: SigningKeys,
    timeout: Duration,
    dispatch: Dispatch,
    /// Whether the endpoint has asked for a client certificate.
    asked: Arc<AtomicBool>,
    has_certificate: bool,
    /// Whether there was an answer: then the endpoint accepts our connections.
    answered: AtomicBool,
}

/// One request.
struct Posting {
    id: String,
    content_type: &'static str,
    body: Bytes,
}

impl Webhook {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// If TLS or the proxy cannot be set up.
    pub fn new(settings: WebhookSettings) -> Result<Self, SinkError> {
        let failed = |error: &dyn Error| SinkError::Io {
            doing: "setting up a webhook's client".to_owned(),
            source: io::Error::other(answer::root_cause(error)),
        };
        let WebhookSettings { url, keys, headers, connection, timeout, dispatch } = settings;
        let (client, asked) = http::client_by(&url, &connection).map_err(|error| failed(&*error))?;
        let client = client.timeout(timeout).no_gzip().default_headers(headers);
        let client = client.build().map_err(|error| failed(&error.without_url()))?;
        let (has_certificate, answered) = (connection.identity.is_some(), AtomicBool::new(false));
        Ok(Self { client, url, keys, timeout, dispatch, asked, has_certificate, answered })
    }

    async fn post(&self, posting: Posting) -> Result<(), Refusal> {
        let Posting { id, content_type, body } = posting;
        let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let signature = self.keys.sign(&id, timestamp, &body);
        let mut request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, content_type)
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .body(body);
        if let Some(traceparent) = traceparent() {
            request = request.header("traceparent", traceparent);
        }
        if let Some(signature) = signature {
            request = request.header("webhook-signature", signature);
        }
        let response = request.send().await.map_err(|error| answer::none(error, self.timeout, self.suspicion()))?;
        self.answered.store(true, Ordering::Relaxed);
        let outcome = answer::outcome(&response);
        answer::drain(response).await;
        outcome
    }

    /// Why the endpoint may refuse our connections, until it has answered once.
    fn suspicion(&self) -> Option<&'static str> {
        match (self.asked.load(Ordering::Relaxed) && !self.answered.load(Ordering::Relaxed), self.has_certificate) {
            (false, _) => None,
            (true, true) => Some("it asks for a client certificate, and may not accept this one"),
            (true, false) => Some("it asks for a client certificate, and client_certificate_file is not set"),
        }
    }

    async fn one_by_one(&self, batch: &[Message]) -> Result<(), Undelivered> {
        for (delivered, message) in batch.iter().enumerate() {
            self.post(Posting::of(message)).await.map_err(|refusal| Undelivered::after(delivered, refusal.error))?;
        }
        Ok(())
    }
}

impl Posting {
    fn of(message: &Message) -> Self {
        Self { id: message.key(), content_type: message.content_type(), body: message.body().clone() }
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
        match self.dispatch {
            Dispatch::Single { concurrency } => AT_ONCE * concurrency,
            Dispatch::Batches(batching) => batching.events,
        }
    }

    fn linger(&self) -> Duration {
        match self.dispatch {
            Dispatch::Single { .. } => Duration::ZERO,
            Dispatch::Batches(batching) => batching.wait,
        }
    }

    /// Sends a HEAD request, which has no effect by its definition.
    async fn probe(&self) -> Result<String, SinkError> {
        let asked = self.client.head(self.url.clone()).send().await;
        let response = asked.map_err(|error| answer::none(error, self.timeout, self.suspicion()))?;
        let status = response.status();
        if matches!(
            status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED
        ) {
            let message =
                format!("it can be reached, and answers {} to HEAD: does it know who we are?", status.as_u16());
            return Err(SinkError::Refused { message, retry_after: None, needs_attention: true });
        }
        Ok(format!(
            "it can be reached (HEAD is answered {}); whether it takes events, only one can tell",
            status.as_u16()
        ))
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let batch = delivery.messages;
        match self.dispatch {
            Dispatch::Single { concurrency: 1 } => self.one_by_one(batch).await,
            Dispatch::Single { concurrency } => self.by_subject(batch, concurrency).await,
            Dispatch::Batches(batching) => self.in_batches(batch, batching).await,
        }
    }
}

#[cfg(test)]
mod tests;

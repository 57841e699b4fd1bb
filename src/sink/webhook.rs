//! Webhooks: each request is a signed POST of one event or of a batch. Requests are sent in order.
//!
//! The sink follows Standard Webhooks 1.0 (standardwebhooks.com). `webhook-id` is the id of the event or the batch, and is the
//! same at each attempt. `webhook-timestamp` is the time of the attempt. `webhook-signature` has one signature per key.
//!
//! # Invariants
//!
//! * **Only 2xx means that an event arrived.** Redirects are not followed: an event must not be sent to a URL that the
//!   operator did not configure.
//! * **In order:** all events, or the events of each subject if several requests are sent at a time (see `offer.rs`).
//! * **A request to wait holds for all lanes.** After a 429 or 503 with `Retry-After`, no lane begins an offer until the wait
//!   ends. Then the lanes begin their offers one after the other.
//! * **Nothing is sent after a 410,** until an operator resumes the sink.
//! * **Nothing leaks.** No URL (it may contain credentials), key, header value or body appears in an error or in `Debug`.
//! * **Bounded.** The timeout limits each request. A size and a time limit apply to the body of a response.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use reqwest::Method;
use reqwest::header::AUTHORIZATION;

use super::{Delivery, Fault, LaneRef, Sink, SinkError, Tested, Undelivered};

mod endpoint;
mod offer;
mod response;
mod settings;
mod signature;
mod token;

use endpoint::Offer;

pub use endpoint::Webhook;
pub use settings::{Dispatch, Rate, WebhookSettings, has_token};
pub use signature::SigningKeys;
pub use token::{Credentials, OAuth2};

/// The number of events in one offer, per concurrent request. The lane records the delivered events after each offer.
const AT_ONCE: usize = 8;

#[async_trait]
impl Sink for Webhook {
    fn at_once(&self) -> usize {
        match self.settings.dispatch {
            // Each offer waits for a turn of the rate limit before it starts, and each further request waits for another
            // turn. Only a small offer therefore ends soon.
            Dispatch::Single { concurrency } if self.settings.rate.is_some() => concurrency,
            Dispatch::Single { concurrency } => AT_ONCE * concurrency,
            Dispatch::Batches { events, .. } => events,
        }
    }

    fn linger(&self) -> Duration {
        if let Dispatch::Batches { wait, .. } = self.settings.dispatch { wait } else { Duration::ZERO }
    }

    async fn pace(&self, lane: &LaneRef) {
        self.caller(lane).turn().await;
    }

    fn pause(&self) -> Option<Duration> {
        self.turns.pause()
    }

    /// Sends a HEAD request, which by definition has no effect.
    async fn probe(&self) -> Result<String, SinkError> {
        let request = self.authorized(Method::HEAD).await?;
        let response = self.client.execute(request).await.map_err(|error| self.no_answer(&error).error)?;
        let status = response.status().as_u16();
        let why = match status {
            401 | 403 | 407 => Some("are the credentials correct?"),
            // nginx answers with one of these codes if a client certificate is missing. Only nginx uses 495 and 496.
            400 | 495 | 496 => self.certificate_is_missing().await,
            300..=399 => Some("redirects are not followed: name the final URL"),
            410 => Some("it accepts no more events"),
            _ => None,
        };
        if let Some(why) = why {
            let message = format!("it is reachable, and answers {status} to HEAD: {why}");
            return Err(SinkError::Refused { message, retry_after: None, fault: Fault::Operator });
        }
        Ok(format!("it is reachable (HEAD is answered {status}); only a real event shows whether it accepts events"))
    }

    /// Posts the sample like any event, and reports the endpoint's response.
    async fn test(&self, sample: &Delivery<'_>) -> Result<Tested, SinkError> {
        let (post, began) = (self.settings.dispatch.post(sample.messages), Instant::now());
        let answered = self.answer(&Offer::of(sample.lane), &post).await;
        let (response, token) = answered.map_err(|refusal| refusal.error)?;
        let (status, took) = (response.status().as_u16(), began.elapsed().as_millis());
        let mut outcome = self.outcome(&response).map_err(|refusal| refusal.error);
        let said = self.excerpt(response, token.as_ref()).await;
        let said = if said.is_empty() { said } else { format!("; the body begins: {said}") };
        if let Err(SinkError::Refused { message, .. }) = &mut outcome {
            message.push_str(&said);
        }
        outcome.map(|()| Tested::Delivered(format!("answered {status} in {took} ms{said}")))
    }

    /// Sends a GET request, which by definition changes nothing.
    async fn refusal(&self) -> Option<String> {
        let request = self.authorized(Method::GET).await.ok()?;
        let token = request.headers().get(AUTHORIZATION).cloned();
        let response = self.client.execute(request).await.ok()?;
        if !(response.status().is_client_error() || response.status().is_server_error()) {
            return None;
        }
        Some(self.excerpt(response, token.as_ref()).await)
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        self.offer(delivery).await
    }
}

#[cfg(test)]
mod tests;

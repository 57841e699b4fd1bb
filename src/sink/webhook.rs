//! Webhooks: each request is a signed POST of one event or of a batch. Requests are sent in order.
//!
//! The sink follows Standard Webhooks 1.0 (standardwebhooks.com). `webhook-id` is the event's own id, the same at each
//! attempt. `webhook-timestamp` is the time of the attempt. `webhook-signature` is present if keys are configured, and has
//! one signature per key. A batch has its own id.
//!
//! # Invariants
//!
//! * **Only 2xx means that an event arrived.** Redirects are not followed: an event must not be sent to a URL that the
//!   operator did not configure.
//! * **In order.** An event is posted only after the previous event was answered with 2xx. If several requests are sent at
//!   a time, this applies to the events of one subject.
//! * **Nothing is sent after a 410,** until an operator resumes the sink.
//! * **Nothing leaks.** No URL (it may contain credentials), key, header value or body appears in an error or in `Debug`.
//! * **Bounded.** The timeout limits each request. A size and a time limit apply to the body of a response.
//!
//! # Cancellation
//!
//! If a delivery is dropped, the caller does not know whether its events arrived. When they are posted again, they have the
//! same ids.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Method, Request, Response};
use url::Url;

use super::{Delivery, Fault, Sink, SinkError, Tested, Undelivered};
use net::http;
use telemetry::metrics::Metrics;

mod answer;
mod batch;
mod encoding;
mod offer;
mod pace;
mod request;
mod settings;
mod signature;
mod token;

use answer::Refusal;
use pace::Pace;
use request::Offer;
use token::Tokens;

pub use pace::Rate;
pub use settings::{Dispatch, WebhookSettings, has_token};
pub use signature::SigningKeys;
pub use token::{Credentials, OAuth2};

/// The number of events in one offer, per concurrent request. The lane records the delivered events after each offer.
const AT_ONCE: usize = 8;

/// Posts events to a URL.
pub struct Webhook {
    client: Client,
    /// Like `client`, but opens a new connection for each request.
    fresh: Client,
    settings: WebhookSettings,
    /// Whether the endpoint has asked for a client certificate.
    asked: Arc<AtomicBool>,
    /// Whether the endpoint has ever answered. If so, it accepts our connections.
    answered: AtomicBool,
    /// The maximum size of a batch, in bytes: the configured size, or half the size of a batch that the endpoint refused
    /// for its size.
    largest: AtomicUsize,
    tokens: Option<Tokens>,
    pace: Option<Pace>,
    metrics: Metrics,
}

impl Webhook {
    /// Creates the sink. Nothing is sent yet.
    ///
    /// # Errors
    /// If TLS or the proxy cannot be set up.
    pub fn new(settings: WebhookSettings) -> Result<Self, SinkError> {
        let failed = |error: &dyn Error| {
            SinkError::io("setting up a webhook's client", io::Error::other(http::root_cause(error)))
        };
        let asked = Arc::<AtomicBool>::default();
        let build = |url: &Url, headers: HeaderMap, idle| {
            let client = http::client_by(url, &settings.connection, asked.clone());
            let client = client.map_err(|error| failed(&*error))?.timeout(settings.timeout).no_gzip();
            let client = client.default_headers(headers).pool_max_idle_per_host(idle);
            client.build().map_err(|error| failed(&error.without_url()))
        };
        let of_endpoint = |idle| build(&settings.url, settings.headers.clone(), idle);
        let (client, fresh) = (of_endpoint(usize::MAX)?, of_endpoint(0)?);
        let largest = AtomicUsize::new(settings.dispatch.batch_bytes().unwrap_or(usize::MAX));
        let tokens = settings.oauth2.as_ref().map(|oauth2| {
            let client = build(&oauth2.token_url, HeaderMap::new(), usize::MAX)?;
            Ok::<_, SinkError>(Tokens::new(oauth2.clone(), client, settings.timeout))
        });
        Ok(Self {
            tokens: tokens.transpose()?,
            pace: settings.rate.map(Pace::new),
            client,
            fresh,
            settings,
            asked,
            answered: AtomicBool::new(false),
            largest,
            metrics: Metrics::default(),
        })
    }

    /// Counts the requests in these metrics.
    #[must_use]
    pub fn counted_by(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    fn no_answer(&self, error: reqwest::Error) -> Refusal {
        // A possible reason why the endpoint refuses our connections. It is ruled out once the endpoint has answered.
        let suspicion = self.suspicion().filter(|_| !self.answered.load(Ordering::Relaxed));
        answer::none(error, self.settings.timeout, suspicion)
    }

    /// The beginning of a response body. The values of the configured headers and the token are removed from it.
    async fn excerpt(&self, response: Response, token: Option<&HeaderValue>) -> String {
        let values = self.settings.headers.values().chain(token).filter_map(|value| value.to_str().ok());
        // The whole value, and the part after the word "Bearer" or "Basic".
        let secrets: Vec<_> =
            values.flat_map(|value| [value, value.split_once(' ').map_or("", |(_, rest)| rest)]).collect();
        http::excerpt(response, &secrets).await
    }

    /// A request without a body, with an access token if one is configured.
    async fn authorized(&self, method: Method) -> Result<Request, SinkError> {
        let mut request = Request::new(method, self.settings.url.clone());
        if let Some(tokens) = &self.tokens {
            let token = tokens.authorization().await.map_err(|refusal| refusal.error)?;
            request.headers_mut().insert(AUTHORIZATION, token);
        }
        Ok(request)
    }

    /// The possible problem if the endpoint has asked for a client certificate. `None` if it has not.
    fn suspicion(&self) -> Option<&'static str> {
        self.asked.load(Ordering::Relaxed).then_some(match self.settings.connection.identity {
            Some(_) => "it asks for a client certificate, and may not accept this one",
            None => "it asks for a client certificate, and client_certificate_file is not set",
        })
    }

    /// The possible problem if a refusal is about a client certificate: the endpoint has asked for a certificate, or its
    /// response mentions one.
    async fn certificate_is_missing(&self) -> Option<&'static str> {
        match self.suspicion() {
            Some(suspicion) => Some(suspicion),
            None => self
                .refusal()
                .await
                .filter(|said| said.to_lowercase().contains("certificate"))
                .map(|_| "it speaks of a certificate: does it ask for a client's? Then set client_certificate_file"),
        }
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("host", &self.settings.url.host_str()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Sink for Webhook {
    fn at_once(&self) -> usize {
        match self.settings.dispatch {
            // Each offer waits for a turn before it starts. A small offer waits for few further turns, so it ends soon.
            Dispatch::Single { concurrency } if self.pace.is_some() => concurrency,
            Dispatch::Single { concurrency } => AT_ONCE * concurrency,
            Dispatch::Batches { events, .. } => events,
        }
    }

    fn linger(&self) -> Duration {
        match self.settings.dispatch {
            Dispatch::Single { .. } => Duration::ZERO,
            Dispatch::Batches { wait, .. } => wait,
        }
    }

    async fn pace(&self) {
        if let Some(pace) = &self.pace {
            pace.turn().await;
        }
    }

    /// Sends a HEAD request, which by definition has no effect.
    async fn probe(&self) -> Result<String, SinkError> {
        let request = self.authorized(Method::HEAD).await?;
        let response = self.client.execute(request).await.map_err(|error| self.no_answer(error).error)?;
        let status = response.status().as_u16();
        let why = match status {
            401 | 403 | 407 => Some("does it know who we are?"),
            // nginx answers with these if a client certificate is missing. 495 and 496 are its own status codes.
            400 | 495 | 496 => self.certificate_is_missing().await,
            _ => None,
        };
        if let Some(why) = why {
            let message = format!("it can be reached, and answers {status} to HEAD: {why}");
            return Err(SinkError::Refused { message, retry_after: None, fault: Fault::Operator });
        }
        Ok(format!("it can be reached (HEAD is answered {status}); whether it takes events, only one can tell"))
    }

    /// Posts the sample like any event, and reports the endpoint's response.
    async fn test(&self, sample: &Delivery<'_>) -> Result<Tested, SinkError> {
        let (post, began) = (self.settings.dispatch.post(sample.messages), Instant::now());
        let answered = self.answer(&Offer::of(sample.lane), &post).await;
        let (response, token) = answered.map_err(|refusal| refusal.error)?;
        let (status, took) = (response.status().as_u16(), began.elapsed().as_millis());
        let outcome = self.outcome(&response).map_err(|refusal| refusal.error);
        let said = self.excerpt(response, token.as_ref()).await;
        let said = if said.is_empty() { said } else { format!("; the body begins: {said}") };
        match outcome {
            Ok(()) => Ok(Tested::Delivered(format!("answered {status} in {took} ms{said}"))),
            Err(SinkError::Refused { message, retry_after, fault }) => {
                Err(SinkError::Refused { message: message + &said, retry_after, fault })
            }
            Err(other) => Err(other),
        }
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

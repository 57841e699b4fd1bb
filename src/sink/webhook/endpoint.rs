//! The endpoint that events are posted to: its clients, and its known limits.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Method, Request, Response};
use url::Url;

use super::answer::{self, Refusal};
use super::pace::Pace;
use super::settings::WebhookSettings;
use super::token::Tokens;
use crate::{Sink, SinkError};
use net::http;
use telemetry::metrics::Metrics;

/// Posts events to a URL.
pub struct Webhook {
    pub(super) client: Client,
    /// Like `client`, but opens a new connection for each request.
    pub(super) fresh: Client,
    pub(super) settings: WebhookSettings,
    /// Whether the endpoint has asked for a client certificate.
    asked: Arc<AtomicBool>,
    /// Whether the endpoint has ever answered. If so, it accepts our connections.
    pub(super) answered: AtomicBool,
    /// The maximum size of a batch, in bytes: the configured size, or half the size of a batch that the endpoint refused
    /// for its size.
    pub(super) largest: AtomicUsize,
    pub(super) tokens: Option<Tokens>,
    pub(super) pace: Option<Pace>,
    pub(super) metrics: Metrics,
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

    pub(super) fn no_answer(&self, error: reqwest::Error) -> Refusal {
        // A possible reason why the endpoint refuses our connections. It is ruled out once the endpoint has answered.
        let suspicion = self.suspicion().filter(|_| !self.answered.load(Ordering::Relaxed));
        answer::none(error, self.settings.timeout, suspicion)
    }

    /// The beginning of a response body. The values of the configured headers and the token are removed from it.
    pub(super) async fn excerpt(&self, response: Response, token: Option<&HeaderValue>) -> String {
        let values = self.settings.headers.values().chain(token).filter_map(|value| value.to_str().ok());
        // The whole value, and the part after the word "Bearer" or "Basic".
        let secrets: Vec<_> =
            values.flat_map(|value| [value, value.split_once(' ').map_or("", |(_, rest)| rest)]).collect();
        http::excerpt(response, &secrets).await
    }

    /// A request without a body, with an access token if one is configured.
    pub(super) async fn authorized(&self, method: Method) -> Result<Request, SinkError> {
        let mut request = Request::new(method, self.settings.url.clone());
        if let Some(tokens) = &self.tokens {
            let token = tokens.authorization().await.map_err(|refusal| refusal.error)?;
            request.headers_mut().insert(AUTHORIZATION, token);
        }
        Ok(request)
    }

    /// The possible problem if the endpoint has asked for a client certificate. `None` if it has not.
    pub(super) fn suspicion(&self) -> Option<&'static str> {
        self.asked.load(Ordering::Relaxed).then_some(match self.settings.connection.identity {
            Some(_) => "it asks for a client certificate, and may not accept this one",
            None => "it asks for a client certificate, and client_certificate_file is not set",
        })
    }

    /// The possible problem if a refusal is about a client certificate: the endpoint has asked for a certificate, or its
    /// response mentions one.
    pub(super) async fn certificate_is_missing(&self) -> Option<&'static str> {
        match self.suspicion() {
            Some(suspicion) => Some(suspicion),
            None => self
                .refusal()
                .await
                .filter(|said| said.to_lowercase().contains("certificate"))
                .map(|_| "its answer mentions a certificate: if it asks for a client certificate, set client_certificate_file"),
        }
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("host", &self.settings.url.host_str()).finish_non_exhaustive()
    }
}

//! The endpoint that events are posted to: its clients, its known limits, and the requests to it. Requests are signed,
//! compressed, traced and counted.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use flate2::bufread::GzEncoder;
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Response, StatusCode};
use url::Url;

use super::response::{self, RefusalScope, RequestRefusal};
use super::settings::WebhookSettings;
use super::token::Tokens;
use crate::{Compression, Fault, LaneRef, Sink, SinkError, blocking};
use net::http::{self, Client, RequestError};
use net::request_size::RequestSize;
use net::tasks::lock;
use net::turns::{Caller, Turn, Turns};
use proof::event::ChannelId;
use record::UrlSuffix;
use telemetry::metrics::Metrics;
use telemetry::trace::RequestSpan;

/// A body of at least this size, in bytes, is compressed off the async threads.
const LONG: usize = 256 * 1024;

/// Posts events to a URL.
pub struct Webhook {
    pub(super) client: Client,
    /// Like `client`, but opens a new connection for each request.
    fresh: Client,
    pub(super) settings: WebhookSettings,
    /// Whether the endpoint has asked for a client certificate.
    asked: Arc<AtomicBool>,
    /// Whether the endpoint has ever answered, and so accepts connections of this sink.
    answered: AtomicBool,
    /// The maximum size of a batch, in bytes: as configured, or half the size of a batch that the endpoint refused for its
    /// size.
    pub(super) largest: AtomicUsize,
    /// The most events of the next batch.
    pub(super) batch_size: Mutex<RequestSize>,
    tokens: Option<Tokens>,
    /// The turns of the requests of all lanes.
    pub(super) turns: Arc<Turns>,
    callers: Mutex<HashMap<ChannelId, Arc<Caller>>>,
    metrics: Metrics,
}

pub(super) struct Post<'a> {
    pub(super) id: String,
    pub(super) content_type: &'a str,
    pub(super) body: Bytes,
    /// Path segments and a query that are appended to the endpoint's URL.
    pub(super) below: Option<UrlSuffix>,
}

pub(super) struct Offer<'a> {
    pub(super) lane: &'a LaneRef,
    /// Whether the first request of the offer is still to be sent. This request does not wait for a turn, because the offer
    /// has already waited for one.
    has_turn: AtomicBool,
}

impl<'a> Offer<'a> {
    pub(super) fn of(lane: &'a LaneRef) -> Self {
        Self { lane, has_turn: AtomicBool::new(true) }
    }

    pub(super) fn has_turn(&self) -> bool {
        self.has_turn.load(Ordering::Relaxed)
    }
}

impl Webhook {
    /// Creates the sink, which counts its requests in `metrics`. Nothing is sent yet.
    ///
    /// # Errors
    /// If TLS or the proxy cannot be set up.
    pub fn new(settings: WebhookSettings, metrics: Metrics) -> Result<Self, SinkError> {
        let asked = Arc::<AtomicBool>::default();
        let build = |url: &Url, headers: HeaderMap, idle| {
            let client = Client::new(url, &settings.connection, headers, settings.timeout, idle, asked.clone());
            let failed = |error| SinkError::io("setting up a webhook's client", io::Error::other(error));
            client.map_err(|error| failed(http::root_cause(&*error)))
        };
        let of_endpoint = |idle| build(&settings.url, settings.headers.clone(), idle);
        let (client, fresh) = (of_endpoint(usize::MAX)?, of_endpoint(0)?);
        let largest = AtomicUsize::new(settings.dispatch.batch_bytes().unwrap_or(usize::MAX));
        let tokens = settings.oauth2.as_ref().map(|oauth2| {
            let client = build(&oauth2.token_url, HeaderMap::new(), usize::MAX)?;
            Ok::<_, SinkError>(Tokens::new(oauth2.clone(), client, settings.timeout))
        });
        let turns = Arc::<Turns>::default();
        turns.limit(settings.rate);
        Ok(Self {
            tokens: tokens.transpose()?,
            turns,
            callers: Mutex::default(),
            client,
            fresh,
            settings,
            asked,
            answered: AtomicBool::new(false),
            largest,
            batch_size: Mutex::new(RequestSize::new(usize::MAX)),
            metrics,
        })
    }

    pub(super) async fn post(&self, offer: &Offer<'_>, post: &Post<'_>) -> Result<(), RequestRefusal> {
        let (response, _) = self.answer(offer, post).await?;
        let outcome = self.outcome(&response);
        response::drain(response).await;
        outcome
    }

    /// Posts a body. After a 401, posts it once more with a new access token. Returns the response and the token.
    pub(super) async fn answer(
        &self,
        offer: &Offer<'_>,
        post: &Post<'_>,
    ) -> Result<(Response, Option<HeaderValue>), RequestRefusal> {
        let encoded = self.encoded(post.body.clone()).await?;
        let mut is_new = false;
        loop {
            let token = self.token().await?;
            let request = self.request(post, encoded.clone(), token.as_ref())?;
            let response = self.send(offer, request).await.map_err(|error| self.no_answer(&error))?;
            self.answered.store(true, Ordering::Relaxed);
            match (&self.tokens, &token) {
                (Some(tokens), Some(token)) if response.status() == StatusCode::UNAUTHORIZED && !is_new => {
                    tokens.forget(token).await;
                    is_new = true;
                    response::drain(response).await;
                }
                _ => return Ok((response, token)),
            }
        }
    }

    async fn token(&self) -> Result<Option<HeaderValue>, RequestRefusal> {
        match &self.tokens {
            Some(tokens) => tokens.authorization().await.map(Some),
            None => Ok(None),
        }
    }

    /// Interprets a response, and adds a hint to the error.
    pub(super) fn outcome(&self, response: &Response) -> Result<(), RequestRefusal> {
        let suspicion = self.suspicion().filter(|_| self.settings.connection.identity.is_none());
        let hint = match response.status() {
            StatusCode::UNAUTHORIZED if self.tokens.is_some() => {
                Some("the access token was new: check oauth2.scope and url")
            }
            StatusCode::UNSUPPORTED_MEDIA_TYPE if self.settings.compression.is_some() => {
                Some("does it accept compressed bodies? See compress")
            }
            // nginx answers 400 if no client certificate was sent.
            StatusCode::BAD_REQUEST => suspicion,
            _ => None,
        };
        response::outcome(response, hint)
    }

    pub(super) fn no_answer(&self, error: &RequestError) -> RequestRefusal {
        // The endpoint may refuse connections because of the client certificate. Once the endpoint has answered, this cause
        // is ruled out.
        let suspicion = self.suspicion().filter(|_| !self.answered.load(Ordering::Relaxed));
        let suspicion = suspicion.filter(|_| response::is_perhaps_refused(error));
        let is_late = error.is_timeout() && !error.is_connect();
        let about = if is_late { RefusalScope::Time } else { RefusalScope::Endpoint };
        let mut error = response::unanswered(error, self.settings.timeout, "could not send the event");
        if let (Some(suspicion), SinkError::Refused { message, fault, .. }) = (suspicion, &mut error) {
            *message = format!("{message}; {suspicion}");
            *fault = Fault::Operator;
        }
        RequestRefusal { error, about }
    }

    async fn encoded(&self, body: Bytes) -> Result<Bytes, RequestRefusal> {
        let Some(compression) = self.settings.compression else { return Ok(body) };
        let is_long = body.len() >= LONG;
        let encode = move || encode(compression, &body);
        let encoded = if is_long { blocking(encode).await } else { encode() };
        encoded.map_err(|source| RequestRefusal {
            error: SinkError::io("compressing a body", source),
            about: RefusalScope::Endpoint,
        })
    }

    /// Builds a request. The signature is over the uncompressed body: the frameworks of most receivers decompress a body
    /// before the receiver sees it.
    fn request(&self, post: &Post<'_>, encoded: Bytes, token: Option<&HeaderValue>) -> Result<Request, RequestRefusal> {
        let Post { id, content_type, body, below } = post;
        let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let signature = self.settings.keys.sign(id, timestamp, body);
        let url = below.as_ref().map_or_else(|| self.settings.url.clone(), |below| self.settings.below(below));
        let texts = [
            (CONTENT_TYPE, Some((*content_type).to_owned())),
            (HeaderName::from_static("webhook-id"), Some(id.clone())),
            (HeaderName::from_static("webhook-timestamp"), Some(timestamp.to_string())),
            (HeaderName::from_static("webhook-signature"), signature),
            (CONTENT_ENCODING, self.settings.compression.map(|compression| <&str>::from(compression).to_owned())),
        ];
        let mut request = Request::new(Method::POST, url);
        *request.body_mut() = Some(encoded.into());
        for (name, text) in texts {
            let Some(value) = text.map(HeaderValue::try_from) else { continue };
            let value = value.map_err(|error| self.no_answer(&RequestError::Invalid(error.into())))?;
            request.headers_mut().insert(name, value);
        }
        request.headers_mut().extend(token.map(|token| (AUTHORIZATION, token.clone())));
        Ok(request)
    }

    /// Sends a request. If its connection ends without a response, sends it once more immediately, on a new connection.
    ///
    /// Endpoints close idle connections, perhaps at the moment when a request is sent. If the endpoint had already read the
    /// request, it receives the request twice, with the same id, as after any delivery without a response. If the endpoint
    /// has never answered, the request is not sent again, because the endpoint probably refuses the connection.
    async fn send(&self, offer: &Offer<'_>, request: Request) -> Result<Response, RequestError> {
        let again = request.try_clone().filter(|_| self.answered.load(Ordering::Relaxed));
        let answer = self.execute(&self.client, offer, request, 0).await;
        match (answer, again) {
            (Err(error), Some(again)) if error.is_broken_off() => self.execute(&self.fresh, offer, again, 1).await,
            (answer, _) => answer,
        }
    }

    /// Waits for a turn, sends a request and counts it. `resends` is the number of earlier attempts.
    async fn execute(
        &self,
        client: &Client,
        offer: &Offer<'_>,
        mut request: Request,
        resends: u32,
    ) -> Result<Response, RequestError> {
        let has_turn = offer.has_turn.swap(false, Ordering::Relaxed);
        let turn = if has_turn { Turn::now() } else { self.caller(offer.lane).turn().await };
        let span = RequestSpan::begin("POST", &self.settings.url, || self.settings.shown_url(), resends);
        if let Some(traceparent) = span.traceparent().and_then(|traceparent| traceparent.try_into().ok()) {
            request.headers_mut().insert("traceparent", traceparent);
        }
        let began = Instant::now();
        let answer = client.execute(request).await;
        match &answer {
            Ok(answer) => {
                span.answered(answer.status().as_u16());
                self.note_pause(turn, answer);
            }
            Err(error) => span.failed(response::kind(error)),
        }
        let status = answer.as_ref().ok().map(Response::status);
        self.metrics.webhook_asked(&offer.lane.sink, began.elapsed(), status);
        answer
    }

    pub(super) fn caller(&self, lane: &LaneRef) -> Arc<Caller> {
        lock(&self.callers).entry(lane.channel.id).or_insert_with(|| Caller::of(&self.turns)).clone()
    }

    /// Makes all lanes wait if the endpoint has asked for a pause.
    fn note_pause(&self, turn: Turn, answer: &Response) {
        let asked = http::retry_after(answer.headers());
        match answer.status() {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE if asked.is_some() => {
                self.turns.refused(turn, asked);
            }
            StatusCode::TOO_MANY_REQUESTS => {}
            _ => self.turns.accepted(turn),
        }
    }

    /// A request without a body, with an access token if one is configured.
    pub(super) async fn authorized(&self, method: Method) -> Result<Request, SinkError> {
        let mut request = Request::new(method, self.settings.url.clone());
        let token = self.token().await.map_err(|refusal| refusal.error)?;
        request.headers_mut().extend(token.map(|token| (AUTHORIZATION, token)));
        Ok(request)
    }

    /// The beginning of a response body. The values of the configured headers, the token, and the secret parts of the URL are
    /// removed from the text.
    pub(super) async fn excerpt(&self, response: Response, token: Option<&HeaderValue>) -> String {
        let url = &self.settings.url;
        let of_url = http::credentials(url);
        let values = self.settings.headers.values().chain(token).chain(&of_url).filter_map(|value| value.to_str().ok());
        // The whole value, and the part after the word "Bearer" or "Basic".
        let values = values.flat_map(|value| [value, value.split_once(' ').map_or("", |(_, rest)| rest)]);
        let hidden = self.settings.hidden_segments().chain(url.query()).chain(url.password());
        http::excerpt(response, &values.chain(hidden).collect::<Vec<_>>()).await
    }

    /// A possible problem with the client certificate. `None` if the endpoint has not asked for a client certificate.
    fn suspicion(&self) -> Option<&'static str> {
        self.asked.load(Ordering::Relaxed).then_some(match self.settings.connection.identity {
            Some(_) => "it asks for a client certificate, and may not accept this one",
            None => "it asks for a client certificate, and client_certificate_file is not set",
        })
    }

    /// A possible problem with the client certificate. `None` if the endpoint has not asked for a client certificate, and
    /// its response to GET does not mention a certificate.
    pub(super) async fn certificate_is_missing(&self) -> Option<&'static str> {
        if let Some(suspicion) = self.suspicion() {
            return Some(suspicion);
        }
        let said = self.refusal().await?;
        said.to_lowercase().contains("certificate").then_some(
            "its answer mentions a certificate: if it asks for a client certificate, set client_certificate_file",
        )
    }
}

fn encode(compression: Compression, body: &[u8]) -> io::Result<Bytes> {
    let mut encoded = Vec::with_capacity(body.len() / 2);
    match compression {
        Compression::Gzip => {
            GzEncoder::new(body, flate2::Compression::default()).read_to_end(&mut encoded)?;
        }
        Compression::Zstd => zstd::stream::copy_encode(body, &mut encoded, zstd::DEFAULT_COMPRESSION_LEVEL)?,
    }
    Ok(encoded.into())
}

//! Signs, sends, traces and counts one request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Request, Response, StatusCode};

use super::answer::{self, About, Refusal};
use super::encoding::encoded;
use super::endpoint::Webhook;
use crate::{LaneRef, Sink, SinkError};
use record::Below;
use telemetry::trace::RequestSpan;

/// The content of one POST request.
pub(super) struct Post<'a> {
    /// The value of the header `webhook-id`.
    pub(super) id: String,
    pub(super) content_type: &'a str,
    pub(super) body: Bytes,
    /// Path segments and a query that are appended to the endpoint's URL.
    pub(super) below: Option<Below>,
}

/// The requests of one offer.
pub(super) struct Offer<'a> {
    pub(super) lane: &'a LaneRef,
    /// Whether the turn that the offer waited for is still unused. The first request uses it and does not wait again.
    has_turn: AtomicBool,
}

impl<'a> Offer<'a> {
    pub(super) fn of(lane: &'a LaneRef) -> Self {
        Self { lane, has_turn: AtomicBool::new(true) }
    }
}

impl Webhook {
    /// Posts a body to the endpoint.
    pub(super) async fn post(&self, offer: &Offer<'_>, post: &Post<'_>) -> Result<(), Refusal> {
        let (response, _) = self.answer(offer, post).await?;
        let outcome = self.outcome(&response);
        answer::drain(response).await;
        outcome
    }

    /// Posts a body. If the endpoint answers 401, posts it once more with a new access token. Returns the response and the
    /// token.
    pub(super) async fn answer(
        &self,
        offer: &Offer<'_>,
        post: &Post<'_>,
    ) -> Result<(Response, Option<HeaderValue>), Refusal> {
        let encoded = self.encoded(post.body.clone()).await?;
        let mut is_new = false;
        loop {
            let token = match &self.tokens {
                Some(tokens) => Some(tokens.authorization().await?),
                None => None,
            };
            let request = self.request(post, encoded.clone(), token.as_ref())?;
            let response = self.send(offer, request).await.map_err(|error| self.no_answer(error))?;
            self.answered.store(true, Ordering::Relaxed);
            match (&self.tokens, &token) {
                (Some(tokens), Some(token)) if response.status() == StatusCode::UNAUTHORIZED && !is_new => {
                    tokens.forget(token).await;
                    is_new = true;
                    answer::drain(response).await;
                }
                _ => return Ok((response, token)),
            }
        }
    }

    /// Interprets a response, and adds hints to its error.
    pub(super) fn outcome(&self, response: &Response) -> Result<(), Refusal> {
        let suspicion = self.suspicion().filter(|_| self.settings.connection.identity.is_none());
        let mut outcome = answer::outcome(response, suspicion);
        let hint = match response.status() {
            StatusCode::UNAUTHORIZED if self.tokens.is_some() => {
                "; the access token was new: check oauth2.scope and url"
            }
            StatusCode::UNSUPPORTED_MEDIA_TYPE if self.settings.compression.is_some() => {
                "; does it accept compressed bodies? See compress"
            }
            _ => "",
        };
        if let Err(Refusal { error: SinkError::Refused { message, .. }, .. }) = &mut outcome {
            message.push_str(hint);
        }
        outcome
    }

    /// The body as it is sent: compressed, if the settings ask for it.
    async fn encoded(&self, body: Bytes) -> Result<Bytes, Refusal> {
        let Some(compression) = self.settings.compression else { return Ok(body) };
        encoded(compression, body)
            .await
            .map_err(|source| Refusal { error: SinkError::io("compressing a body", source), about: About::Endpoint })
    }

    /// Builds a request. The signature is over the uncompressed body.
    fn request(&self, post: &Post<'_>, encoded: Bytes, token: Option<&HeaderValue>) -> Result<Request, Refusal> {
        let Post { id, content_type, body, below } = post;
        let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let signature = self.settings.keys.sign(id, timestamp, body);
        let url = below.as_ref().map_or_else(|| self.settings.url.clone(), |below| self.settings.below(below));
        let mut request = self
            .client
            .post(url)
            .header(CONTENT_TYPE, *content_type)
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .body(encoded);
        if let Some(signature) = signature {
            request = request.header("webhook-signature", signature);
        }
        if let Some(compression) = self.settings.compression {
            request = request.header(CONTENT_ENCODING, compression.encoding());
        }
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        request.build().map_err(|error| self.no_answer(error))
    }

    /// Sends a request. If its connection ends without a response, sends it once more immediately, on a new connection.
    ///
    /// Endpoints close idle connections, and the request may have been sent at the same moment. The sink cannot know
    /// whether the endpoint read the request before it closed the connection. If it did, it gets the request twice, with
    /// the same id, as after any delivery without a response. If an endpoint has never answered, the request is not sent
    /// again: the reason is then not an idle connection, but that the endpoint refuses our connections.
    async fn send(&self, offer: &Offer<'_>, request: Request) -> reqwest::Result<Response> {
        let again = request.try_clone().filter(|_| self.answered.load(Ordering::Relaxed));
        let answer = self.execute(&self.client, offer, request, 0).await;
        match (answer, again) {
            (Err(error), Some(again)) if answer::is_broken_off(&error) => {
                self.execute(&self.fresh, offer, again, 1).await
            }
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
    ) -> reqwest::Result<Response> {
        if !offer.has_turn.swap(false, Ordering::Relaxed) {
            self.pace().await;
        }
        let span = RequestSpan::begin("POST", &self.settings.url, || self.settings.shown_url(), resends);
        if let Some(traceparent) = span.traceparent().and_then(|traceparent| traceparent.try_into().ok()) {
            request.headers_mut().insert("traceparent", traceparent);
        }
        let began = Instant::now();
        let answer = client.execute(request).await;
        match &answer {
            Ok(answer) => span.answered(answer.status().as_u16()),
            Err(error) => span.failed(answer::kind(error)),
        }
        let status = answer.as_ref().ok().map(Response::status);
        let lane = offer.lane;
        self.metrics.webhook_asked(&lane.channel.name, &lane.sink, began.elapsed(), status);
        answer
    }
}

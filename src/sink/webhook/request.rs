//! One request: signed, sent, traced and counted.

use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Request, Response};

use super::Webhook;
use super::answer::{self, Refusal};
use crate::sink::LaneRef;
use crate::telemetry::trace::RequestSpan;

impl Webhook {
    /// Posts a body to the endpoint.
    pub(super) async fn post(
        &self,
        lane: &LaneRef,
        id: String,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<(), Refusal> {
        let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let signature = self.settings.keys.sign(&id, timestamp, &body);
        let mut request = self
            .client
            .post(self.settings.url.clone())
            .header(CONTENT_TYPE, content_type)
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .body(body);
        if let Some(signature) = signature {
            request = request.header("webhook-signature", signature);
        }
        let request = request.build().map_err(|error| self.no_answer(error))?;
        let response = self.send(lane, request).await.map_err(|error| self.no_answer(error))?;
        self.answered.store(true, Ordering::Relaxed);
        let suspicion = self.suspicion().filter(|_| self.settings.connection.identity.is_none());
        let outcome = answer::outcome(&response, suspicion);
        answer::drain(response).await;
        outcome
    }

    /// Sends a request; where its connection ends without an answer, once more at once, by a fresh connection.
    ///
    /// Endpoints close connections that were idle, and the request may have crossed that. It cannot be told whether the
    /// endpoint had read it before: then it comes twice, with the same id, as after any delivery without an answer. An
    /// endpoint that has never answered does not close idle connections: it refuses ours.
    async fn send(&self, lane: &LaneRef, request: Request) -> reqwest::Result<Response> {
        let again = request.try_clone().filter(|_| self.answered.load(Ordering::Relaxed));
        let answer = self.execute(&self.client, lane, request, 0).await;
        match (answer, again) {
            (Err(error), Some(again)) if answer::is_broken_off(&error) => {
                self.execute(&self.fresh, lane, again, 1).await
            }
            (answer, _) => answer,
        }
    }

    /// Sends a request, after so many attempts, and counts it.
    async fn execute(
        &self,
        client: &Client,
        lane: &LaneRef,
        mut request: Request,
        resends: u32,
    ) -> reqwest::Result<Response> {
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
        self.metrics.webhook_asked(&lane.channel.name, &lane.sink, began.elapsed(), status);
        answer
    }
}

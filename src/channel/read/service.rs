//! The real service as the source of a channel's events.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use crate::channel::controls::Handle;
use crate::read::source::Source;
use crate::status::unknown::UnknownReporter;
use api::{ApiError, Client, Created, ErrorResponse, Filter, InvalidResponse, Page};
use proof::event::{ChannelId, EventId, Offset, RawEvent};
use record::ChannelRef;
use telemetry::metrics::{ChannelMetrics, Endpoint, Metrics};

/// The real service as a source. Counts the requests, and reports the answers to polls on the channel's board.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) api: Client,
    pub(crate) channel: ChannelId,
    pub(crate) handle: Arc<Handle>,
    pub(crate) metrics: Arc<ChannelMetrics>,
}

/// Returns a source for use without a running channel. Its reports and counts are not visible anywhere.
pub fn unobserved(api: Client, channel: ChannelId) -> Arc<dyn Source> {
    let metrics = Metrics::default().channel(&ChannelRef { name: "".into(), id: channel });
    Arc::new(Service { api, channel, handle: Arc::default(), metrics: Arc::new(metrics) })
}

impl Service {
    async fn counted<T>(
        &self,
        endpoint: Endpoint,
        request: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let began = Instant::now();
        let answer = request.await;
        // The wait for a turn is not part of the request.
        let began = self.handle.turns().waited_until().map_or(began, |waited| began.max(waited));
        self.metrics.asked(endpoint, began.elapsed(), answer.as_ref().err().map(ApiError::kind));
        if let Some(unknown) = answer.as_ref().err().and_then(ApiError::unknown_type) {
            let reporter = UnknownReporter { handle: self.handle.clone(), metrics: self.metrics.clone() };
            reporter.report_one(unknown.clone());
        }
        answer
    }

    /// Returns the error for a search that was answered with a 404. A poll decides whether the channel is gone, because an
    /// older service, or a proxy in between, may lack only the search.
    async fn search_is_missing(&self, response: ErrorResponse) -> ApiError {
        let Err(error) = self.poll(None, 1).await else {
            let account = &response.account;
            let why = format!(
                "the service answers polls of the channel, but not a search ({response}): does the service at {account}.base_url, or a proxy in between, lack the search?"
            );
            return InvalidResponse(why.into()).into();
        };
        error
    }
}

#[async_trait]
impl Source for Service {
    async fn poll(&self, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError> {
        // The board counts the poll as unanswered until `asked` is dropped. This happens when the poll ends or is cancelled.
        let asked = Arc::new(Instant::now());
        self.handle.board().poll_begins(&asked);
        let page = self.counted(Endpoint::Poll, self.api.poll(self.channel, offset, limit)).await;
        let page = page.inspect_err(|error| {
            // `TooLong` means that the service did answer, but that the memory for the answer was missing.
            if !matches!(error, ApiError::TooLong { .. }) {
                self.handle.board().not_answered(*asked);
            }
        })?;
        self.handle.board().polled(offset, &page);
        Ok(page)
    }

    async fn created(&self, after: Option<i64>, through: i64, limit: u16) -> Result<Page, ApiError> {
        let created = Created { gt: after, lte: Some(through), ..Created::default() };
        let filter = Filter { created, ..Filter::default() };
        match self.counted(Endpoint::Search, self.api.search(self.channel, &filter, limit, None)).await {
            Err(ApiError::ChannelGone(response)) => Err(self.search_is_missing(response).await),
            page => page,
        }
    }

    async fn event(&self, id: EventId) -> Result<RawEvent, ApiError> {
        self.counted(Endpoint::Event, self.api.event(self.channel, id)).await
    }

    fn room(&self) -> usize {
        self.handle.memory.room()
    }

    fn client(&self) -> Option<&Client> {
        Some(&self.api)
    }
}

#[cfg(test)]
mod tests {
    use api::testing::Scripted;
    use uuid::Uuid;

    use super::*;

    /// A service that answers each search with a 404 in its error format, and each poll with `poll`.
    async fn without_search(poll: (u16, &'static str)) -> (Scripted, Arc<dyn Source>) {
        let gone = (404, r#"{"type":"NOT_FOUND","code":"CHANNEL_NOT_FOUND","message":"no"}"#);
        let service = Scripted::start(move |path| {
            let (status, body) = if path.contains("/search") { gone } else { poll };
            axum::http::Response::builder().status(status).body(body.into()).unwrap()
        });
        let service = service.await;
        let source = unobserved(service.client(), ChannelId(Uuid::nil()));
        (service, source)
    }

    #[tokio::test]
    async fn only_a_poll_says_that_the_channel_is_gone() {
        let gone = r#"{"type":"NOT_FOUND","code":"CHANNEL_NOT_FOUND"}"#;
        for (poll, kind) in [
            ((200, r#"{"events":[],"has_more":false}"#), "malformed"),
            ((404, gone), "channel-gone"),
            ((503, ""), "transient"),
        ] {
            let (_service, source) = without_search(poll).await;
            let error = source.created(None, 7, 1).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(
                error.to_string().contains("not a search (HTTP 404 CHANNEL_NOT_FOUND: no)"),
                kind == "malformed"
            );
        }
    }
}

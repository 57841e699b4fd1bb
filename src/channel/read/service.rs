//! The real service as the source of a channel's events.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use crate::channel::controls::Handle;
use crate::read::source::Source;
use crate::status::unknown::UnknownReporter;
use api::{ApiError, Client, Created, Filter, Page};
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
        self.counted(Endpoint::Search, self.api.search(self.channel, &filter, limit, None)).await
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

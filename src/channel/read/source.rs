//! The service as one channel's loop sees it: three requests. A trait, so that tests can run the loop against a service in
//! memory that answers each of them in every possible way.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use crate::board::Polling;
use crate::controls::Handle;
use api::{ApiError, Client, Created, Filter, Page};
use proof::event::{ChannelId, EventId, Offset, RawEvent};
use telemetry::metrics::{ChannelMetrics, Endpoint};

/// Where a channel's events come from.
#[async_trait]
pub trait Source: Send + Sync + fmt::Debug {
    /// At most `limit` events, newest first: the latest, or those that `offset` selects. What it selects is not promised.
    async fn poll(&self, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError>;

    /// At most `limit` events, newest first, of those created later than `after` and not later than `through`, in Unix
    /// seconds.
    async fn created(&self, after: Option<i64>, through: i64, limit: u16) -> Result<Page, ApiError>;

    /// One event.
    async fn event(&self, id: EventId) -> Result<RawEvent, ApiError>;

    /// For how long a page there is memory, in bytes.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// The client that it asks by; `None` for a service in memory.
    fn client(&self) -> Option<&Client> {
        None
    }
}

/// The service itself. Requests are counted, and their answers shown on the channel's board.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) api: Client,
    pub(crate) channel: ChannelId,
    pub(crate) handle: Arc<Handle>,
    pub(crate) metrics: Arc<ChannelMetrics>,
}

impl Service {
    async fn counted<T>(
        &self,
        endpoint: Endpoint,
        request: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let began = Instant::now();
        let answer = request.await;
        self.metrics.asked(endpoint, began.elapsed(), answer.as_ref().err().map(ApiError::kind));
        answer
    }
}

#[async_trait]
impl Source for Service {
    async fn poll(&self, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError> {
        let polling = Polling::begin(&self.handle);
        let page = self.counted(Endpoint::Poll, self.api.poll(self.channel, offset, limit)).await;
        let page = page.inspect_err(|error| {
            // An answer that there is no memory for is one all the same.
            if !matches!(error, ApiError::TooLong { .. }) {
                self.handle.board().not_answered(polling.asked);
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

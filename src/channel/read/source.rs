//! The service as one channel's loop sees it: three requests. A trait, so that tests can run the loop against a service in
//! memory that answers each of them in every possible way.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use crate::api::{ApiError, Client, Created, Filter, Page};
use crate::channel::controls::Handle;
use crate::event::{ChannelId, EventId, Offset, RawEvent};
use crate::metrics::{ChannelMetrics, Endpoint};

/// Where a channel's events come from.
#[async_trait]
pub(in crate::channel) trait Source: Any + Send + Sync + fmt::Debug {
    /// At most `limit` events, newest first: the latest, or those that `offset` selects. What it selects is not promised.
    async fn poll(&self, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError>;

    /// At most `limit` events, newest first, of those created later than `after` and not later than `through`, in Unix
    /// seconds.
    async fn created(&self, after: Option<i64>, through: i64, limit: u16) -> Result<Page, ApiError>;

    /// One event.
    async fn event(&self, id: EventId) -> Result<RawEvent, ApiError>;

    /// Whether both read the same channel in the same way.
    fn equals(&self, other: &dyn Source) -> bool;
}

/// The service itself. Requests are counted, and their answers shown on the channel's board.
#[derive(Debug)]
pub(in crate::channel) struct Service {
    pub(in crate::channel) api: Client,
    pub(in crate::channel) channel: ChannelId,
    pub(in crate::channel) handle: Arc<Handle>,
    pub(in crate::channel) metrics: Arc<ChannelMetrics>,
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
        let page = self.counted(Endpoint::Poll, self.api.poll(self.channel, offset, limit)).await?;
        self.handle.board.polled(page.events.iter().map(|event| event.offset));
        Ok(page)
    }

    async fn created(&self, after: Option<i64>, through: i64, limit: u16) -> Result<Page, ApiError> {
        let created = Created { gt: after, lte: Some(through), ..Created::default() };
        let filter = Filter { created, ..Filter::default() };
        let page = self.counted(Endpoint::Search, self.api.search(self.channel, &filter, limit, None)).await?;
        self.handle.board.answered();
        Ok(page)
    }

    async fn event(&self, id: EventId) -> Result<RawEvent, ApiError> {
        self.counted(Endpoint::Event, self.api.event(self.channel, id)).await
    }

    /// The board and the metrics are always the channel's own.
    fn equals(&self, other: &dyn Source) -> bool {
        let other: Option<&Self> = (other as &dyn Any).downcast_ref();
        other.is_some_and(|other| (&self.api, self.channel) == (&other.api, other.channel))
    }
}

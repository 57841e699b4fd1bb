//! The service as one channel's loop sees it: three questions. A trait, so that the loop can be held against a service
//! in memory that answers each of them in every way that is possible.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use crate::api::{ApiError, Client, Created, Filter, Page};
use crate::comparable::Comparable;
use crate::event::{ChannelId, EventId, Offset, RawEvent};
use crate::metrics::{ChannelMetrics, Endpoint};

use super::handle::Handle;

/// Where a channel's events come from.
#[async_trait]
pub(super) trait Source: Comparable + Send + Sync + fmt::Debug + Any {
    /// At most `limit` events, newest first: the latest, or those that `offset` asks for, whatever that means.
    async fn poll(&self, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError>;

    /// At most `limit` events, newest first, of those created later than `after` and not later than `through`, in Unix
    /// seconds.
    async fn created(&self, after: Option<i64>, through: i64, limit: u16) -> Result<Page, ApiError>;

    /// One event.
    async fn event(&self, id: EventId) -> Result<RawEvent, ApiError>;
}

/// The service itself.
#[derive(Debug)]
pub(super) struct Service {
    api: Client,
    channel: ChannelId,
    /// Nobody, where no channel runs.
    told: Option<Told>,
}

/// Who is told of what is asked and answered.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) handle: Arc<Handle>,
    pub(super) metrics: Arc<ChannelMetrics>,
}

impl Service {
    pub(super) fn new(api: Client, channel: ChannelId, told: Option<Told>) -> Self {
        Self { api, channel, told }
    }

    async fn counted<T>(
        &self,
        endpoint: Endpoint,
        asking: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let asked = Instant::now();
        let answer = asking.await;
        if let Some(told) = &self.told {
            told.metrics.asked(endpoint, asked.elapsed(), answer.as_ref().err().map(ApiError::kind));
        }
        answer
    }
}

/// The handle is the channel's own, always the same.
impl PartialEq for Service {
    fn eq(&self, other: &Self) -> bool {
        (&self.api, self.channel) == (&other.api, other.channel)
    }
}

#[async_trait]
impl Source for Service {
    async fn poll(&self, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError> {
        let page = self.counted(Endpoint::Poll, self.api.poll(self.channel, offset, limit)).await?;
        if let Some(told) = &self.told {
            told.handle.polled(page.events.iter().map(|event| event.offset));
        }
        Ok(page)
    }

    async fn created(&self, after: Option<i64>, through: i64, limit: u16) -> Result<Page, ApiError> {
        let created = Created { gt: after, lte: Some(through), ..Created::default() };
        let filter = Filter { created, ..Filter::default() };
        let page = self.counted(Endpoint::Search, self.api.search(self.channel, &filter, limit, None)).await?;
        if let Some(told) = &self.told {
            told.handle.answered();
        }
        Ok(page)
    }

    async fn event(&self, id: EventId) -> Result<RawEvent, ApiError> {
        self.counted(Endpoint::Event, self.api.event(self.channel, id)).await
    }
}

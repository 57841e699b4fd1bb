//! The service as one channel's loop sees it: three questions. A trait, so that the loop can be held against a service
//! in memory that answers each of them in every way that is possible.

use std::fmt;

use async_trait::async_trait;

use crate::api::{ApiError, Client, Created, Filter, Page};
use crate::event::{ChannelId, EventId, Offset, RawEvent};

/// Where a channel's events come from.
#[async_trait]
pub(super) trait Source: Send + Sync + fmt::Debug {
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
}

impl Service {
    pub(super) fn new(api: Client, channel: ChannelId) -> Self {
        Self { api, channel }
    }
}

#[async_trait]
impl Source for Service {
    async fn poll(&self, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError> {
        self.api.poll(self.channel, offset, limit).await
    }

    async fn created(&self, after: Option<i64>, through: i64, limit: u16) -> Result<Page, ApiError> {
        let created = Created { gt: after, lte: Some(through), ..Created::default() };
        self.api.search(self.channel, &Filter { created, ..Filter::default() }, limit, None).await
    }

    async fn event(&self, id: EventId) -> Result<RawEvent, ApiError> {
        self.api.event(self.channel, id).await
    }
}

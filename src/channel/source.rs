//! The service as one channel's loop sees it: three questions. A trait, so that the loop can be held against a service
//! in memory that answers each of them in every way that is possible.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::api::{ApiError, Client, Created, Filter, Page};
use crate::comparable::Comparable;
use crate::event::{ChannelId, EventId, Offset, RawEvent};

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
    /// Told of what the service shows.
    handle: Arc<Handle>,
}

impl Service {
    pub(super) fn new(api: Client, channel: ChannelId, handle: Arc<Handle>) -> Self {
        Self { api, channel, handle }
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
        let page = self.api.poll(self.channel, offset, limit).await?;
        self.handle.polled(page.events.first().map(|event| event.offset));
        Ok(page)
    }

    async fn created(&self, after: Option<i64>, through: i64, limit: u16) -> Result<Page, ApiError> {
        let created = Created { gt: after, lte: Some(through), ..Created::default() };
        self.api.search(self.channel, &Filter { created, ..Filter::default() }, limit, None).await
    }

    async fn event(&self, id: EventId) -> Result<RawEvent, ApiError> {
        self.api.event(self.channel, id).await
    }
}

//! The three requests that a channel's loop sends to the service. They are the methods of a trait, so that tests can run the
//! loop against an in-memory service that produces every possible answer.

use std::fmt;

use async_trait::async_trait;

use api::{ApiError, Client, Page};
use proof::event::{EventId, Offset, RawEvent};

/// The source of a channel's events.
#[async_trait]
pub trait Source: Send + Sync + fmt::Debug {
    /// Returns at most `limit` events, the newest first. Without an offset, these are the latest events. With an offset, the
    /// service does not promise which events it returns.
    async fn poll(&self, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError>;

    /// Returns at most `limit` of the events that were created after `after` and at or before `through`, the newest first.
    /// Both times are in Unix seconds.
    async fn created(&self, after: Option<i64>, through: i64, limit: u16) -> Result<Page, ApiError>;

    async fn event(&self, id: EventId) -> Result<RawEvent, ApiError>;

    fn room(&self) -> usize {
        usize::MAX
    }

    /// Returns the client that sends the requests, or `None` for an in-memory service.
    fn client(&self) -> Option<&Client> {
        None
    }
}

//! Reads the past events of a channel without gaps.

use std::sync::Arc;

use crate::read::error::ReadError;
use crate::read::reader::{Range, Reader};
use crate::read::service::Service;
use crate::read::source::Source;
use api::windows::SKEW;
use api::{ApiError, Client};
use proof::event::{ChannelId, Offset, RawEvent};
use record::ChannelRef;
use telemetry::metrics::Metrics;

/// Reads one range of a channel in ascending order.
#[derive(Debug)]
pub struct History {
    reader: Reader,
    position: Option<Offset>,
    to: Offset,
}

impl History {
    /// Creates a reader for the range between two offsets, both included.
    pub fn new(api: Client, channel: ChannelId, from: Offset, to: Offset, page_limit: u16) -> Self {
        Self::of(unobserved(api, channel), from, to, page_limit)
    }

    /// Like [`new`](Self::new), with a source.
    pub fn of(source: Arc<dyn Source>, from: Offset, to: Offset, page_limit: u16) -> Self {
        Self { reader: Reader::new(source, page_limit), position: from.before(), to }
    }

    /// Returns the next events in ascending order, at most one page. Returns no events at the end.
    ///
    /// # Errors
    /// [`ReadError`] if the request must be repeated later.
    pub async fn next(&mut self) -> Result<Vec<RawEvent>, ReadError> {
        while self.position < Some(self.to) {
            let Range { mut events, more, .. } = self.reader.next(self.position).await?;
            self.position = events.last().map(|event| event.offset).or(self.position);
            events.retain(|event| event.offset <= self.to);
            if !events.is_empty() || !more {
                return Ok(events);
            }
        }
        Ok(Vec::new())
    }
}

/// A source that shows and counts nothing, for use without a running channel.
pub fn unobserved(api: Client, channel: ChannelId) -> Arc<dyn Source> {
    let metrics = Metrics::default().channel(&ChannelRef { name: "".into(), id: channel });
    Arc::new(Service { api, channel, handle: Arc::default(), metrics: Arc::new(metrics) })
}

/// Returns an offset that no event created at or after `since`, in Unix seconds, is below.
///
/// # Errors
/// If the service does not answer.
pub async fn first_since(source: &dyn Source, since: i64) -> Result<Offset, ApiError> {
    // The order of `created` and the order of offsets may differ by this much.
    let before = source.created(None, since.saturating_sub(SKEW), 1).await?;
    let before = before.events.first().map(|event| event.offset.get());
    Ok(before.and_then(|before| Offset::new(before.saturating_add(1))).unwrap_or(Offset::ZERO))
}

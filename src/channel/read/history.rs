//! The past events of a channel, read without a gap.

use std::sync::Arc;

use crate::api::Client;
use crate::channel::read::reader::{Range, ReadError, Reader};
use crate::channel::read::source::Service;
use crate::event::{ChannelId, Offset, RawEvent};
use crate::metrics::Metrics;
use crate::record::ChannelRef;

/// Reads one range of a channel upwards.
#[derive(Debug)]
pub struct History {
    reader: Reader,
    position: Option<Offset>,
    to: Offset,
}

impl History {
    /// Begins at one offset and ends at another, both included.
    pub fn new(api: Client, channel: ChannelId, from: Offset, to: Offset, page_limit: u16) -> Self {
        // No channel runs: what is counted is shown nowhere.
        let metrics = Metrics::default().channel(&ChannelRef { name: "".into(), id: channel });
        let source = Service { api, channel, handle: Arc::default(), metrics: Arc::new(metrics) };
        Self { reader: Reader::new(Arc::new(source), page_limit), position: from.before(), to }
    }

    /// The next events, ascending, at most a page; none at the end.
    ///
    /// # Errors
    /// [`ReadError`]: ask again later.
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

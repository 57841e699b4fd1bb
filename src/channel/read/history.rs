//! The past events of a channel, read without a gap.

use std::sync::Arc;

use crate::api::Client;
use crate::channel::read::reader::{ReadError, Reader};
use crate::channel::read::source::Service;
use crate::event::{ChannelId, Offset, RawEvent};

/// Reads one range of a channel upwards.
#[derive(Debug)]
pub struct History {
    reader: Reader,
    position: Option<Offset>,
    to: Offset,
}

impl History {
    /// Begins at one offset and ends at another, both included.
    #[must_use]
    pub fn new(api: Client, channel: ChannelId, from: Offset, to: Offset, page_limit: u16) -> Self {
        let source = Arc::new(Service::new(api, channel, None));
        Self { reader: Reader::new(source, page_limit), position: from.before(), to }
    }

    /// The next events, ascending, at most a page; none at the end.
    ///
    /// # Errors
    /// [`ReadError`]: ask again later.
    pub async fn next(&mut self) -> Result<Vec<RawEvent>, ReadError> {
        while self.position < Some(self.to) {
            let range = self.reader.next(self.position).await?;
            let more = range.more;
            let mut events = range.events;
            self.position = events.last().map(|event| event.offset).or(self.position);
            events.retain(|event| event.offset <= self.to);
            if !events.is_empty() {
                return Ok(events);
            }
            if !more {
                break;
            }
        }
        Ok(Vec::new())
    }
}

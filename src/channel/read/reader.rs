//! Ascending ranges without a gap, read from a service whose pages run the other way.
//!
//! What `offset` means is not promised (spec/wire.md, "`offset` on poll"), so nothing here depends on it. A page counts
//! only when it is *closed*: when it is shown to hold every event between the last offset read and its own highest. Where
//! it is not, because pages hold the newest events and more came than one page takes, a [`Walk`] reads the range.
//!
//! # Invariants
//!
//! * **Closed or walked.** A page is closed when it reaches down to an offset already read, or to the very next number,
//!   or when the service, asked for one event above that offset, gives the page's lowest. `has_more` proves
//!   nothing, nor does a page's length beyond this: a page that holds a single event where more were requested is whole.
//! * **No gap is guessed away.** Where neither closing nor walking succeeds, the range is in doubt: an error, and a wait.
//! * **One request when idle,** and it brings nothing twice where `offset` excludes its own event.
//!
//! It relies on two things that the service does not promise in words: events become visible in the order of their
//! offsets, and a channel that begins with more than a page does not begin with the offset 0 where `offset` excludes its
//! own event.
//!
//! While there is more to read, each request starts one offset early, so that the page reaches down to what is known
//! and closes itself; when there is not, it starts at the last offset read.

use std::sync::Arc;

use crate::api::{ApiError, Page};
use crate::channel::read::source::Source;
use crate::channel::read::walk::Walk;
use crate::event::{Offset, RawEvent};

/// A page of one event could not be told from the top of a longer range. A page of two, requested one offset early from a
/// service that includes that offset, might hold nothing new.
const SMALLEST_PAGE: u16 = 3;

/// Reads one channel upwards.
#[derive(Debug)]
pub(in crate::channel) struct Reader {
    source: Arc<dyn Source>,
    limit: u16,
    /// There may be much to read: there was more, or nothing has been read yet.
    pub(in crate::channel) behind: bool,
    /// The service was seen to leave out older events: a probe for the lowest of them is in vain.
    shows_newest: bool,
    walk: Option<Walk>,
}

/// Every event between the last offset read and the highest of these.
#[derive(Debug)]
pub(in crate::channel) struct Range {
    /// Ascending.
    pub(in crate::channel) events: Vec<RawEvent>,
    /// Whether to ask for more at once.
    pub(in crate::channel) more: bool,
}

/// Why there is no range.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The service did not answer with a page.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// There may be events between two offsets that the service did not show.
    #[error(
        "whether there are events {}below offset {below} cannot be told: the range is in doubt, nothing is passed over",
        .above.map_or_else(String::new, |above| format!("above offset {above} and "))
    )]
    InDoubt {
        /// The last offset read.
        above: Option<Offset>,
        /// The lowest that was shown.
        below: Offset,
    },
}

impl ReadError {
    /// A short constant name.
    pub(in crate::channel) fn name(&self) -> &'static str {
        match self {
            Self::Api(error) => error.kind(),
            Self::InDoubt { .. } => "range-in-doubt",
        }
    }

    /// Whether it is expected to heal by itself.
    pub(in crate::channel) fn heals(&self) -> bool {
        match self {
            Self::Api(error) => !matches!(error, ApiError::Refused(_) | ApiError::ChannelGone(_)),
            Self::InDoubt { .. } => false,
        }
    }
}

impl Reader {
    pub(in crate::channel) fn new(source: Arc<dyn Source>, page_limit: u16) -> Self {
        Self { source, limit: page_limit.max(SMALLEST_PAGE), behind: true, shows_newest: false, walk: None }
    }

    /// The next events above `last`, which may be none. `last` is where the range before ended.
    ///
    /// # Errors
    /// [`ReadError`]: ask again later, nothing has been read.
    pub(in crate::channel) async fn next(&mut self, last: Option<Offset>) -> Result<Range, ReadError> {
        if let Some(walk) = &mut self.walk {
            if let Some(events) = walk.next(&*self.source, self.limit).await? {
                return Ok(Range { events, more: true });
            }
            self.walk = None;
            self.shows_newest = false;
        }
        let early = last.map_or(Offset::ZERO, |last| last.before().unwrap_or(last));
        let from = if self.behind { early } else { last.unwrap_or(Offset::ZERO) };
        let (mut range, mut closed) = self.page(from, last).await?;
        if !closed && from != early {
            (range, closed) = self.page(early, last).await?;
        }
        if let Some(lowest) = range.events.first().filter(|_| !closed) {
            self.walk = Some(Walk::begin(&*self.source, last, lowest.offset).await?);
            range = Range { events: Vec::new(), more: true };
        }
        self.behind = range.more;
        Ok(range)
    }

    /// The part of a page above `last`, and whether nothing can lie between the two.
    async fn page(&mut self, from: Offset, last: Option<Offset>) -> Result<(Range, bool), ReadError> {
        let Page { mut events, has_more } = self.source.poll(Some(from), self.limit).await?;
        let shown = events.len();
        events.retain(|event| Some(event.offset) > last);
        let reaches_down = events.len() < shown;
        let more = !events.is_empty() && (shown >= usize::from(self.limit) || has_more);
        events.reverse();
        if last.is_none() {
            self.add_what_is_below(&mut events).await?;
        }
        let closed = reaches_down || self.is_closed(&events, from, last).await?;
        Ok((Range { events, more }, closed))
    }

    /// Adds the events below the first page of a channel. Where `offset` excludes its own event, an offset of 0 excludes the
    /// event 0. A poll without an offset gives the latest events, which are all events as long as one page holds them.
    async fn add_what_is_below(&self, first: &mut Vec<RawEvent>) -> Result<(), ReadError> {
        let latest = self.source.poll(None, self.limit).await?;
        if latest.events.len() >= usize::from(self.limit) || latest.has_more {
            return Ok(());
        }
        let lowest = first.first().map(|event| event.offset);
        let below = latest.events.into_iter().rev().filter(|event| lowest.is_none_or(|lowest| event.offset < lowest));
        first.splice(..0, below);
        Ok(())
    }

    /// Whether nothing can lie between `last` and the lowest event of a page that was requested with `from`.
    async fn is_closed(&mut self, page: &[RawEvent], from: Offset, last: Option<Offset>) -> Result<bool, ReadError> {
        let [lowest, rest @ ..] = page else { return Ok(true) };
        // A page with room for more than its only event holds all there is.
        if lowest.offset.before() == last || rest.is_empty() {
            return Ok(true);
        }
        if self.shows_newest {
            return Ok(false);
        }
        let probe = self.source.poll(Some(from), 1).await?;
        self.shows_newest = probe.events.first().is_none_or(|first| first.offset != lowest.offset);
        Ok(!self.shows_newest)
    }
}

#[cfg(test)]
mod tests;

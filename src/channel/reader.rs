//! Ascending ranges without a gap, read from a service whose pages run the other way.
//!
//! What `offset` means is not promised (spec/wire.md, "`offset` on poll"), so nothing here depends on it. A page counts
//! only when it is *closed*: when it is shown to hold every event between the last offset read and its own highest.
//!
//! # Invariants
//!
//! * **Closed or nothing.** A page is closed when it reaches down to an offset already read, or to the very next number,
//!   or when the service, asked for one event above that offset, gives the page's lowest. `has_more` and the page's
//!   length prove nothing.
//! * **No gap is guessed away.** Where a page is not closed, the range is in doubt: an error, and a wait.
//!
//! While there is more to read, each request starts one offset early, so that the page reaches down to what is known
//! and closes itself; when there is not, it starts at the last offset read, so that an idle poll brings nothing twice.

use crate::api::{ApiError, Client};
use crate::event::{Offset, RawEvent};
use crate::record::ChannelRef;

use super::Settings;

/// A page of one event could not be told from the top of a longer range.
const SMALLEST_PAGE: u16 = 2;

/// Reads one channel upwards.
#[derive(Debug)]
pub(super) struct Reader {
    api: Client,
    channel: ChannelRef,
    limit: u16,
    behind: bool,
}

/// Every event between the last offset read and the highest of these.
#[derive(Debug)]
pub(super) struct Range {
    /// Ascending.
    pub(super) events: Vec<RawEvent>,
    /// Whether it is worth asking for more at once.
    pub(super) more: bool,
}

/// Why there is no range.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The service did not answer with a page.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// There may be events between two offsets that the service did not show.
    #[error(
        "the service shows the newest events first and leaves out older ones: those between offsets {} and {below} are \
         in doubt, nothing is passed over",
        .above.map_or_else(|| "none".to_owned(), |above| above.to_string())
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
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Api(error) => error.kind(),
            Self::InDoubt { .. } => "range-in-doubt",
        }
    }

    /// How long the service asked to wait.
    pub(super) fn retry_after(&self) -> Option<std::time::Duration> {
        match self {
            Self::Api(error) => error.retry_after(),
            Self::InDoubt { .. } => None,
        }
    }

    /// Whether it heals by itself, as far as anybody knows.
    pub(super) fn heals(&self) -> bool {
        match self {
            Self::Api(error) => !matches!(error, ApiError::Refused(_) | ApiError::ChannelGone(_)),
            Self::InDoubt { .. } => false,
        }
    }
}

impl Reader {
    pub(super) fn new(api: Client, settings: &Settings) -> Self {
        let limit = settings.page_limit.max(SMALLEST_PAGE);
        Self { api, channel: settings.channel.clone(), limit, behind: true }
    }

    /// The next events above `last`, which may be none.
    ///
    /// # Errors
    /// [`ReadError`]: ask again later, nothing has been read.
    pub(super) async fn next(&mut self, last: Option<Offset>) -> Result<Range, ReadError> {
        let from = match last {
            Some(last) if self.behind => last.before().unwrap_or(last),
            Some(last) => last,
            None => Offset::ZERO,
        };
        let page = self.api.poll(self.channel.id, Some(from), self.limit).await?;
        let full = page.events.len() >= usize::from(self.limit);
        let known = |event: &&RawEvent| last.is_some_and(|last| event.offset <= last);
        let reaches_down = page.events.iter().any(|event| known(&event));
        let mut events: Vec<_> = page.events.into_iter().filter(|event| !known(&event)).collect();
        events.reverse();

        if let Some(lowest) = events.first()
            && !reaches_down
        {
            self.close(last, from, lowest.offset, events.len()).await?;
        }
        let more = !events.is_empty() && (full || page.has_more);
        self.behind = more;
        Ok(Range { events, more })
    }

    /// Makes sure that nothing lies between `last` and the lowest event of a page.
    async fn close(&self, last: Option<Offset>, from: Offset, lowest: Offset, length: usize) -> Result<(), ReadError> {
        if lowest.before() == last {
            return Ok(());
        }
        // A page that had room for more than its only event holds all there is.
        if length == 1 {
            return Ok(());
        }
        let probe = self.api.poll(self.channel.id, Some(from), 1).await?;
        let first = probe.events.first().map(|event| event.offset);
        let nothing_between = first.is_some_and(|first| first == lowest || last.is_some_and(|last| first <= last));
        nothing_between.then_some(()).ok_or(ReadError::InDoubt { above: last, below: lowest })
    }
}

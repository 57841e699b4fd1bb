//! Reads ascending ranges without gaps from a service whose pages are descending.
//!
//! The service does not promise the meaning of `offset` (spec/wire.md, "`offset` on poll"), so nothing here depends on it. A
//! page counts only if it is *closed*: it provably contains every event between the last offset read and its own highest
//! offset. If pages contain the newest events and more events arrived than fit in one page, the page is not closed. A
//! [`Walk`] then reads the range.
//!
//! # Invariants
//!
//! * **Closed or walked.** A page is closed in three cases: it reaches down to an offset that was already read, it begins at
//!   the very next offset, or the service returns the page's lowest event when asked for one event above the last offset.
//!   `has_more` proves nothing, and neither does the length of a page, with one exception: a page that contains a single
//!   event although more were requested is complete.
//! * **No gap is assumed empty.** If a range can be neither closed nor walked, it is in doubt: this is an error, and a retry
//!   follows after a wait.
//! * **One request when idle.**
//! * **Pages overlap the known events,** if the service allows it: each request starts one offset early. Such a page is
//!   closed. The events that were already read show whether the service's history is still the same (see `intake`).
//!
//! The reader relies on one thing that the service does not explicitly promise. If `offset` excludes its own event, a
//! channel that has more than one page does not begin with the offset 0. Events that become visible below events that were
//! already read are found by [`gaps`](super::gaps).

use std::sync::Arc;

use crate::read::source::Source;
use crate::read::walk::Walk;
use crate::status::Problem;
use crate::verify::RejectionReason;
use api::{ApiError, Page, SMALLEST_PAGE};
use proof::event::{Offset, RawEvent};

/// The expected size of a page never exceeds this, in bytes.
const PAGE_BYTES: usize = 4 << 20;

/// Reads one channel in ascending order.
#[derive(Debug)]
pub(crate) struct Reader {
    source: Arc<dyn Source>,
    limit: u16,
    /// The average size of an event in the last page.
    event_bytes: usize,
    /// The service was observed to omit older events: a probe for the lowest of them is useless.
    shows_newest: bool,
    /// The last page contained no new event but reported more. Its overlap may have left no room for new events.
    skips_overlap: bool,
    walk: Option<Walk>,
}

/// Every event between the last offset read and the highest offset of the range.
#[derive(Debug)]
pub(crate) struct Range {
    /// The events in ascending order.
    pub(crate) events: Vec<RawEvent>,
    /// Events in the page that were already read before, in ascending order.
    pub(crate) overlap: Vec<RawEvent>,
    /// Whether to request more immediately.
    pub(crate) more: bool,
    /// Whether a walk read it. A walk returns no events that were already read.
    pub(crate) is_walked: bool,
}

/// Why no range was read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The service did not answer with a page.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Events that the service did not show may exist between two offsets.
    #[error(
        "whether there are events {}below offset {below} cannot be told: the range is in doubt, nothing is passed over",
        .above.map_or_else(String::new, |above| format!("above offset {above} and "))
    )]
    InDoubt {
        /// The last offset read.
        above: Option<Offset>,
        /// The lowest offset that was shown.
        below: Offset,
    },
    /// The channel has never had a verified event, and none of its events can be verified.
    #[error(
        "{rejected} of {events} events rejected ({reason}), and none of the channel verified before: nothing is quarantined yet; \
         check {}", .reason.what_to_check()
    )]
    NoneVerified {
        /// The number of rejected events.
        rejected: usize,
        /// The number of events that were read.
        events: usize,
        /// The reason for the last rejection.
        reason: RejectionReason,
    },
    /// The service's newest event is far above all others.
    #[error(
        "the event at offset {at} is far above every other, the last of which is at {above}: it is passed once another \
         one follows it; if the service means it, run `channeld cursor set`"
    )]
    FarAbove {
        /// The last offset below it.
        above: Offset,
        /// The offset of the event.
        at: Offset,
    },
}

impl ReadError {
    /// Returns a short constant name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Api(ApiError::TooLong { .. }) => Problem::TOO_LONG,
            Self::Api(error) => error.kind(),
            Self::InDoubt { .. } => "range-in-doubt",
            Self::FarAbove { .. } => Problem::FAR_ABOVE,
            Self::NoneVerified { .. } => Problem::NONE_VERIFIED,
        }
    }

    /// Returns whether the error is expected to resolve without an operator.
    pub(crate) fn heals(&self) -> bool {
        match self {
            Self::Api(error) => !matches!(error, ApiError::Refused(_) | ApiError::ChannelGone(_)),
            Self::InDoubt { .. } | Self::FarAbove { .. } | Self::NoneVerified { .. } => false,
        }
    }
}

impl Reader {
    pub(crate) fn new(source: Arc<dyn Source>, page_limit: u16) -> Self {
        Self {
            source,
            limit: page_limit.max(SMALLEST_PAGE),
            event_bytes: 0,
            shows_newest: false,
            skips_overlap: false,
            walk: None,
        }
    }

    /// Returns the next events above `last`, possibly none. `last` is the end of the previous range.
    ///
    /// # Errors
    /// [`ReadError`] if nothing was read. The caller retries later.
    pub(crate) async fn next(&mut self, last: Option<Offset>) -> Result<Range, ReadError> {
        if let Some(walk) = &mut self.walk {
            let next = walk.next(&*self.source, self.limit).await;
            if let Ok(Some(events)) = next {
                return Ok(Range { events, overlap: Vec::new(), more: true, is_walked: true });
            }
            // The walk restarts after an error for lack of memory, because its events use memory that others may wait for.
            // It also restarts if search lacks an event that polling returned: the service may have lost the event.
            if matches!(next, Ok(_) | Err(ReadError::Api(ApiError::TooLong { .. }))) || walk.is_over() {
                self.walk = None;
            }
            next?;
            self.shows_newest = false;
        }
        let early = last.map_or(Offset::ZERO, |last| last.before().unwrap_or(last));
        let from = if std::mem::take(&mut self.skips_overlap) { last.unwrap_or(Offset::ZERO) } else { early };
        let (mut range, mut closed) = self.page(from, last).await?;
        if !closed && from != early {
            // Free the memory of this page before the next request.
            range.events.clear();
            (range, closed) = self.page(early, last).await?;
        }
        if let Some(lowest) = range.events.first().filter(|_| !closed).map(|lowest| lowest.offset) {
            // Free the memory of the page before more requests.
            range = Range { events: Vec::new(), more: true, ..range };
            self.walk = Some(Walk::begin(&*self.source, last, lowest).await?);
        }
        Ok(range)
    }

    /// Requests a page that fits into the free memory. Returns it with the number of events that were requested.
    async fn poll(&mut self, offset: Option<Offset>) -> Result<(Page, u16), ReadError> {
        loop {
            let fit = self.source.room().min(PAGE_BYTES) / self.event_bytes.max(1);
            let limit = u16::try_from(fit).unwrap_or(u16::MAX).clamp(SMALLEST_PAGE, self.limit);
            match self.source.poll(offset, limit).await {
                // The smallest page is read regardless of its size.
                Err(ApiError::TooLong { bytes }) if limit > SMALLEST_PAGE => {
                    self.event_bytes = (2 * self.event_bytes).max(bytes / usize::from(limit)).max(1);
                }
                page => {
                    let page = page?;
                    let bytes: usize = page.events.iter().map(|event| event.json.len()).sum();
                    self.event_bytes = bytes.checked_div(page.events.len()).unwrap_or(self.event_bytes);
                    return Ok((page, limit));
                }
            }
        }
    }

    /// Returns the part of a page above `last`, and whether no event can exist between the two.
    async fn page(&mut self, from: Offset, last: Option<Offset>) -> Result<(Range, bool), ReadError> {
        if last.is_none()
            && let Some(all) = self.all().await?
        {
            return Ok((all, true));
        }
        let (Page { mut events, has_more }, limit) = self.poll(Some(from)).await?;
        let shown = events.len();
        events.reverse();
        let new = events.split_off(events.partition_point(|event| Some(event.offset) <= last));
        let (overlap, events) = (events, new);
        self.skips_overlap = events.is_empty() && !overlap.is_empty() && has_more;
        let more = !events.is_empty() && (shown >= usize::from(limit) || has_more);
        let closed = !overlap.is_empty() || self.is_closed(&events, from, last).await?;
        Ok((Range { events, overlap, more, is_walked: false }, closed))
    }

    /// Returns every event of the channel, if one page contains them all. This poll is sent first, because a later page
    /// by offset can contain other events. If `offset` excludes its own event, an offset of 0 excludes the event 0. A poll
    /// without an offset returns the latest events, and therefore all events of a short channel.
    async fn all(&mut self) -> Result<Option<Range>, ReadError> {
        let (Page { mut events, has_more }, limit) = self.poll(None).await?;
        if events.len() >= usize::from(limit) || has_more {
            return Ok(None);
        }
        events.reverse();
        Ok(Some(Range { events, overlap: Vec::new(), more: false, is_walked: false }))
    }

    /// Returns whether no event can exist between `last` and the lowest event of a page that was requested with `from`.
    async fn is_closed(&mut self, page: &[RawEvent], from: Offset, last: Option<Offset>) -> Result<bool, ReadError> {
        let [lowest, rest @ ..] = page else { return Ok(true) };
        // If a page has room for more but contains only one event, no other event exists.
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

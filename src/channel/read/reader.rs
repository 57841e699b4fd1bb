//! Reads ascending ranges without gaps from a service whose pages are descending.
//!
//! The service does not promise the meaning of `offset` (spec/wire.md, "`offset` on poll"), so this module does not depend on
//! any meaning. A page is used only if it is *closed*: it provably contains every event between the last offset read and the
//! page's highest offset. If the service always returns the newest events, and more new events exist than fit in one page,
//! the page is not closed. A [`Walk`] then reads the range.
//!
//! # Invariants
//!
//! * **Closed or walked.** A page is closed in three cases: it reaches down to an offset that was already read, it begins at
//!   the very next offset, or the service returns the page's lowest event when asked for only one event above the last
//!   offset. `has_more` proves nothing. The length of a page proves nothing either, with one exception: if more events were
//!   requested but the page contains only one event, the page is complete.
//! * **No gap is assumed empty.** If a range can be neither closed nor walked, the range is in doubt. This is an error, and
//!   the range is read again after a wait.
//! * **One request when idle.** A channel without new events sends one request per poll.
//! * **Pages overlap the known events,** if the service allows it: each request starts one offset early. A page that overlaps
//!   is closed. The overlapping events also show whether the service's history is still the same (see `compare`).
//!
//! The reader relies on one property that the service does not explicitly promise: if `offset` excludes the event at this
//! offset, then a channel with more than one page has no event at the offset 0. A page that is smaller for lack of memory counts as
//! a page. If the first page is smaller after a timeout, the reader does not rely on this property and walks. The reader does not
//! find events that become visible below events that were already read. [`gap_search`](super::gap_search) does.

use std::sync::Arc;

use crate::error::ReadError;
use crate::read::source::Source;
use api::windows::{BEFORE_TIME, Direction, END_OF_TIME, SKEW, Windows};
use api::{ApiError, MAX_PAGE, Page, SMALLEST_PAGE, TransientError};
use proof::event::{Offset, RawEvent};

/// The length in seconds of the first window of a walk.
pub(crate) const FIRST_SPAN: i64 = 64;

/// The maximum expected size of a page, in bytes.
const PAGE_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct Reader {
    source: Arc<dyn Source>,
    /// The most events of a page.
    limit: u16,
    /// The most events of the next page. After an answer that did not arrive in time, this is less than `limit`, because a slow line would
    /// delay the same page again.
    next_limit: u16,
    /// The average size of an event in the last page.
    event_bytes: usize,
    /// Whether the service was observed to return only the newest events. If so, a request for the lowest new event is
    /// useless.
    shows_newest: bool,
    /// Whether the last page contained no new event but reported more events. The overlap may have left no room for new
    /// events, so the next request skips it.
    skips_overlap: bool,
    walk: Option<Walk>,
}

/// A range with every event from the last offset read to the highest offset of the range.
#[derive(Debug)]
pub(crate) struct Range {
    /// The events in ascending order.
    pub(crate) events: Vec<RawEvent>,
    /// The events in the page that were already read before, in ascending order.
    pub(crate) overlap: Vec<RawEvent>,
    /// Whether to request more immediately.
    pub(crate) more: bool,
    /// Whether a walk read the range. A walk never returns events that were already read.
    pub(crate) is_walked: bool,
    /// Whether the range is the answer to a poll for the latest events, so it contains the newest event of the channel.
    pub(crate) is_latest: bool,
}

impl Reader {
    pub(crate) fn new(source: Arc<dyn Source>, page_limit: u16) -> Self {
        let limit = page_limit.max(SMALLEST_PAGE);
        Self { source, limit, next_limit: limit, event_bytes: 0, shows_newest: false, skips_overlap: false, walk: None }
    }

    /// Returns the next events above `last`, possibly none. `last` is the end of the previous range.
    pub(crate) async fn next(&mut self, last: Option<Offset>) -> Result<Range, ReadError> {
        if let Some(walk) = &mut self.walk {
            let next = walk.next(&*self.source, self.limit).await;
            if let Ok(Some(events)) = next {
                return Ok(Range { events, overlap: Vec::new(), more: true, is_walked: true, is_latest: false });
            }
            // The walk ends after an error for lack of memory, because its events use memory that other channels may wait
            // for. The walk also ends if search lacks an event that polling returned, because the service may have lost this
            // event. A page is requested again before the next walk.
            let is_over = walk.windows.next().is_none() || walk.windows.settled() >= Some(walk.top);
            if matches!(next, Ok(_) | Err(ReadError::Api(ApiError::TooLong { .. }))) || is_over {
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
            // Free the memory of the page before further requests.
            range = Range { events: Vec::new(), more: true, ..range };
            self.walk = Some(Walk::begin(&*self.source, last, lowest).await?);
        }
        Ok(range)
    }

    /// Requests a page that fits into the free memory. Returns the page, and the number of events that were requested. After a timeout,
    /// the next page is half as large. Each page that arrives lets the following page grow again.
    async fn poll(&mut self, offset: Option<Offset>) -> Result<(Page, u16), ReadError> {
        loop {
            let fit = self.source.room().min(PAGE_BYTES) / self.event_bytes.max(1);
            let limit = u16::try_from(fit).unwrap_or(u16::MAX).clamp(SMALLEST_PAGE, self.next_limit);
            match self.source.poll(offset, limit).await {
                // The smallest page is read regardless of its size.
                Err(ApiError::TooLong { bytes }) if limit > SMALLEST_PAGE => {
                    self.event_bytes = (2 * self.event_bytes).max(bytes / usize::from(limit)).max(1);
                }
                Err(timeout @ ApiError::Transient(TransientError::Timeout)) => {
                    self.next_limit = (limit / 2).max(SMALLEST_PAGE);
                    return Err(timeout.into());
                }
                page => {
                    let page = page?;
                    self.next_limit = (limit + limit / 4 + 1).min(self.limit).max(self.next_limit);
                    let bytes: usize = page.events.iter().map(|event| event.json.len()).sum();
                    self.event_bytes = bytes.checked_div(page.events.len()).unwrap_or(self.event_bytes);
                    return Ok((page, limit));
                }
            }
        }
    }

    /// Returns the part of a page above `last`, and whether the page is closed: no other event can exist between `last` and
    /// this part.
    async fn page(&mut self, from: Offset, last: Option<Offset>) -> Result<(Range, bool), ReadError> {
        let mut may_hide_first = last.is_none() && self.next_limit < self.limit;
        if last.is_none()
            && let Some(all) = self.all().await?
        {
            return Ok((all, true));
        }
        let (Page { events: mut overlap, has_more }, limit) = self.poll(Some(from)).await?;
        let shown = overlap.len();
        overlap.reverse();
        let events = overlap.split_off(overlap.partition_point(|event| Some(event.offset) <= last));
        self.skips_overlap = events.is_empty() && !overlap.is_empty() && has_more;
        let more = !events.is_empty() && (shown >= usize::from(limit) || has_more);
        may_hide_first &= events.first().is_some_and(|first| first.offset > Offset::ZERO);
        let closed = !overlap.is_empty() || !may_hide_first && self.is_closed(&events, from, last).await?;
        Ok((Range { events, overlap, more, is_walked: false, is_latest: false }, closed))
    }

    /// Returns every event of the channel, if one page contains them all. This poll is sent first and without an offset: if
    /// `offset` excludes the event at this offset, a poll with the offset 0 would not return the event at 0.
    async fn all(&mut self) -> Result<Option<Range>, ReadError> {
        let (Page { mut events, has_more }, limit) = self.poll(None).await?;
        if events.len() >= usize::from(limit) || has_more {
            return Ok(None);
        }
        events.reverse();
        Ok(Some(Range { events, overlap: Vec::new(), more: false, is_walked: false, is_latest: true }))
    }

    /// Returns whether no event can exist between `last` and the lowest event of `page`. The page was requested with the
    /// offset `from`.
    async fn is_closed(&mut self, page: &[RawEvent], from: Offset, last: Option<Offset>) -> Result<bool, ReadError> {
        let [lowest, rest @ ..] = page else { return Ok(true) };
        // If a page contains only one event although it has room for more, no other event exists.
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

/// Reads a range that polling does not return, in ascending order. The range ends with the lowest event that polling has
/// returned. The walk searches for the events in [`windows`](api::windows) of `created`.
///
/// * **From below the range.** The walk begins at a second at or before which no event of the range was created.
/// * **Events from before and after an error are not joined.** The service may have been restored from a backup in between.
/// * **In doubt until a later answer is complete.** If a window is in doubt, the next call requests it again. If a call is
///   cancelled, no event is lost.
#[derive(Debug)]
struct Walk {
    /// The range begins above this offset.
    above: Option<Offset>,
    /// The last offset of the range.
    top: Offset,
    /// Whether the walk has returned the event at `top`. Polling has shown it.
    has_top: bool,
    windows: Windows,
}

impl Walk {
    async fn begin(source: &dyn Source, above: Option<Offset>, top: Offset) -> Result<Self, ReadError> {
        // The whole range was created after `low`, and at least one of its events was created at or before `high`.
        let (mut low, mut high) = (BEFORE_TIME, END_OF_TIME);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let newest = source.created(None, middle, 1).await?.events.first().map(|event| event.offset);
            if newest > above { high = middle } else { low = middle }
        }
        let windows = Windows::new(Direction::Up, low, END_OF_TIME, MAX_PAGE, FIRST_SPAN);
        Ok(Self { above, top, has_top: false, windows })
    }

    /// Returns the next events of the range in ascending order: at least one, and at most `limit`. Returns `None` at the end
    /// of the range. After an error, the call must be repeated. If the events of one second exceed the memory, the walk must
    /// begin again.
    async fn next(&mut self, source: &dyn Source, limit: u16) -> Result<Option<Vec<RawEvent>>, ReadError> {
        loop {
            let ready = self.windows.take(limit);
            if let Some(last) = ready.last() {
                self.has_top |= last.offset == self.top;
                return Ok(Some(ready));
            }
            if self.windows.settled() >= Some(self.top) {
                return if self.has_top { Ok(None) } else { Err(self.in_doubt()) };
            }
            // All times were searched, but search did not return an event that polling has shown.
            let Some(window) = self.windows.next() else { return Err(self.in_doubt()) };
            let page = match source.created(Some(window.after), window.through, self.windows.limit()).await {
                Err(ApiError::TooLong { .. }) if self.windows.too_long(window).is_ok() => continue,
                Err(error) => {
                    if matches!(error, ApiError::Transient(TransientError::Timeout)) {
                        self.windows.timed_out();
                    }
                    self.windows.forget_unsettled();
                    return Err(error.into());
                }
                Ok(page) => page,
            };
            let in_range = |offset| Some(offset) > self.above && offset <= self.top;
            self.windows.read(window, page, in_range).map_err(|_| self.in_doubt())?;
        }
    }

    fn in_doubt(&self) -> ReadError {
        ReadError::InDoubt { above: self.windows.settled().max(self.above), below: self.top }
    }
}

/// Reads a past range of a channel in ascending order.
#[derive(Debug)]
pub struct History {
    reader: Reader,
    position: Option<Offset>,
    to: Offset,
}

impl History {
    /// Creates a reader for the range from the offset `from` to the offset `to`. Both are included.
    pub fn of(source: Arc<dyn Source>, from: Offset, to: Offset, page_limit: u16) -> Self {
        Self { reader: Reader::new(source, page_limit), position: from.before(), to }
    }

    /// Like [`next`](Self::next), but an empty list means that every event of the range was returned.
    ///
    /// # Errors
    /// Also [`ReadError::InDoubt`] if the service shows no event at the end of the range or above it: it may have lost events
    /// temporarily.
    pub(crate) async fn next_or_doubt(&mut self) -> Result<Vec<RawEvent>, ReadError> {
        let events = self.next().await?;
        if events.is_empty() && self.position < Some(self.to) {
            return Err(ReadError::InDoubt { above: self.position, below: self.to });
        }
        Ok(events)
    }

    /// Returns the next events in ascending order, at most one page. Returns an empty list at the end of the range.
    ///
    /// # Errors
    /// [`ReadError`] if nothing could be read. The caller must repeat the call later.
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

/// Returns a lower bound for the offsets of the events that were created at or after `since`, in Unix seconds.
///
/// # Errors
/// If the service does not answer.
pub async fn first_since(source: &dyn Source, since: i64) -> Result<Offset, ApiError> {
    // The order of the events by `created` may differ from their order by offset, by at most `SKEW` seconds.
    let before = source.created(None, since.saturating_sub(SKEW), 1).await?;
    Ok(after(before.events.first().map(|event| event.offset)))
}

/// Returns the offset after this one, or the smallest offset.
pub(crate) fn after(offset: Option<Offset>) -> Offset {
    offset.and_then(|offset| Offset::new(offset.get().saturating_add(1))).unwrap_or(Offset::ZERO)
}

#[cfg(test)]
mod tests;

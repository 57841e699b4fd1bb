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
//! * **One request when idle.**
//! * **Pages overlap what is known,** if the service shows it: each request starts one offset early. Such a page closes itself, and the events that were read before show whether the service's history is still the same (see `intake`).
//!
//! It relies on one thing that the service does not promise in words: a channel that begins with more than a page does not begin
//! with the offset 0 where `offset` excludes its own event. Events that become visible below those that were read are found by
//! [`gaps`](super::gaps).

use std::sync::Arc;

use crate::read::source::Source;
use crate::read::walk::Walk;
use crate::verify::expect::NotOfChannel;
use api::{ApiError, Page, SMALLEST_PAGE};
use proof::event::{Offset, RawEvent};

/// No more is asked for at once than is expected to be as long, in bytes.
const PAGE_BYTES: usize = 4 << 20;

/// Reads one channel upwards.
#[derive(Debug)]
pub(crate) struct Reader {
    source: Arc<dyn Source>,
    limit: u16,
    /// How long an event is, by the last page.
    event_bytes: usize,
    /// The service was seen to leave out older events: a probe for the lowest of them is in vain.
    shows_newest: bool,
    /// The last page showed nothing new and said that there is more: its overlap may have left no room for what is new.
    skips_overlap: bool,
    walk: Option<Walk>,
}

/// Every event between the last offset read and the highest of these.
#[derive(Debug)]
pub(crate) struct Range {
    /// Ascending.
    pub(crate) events: Vec<RawEvent>,
    /// Events that the page showed although they were read before, ascending.
    pub(crate) overlap: Vec<RawEvent>,
    /// Whether to ask for more at once.
    pub(crate) more: bool,
    /// Whether a walk read it, which shows nothing that was read before.
    pub(crate) is_walked: bool,
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
    /// Of a channel that has never had a verified event, none can be verified.
    #[error(
        "{rejected} of {events} events rejected ({reason}), and none of the channel verified before: nothing is quarantined yet; \
         check {}", what_to_check(.reason)
    )]
    NoneVerified {
        /// Those that are rejected.
        rejected: usize,
        /// All that were read.
        events: usize,
        /// Why the last of them is rejected.
        reason: &'static str,
    },
    /// The service's newest event is far above every other.
    #[error(
        "the event at offset {at} is far above every other, the last of which is at {above}: it is passed once another \
         one follows it; if the service means it, run `channeld cursor set`"
    )]
    FarAbove {
        /// The last offset below it.
        above: Offset,
        /// Its own.
        at: Offset,
    },
}

/// Which keys of the configuration may be wrong where nothing is verified.
pub fn what_to_check(reason: &str) -> &'static str {
    if NotOfChannel::reasons().any(|known| known == reason) {
        return "the channel's id and its `expect`: `channeld channels pin` shows what its events name";
    }
    "valid_signers, min_required_signatures and the workflow owner"
}

impl ReadError {
    /// A short constant name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Api(error) => error.kind(),
            Self::InDoubt { .. } => "range-in-doubt",
            Self::FarAbove { .. } => "far-above",
            Self::NoneVerified { .. } => "none-verified",
        }
    }

    /// Whether it is expected to heal by itself.
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

    /// The next events above `last`, which may be none. `last` is where the range before ended.
    ///
    /// # Errors
    /// [`ReadError`]: ask again later, nothing has been read.
    pub(crate) async fn next(&mut self, last: Option<Offset>) -> Result<Range, ReadError> {
        if let Some(walk) = &mut self.walk {
            let next = walk.next(&*self.source, self.limit).await;
            if let Ok(Some(events)) = next {
                return Ok(Range { events, overlap: Vec::new(), more: true, is_walked: true });
            }
            // It begins anew after an error for want of memory, because its events take memory that others may wait for, and if
            // search does not have an event that polling has shown, because the service may have lost it.
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
            // Its memory is given back before more is asked for.
            range.events.clear();
            (range, closed) = self.page(early, last).await?;
        }
        if let Some(lowest) = range.events.first().filter(|_| !closed).map(|lowest| lowest.offset) {
            // Before more is asked for, the page's memory is given back.
            range = Range { events: Vec::new(), more: true, ..range };
            self.walk = Some(Walk::begin(&*self.source, last, lowest).await?);
        }
        Ok(range)
    }

    /// A page, and how many events were asked for: as many as there is memory for.
    async fn poll(&mut self, offset: Option<Offset>) -> Result<(Page, u16), ReadError> {
        loop {
            let fit = self.source.room().min(PAGE_BYTES) / self.event_bytes.max(1);
            let limit = u16::try_from(fit).unwrap_or(u16::MAX).clamp(SMALLEST_PAGE, self.limit);
            match self.source.poll(offset, limit).await {
                // The smallest page is read however long it is.
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

    /// The part of a page above `last`, and whether nothing can lie between the two.
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

    /// Every event of the channel, where one page holds them; asked for first, because a page that is asked for later by an
    /// offset can have other events. Where `offset` excludes its own event, an offset of 0 excludes
    /// the event 0; a poll without an offset gives the latest events, and so all of a short channel.
    async fn all(&mut self) -> Result<Option<Range>, ReadError> {
        let (Page { mut events, has_more }, limit) = self.poll(None).await?;
        if events.len() >= usize::from(limit) || has_more {
            return Ok(None);
        }
        events.reverse();
        Ok(Some(Range { events, overlap: Vec::new(), more: false, is_walked: false }))
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

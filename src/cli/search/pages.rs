//! All that matches, page by page, newest first.
//!
//! What `offset` means on a search is not documented, so pages are reached by time: after a page that was cut off, the
//! next one is asked for with `created.lte`. When exactly an event was created is not known either, only that it is
//! close to its payload's timestamp. Therefore the time is found by trying: a window is right when its page has both
//! the last event already returned, so that nothing lies between, and an older one, so that it goes on.
//!
//! # Invariants
//!
//! * **No gap.** A page counts only if it repeats the end of what has been returned without a hole. Events are found in
//!   this way as long as the service creates them in the order of their offsets, give or take what windows overlap:
//!   [`MARGIN`], or about half a page where that is less.
//! * **No repeat.** Only what lies below the last returned offset is returned.
//! * **The end is known, not guessed.** Whether `has_more` speaks of older events is found out by asking for one event
//!   where two are known. If it does, it alone says whether a page is cut off; if not, a full page is.
//! * **An end, always.** Each try halves or doubles a step; where no window does, the search ends with
//!   [`PagesError::Crowded`] and says down to where it is complete.
//! * **Bounded.** One page, and the offsets of the one before it.

use super::window::{MARGIN, Window, earliest, latest};
use crate::api::{ApiError, Client, Filter, Page};
use crate::cli::exit::Failure;
use crate::event::{ChannelId, Event, Offset, RawEvent};

/// Why the pages end before everything has been returned.
#[derive(Debug, thiserror::Error)]
pub enum PagesError {
    /// The service did not answer as it should.
    #[error("the search stopped{}", .down_to.map(|offset| format!(" after offset {offset}, down to which it is complete")).unwrap_or_default())]
    Api {
        /// The last offset returned.
        down_to: Option<Offset>,
        /// What the service said.
        #[source]
        source: ApiError,
    },
    /// More events in one second than a page holds: no window of time tells them apart.
    #[error(
        "the search is complete down to offset {down_to} and cannot go on: more than {limit} events were created in one \
         second there, and time cannot tell them apart. Narrower filters can, such as --type, --address or --status"
    )]
    Crowded {
        /// The last offset returned.
        down_to: Offset,
        /// The events of a page.
        limit: u16,
    },
}

impl From<PagesError> for Failure {
    fn from(error: PagesError) -> Self {
        let doing = error.to_string();
        match error {
            PagesError::Api { source, .. } => Self::Api { doing, source },
            PagesError::Crowded { .. } => Self::Failed(doing),
        }
    }
}

/// Goes back through everything that matches a filter.
#[derive(Debug)]
pub struct Pages<'a> {
    client: &'a Client,
    channel: ChannelId,
    filter: Filter,
    limit: u16,
    /// Whether `has_more` speaks of older events.
    has_more_is_older: bool,
    /// How far beyond the payload's time the next window should reach, by what was right for the last.
    margin: Option<i64>,
    state: State,
}

#[derive(Debug)]
enum State {
    Start,
    /// Events may be left below the last page.
    Within(Last),
    End,
}

/// What is known of the last page that counted.
#[derive(Debug)]
struct Last {
    /// Its offsets, descending, without the lowest.
    above: Vec<Offset>,
    /// Its lowest offset.
    lowest: Offset,
    /// The payload's time of its lowest event that has one.
    time: Option<i64>,
    /// The seconds between that and the time of its highest event that has one.
    span: i64,
    /// The window that gave it; none before the first.
    window: Option<i64>,
}

impl Last {
    /// `None` for a page without events.
    fn of(page: &Page, window: Option<i64>) -> Option<Self> {
        let (lowest, above) = page.events.split_last()?;
        let oldest = page.events.iter().rev().find_map(time);
        let newest = page.events.iter().find_map(time);
        let span = newest.unwrap_or_default().saturating_sub(oldest.unwrap_or_default()).max(0);
        let above = above.iter().map(|event| event.offset).collect();
        Some(Self { above, lowest: lowest.offset, time: oldest, span, window })
    }

    /// The search for the window below this page.
    fn window_after(&self, floor: i64, margin: Option<i64>) -> Window {
        Window::new(floor, self.window, self.time, self.span, margin)
    }

    /// Whether a page repeats the end of this one, from the lowest offset up without a hole.
    ///
    /// At its upper edge there may be holes: events created out of order, some in the window and some after it. That
    /// edge shows how deep the disorder goes, so what is repeated in full below it must be as long at least: then the
    /// disorder does not reach down to what has not been returned.
    fn is_repeated_by(&self, page: &Page) -> bool {
        let Some(top) = page.events.first() else { return false };
        let returned = std::iter::once(self.lowest).chain(self.above.iter().rev().copied());
        let returned: Vec<Offset> = returned.take_while(|&offset| offset <= top.offset).collect();
        let offsets = page.events.iter().rev().map(|event| event.offset);
        let repeated = offsets.skip_while(|&offset| offset < self.lowest).zip(&returned);
        let in_full = repeated.take_while(|(offset, returned)| offset == *returned).count();
        in_full > 0 && in_full * 2 >= returned.len()
    }
}

/// What a window's page is good for.
enum Seen {
    /// It repeats the end of what has been returned, and goes on.
    GoesOn,
    /// It does not reach up to what has been returned.
    TooEarly,
    /// It holds nothing older, because it is cut off before that.
    TooLate,
    /// It holds nothing older, and all that there is.
    Nothing,
}

impl<'a> Pages<'a> {
    /// Everything in `channel` that matches `filter`, asked for `limit` at a time. One at a time would leave no room for
    /// the repeated event, so at least two are asked for.
    #[must_use]
    pub fn new(client: &'a Client, channel: ChannelId, filter: Filter, limit: u16) -> Self {
        Self {
            client,
            channel,
            filter,
            limit: limit.max(2),
            has_more_is_older: true,
            margin: None,
            state: State::Start,
        }
    }

    /// The next events, older than all before them, in descending order. `None` at the end.
    ///
    /// # Errors
    /// [`PagesError`], after which there is nothing more to ask.
    pub async fn next(&mut self) -> Result<Option<Vec<RawEvent>>, PagesError> {
        match std::mem::replace(&mut self.state, State::End) {
            State::Start => self.first().await,
            State::Within(last) => self.below(&last).await,
            State::End => Ok(None),
        }
    }

    async fn first(&mut self) -> Result<Option<Vec<RawEvent>>, PagesError> {
        let page = self.ask(None, self.limit, None).await?;
        let perhaps_cut_off = page.has_more || self.is_full(&page);
        if perhaps_cut_off && page.events.len() > 1 {
            let one = self.ask(None, 1, None).await?;
            self.has_more_is_older = one.has_more;
        }
        let window = latest(&self.filter);
        Ok(self.take(page, None, window))
    }

    /// Finds the window in which events older than the last page appear together with its end.
    async fn below(&mut self, last: &Last) -> Result<Option<Vec<RawEvent>>, PagesError> {
        let mut search = last.window_after(earliest(&self.filter), self.margin);
        while let Some(at) = search.at() {
            let page = self.ask(Some(at), self.limit, Some(last.lowest)).await?;
            match self.look(&page, last) {
                Seen::GoesOn => {
                    self.learn(at, &page, last);
                    return Ok(self.take(page, Some(last.lowest), Some(at)));
                }
                Seen::Nothing => return Ok(None),
                Seen::TooEarly => search.too_early(at),
                Seen::TooLate => search.too_late(at),
            }
        }
        Err(PagesError::Crowded { down_to: last.lowest, limit: self.limit })
    }

    fn look(&self, page: &Page, last: &Last) -> Seen {
        let goes_on = page.events.last().is_some_and(|event| event.offset < last.lowest);
        match (last.is_repeated_by(page), goes_on, self.is_cut_off(page)) {
            (true, true, _) => Seen::GoesOn,
            (true, false, false) => Seen::Nothing,
            // Cut off at the end of what has been returned, or above it.
            (_, false, true) => Seen::TooLate,
            // Below that end, or with a hole above it.
            (false, true, _) | (false, false, false) => Seen::TooEarly,
        }
    }

    /// Keeps how far the window reached: less where most of its page was a repetition, more where little was.
    fn learn(&mut self, at: i64, page: &Page, last: &Last) {
        let Some(time) = last.time else { return };
        let (reached, quarter) = (at.saturating_sub(time), last.span / 4 + 1);
        let new = page.events.iter().filter(|event| event.offset < last.lowest).count();
        self.margin = Some(match new * 4 / page.events.len() {
            0 => reached.saturating_sub(quarter),
            3.. if reached < MARGIN => reached.saturating_add(quarter).min(MARGIN),
            _ => reached,
        });
    }

    /// Whether older events may match that the page does not hold.
    fn is_cut_off(&self, page: &Page) -> bool {
        if self.has_more_is_older { page.has_more } else { self.is_full(page) }
    }

    fn is_full(&self, page: &Page) -> bool {
        page.events.len() >= usize::from(self.limit)
    }

    async fn ask(&self, window: Option<i64>, limit: u16, down_to: Option<Offset>) -> Result<Page, PagesError> {
        let mut filter = self.filter.clone();
        if window.is_some() {
            (filter.created.lt, filter.created.lte) = (None, window);
        }
        let page = self.client.search(self.channel, &filter, limit, None).await;
        page.map_err(|source| PagesError::Api { down_to, source })
    }

    /// What of a page is new, keeping what the next one is held against.
    fn take(&mut self, page: Page, below: Option<Offset>, window: Option<i64>) -> Option<Vec<RawEvent>> {
        if self.is_cut_off(&page) {
            self.state = Last::of(&page, window).map_or(State::End, State::Within);
        }
        let mut events = page.events;
        events.retain(|event| below.is_none_or(|below| event.offset < below));
        (!events.is_empty()).then_some(events)
    }
}

/// An event's time by its payload.
fn time(event: &RawEvent) -> Option<i64> {
    Event::parse(event.json.clone()).ok()?.timestamp()
}

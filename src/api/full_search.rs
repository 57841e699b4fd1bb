//! A search for all events that match a filter, newest first.
//!
//! The service does not document the parameter `offset` of a search. After the first page, the search therefore continues
//! down through windows of `created`: see [`windows`](super::windows) for the invariants.
//!
//! # Invariants
//!
//! * **No event is returned twice, and none is silently skipped.** If the search cannot continue, it ends with an error.
//! * **Bounded.** Memory contains one page, and the events that a [`Windows`] walk stores.

use super::windows::{BEFORE_TIME, Direction, END_OF_TIME, InDoubt, SKEW, TimeWindow, Windows};
use super::{ApiError, Client, Created, Filter, Page};
use proof::event::{ChannelId, Event, Offset, RawEvent};

/// Why a search stopped before it had found every event.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// A request failed.
    #[error("the search stopped{}", complete(*.down_to))]
    Api {
        /// The results are complete down to this offset. `None` if the first request failed.
        down_to: Option<Offset>,
        /// The reason.
        #[source]
        error: ApiError,
    },
    /// An event could be missed.
    #[error("the search stopped{}: {}", complete(Some(*.down_to)), explained(*.doubt, *.limit))]
    InDoubt {
        /// The results are complete down to this offset.
        down_to: Offset,
        /// The reason.
        doubt: InDoubt,
        /// How many events a page has.
        limit: u16,
    },
}

fn complete(down_to: Option<Offset>) -> String {
    down_to.map(|offset| format!(", and its results are complete down to offset {offset}")).unwrap_or_default()
}

fn explained(doubt: InDoubt, limit: u16) -> String {
    match doubt {
        InDoubt::Crowded => format!(
            "more than {limit} of the next events were created in the same second, so times cannot separate them"
        ),
        InDoubt::Disordered => {
            format!("below this offset, the order of times differs from the order of offsets by more than {SKEW} s")
        }
    }
}

/// A search for all events of a channel that match a filter.
pub struct FullSearch {
    client: Client,
    channel: ChannelId,
    filter: Filter,
    limit: u16,
    /// The lowest offset that was returned.
    down_to: Option<Offset>,
    progress: Progress,
}

enum Progress {
    Begin,
    Walking(Walk),
    Done,
}

/// The search below the first page.
struct Walk {
    windows: Windows,
    /// Events at this offset and above were on the first page.
    below: Offset,
    /// The time near which the walk begins. `None` after it has begun.
    begin: Option<i64>,
}

impl FullSearch {
    /// A search that requests `limit` events at a time, but at least two. Nothing is requested yet.
    pub fn new(client: Client, channel: ChannelId, filter: Filter, limit: u16) -> Self {
        Self { client, channel, filter, limit: limit.max(2), down_to: None, progress: Progress::Begin }
    }

    /// Returns the next events in descending order, or `None` after the last one. All of them are older than the events of
    /// previous calls.
    ///
    /// # Errors
    /// [`SearchError`]. The search cannot be continued.
    pub async fn next(&mut self) -> Result<Option<Vec<RawEvent>>, SearchError> {
        match std::mem::replace(&mut self.progress, Progress::Done) {
            Progress::Begin => self.first().await,
            Progress::Walking(walk) => self.walk(walk).await,
            Progress::Done => Ok(None),
        }
    }

    async fn first(&mut self) -> Result<Option<Vec<RawEvent>>, SearchError> {
        let first = self.page(self.filter.clone()).await?;
        let Some(lowest) = first.events.last().map(|event| event.offset) else { return Ok(None) };
        let (newest, oldest) = (first.events.iter().find_map(time), first.events.iter().rev().find_map(time));
        let has_more = first.has_more || first.events.len() >= usize::from(self.limit);
        self.down_to = Some(lowest);
        if has_more {
            // Slightly less than the time span of a full page.
            let span =
                newest.unwrap_or_default().saturating_sub(oldest.unwrap_or_default()).clamp(1, END_OF_TIME) * 3 / 4;
            let (latest, earliest) = bounds(self.filter.created);
            let windows = Windows::new(Direction::Down, latest, earliest, self.limit, span);
            let begin = oldest.unwrap_or(earliest).max(earliest).min(latest);
            self.progress = Progress::Walking(Walk { windows, below: lowest, begin: Some(begin) });
        }
        Ok(Some(first.events))
    }

    async fn walk(&mut self, mut walk: Walk) -> Result<Option<Vec<RawEvent>>, SearchError> {
        if let Some(begin) = walk.begin.take() {
            self.go_near(&mut walk, begin).await?;
        }
        loop {
            let ready = walk.windows.take(self.limit);
            if let Some(last) = ready.last() {
                self.down_to = Some(last.offset);
                self.progress = Progress::Walking(walk);
                return Ok(Some(ready));
            }
            let Some(window) = walk.windows.next() else { return Ok(None) };
            if self.read(&mut walk, window).await? == Ok(0) {
                self.skip(&mut walk).await?;
            }
        }
    }

    /// Moves the search down to slightly above the events that were created at `time`.
    async fn go_near(&self, walk: &mut Walk, time: i64) -> Result<(), SearchError> {
        let mut reach = SKEW;
        while let Some(window) = walk.windows.to(time.saturating_add(reach))
            && self.read(walk, window).await?.is_err()
        {
            reach *= 2;
        }
        Ok(())
    }

    /// Continues after an empty window: reads all remaining events if they fit on one page, otherwise moves near the next
    /// event.
    async fn skip(&self, walk: &mut Walk) -> Result<(), SearchError> {
        let Some(rest) = walk.windows.to(BEFORE_TIME) else { return Ok(()) };
        match self.read(walk, rest).await? {
            Err(Some(newest)) => self.go_near(walk, newest).await,
            _ => Ok(()),
        }
    }

    /// Reads a window. The inner `Ok` is the number of events in the window. If these events do not fit on one page,
    /// the inner `Err` is the time of the newest event.
    async fn read(&self, walk: &mut Walk, window: TimeWindow) -> Result<Result<usize, Option<i64>>, SearchError> {
        let page = self.page(Filter { created: within(window, self.filter.created), ..self.filter.clone() }).await?;
        let (count, newest, below) = (page.events.len(), page.events.iter().find_map(time), walk.below);
        let whole = walk.windows.read(window, page, |offset| offset < below);
        let in_doubt =
            |doubt| SearchError::InDoubt { down_to: self.down_to.unwrap_or(below), doubt, limit: self.limit };
        Ok(if whole.map_err(in_doubt)? { Ok(count) } else { Err(newest) })
    }

    async fn page(&self, filter: Filter) -> Result<Page, SearchError> {
        let page = self.client.search(self.channel, &filter, self.limit, None).await;
        page.map_err(|error| SearchError::Api { down_to: self.down_to, error })
    }
}

/// Returns the second at which a walk through the filter's events begins, and the second at which it ends.
fn bounds(Created { gt, gte, lt, lte }: Created) -> (i64, i64) {
    let latest = lte.unwrap_or(END_OF_TIME).min(lt.unwrap_or(END_OF_TIME));
    let earliest = gt.unwrap_or(BEFORE_TIME).max(gte.map_or(BEFORE_TIME, |gte| gte.saturating_sub(1)));
    (latest.min(END_OF_TIME), earliest.max(BEFORE_TIME))
}

/// Returns the bounds of a window, limited by the bounds of the filter.
///
/// Two adjacent windows share an edge: the lower window includes it, and the upper window excludes it. Bounds that are one
/// second apart would skip events between them if the service compares fractions of a second. At most one lower and one
/// upper bound are sent, because the service does not document how it combines them.
fn within(window: TimeWindow, Created { gte, lt, .. }: Created) -> Created {
    let gte = gte.filter(|gte| *gte > window.after);
    let lt = lt.filter(|lt| *lt <= window.through);
    let gt = (gte.is_none() && window.after > BEFORE_TIME).then_some(window.after);
    Created { gt, gte, lt, lte: lt.is_none().then_some(window.through) }
}

fn time(event: &RawEvent) -> Option<i64> {
    Event::parse(event.json.clone()).ok()?.payload.timestamp
}

//! Reads all matching events, page by page, newest first.
//!
//! The meaning of `offset` on a search is not documented, so older events are reached by time: after the first page, a walk
//! goes down through windows of `created`. See [`windows`](api::windows) for its invariants.

use crate::cli::connect::Connection;
use crate::cli::exit::{Exit, Failure};
use api::windows::{BEFORE_TIME, Direction, END_OF_TIME, InDoubt, SKEW, Window, Windows};
use api::{Created, Filter, Page};
use proof::event::{Event, Offset, RawEvent};

/// Passes all events that match `filter` to `found`. Requests `limit` events at a time, but at least two.
///
/// Each call of `found` receives events that are older than all previous events, in descending order.
pub(super) async fn all(
    connection: &Connection,
    filter: &Filter,
    limit: u16,
    mut found: impl AsyncFnMut(Vec<RawEvent>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let limit = limit.max(2);
    let first = ask(connection, filter, limit, None).await?;
    let Some(lowest) = first.events.last().map(|event| event.offset) else { return Ok(()) };
    let more = first.has_more || first.events.len() >= usize::from(limit);
    let (newest, oldest) = (first.events.iter().find_map(time), first.events.iter().rev().find_map(time));
    found(first.events).await?;
    if !more {
        return Ok(());
    }
    // Slightly less than the time span of a full page.
    let span = newest.unwrap_or_default().saturating_sub(oldest.unwrap_or_default()).clamp(1, END_OF_TIME) * 3 / 4;
    let (latest, earliest) = bounds(filter.created);
    let windows = Windows::new(Direction::Down, latest, earliest, limit, span);
    let mut walk = Walk { connection, filter, limit, windows, below: lowest, down_to: lowest };
    walk.go_near(oldest.unwrap_or(earliest).max(earliest).min(latest)).await?;
    loop {
        let ready = walk.windows.take(limit);
        if let Some(last) = ready.last() {
            walk.down_to = last.offset;
            found(ready).await?;
            continue;
        }
        let Some(window) = walk.windows.next() else { return Ok(()) };
        if walk.read(window).await? == Ok(0) {
            walk.skip().await?;
        }
    }
}

/// The walk below the first page.
struct Walk<'a> {
    connection: &'a Connection,
    filter: &'a Filter,
    limit: u16,
    windows: Windows,
    /// Events at this offset and above were on the first page.
    below: Offset,
    /// The last offset found, which is the lowest.
    down_to: Offset,
}

impl Walk<'_> {
    /// Moves the walk down to slightly above the events that were created at `time`.
    async fn go_near(&mut self, time: i64) -> Result<(), Failure> {
        let mut reach = SKEW;
        while let Some(window) = self.windows.to(time.saturating_add(reach))
            && self.read(window).await?.is_err()
        {
            reach *= 2;
        }
        Ok(())
    }

    /// After an empty window: reads all remaining events if they fit on one page, otherwise moves near the next event.
    async fn skip(&mut self) -> Result<(), Failure> {
        let Some(rest) = self.windows.to(BEFORE_TIME) else { return Ok(()) };
        match self.read(rest).await? {
            Err(Some(newest)) => self.go_near(newest).await,
            _ => Ok(()),
        }
    }

    /// The number of events in a window or, if its page is cut, the time of the newest event.
    async fn read(&mut self, window: Window) -> Result<Result<usize, Option<i64>>, Failure> {
        let created = Created { gte: Some(window.after + 1), lte: Some(window.through), ..Created::default() };
        let filter = Filter { created, ..self.filter.clone() };
        let page = ask(self.connection, &filter, self.limit, Some(self.down_to)).await?;
        let (count, newest, below) = (page.events.len(), page.events.iter().find_map(time), self.below);
        let whole = self.windows.read(window, page, |offset| offset < below).map_err(|doubt| self.in_doubt(doubt))?;
        Ok(if whole { Ok(count) } else { Err(newest) })
    }

    fn in_doubt(&self, doubt: InDoubt) -> Failure {
        let Self { limit, down_to, .. } = self;
        let why = match doubt {
            InDoubt::Crowded => {
                format!("more than {limit} events were created in one second there, and time cannot tell them apart")
            }
            InDoubt::Disordered => {
                format!("below it, events were created in another order than their offsets, more than {SKEW} s apart")
            }
        };
        Failure(
            Exit::Failed,
            format!(
                "the search is complete down to offset {down_to} and cannot go on: {why}. Narrower filters can, such as \
             --type, --address or --status"
            ),
        )
    }
}

async fn ask(connection: &Connection, filter: &Filter, limit: u16, down_to: Option<Offset>) -> Result<Page, Failure> {
    let page = connection.client.search(connection.channel.id, filter, limit, None).await;
    let complete = down_to.map(|offset| format!(" after offset {offset}, down to which it is complete"));
    page.map_err(Failure::api(format!("the search stopped{}", complete.unwrap_or_default())))
}

/// The latest second that the filter allows, and the latest second before everything that it allows.
fn bounds(Created { gt, gte, lt, lte }: Created) -> (i64, i64) {
    let latest = lte.unwrap_or(END_OF_TIME).min(lt.map_or(END_OF_TIME, |lt| lt.saturating_sub(1)));
    let earliest = gt.unwrap_or(BEFORE_TIME).max(gte.map_or(BEFORE_TIME, |gte| gte.saturating_sub(1)));
    (latest.min(END_OF_TIME), earliest.max(BEFORE_TIME))
}

/// The time in an event's payload.
pub(super) fn time(event: &RawEvent) -> Option<i64> {
    Event::parse(event.json.clone()).ok()?.payload.timestamp
}

//! All that matches, page by page, newest first.
//!
//! What `offset` means on a search is not documented, so older events are reached by time: after the first page a walk goes
//! down through windows of `created`. See [`windows`](crate::api::windows) for its invariants.

use crate::api::windows::{BEFORE_TIME, Direction, END_OF_TIME, InDoubt, SKEW, Window, Windows};
use crate::api::{Client, Created, Filter, Page};
use crate::cli::exit::Failure;
use crate::event::{ChannelId, Event, Offset, RawEvent};

/// Goes back through everything that matches a filter.
#[derive(Debug)]
pub struct Pages<'a> {
    client: &'a Client,
    channel: ChannelId,
    filter: Filter,
    limit: u16,
    state: State,
}

#[derive(Debug)]
enum State {
    Start,
    /// The first page was full: the walk begins below it.
    Below(First),
    Walking(Box<Walk>),
    End,
}

/// What the walk needs of the first page.
#[derive(Debug)]
struct First {
    /// Its lowest offset.
    lowest: Offset,
    /// The payload's time of its lowest event that has one.
    time: Option<i64>,
    /// The seconds between that and the time of its highest event that has one.
    span: i64,
}

#[derive(Debug)]
struct Walk {
    windows: Windows,
    /// Events from here on were on the first page.
    below: Offset,
    /// The last offset returned.
    down_to: Offset,
}

impl<'a> Pages<'a> {
    /// Everything in `channel` that matches `filter`, asked for `limit` at a time, but at least two.
    #[must_use]
    pub fn new(client: &'a Client, channel: ChannelId, filter: Filter, limit: u16) -> Self {
        Self { client, channel, filter, limit: limit.max(2), state: State::Start }
    }

    /// The next events, older than all before them, in descending order. `None` at the end.
    ///
    /// # Errors
    /// [`Failure`], after which there is nothing more to ask.
    pub async fn next(&mut self) -> Result<Option<Vec<RawEvent>>, Failure> {
        let walk = match std::mem::replace(&mut self.state, State::End) {
            State::Start => return self.first().await,
            State::Below(first) => self.begin(&first).await?,
            State::Walking(walk) => *walk,
            State::End => return Ok(None),
        };
        self.walk(walk).await
    }

    async fn first(&mut self) -> Result<Option<Vec<RawEvent>>, Failure> {
        let page = self.ask(&self.filter, None).await?;
        let Some(lowest) = page.events.last().map(|event| event.offset) else { return Ok(None) };
        if page.has_more || page.events.len() >= usize::from(self.limit) {
            let oldest = page.events.iter().rev().find_map(time);
            let newest = page.events.iter().find_map(time);
            let span = newest.unwrap_or_default().saturating_sub(oldest.unwrap_or_default()).clamp(1, END_OF_TIME);
            self.state = State::Below(First { lowest, time: oldest, span });
        }
        Ok(Some(page.events))
    }

    /// Looks for a second after which only events of the first page were created.
    async fn begin(&self, first: &First) -> Result<Walk, Failure> {
        let (newest, oldest) = (latest(&self.filter), earliest(&self.filter));
        // A little less than the seconds of a full page.
        let windows = Windows::new(Direction::Down, newest, oldest, self.limit, first.span * 3 / 4);
        let mut walk = Walk { windows, below: first.lowest, down_to: first.lowest };
        let time = first.time.unwrap_or(oldest).max(oldest).min(newest);
        let mut reach = SKEW;
        while let Some(window) = walk.windows.to(time.saturating_add(reach)) {
            if self.read(&mut walk, window).await?.is_some() {
                break;
            }
            reach *= 2;
        }
        Ok(walk)
    }

    async fn walk(&mut self, mut walk: Walk) -> Result<Option<Vec<RawEvent>>, Failure> {
        loop {
            let ready = walk.windows.take(self.limit);
            if let Some(last) = ready.last() {
                walk.down_to = last.offset;
                self.state = State::Walking(Box::new(walk));
                return Ok(Some(ready));
            }
            let Some(window) = walk.windows.next() else { return Ok(None) };
            if self.read(&mut walk, window).await? == Some(0) {
                self.skip(&mut walk).await?;
            }
        }
    }

    /// After an empty window: reads all that is left where it fits on a page, or else goes near the next event.
    async fn skip(&self, walk: &mut Walk) -> Result<(), Failure> {
        let Some(rest) = walk.windows.to(BEFORE_TIME) else { return Ok(()) };
        let page = self.created(rest, walk.down_to).await?;
        let newest = page.events.iter().find_map(time);
        if self.take(walk, rest, page)?.is_none()
            && let Some(near) = newest.and_then(|time| walk.windows.to(time.saturating_add(SKEW)))
        {
            self.read(walk, near).await?;
        }
        Ok(())
    }

    /// How many events a window has; `None` where its page is cut.
    async fn read(&self, walk: &mut Walk, window: Window) -> Result<Option<usize>, Failure> {
        let page = self.created(window, walk.down_to).await?;
        self.take(walk, window, page)
    }

    fn take(&self, walk: &mut Walk, window: Window, page: Page) -> Result<Option<usize>, Failure> {
        let (count, below, down_to) = (page.events.len(), walk.below, walk.down_to);
        let whole = walk.windows.read(window, page, |offset| offset < below).map_err(|doubt| {
            let why = match doubt {
                InDoubt::Crowded => format!(
                    "more than {} events were created in one second there, and time cannot tell them apart",
                    self.limit
                ),
                InDoubt::Disordered => {
                    format!("below it, events were created in another order than their offsets, more than {SKEW} s apart")
                }
            };
            Failure::Failed(format!(
                "the search is complete down to offset {down_to} and cannot go on: {why}. Narrower filters can, such as \
                 --type, --address or --status"
            ))
        })?;
        Ok(whole.then_some(count))
    }

    async fn created(&self, Window { after, through }: Window, down_to: Offset) -> Result<Page, Failure> {
        let created = Created { gte: Some(after + 1), lte: Some(through), ..Created::default() };
        self.ask(&Filter { created, ..self.filter.clone() }, Some(down_to)).await
    }

    async fn ask(&self, filter: &Filter, down_to: Option<Offset>) -> Result<Page, Failure> {
        let page = self.client.search(self.channel, filter, self.limit, None).await;
        let complete = down_to.map(|offset| format!(" after offset {offset}, down to which it is complete"));
        page.map_err(Failure::api(format!("the search stopped{}", complete.unwrap_or_default())))
    }
}

/// The latest second that the filter allows.
fn latest(filter: &Filter) -> i64 {
    let before = filter.created.lt.map(|lt| lt.saturating_sub(1));
    filter.created.lte.into_iter().chain(before).chain([END_OF_TIME]).min().unwrap_or(END_OF_TIME)
}

/// The latest second that is before all that the filter allows.
fn earliest(filter: &Filter) -> i64 {
    let from = filter.created.gte.map(|gte| gte.saturating_sub(1));
    filter.created.gt.into_iter().chain(from).chain([BEFORE_TIME]).max().unwrap_or(BEFORE_TIME)
}

/// An event's time by its payload.
fn time(event: &RawEvent) -> Option<i64> {
    Event::parse(event.json.clone()).ok()?.payload.timestamp
}

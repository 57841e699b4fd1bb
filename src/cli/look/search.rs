//! `channeld search`: searches events by filters, and prints each event with the verdict on its proof.
//!
//! # Invariants
//!
//! * **Invalid filters are refused here**, before any request is sent.
//! * **No event is returned twice, and none is silently skipped**, even with `--all`. The service does not document the
//!   parameter `offset` of a search. `--all` therefore requests older events by their time: after the first page, the search
//!   continues down through windows of `created`. See [`windows`](api::windows) for the invariants.
//! * **Bounded.** Only one page is in memory at a time.

use crate::cli::context::{CommandError, Connection, Context, Exit};
use crate::cli::terminal::progress::ProgressBar;
use crate::cli::verdict_line;
use api::windows::{BEFORE_TIME, Direction, END_OF_TIME, InDoubt, SKEW, TimeWindow, Windows};
use api::{Created, Filter, MAX_PAGE, Page};
use proof::event::{Event, Offset, RawEvent};
use proof::verify::Verdict;

mod found;
#[cfg(test)]
mod tests;

use found::Found;

const DEFAULT_LIMIT: u16 = 50;

/// Search a channel's events, newest first, and verify each proof.
///
/// The last line counts the events by their verdicts. On a terminal, no line is wider than the terminal, and a result that is
/// longer than the screen is shown in a pager: $PAGER, or less.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld search settlements --created-gte 1h
  channeld search settlements --type operation.status --status failed --all
  channeld search settlements --all --reason too-few-signatures
  channeld search settlements --all --json > settlements.jsonl")]
pub(crate) struct Args {
    /// The channel: its name in the configuration, or its UUID.
    pub(crate) channel: String,
    #[command(flatten)]
    filter: Filter,
    /// Number of events per page, 1 to 200 [default: 50, with --all 200].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_PAGE)))]
    limit: Option<u16>,
    /// Send this offset to the service unchanged. Its meaning in a search is not documented.
    #[arg(long)]
    offset: Option<Offset>,
    /// Request all older pages too, until every matching event is printed.
    #[arg(long, conflicts_with = "offset")]
    all: bool,
    /// Print only events that were rejected for this reason, such as `too-few-signatures`. A page can then have fewer events.
    #[arg(long)]
    reason: Option<String>,
    /// Print one JSON object per line, the record of each event.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Whether the command prints a list for people.
    pub(crate) fn is_list(&self) -> bool {
        !self.json
    }

    /// Whether an event with this verdict is printed.
    fn is_wanted(&self, verdict: &Verdict) -> bool {
        self.reason
            .as_ref()
            .is_none_or(|wanted| matches!(verdict, Verdict::Rejected(_, reason) if reason.name() == wanted))
    }
}

/// The progress of a search with `--all`: by time if the filter has a lower bound of time, otherwise by offset.
#[derive(Default)]
struct SearchProgress {
    /// The time of the first event if the filter has a lower bound of time, otherwise the offset of the first event.
    top: Option<i64>,
    share: f64,
    found: u64,
}

impl SearchProgress {
    /// Records the next events, which are older than the previous ones.
    fn advance(&mut self, created: &Created, events: &[RawEvent]) {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
        let bound = created.gte.or(created.gt);
        let position = |event: &RawEvent| if bound.is_some() { time(event) } else { Some(event.offset.get()) };
        self.found += u64::try_from(events.len()).unwrap_or_default();
        self.top = self.top.or_else(|| position(first));
        if let (Some(top), Some(now)) = (self.top, position(last)) {
            let bottom = bound.unwrap_or(0);
            #[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
            let share = top.saturating_sub(now) as f64 / top.saturating_sub(bottom).max(1) as f64;
            self.share = share;
        }
    }
}

/// Searches and writes the events that are found. With `--all`, events that were found before a failure are written.
pub(crate) async fn run(args: &Args, connection: &Connection, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let Connection { client, channel, verifier, .. } = connection;
    args.filter.check().map_err(CommandError::usage)?;
    let mut found = Found::none(args, channel);
    let mut write = async |found: &mut Found<'_>, events: Vec<RawEvent>| {
        let verdicts = verdict_line::verified(verifier, events).await;
        cx.say_lines(found.lines(&verdicts)).map(drop)
    };
    let mut has_more = false;
    if args.all {
        // A pager would share the terminal with the bar.
        let mut bar = (!found.is_paged()).then(ProgressBar::begin);
        let mut progress = SearchProgress::default();
        let each = async |events: Vec<RawEvent>| {
            bar.iter_mut().for_each(ProgressBar::hide);
            progress.advance(&args.filter.created, &events);
            write(&mut found, events).await?;
            if let Some(bar) = &mut bar {
                bar.tell_share(progress.share, progress.found);
            }
            Ok(())
        };
        read_all(connection, &args.filter, args.limit.unwrap_or(MAX_PAGE), each).await?;
    } else {
        let limit = args.limit.unwrap_or(DEFAULT_LIMIT);
        let doing = format!("channel {} could not be searched", channel.name);
        let page =
            client.search(channel.id, &args.filter, limit, args.offset).await.map_err(CommandError::api(doing))?;
        has_more = page.has_more;
        write(&mut found, page.events).await?;
    }
    if args.json {
        return Ok(Exit::Done);
    }
    let above = (found.total() > 0).then(String::new);
    cx.say_lines(above.into_iter().chain([found.summary(has_more)]))
}

/// Passes all events that match `filter` to `found`. Requests `limit` events at a time, but at least two.
///
/// Each call of `found` receives events in descending order, and all of them are older than the events of previous calls.
async fn read_all(
    connection: &Connection,
    filter: &Filter,
    limit: u16,
    mut found: impl AsyncFnMut(Vec<RawEvent>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
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

/// The search below the first page.
struct Walk<'a> {
    connection: &'a Connection,
    filter: &'a Filter,
    limit: u16,
    windows: Windows,
    /// Events at this offset and above were on the first page.
    below: Offset,
    /// The lowest offset that was found.
    down_to: Offset,
}

impl Walk<'_> {
    /// Moves the search down to slightly above the events that were created at `time`.
    async fn go_near(&mut self, time: i64) -> Result<(), CommandError> {
        let mut reach = SKEW;
        while let Some(window) = self.windows.to(time.saturating_add(reach))
            && self.read(window).await?.is_err()
        {
            reach *= 2;
        }
        Ok(())
    }

    /// Continues after an empty window: reads all remaining events if they fit on one page, otherwise moves near the next
    /// event.
    async fn skip(&mut self) -> Result<(), CommandError> {
        let Some(rest) = self.windows.to(BEFORE_TIME) else { return Ok(()) };
        match self.read(rest).await? {
            Err(Some(newest)) => self.go_near(newest).await,
            _ => Ok(()),
        }
    }

    /// Reads a window. The inner `Ok` is the number of events in the window. If these events do not fit on one page,
    /// the inner `Err` is the time of the newest event.
    async fn read(&mut self, window: TimeWindow) -> Result<Result<usize, Option<i64>>, CommandError> {
        let created = Created { gte: Some(window.after + 1), lte: Some(window.through), ..Created::default() };
        let filter = Filter { created, ..self.filter.clone() };
        let page = ask(self.connection, &filter, self.limit, Some(self.down_to)).await?;
        let (count, newest, below) = (page.events.len(), page.events.iter().find_map(time), self.below);
        let whole = self.windows.read(window, page, |offset| offset < below).map_err(|doubt| self.in_doubt(doubt))?;
        Ok(if whole { Ok(count) } else { Err(newest) })
    }

    fn in_doubt(&self, doubt: InDoubt) -> CommandError {
        let Self { limit, down_to, .. } = self;
        let why = match doubt {
            InDoubt::Crowded => {
                format!(
                    "more than {limit} of the next events were created in the same second, so times cannot separate them"
                )
            }
            InDoubt::Disordered => {
                format!("below this offset, the order of times differs from the order of offsets by more than {SKEW} s")
            }
        };
        CommandError::failed(format!(
            "the search stopped, and its results are complete down to offset {down_to}: {why}. Use a narrower filter, such \
             as --type, --address or --status"
        ))
    }
}

async fn ask(
    connection: &Connection,
    filter: &Filter,
    limit: u16,
    down_to: Option<Offset>,
) -> Result<Page, CommandError> {
    let page = connection.client.search(connection.channel.id, filter, limit, None).await;
    let complete = down_to.map(|offset| format!(", and its results are complete down to offset {offset}"));
    page.map_err(CommandError::api(format!("the search stopped{}", complete.unwrap_or_default())))
}

/// The latest second that the filter allows, and the second before the earliest second that the filter allows.
fn bounds(Created { gt, gte, lt, lte }: Created) -> (i64, i64) {
    let latest = lte.unwrap_or(END_OF_TIME).min(lt.map_or(END_OF_TIME, |lt| lt.saturating_sub(1)));
    let earliest = gt.unwrap_or(BEFORE_TIME).max(gte.map_or(BEFORE_TIME, |gte| gte.saturating_sub(1)));
    (latest.min(END_OF_TIME), earliest.max(BEFORE_TIME))
}

fn time(event: &RawEvent) -> Option<i64> {
    Event::parse(event.json.clone()).ok()?.payload.timestamp
}

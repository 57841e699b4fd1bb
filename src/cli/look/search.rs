//! `channeld search`: searches events by filters, and prints each event with the verdict on its proof.
//!
//! # Invariants
//!
//! * **Invalid filters are refused here**, before any request is sent.
//! * **No event is returned twice, and none is silently skipped**, even with `--all`: see [`FullSearch`].
//! * **Bounded.** Only one page is in memory at a time.

use crate::cli::context::{CommandError, Connection, Context, Exit};
use crate::cli::terminal::progress::ProgressBar;
use crate::cli::verdict_line;
use api::{Created, Filter, FullSearch, MAX_PAGE, SearchError};
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
        let limit = args.limit.unwrap_or(MAX_PAGE);
        let mut search = FullSearch::new(client.clone(), channel.id, args.filter.clone(), limit);
        while let Some(events) = search.next().await.map_err(stopped)? {
            bar.iter_mut().for_each(ProgressBar::hide);
            progress.advance(&args.filter.created, &events);
            write(&mut found, events).await?;
            if let Some(bar) = &mut bar {
                bar.tell_share(progress.share, progress.found);
            }
        }
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

/// An error of a search with `--all`.
fn stopped(error: SearchError) -> CommandError {
    let stopped = error.to_string();
    match error {
        SearchError::Api { error, .. } => CommandError::api(stopped)(error),
        SearchError::InDoubt { .. } => {
            CommandError::failed(format!("{stopped}. Use a narrower filter, such as --type, --address or --status"))
        }
    }
}

fn time(event: &RawEvent) -> Option<i64> {
    Event::parse(event.json.clone()).ok()?.payload.timestamp
}

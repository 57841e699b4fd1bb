//! `channeld search`: searches events by filters, and prints each with the verdict on its proof.
//!
//! # Invariants
//!
//! * **Invalid filters are refused here**, before any request is sent.
//! * **No event is returned twice, and none is silently skipped**, even with `--all`: see `search/pages.rs`.
//! * **Bounded.** Only one page is in memory at a time.

use std::io::Write;

use crate::cli::connect::Connection;
use crate::cli::exit::{Exit, Failure};
use crate::cli::output::say;
use crate::cli::shown;
use crate::cli::terminal::progress::Bar;
use api::{Created, Filter};
use proof::event::{Offset, RawEvent};

mod pages;
#[cfg(test)]
mod tests;

use pages::time;

/// The largest page that the service returns.
const MAX_LIMIT: u16 = 200;

/// The service's default page size.
const DEFAULT_LIMIT: u16 = 50;

/// Search a channel's events, newest first, and verify each proof.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld search settlements --created-gte 1h
  channeld search settlements --type operation.status --status failed --all
  channeld search settlements --all --json > settlements.jsonl")]
pub(crate) struct Args {
    /// The channel: its name in the configuration, or its UUID.
    pub(crate) channel: String,
    #[command(flatten)]
    filter: Filter,
    /// Number of events per page, 1 to 200 [default: 50, with --all 200].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_LIMIT)))]
    limit: Option<u16>,
    /// Send this offset to the service unchanged. Its meaning in a search is not documented.
    #[arg(long)]
    offset: Option<Offset>,
    /// Request all older pages too, until every matching event is printed.
    #[arg(long, conflicts_with = "offset")]
    all: bool,
    /// Print one JSON object per line, the record of each event.
    #[arg(long)]
    json: bool,
}

/// The progress of a search through everything: by time if the filter has a lower bound, otherwise by offset.
#[derive(Default)]
struct Way {
    /// The time of the first event if the filter has a lower bound, otherwise its offset.
    top: Option<i64>,
    share: f64,
    found: u64,
}

impl Way {
    /// Records the next events, which are older than the previous ones.
    fn goes_on(&mut self, created: &Created, events: &[RawEvent]) {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
        let bound = created.gte.or(created.gt);
        let place = |event: &RawEvent| if bound.is_some() { time(event) } else { Some(event.offset.get()) };
        self.found += u64::try_from(events.len()).unwrap_or_default();
        self.top = self.top.or_else(|| place(first));
        if let (Some(top), Some(now)) = (self.top, place(last)) {
            let bottom = bound.unwrap_or(0);
            #[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
            let share = top.saturating_sub(now) as f64 / top.saturating_sub(bottom).max(1) as f64;
            self.share = share;
        }
    }
}

/// Searches and writes the events that are found. With `--all`, events that were found before a failure are written.
pub(crate) async fn run(args: &Args, connection: &Connection, out: &mut impl Write) -> Result<Exit, Failure> {
    let Connection { client, channel, verifier, .. } = connection;
    args.filter.check().map_err(|misfit| Failure(Exit::Usage, misfit))?;
    let mut is_empty = true;
    let mut write = async |events: Vec<RawEvent>| {
        if !args.json && is_empty && !events.is_empty() {
            writeln!(out, "{}", shown::heading()).map_err(Failure::output)?;
        }
        is_empty &= events.is_empty();
        for verdict in shown::verified(verifier, events).await {
            shown::write(out, args.json, channel, &verdict).map_err(Failure::output)?;
        }
        out.flush().map_err(Failure::output)
    };
    if args.all {
        let (mut bar, mut way) = (Bar::begin(), Way::default());
        let found = async |events: Vec<RawEvent>| {
            bar.hide();
            way.goes_on(&args.filter.created, &events);
            write(events).await?;
            bar.tell_share(way.share, way.found);
            Ok(())
        };
        pages::all(connection, &args.filter, args.limit.unwrap_or(MAX_LIMIT), found).await?;
    } else {
        let limit = args.limit.unwrap_or(DEFAULT_LIMIT);
        let doing = format!("channel {} could not be searched", channel.name);
        let page = client.search(channel.id, &args.filter, limit, args.offset).await.map_err(Failure::api(doing))?;
        write(page.events).await?;
    }
    if is_empty && !args.json {
        return say(out, "No event matches.");
    }
    Ok(Exit::Done)
}

//! `channeld tail`: prints events as they arrive, one readable line per event.
//!
//! # Invariants
//!
//! * **Delivery never waits for it.** Events that the daemon cannot buffer for it are missed and counted; see
//!   [`Tail`](channel::Tail).
//! * **Nothing unverified is shown as verified.** The daemon reports what it delivers. Events from the service are verified
//!   here.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anstream::{AutoStream, ColorChoice};

use super::event_line::{EventLine, Layout};
use super::exit::{Exit, Failure};
use super::operate::Operator;
use crate::daemon::signals::Signals;
use api::Filter;

mod live;
mod service;
#[cfg(test)]
mod tests;

/// Watch events as they come, a readable line each.
///
/// Asks the running daemon what its sinks take: verified events and marked notices, each as it is delivered. Where none runs,
/// or with --from-service, asks the service itself, as often as `api.idle_wait` says, and shows each event with the
/// verdict on its proof. This is for looking: what comes faster than it can be shown is counted and left out. Ends at
/// Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld tail
  channeld tail settlements --type watcher.event
  channeld tail settlements --sink ledger --json")]
pub(super) struct Args {
    /// Only this channel: its name in the configuration, or its UUID.
    channel: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Only what this sink takes. Without it each event shows once, however many sinks take it.
    #[arg(long, conflicts_with = "from_service")]
    sink: Option<String>,
    /// Ask the service itself, also where a daemon runs. Needs its key.
    #[arg(long)]
    from_service: bool,
    /// Begin with so many of the newest events [default: 10].
    #[arg(long, value_name = "N", requires = "from_service", value_parser = clap::value_parser!(u16).range(0..=200))]
    last: Option<u16>,
    /// End after that many events.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    events: Option<u64>,
    /// Print each record as one JSON object a line.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: &Args, file: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    args.filter.check().map_err(|misfit| Failure(Exit::Usage, misfit))?;
    let mut signals = Signals::listen().map_err(Failure::output)?;
    let ended = tokio::select! {
        ended = watch(args, file, out) => ended,
        _ = signals.next() => Ok(()),
    };
    ended.map(|()| Exit::Done)
}

/// Returns when the requested number of events has been shown.
async fn watch(args: &Args, file: Option<&Path>, out: &mut impl Write) -> Result<(), Failure> {
    if !args.from_service {
        let operator = Operator::open(file)?;
        let channels: Vec<_> = operator.config.channels.iter().map(|known| known.channel.name.clone()).collect();
        let shown = channels.iter().map(|name| &**name).filter(|_| args.channel.is_none());
        let printer = Printer::new(args, Layout::of_stdout(shown));
        if live::watch(args, &operator, printer, out).await? {
            return Ok(());
        }
        let path = operator.config.state.path.display();
        note(&format!("no daemon runs on the state in {path}: asking the service itself"));
    }
    service::watch(args, file, out).await
}

/// Prints a note about the events to standard error.
fn note(what: &str) {
    // The error is ignored: events are shown even if standard error is closed.
    let _ = writeln!(io::stderr(), "channeld: {what}");
}

/// Like [`note`], but only if a person reads it: both outputs are terminals.
fn hint(what: &str) {
    if io::stderr().is_terminal() && io::stdout().is_terminal() {
        note(what);
    }
}

/// Prints events until the requested number is reached.
struct Printer {
    json: bool,
    with_colours: bool,
    layout: Layout,
    left: Option<u64>,
}

impl Printer {
    fn new(args: &Args, layout: Layout) -> Self {
        let with_colours = AutoStream::choice(&io::stdout()) != ColorChoice::Never;
        Self { json: args.json, with_colours, layout, left: args.events }
    }

    /// Prints events, each given with its JSON. Returns `true` when the requested number is reached.
    fn print(
        &mut self,
        out: &mut impl Write,
        events: impl IntoIterator<Item = (EventLine, String)>,
    ) -> Result<bool, Failure> {
        self.layout.follow_terminal();
        for (event, json) in events {
            if self.left == Some(0) {
                break;
            }
            let line = if self.json { json } else { self.layout.lines(&event) };
            let written = if self.with_colours {
                writeln!(out, "{line}")
            } else {
                writeln!(out, "{}", anstream::adapter::strip_str(&line))
            };
            written.map_err(Failure::output)?;
            self.left = self.left.map(|left| left - 1);
        }
        out.flush().map_err(Failure::output)?;
        Ok(self.left == Some(0))
    }
}

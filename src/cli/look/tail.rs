//! `channeld tail`: prints events as they arrive, one readable line per event.
//!
//! # Invariants
//!
//! * **Delivery never waits for it.** Events that the daemon cannot buffer for it are missed and counted; see
//!   [`Tail`](channel::Tail).
//! * **Nothing unverified is shown as verified.** The daemon reports what it delivers. Events from the service are verified
//!   here.

use std::io::Write;
use std::path::Path;

use crate::cli::exit::{Exit, Failure};
use crate::cli::operate::Operator;
use crate::cli::terminal::event_line::Layout;
use crate::config::Config;
use crate::daemon::signals::Signals;
use api::Filter;
use operator::api::WatchTail;

mod live;
mod printer;
mod service;

use printer::{Printer, note};
use service::Wanted;

/// How many past events of the service are shown first, unless the command line says otherwise.
const LAST: u16 = 10;

/// Watch new events, one readable line per event.
///
/// Shows the events that the sinks of the running daemon accept: verified events and marked notices, when they are
/// delivered. If no daemon runs, or with --from-service, polls the service directly at the interval `api.idle_wait`,
/// and shows for each event whether its proof is valid. Do not rely on this output to be complete: events that arrive
/// faster than they can be shown are counted and skipped. Runs until Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld tail
  channeld tail settlements --type watcher.event
  channeld tail settlements --sink ledger --json")]
pub(crate) struct Args {
    /// Only this channel: its name in the configuration, or its UUID.
    channel: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Only events that this sink accepts. Without this flag, an event that several sinks accept is shown once.
    #[arg(long, conflicts_with = "from_service")]
    sink: Option<String>,
    /// Poll the service directly, even if a daemon runs. Needs the API key.
    #[arg(long)]
    from_service: bool,
    /// Start with the N newest events, 0 to 200 [default: 10].
    #[arg(long, value_name = "N", requires = "from_service", value_parser = clap::value_parser!(u16).range(0..=200))]
    last: Option<u16>,
    /// Stop after N events.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    events: Option<u64>,
    /// Print one JSON object per line, the record of each event.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args, file: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
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
        let printer = args.printer(operator.config.channels.iter().map(|known| &*known.channel.name));
        let request = WatchTail {
            channel: args.channel.clone(),
            sink: args.sink.clone(),
            from: None,
            filter: args.filter.clone(),
        };
        if live::watch(request, &operator, printer, out).await? {
            return Ok(());
        }
        let path = operator.config.state.path.display();
        note(&format!("no daemon is running with the state in {path}: reading from the service"));
    }
    let config = Config::load(file)?;
    let printer = args.printer(config.channels.iter().map(|known| &*known.channel.name));
    let wanted = Wanted { channel: args.channel.as_deref(), filter: &args.filter, last: args.last.unwrap_or(LAST) };
    service::watch(&config, wanted, printer, out).await
}

impl Args {
    /// The printer for events of these channels. The channel has a column of its own if more than one is watched.
    fn printer<'a>(&self, channels: impl Iterator<Item = &'a str>) -> Printer {
        let shown = channels.filter(|_| self.channel.is_none());
        Printer::new(self.json, self.events, Layout::of_stdout(shown))
    }
}

//! `channeld tail`: prints events as they arrive, one readable line per event.
//!
//! The events come from the daemon on this machine, from the service, or from the feed of any daemon.
//!
//! # Invariants
//!
//! * **Delivery never waits for this command.** If the daemon cannot buffer an event for this command, the event is
//!   counted but not printed; see [`DeliveryTail`](channel::DeliveryTail).
//! * **Nothing unverified is shown as verified.** The daemon reports the events that it delivers with their verdicts. This
//!   command itself verifies the events that it reads from the service or from a feed.

use std::io::Write;
use std::time::Duration;

use tokio::time::sleep;

use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::operate::Operator;
use crate::cli::terminal::event_line::{EventLine, Layout};
use crate::config::Channel;
use crate::daemon::signals::Signals;
use api::Filter;
use channel::counted;
use operator::api::{TailedEvent, WatchTail};

mod feed;
mod printer;
mod service;
pub(crate) mod verdict_event;

use feed::FeedArgs;
use printer::{Printer, hint, note};
use service::ServiceTail;

/// How many past events of the service are shown first, unless the command line says otherwise.
const LAST: u16 = 10;

/// The pause between two requests to the daemon. The next answer contains all events that are delivered during the pause.
const BETWEEN: Duration = Duration::from_millis(100);

/// The wait before a daemon that does not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Watch new events, one readable line per event.
///
/// Shows the events that the sinks of the running daemon accept: verified events and marked notices, when they are
/// delivered. If no daemon runs, or with --from-service, polls the service directly at the interval `api.idle_wait`,
/// and shows for each event whether its proof is valid. Do not rely on this output to be complete: events that arrive
/// faster than they can be shown are counted and skipped. Runs until Ctrl-C.
///
/// With --feed, reads the feed of a daemon, which can run on another machine, and verifies each event with the settings of
/// this configuration, which needs only `[verification]`, with the signers of the service. An event is skipped only if the
/// feed has deleted it; a note reports this. Each line has the position of its event instead of the offset.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld tail
  channeld tail settlements --type watcher.event
  channeld tail settlements --sink ledger --json
  channeld tail --feed http://127.0.0.1:9465 --token-file feed-token")]
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
    /// First show the N newest events of each channel at the service or in the feed, 0 to 200 [default: 10 without a daemon,
    /// otherwise 0]. With a daemon on this machine, this needs the API key, and an event that is delivered at this moment
    /// can be shown twice. With --feed, neither is the case.
    #[arg(long, value_name = "N", conflicts_with = "sink", value_parser = clap::value_parser!(u16).range(0..=200))]
    last: Option<u16>,
    /// Stop after N events.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    events: Option<u64>,
    /// Print one JSON object per line, the record of each event.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    feed: FeedArgs,
}

pub(crate) async fn run(args: &Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    args.filter.check().map_err(CommandError::usage)?;
    let mut signals = Signals::listen().map_err(CommandError::output)?;
    tokio::select! {
        ended = watch(args, cx) => ended.map(|()| Exit::Done),
        _ = signals.next() => Ok(Exit::Done),
    }
}

/// Returns when the requested number of events has been printed.
async fn watch(args: &Args, cx: &mut Context<'_>) -> Result<(), CommandError> {
    if let Some(address) = args.feed.address() {
        return feed::watch(args, address, cx).await;
    }
    if !args.from_service {
        let operator = cx.operator()?;
        let mut printer = args.printer(&operator.config.channels);
        let Args { channel, sink, filter, .. } = args.clone();
        let mut request = WatchTail { channel, sink, from: None, filter };
        if let Some(last) = args.last.filter(|last| *last > 0)
            && let Some(answer) = operator.answer(&request).await?
        {
            // The daemon buffers its deliveries for this command from the first request on. No delivery is missed while
            // this command reads from the service.
            request.from = Some(answer.next);
            let WatchTail { channel, filter, .. } = &request;
            let mut service = ServiceTail::of(&cx.config()?, channel.as_deref(), filter, last)?;
            if service.print_news(&mut printer, cx.out).await? {
                return Ok(());
            }
        }
        if watch_daemon(request, &operator, printer, cx.out).await? {
            return Ok(());
        }
        let path = operator.config.state.path.display();
        note(&format!("no daemon is running with the state in {path}: reading from the service"));
    }
    let config = cx.config()?;
    let mut printer = args.printer(&config.channels);
    let last = args.last.unwrap_or(LAST);
    let mut service = ServiceTail::of(&config, args.channel.as_deref(), &args.filter, last)?;
    hint("watching the events of the service; Ctrl-C ends");
    while !service.print_news(&mut printer, cx.out).await? {
        sleep(config.api.idle_wait).await;
    }
    Ok(())
}

impl Args {
    /// The printer for events of these channels. The channel has a column of its own if more than one is watched.
    fn printer(&self, channels: &[Channel]) -> Printer {
        let shown = channels.iter().filter(|_| self.channel.is_none()).map(|known| &*known.channel.name);
        Printer::new(self.json, self.events, Layout::of_stdout(shown))
    }
}

/// Watches until the requested number of events has been printed. Returns `false` if no daemon runs. If the daemon ends
/// later, waits until it runs again.
async fn watch_daemon(
    mut request: WatchTail,
    operator: &Operator,
    mut printer: Printer,
    out: &mut dyn Write,
) -> Result<bool, CommandError> {
    let (mut has_answered, mut complained, mut elsewhere) = (false, false, Vec::new());
    loop {
        match operator.answer(&request).await {
            Ok(Some(answer)) => {
                if !has_answered || complained {
                    hint("watching the events that the daemon's sinks accept; Ctrl-C ends");
                }
                (has_answered, complained) = (true, false);
                if answer.elsewhere != elsewhere && !answer.elsewhere.is_empty() {
                    note(&format!(
                        "the events of these channels are not shown, because other instances run the channels: {}; name a channel to watch it",
                        answer.elsewhere.join(", ")
                    ));
                }
                elsewhere.clone_from(&answer.elsewhere);
                request.from = Some(answer.next);
                if answer.missed > 0 {
                    note(&format!("{} not shown, because they came too fast", counted(answer.missed, "delivery")));
                }
                let event = |TailedEvent { is_late, line, record, .. }: TailedEvent| {
                    (EventLine { parts: line, position: None, is_late }, record.get().to_owned())
                };
                if printer.print(out, answer.events.into_iter().map(event))? {
                    return Ok(true);
                }
                sleep(BETWEEN).await;
            }
            Ok(None) if !has_answered => return Ok(false),
            Err(failure) if !has_answered || failure.0 == Exit::Usage => return Err(failure),
            Ok(None) | Err(_) => {
                if !complained {
                    note("the daemon no longer answers; waiting until it answers again");
                }
                (complained, request.from) = (true, None);
                sleep(ASK_AGAIN).await;
            }
        }
    }
}

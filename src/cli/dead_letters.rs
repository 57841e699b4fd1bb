//! `channeld dead-letters`: the events that sinks gave up on, listed, shown, delivered once more, dropped.

use std::io::Write;
use std::path::Path;

use clap::Subcommand;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use super::exit::{Exit, Failure};
use super::operate::{Operator, say, write_each, write_json};
use super::shown::{id, offset, printable};
use crate::event::Offset;
use crate::operator::api::{
    DeadLetterEntry, DeadLetterEvent, DeadLetterSelection, DropDeadLetters, ListDeadLetters, RedeliverDeadLetters,
    ShowDeadLetter,
};
use crate::record::rfc3339;

/// List and show the events that sinks gave up on, deliver them once more, or drop them.
///
/// A sink gives an event up where its `give_up_after` says so; without it, never.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the dead letters.
    List {
        /// Only this channel: its name in the configuration, or its UUID.
        channel: Option<String>,
        /// Only this sink.
        #[arg(long, value_name = "SINK")]
        sink: Option<String>,
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Show one dead letter with its event.
    Show {
        /// The channel: its name in the configuration, or its UUID.
        channel: String,
        /// The event's offset.
        #[arg(value_parser = offset)]
        offset: Offset,
        /// The sink that gave it up.
        #[arg(long, value_name = "SINK")]
        sink: String,
        /// Print one JSON object; the event is its `event`.
        #[arg(long)]
        json: bool,
    },
    /// Deliver dead letters once more, each with the id that it had.
    ///
    /// They go to their sink as late events do, and are verified again before. What is refused once more, and for too long,
    /// is a dead letter again.
    Replay {
        #[command(flatten)]
        which: Which,
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Remove dead letters. They cannot be brought back from here, only from the service: see `channeld replay`.
    Drop {
        #[command(flatten)]
        which: Which,
        /// Do it.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Which {
    /// The channel: its name in the configuration, or its UUID.
    channel: String,
    /// The sink that gave them up.
    #[arg(long, value_name = "SINK")]
    sink: String,
    /// The events' offsets.
    #[arg(value_parser = offset, required_unless_present_any = ["all", "from", "to", "since", "until"])]
    offsets: Vec<Offset>,
    /// All of that sink.
    #[arg(long, conflicts_with_all = ["offsets", "from", "to", "since", "until"])]
    all: bool,
    /// Those at this offset or above.
    #[arg(long, value_name = "OFFSET", value_parser = offset)]
    from: Option<Offset>,
    /// Those at this offset or below.
    #[arg(long, value_name = "OFFSET", value_parser = offset)]
    to: Option<Offset>,
    /// Those given up at this time or later, such as 2026-05-14T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<Timestamp>,
    /// Those given up at this time or earlier.
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
}

impl Which {
    /// The channel, the sink, and which of its dead letters.
    fn selected(self) -> (String, String, DeadLetterSelection) {
        let Self { channel, sink, offsets, all: _, from, to, since, until } = self;
        let (since, until) = (since.map(Timestamp::as_second), until.map(Timestamp::as_second));
        (channel, sink, DeadLetterSelection { offsets, from, to, since, until })
    }
}

/// Lists, shows, delivers or drops.
///
/// # Errors
/// [`Failure`]: nothing was changed or, where the state failed, it is not known whether anything was.
pub async fn run(args: Args, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let operator = Operator::open(config)?;
    match args.command {
        Command::List { channel, sink, json } => {
            write_each(out, json, &operator.ask(&ListDeadLetters { channel, sink }).await?, line)?;
            Ok(Exit::Done)
        }
        Command::Show { channel, offset, sink, json } => {
            show(out, &operator.ask(&ShowDeadLetter { channel, sink, offset }).await?, json)
        }
        Command::Replay { which, json } => {
            let (channel, sink, which) = which.selected();
            let request = RedeliverDeadLetters { channel, sink, which };
            let offsets = operator.ask(&request).await?;
            if json {
                write_json(out, &offsets.iter().map(|offset| Redelivered { offset }).collect::<Vec<_>>())?;
                return Ok(Exit::Done);
            }
            say(out, &format!("{} dead letters are on their way to {} once more", offsets.len(), request.sink))
        }
        Command::Drop { yes: false, .. } => {
            Err(Failure::Usage("nothing was dropped: say --yes to drop these dead letters for good".to_owned()))
        }
        Command::Drop { which, yes: true } => {
            let (channel, sink, which) = which.selected();
            let dropped = operator.ask(&DropDeadLetters { channel, sink, which }).await?;
            say(out, &format!("{} dropped", dropped.len()))
        }
    }
}

#[derive(Serialize)]
struct Redelivered<'a> {
    offset: &'a Offset,
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    entry: &'a DeadLetterEntry,
    event: Option<&'a RawValue>,
}

fn show(out: &mut impl Write, letter: &DeadLetterEvent, json: bool) -> Result<Exit, Failure> {
    let DeadLetterEvent { entry, event } = letter;
    if json {
        write_json(out, &[Shown { entry, event: serde_json::from_str(event).ok() }])?;
        return Ok(Exit::Done);
    }
    say(out, &format!("{}\n{}", line(entry), printable(event)))
}

/// `channel  sink  offset  time  event id  attempts  the last answer`.
fn line(DeadLetterEntry { channel, sink, facts, .. }: &DeadLetterEntry) -> String {
    let time = rfc3339(facts.at).unwrap_or_else(|| "-".to_owned());
    let (offset, attempts, reason) = (facts.offset, facts.attempts, printable(&facts.reason));
    format!("{channel:24}  {sink:24}  {offset:>10}  {time:20}  {:36}  {attempts:>6}  {reason}", id(facts.event_id))
}

//! `channeld dead-letters`: the events that sinks gave up on, looked into, delivered once more, thrown away.

use std::io::Write;
use std::path::Path;

use clap::Subcommand;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use super::exit::{Exit, Failure};
use super::operate::{Operator, say, unexpected, write_each, write_json};
use super::shown::{id, offset, printable};
use crate::control::{Answer, DeadSelection, Letter, Request};
use crate::event::Offset;
use crate::record::rfc3339;

/// Look into the events that sinks gave up on, deliver them once more, or drop them.
///
/// A sink gives an event up where its `give_up_after` says so; without it, never.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(List),
    Show(Show),
    Replay(Replay),
    Drop(Discard),
}

/// List the dead letters.
#[derive(Debug, clap::Args)]
struct List {
    /// Only this channel: its name in the configuration, or its UUID.
    channel: Option<String>,
    /// Only this sink.
    #[arg(long, value_name = "SINK")]
    sink: Option<String>,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// Show one dead letter with its event.
#[derive(Debug, clap::Args)]
struct Show {
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
}

/// Deliver dead letters once more, each with the id that it had.
///
/// They go to their sink as late events do, and are verified again before. What is refused once more, and for too long,
/// is a dead letter again.
#[derive(Debug, clap::Args)]
struct Replay {
    #[command(flatten)]
    which: Which,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// Throw dead letters away. They cannot be brought back from here, only from the service: see `channeld replay`.
#[derive(Debug, clap::Args)]
struct Discard {
    #[command(flatten)]
    which: Which,
    /// Do it.
    #[arg(long)]
    yes: bool,
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
    fn selection(&self) -> DeadSelection {
        let second = |time: Option<Timestamp>| time.map(Timestamp::as_second);
        DeadSelection {
            offsets: self.offsets.clone(),
            from: self.from,
            to: self.to,
            since: second(self.since),
            until: second(self.until),
        }
    }
}

/// Does what is asked.
///
/// # Errors
/// [`Failure`]: nothing was changed or, where the state failed, nobody knows.
pub async fn run(args: &Args, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let operator = Operator::open(config)?;
    match &args.command {
        Command::List(list) => self::list(list, &operator, out).await,
        Command::Show(show) => self::show(show, &operator, out).await,
        Command::Replay(replay) => self::replay(replay, &operator, out).await,
        Command::Drop(discard) => self::discard(discard, &operator, out).await,
    }
}

async fn list(list: &List, operator: &Operator, out: &mut impl Write) -> Result<Exit, Failure> {
    let request = Request::DeadLetterList { channel: list.channel.clone(), sink: list.sink.clone() };
    let Answer::DeadLetters(letters) = operator.ask(request).await? else { return Err(unexpected()) };
    write_each(out, list.json, &letters, line)?;
    Ok(Exit::Done)
}

/// `channel  sink  offset  time  event id  attempts  the last answer`.
fn line(Letter { channel, sink, facts, .. }: &Letter) -> String {
    let time = rfc3339(facts.at).unwrap_or_else(|| "-".to_owned());
    let (offset, attempts, reason) = (facts.offset, facts.attempts, printable(&facts.reason));
    format!("{channel:24}  {sink:24}  {offset:>10}  {time:20}  {:36}  {attempts:>6}  {reason}", id(facts.event_id))
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    letter: &'a Letter,
    event: Option<&'a RawValue>,
}

async fn show(show: &Show, operator: &Operator, out: &mut impl Write) -> Result<Exit, Failure> {
    let (channel, sink) = (show.channel.clone(), show.sink.clone());
    let request = Request::DeadLetterShow { channel, sink, offset: show.offset };
    let Answer::DeadLetter { letter, event } = operator.ask(request).await? else { return Err(unexpected()) };
    if show.json {
        write_json(out, &[Shown { letter: &letter, event: serde_json::from_str(&event).ok() }])?;
        return Ok(Exit::Done);
    }
    say(out, &format!("{}\n{}", line(&letter), printable(&event)))
}

async fn replay(replay: &Replay, operator: &Operator, out: &mut impl Write) -> Result<Exit, Failure> {
    let Which { channel, sink, .. } = &replay.which;
    let which = replay.which.selection();
    let request = Request::DeadLetterReplay { channel: channel.clone(), sink: sink.clone(), which };
    let Answer::Replaying(offsets) = operator.ask(request).await? else { return Err(unexpected()) };
    if replay.json {
        write_json(out, &offsets.iter().map(|offset| serde_json::json!({"offset": offset})).collect::<Vec<_>>())?;
        return Ok(Exit::Done);
    }
    say(out, &format!("{} dead letters are on their way to {sink} once more", offsets.len()))
}

async fn discard(discard: &Discard, operator: &Operator, out: &mut impl Write) -> Result<Exit, Failure> {
    let Which { channel, sink, .. } = &discard.which;
    if !discard.yes {
        return Err(Failure::Usage("nothing was dropped: say --yes to throw these dead letters away".to_owned()));
    }
    let which = discard.which.selection();
    let request = Request::DeadLetterDrop { channel: channel.clone(), sink: sink.clone(), which };
    let Answer::Dropped(dropped) = operator.ask(request).await? else { return Err(unexpected()) };
    say(out, &format!("{} dropped", dropped.len()))
}

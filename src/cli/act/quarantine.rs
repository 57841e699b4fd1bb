//! `channeld quarantine`: lists, shows, retries and drops rejected events.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;

use super::list::{self, Ages, Listed, ListedEvent};
use crate::cli::arguments::{Confirmed, Printed};
use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::terminal::Cell;
use crate::cli::verdict_line::{id, printable, time};
use channel::counted;
use ledger::Quarantined;
use operator::api::{
    ChannelEntry, DropQuarantined, Fate, ListQuarantine, QuarantinedEvent, RetriedEvent, RetryQuarantined,
    ShowQuarantined,
};

/// List, show, retry or drop the rejected events in the quarantine.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  channeld quarantine list
  channeld quarantine list settlements --reason too-few-signatures --limit 20
  channeld quarantine show settlements 15520
  channeld quarantine retry settlements --all
  channeld quarantine drop settlements --reason proof-of-channel --yes")]
pub(crate) enum Command {
    List(Listed<ListQuarantine>),
    Show {
        #[command(flatten)]
        request: ShowQuarantined,
        /// Print one JSON object. Its field `bytes_base64` contains the bytes of the event. If the bytes are text, the
        /// field `text` contains them too.
        #[arg(long, conflicts_with = "raw")]
        json: bool,
        /// Print only the bytes of the event, as the service sent them.
        #[arg(long)]
        raw: bool,
    },
    Retry(Printed<RetryQuarantined>),
    Drop(Confirmed<DropQuarantined>),
}

/// If a command fails, nothing was changed. The exception is a failure of the state: then it is unknown whether anything
/// changed.
pub(crate) async fn run(command: Command, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let operator = cx.operator()?;
    match command {
        Command::List(Listed { request, selection }) => list::say(cx, &selection, &operator.ask(&request).await?),
        Command::Show { request, json: true, .. } => cx.say_json(&operator.ask(&request).await?),
        Command::Show { request, json: false, raw } => show(cx, &operator.ask(&request).await?, raw),
        Command::Retry(Printed { request, json }) => {
            let retried = operator.ask(&request).await?;
            cx.say_each(json, &retried, self::retried)?;
            let failed = |one: &RetriedEvent| matches!(one.fate, Fate::Kept { .. } | Fate::NotThere);
            Ok(if retried.iter().any(failed) { Exit::Failed } else { Exit::Done })
        }
        Command::Drop(Confirmed { request, yes: false }) => {
            let events = match &request.reason {
                Some(reason) => format!("all events with the reason {reason}"),
                None if request.all => format!("all quarantined events of channel {}", request.channel),
                None => counted(request.offsets.len() as u64, "event"),
            };
            Err(CommandError::usage(format!("nothing was dropped: add --yes to drop {events} permanently")))
        }
        Command::Drop(Confirmed { request, yes: true }) => {
            cx.say(format!("{} dropped", operator.ask(&request).await?.len()))
        }
    }
}

fn show(cx: &mut Context<'_>, event: &QuarantinedEvent, raw: bool) -> Result<Exit, CommandError> {
    let bytes = STANDARD
        .decode(&event.bytes_base64)
        .map_err(|_| CommandError::failed("the daemon's answer contains an event that is not base64"))?;
    if raw {
        cx.out.write_all(&bytes).and_then(|()| cx.out.flush()).map_err(CommandError::output)?;
        return Ok(Exit::Done);
    }
    cx.say_lines([line(&event.entry), printable(&String::from_utf8_lossy(&bytes))])
}

/// The first line of `show`.
fn line(ChannelEntry { channel, facts, .. }: &ChannelEntry<Quarantined>) -> String {
    let (offset, reason, detail) = (facts.offset, &facts.reason, printable(&facts.detail));
    format!("{channel}  {offset}  {}  {reason}  {}  {detail}", time(Some(facts.at)), id(facts.event_id))
}

impl ListedEvent for ChannelEntry<Quarantined> {
    const NOUN: &'static str = "quarantined event";
    const NONE: &'static str = "No events are in quarantine.";
    const ADVICE: &'static str = "For the meaning and the remedy: `channeld explain REASON`.";

    fn reason(&self) -> &str {
        &self.facts.reason
    }

    fn heading(ages: &Ages) -> (Vec<Cell>, String) {
        let (channel, offset) = (Cell::text("CHANNEL"), Cell::quantity(Some("OFFSET")));
        let cells = vec![channel, offset, ages.heading("SINCE"), Cell::text("REASON"), Cell::text("EVENT")];
        (cells, "DETAIL".to_owned())
    }

    fn row(&self, ages: &Ages) -> (Vec<Cell>, String) {
        let Quarantined { offset, reason, event_id, at, detail, .. } = &self.facts;
        let (channel, offset) = (Cell::text(printable(&self.channel)), Cell::quantity(Some(offset)));
        let (reason, event) = (Cell::whole(printable(reason)), Cell::text(id(*event_id)));
        (vec![channel, offset, ages.cell(*at), reason, event], printable(detail))
    }
}

impl Command {
    /// Whether the command prints a list for people.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Self::List(list) if !list.selection.json)
    }
}

pub(crate) fn retried(RetriedEvent { offset, fate }: &RetriedEvent) -> String {
    let outcome = match fate {
        Fate::Delivering => "verified: it will be delivered late",
        Fate::Waiting => "has no proof yet: it is pending again",
        Fate::ReadInOrder => "verified: sinks will receive it in order",
        Fate::Kept { reason, detail } => &format!("kept: {}: {}", printable(reason), printable(detail)),
        Fate::NotThere => "is not in the quarantine",
    };
    format!("{offset:>10}  {outcome}")
}

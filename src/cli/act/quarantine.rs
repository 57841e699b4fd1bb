//! `channeld quarantine`: lists, shows, retries and drops rejected events.

use std::io::Write;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;

use crate::cli::arguments::{Confirmed, Printed};
use crate::cli::exit::{Exit, Failure};
use crate::cli::operate::Operator;
use crate::cli::output::{say, say_json, write_each, write_lines, write_list};
use crate::cli::shown::{id, printable, time};
use ledger::Quarantined;
use operator::api::{
    DropQuarantined, Entry, Fate, ListQuarantine, QuarantinedEvent, Retried, RetryQuarantined, ShowQuarantined,
};

/// List, show, retry or drop the rejected events in the quarantine.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  channeld quarantine list
  channeld quarantine show settlements 15520
  channeld quarantine retry settlements --all
  channeld quarantine drop settlements --reason proof-of-channel --yes")]
pub(crate) enum Command {
    List(Printed<ListQuarantine>),
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

/// If this fails, nothing was changed. The exception is a failure of the state: it is then unknown whether anything changed.
pub(crate) async fn run(command: Command, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let operator = Operator::open(config)?;
    match command {
        Command::List(Printed { request, json }) => {
            write_list(out, json, &operator.ask(&request).await?, (&heading(), "No events are in quarantine."), line)
        }
        Command::Show { request, json: true, .. } => say_json(out, &operator.ask(&request).await?),
        Command::Show { request, json: false, raw } => show(out, &operator.ask(&request).await?, raw),
        Command::Retry(Printed { request, json }) => {
            let retried = operator.ask(&request).await?;
            write_each(out, json, &retried, self::retried)?;
            let failed = |one: &Retried| matches!(one.fate, Fate::Kept { .. } | Fate::NotThere);
            Ok(if retried.iter().any(failed) { Exit::Failed } else { Exit::Done })
        }
        Command::Drop(Confirmed { request, yes: false }) => {
            let events = match &request.reason {
                Some(reason) => format!("all events with the reason {reason}"),
                None if request.all => format!("all quarantined events of channel {}", request.channel),
                None => format!("{} events", request.offsets.len()),
            };
            Err(Failure(Exit::Usage, format!("nothing was dropped: add --yes to drop {events} permanently")))
        }
        Command::Drop(Confirmed { request, yes: true }) => {
            say(out, format!("{} dropped", operator.ask(&request).await?.len()))
        }
    }
}

fn show(out: &mut impl Write, event: &QuarantinedEvent, raw: bool) -> Result<Exit, Failure> {
    let bytes = STANDARD.decode(&event.bytes_base64);
    let bytes =
        bytes.map_err(|_| Failure(Exit::Failed, "the daemon answered an event that is not base64".to_owned()))?;
    if raw {
        out.write_all(&bytes).and_then(|()| out.flush()).map_err(Failure::output)?;
        return Ok(Exit::Done);
    }
    write_lines(out, [line(&event.entry), printable(&String::from_utf8_lossy(&bytes))])
}

/// `channel  offset  time  reason  event id  the reason in words`.
fn heading() -> String {
    format!("{:24}  {:>10}  {:20}  {:20}  {:36}  DETAIL", "CHANNEL", "OFFSET", "SINCE", "REASON", "EVENT")
}

fn line(Entry { channel, facts, .. }: &Entry<Quarantined>) -> String {
    let (offset, reason, detail) = (facts.offset, &facts.reason, printable(&facts.detail));
    format!("{channel:24}  {offset:>10}  {:20}  {reason:20}  {:36}  {detail}", time(Some(facts.at)), id(facts.event_id))
}

/// `offset  result of the retry`.
pub(crate) fn retried(Retried { offset, fate }: &Retried) -> String {
    format!("{offset:>10}  {}", outcome(fate))
}

fn outcome(fate: &Fate) -> String {
    match fate {
        Fate::Delivering => "verified: it will be delivered late".to_owned(),
        Fate::Waiting => "has no proof yet: it is pending again".to_owned(),
        Fate::ReadInOrder => "verified: sinks will receive it in order".to_owned(),
        Fate::Kept { reason, detail } => format!("kept: {}: {}", printable(reason), printable(detail)),
        Fate::NotThere => "is not in the quarantine".to_owned(),
    }
}

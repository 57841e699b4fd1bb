//! `channeld quarantine`: the events that were rejected, looked into, verified again, thrown away.

use std::io::Write;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;
use serde::Serialize;

use super::exit::{Exit, Failure};
use super::operate::{Operator, say, unexpected, write_each, write_json};
use super::shown::{id, offset, printable};
use crate::control::{Answer, Fate, Kept, Request, Retried, Selection};
use crate::event::Offset;
use crate::record::rfc3339;

/// Look into the events that were rejected, verify them again, or drop them.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(List),
    Show(Show),
    Retry(Retry),
    Drop(Discard),
}

/// List what is in the quarantine.
#[derive(Debug, clap::Args)]
struct List {
    /// Only this channel: its name in the configuration, or its UUID.
    channel: Option<String>,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// Show one quarantined event with its bytes.
#[derive(Debug, clap::Args)]
struct Show {
    /// The channel: its name in the configuration, or its UUID.
    channel: String,
    /// The event's offset.
    #[arg(value_parser = offset)]
    offset: Offset,
    /// Print one JSON object; the bytes are its `bytes_base64`, and its `text` where they are one.
    #[arg(long, conflicts_with = "raw")]
    json: bool,
    /// Print the bytes alone, as the service sent them.
    #[arg(long)]
    raw: bool,
}

/// Verify quarantined events again with the signers of now, and deliver what holds.
///
/// This is how to recover from a signer rotation that was noticed late: correct the configuration, have the daemon read
/// it (SIGHUP), and retry. What holds goes to the sinks that passed it, as a late event; what still does not hold is
/// kept. Exits with 1 where anything was kept.
#[derive(Debug, clap::Args)]
struct Retry {
    /// The channel: its name in the configuration, or its UUID.
    channel: String,
    /// The events' offsets.
    #[arg(value_parser = offset, required_unless_present = "all", conflicts_with = "all")]
    offsets: Vec<Offset>,
    /// All that the channel has in the quarantine.
    #[arg(long)]
    all: bool,
    /// Of those only what was rejected for this reason, such as `too-few-signatures`.
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// Throw evidence away. It cannot be brought back.
#[derive(Debug, clap::Args)]
struct Discard {
    /// The channel: its name in the configuration, or its UUID.
    channel: String,
    /// The events' offsets.
    #[arg(value_parser = offset, required = true)]
    offsets: Vec<Offset>,
    /// Do it.
    #[arg(long)]
    yes: bool,
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
        Command::Retry(retry) => self::retry(retry, &operator, out).await,
        Command::Drop(discard) => self::discard(discard, &operator, out).await,
    }
}

async fn list(list: &List, operator: &Operator, out: &mut impl Write) -> Result<Exit, Failure> {
    let request = Request::QuarantineList { channel: list.channel.clone() };
    let Answer::Quarantine(kept) = operator.ask(request).await? else { return Err(unexpected()) };
    write_each(out, list.json, &kept, line)?;
    Ok(Exit::Done)
}

/// `channel  offset  time  reason  event id  the reason in words`.
fn line(Kept { channel, facts, .. }: &Kept) -> String {
    let time = rfc3339(facts.at).unwrap_or_else(|| "-".to_owned());
    let (offset, reason, detail) = (facts.offset, &facts.reason, printable(&facts.detail));
    format!("{channel:24}  {offset:>10}  {time:20}  {reason:20}  {:36}  {detail}", id(facts.event_id))
}

#[derive(Serialize)]
struct Evidence<'a> {
    #[serde(flatten)]
    kept: &'a Kept,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    bytes_base64: &'a str,
}

async fn show(show: &Show, operator: &Operator, out: &mut impl Write) -> Result<Exit, Failure> {
    let request = Request::QuarantineShow { channel: show.channel.clone(), offset: show.offset };
    let Answer::Evidence { kept, bytes: encoded } = operator.ask(request).await? else { return Err(unexpected()) };
    let bytes = STANDARD.decode(&encoded).map_err(|_| unexpected())?;
    if show.json {
        let evidence = Evidence { kept: &kept, text: std::str::from_utf8(&bytes).ok(), bytes_base64: &encoded };
        write_json(out, &[evidence])?;
        return Ok(Exit::Done);
    }
    let mut write = || {
        if show.raw {
            out.write_all(&bytes)?;
        } else {
            writeln!(out, "{}\n{}", line(&kept), printable(&String::from_utf8_lossy(&bytes)))?;
        }
        out.flush()
    };
    write().map_err(Failure::output)?;
    Ok(Exit::Done)
}

async fn retry(retry: &Retry, operator: &Operator, out: &mut impl Write) -> Result<Exit, Failure> {
    let which = Selection { offsets: retry.offsets.clone(), reason: retry.reason.clone() };
    let request = Request::QuarantineRetry { channel: retry.channel.clone(), which };
    let Answer::Retried(retried) = operator.ask(request).await? else { return Err(unexpected()) };
    write_each(out, retry.json, &retried, |one| format!("{:>10}  {}", one.offset, told(one)))?;
    let failed = |one: &Retried| matches!(one.fate, Fate::Kept { .. } | Fate::NotThere);
    Ok(if retried.iter().any(failed) { Exit::Failed } else { Exit::Done })
}

fn told(retried: &Retried) -> String {
    match &retried.fate {
        Fate::Delivering => "holds: goes to the sinks that passed it".to_owned(),
        Fate::Waiting => "has no proof yet: it is waited for once more".to_owned(),
        Fate::InItsTurn => "holds, but no sink has come so far: it is read in its turn".to_owned(),
        Fate::Kept { reason, detail } => format!("kept: {}: {}", printable(reason), printable(detail)),
        Fate::NotThere => "is not in the quarantine".to_owned(),
    }
}

async fn discard(discard: &Discard, operator: &Operator, out: &mut impl Write) -> Result<Exit, Failure> {
    if !discard.yes {
        let events = discard.offsets.len();
        return Err(Failure::Usage(format!(
            "nothing was dropped: say --yes to throw the evidence of {events} events away"
        )));
    }
    let request = Request::QuarantineDrop { channel: discard.channel.clone(), offsets: discard.offsets.clone() };
    let Answer::Dropped(dropped) = operator.ask(request).await? else { return Err(unexpected()) };
    say(out, &format!("{} dropped", dropped.len()))
}

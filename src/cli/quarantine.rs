//! `channeld quarantine`: rejected events, listed, shown, verified again, dropped.

use std::io::Write;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;

use super::exit::{Exit, Failure};
use super::operate::{Operator, say, write_each, write_json};
use super::shown::{id, offset, printable};
use crate::event::Offset;
use crate::operator::api::{
    DropQuarantined, Fate, ListQuarantine, QuarantineEntry, QuarantinedEvent, Retried, RetryQuarantined,
    ShowQuarantined,
};
use crate::record::rfc3339;

/// List and show the events that were rejected, verify them again, or drop them.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List what is in the quarantine.
    List {
        /// Only this channel: its name in the configuration, or its UUID.
        channel: Option<String>,
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Show one quarantined event with its bytes.
    Show {
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
    },
    /// Verify quarantined events again with the signers of now, and deliver what holds.
    ///
    /// This is how to recover from a signer rotation that was noticed late: correct the configuration, have the daemon read
    /// it (SIGHUP), and retry. What holds goes to the sinks that passed it, as a late event; what still does not hold is
    /// kept. Exits with 1 where anything was kept.
    Retry {
        /// The channel: its name in the configuration, or its UUID.
        channel: String,
        /// The events' offsets.
        #[arg(value_parser = offset, required_unless_present = "all", conflicts_with = "all")]
        offsets: Vec<Offset>,
        /// All that the channel has in the quarantine, but for duplicates and contradictions.
        #[arg(long)]
        all: bool,
        /// Of those only what was rejected for this reason, such as `too-few-signatures`. Duplicates (`duplicate-proof`) and
        /// contradictions (`contradiction`) are verified again only where their reason is named.
        #[arg(long, value_name = "REASON")]
        reason: Option<String>,
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Remove events from the quarantine. They cannot be brought back.
    Drop {
        /// The channel: its name in the configuration, or its UUID.
        channel: String,
        /// The events' offsets.
        #[arg(value_parser = offset, required = true)]
        offsets: Vec<Offset>,
        /// Do it.
        #[arg(long)]
        yes: bool,
    },
}

/// Lists, shows, retries or drops.
///
/// # Errors
/// [`Failure`]: nothing was changed or, where the state failed, it is not known whether anything was.
pub async fn run(args: Args, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let operator = Operator::open(config)?;
    match args.command {
        Command::List { channel, json } => {
            write_each(out, json, &operator.ask(&ListQuarantine { channel }).await?, line)?;
            Ok(Exit::Done)
        }
        Command::Show { channel, offset, json, raw } => {
            show(out, &operator.ask(&ShowQuarantined { channel, offset }).await?, json, raw)
        }
        Command::Retry { channel, offsets, all: _, reason, json } => {
            let retried = operator.ask(&RetryQuarantined { channel, offsets, reason }).await?;
            write_each(out, json, &retried, |one| format!("{:>10}  {}", one.offset, outcome(one)))?;
            let failed = |one: &Retried| matches!(one.fate, Fate::Kept { .. } | Fate::NotThere);
            Ok(if retried.iter().any(failed) { Exit::Failed } else { Exit::Done })
        }
        Command::Drop { offsets, yes: false, .. } => {
            Err(Failure::Usage(format!("nothing was dropped: say --yes to drop {} events for good", offsets.len())))
        }
        Command::Drop { channel, offsets, yes: true } => {
            let dropped = operator.ask(&DropQuarantined { channel, offsets }).await?;
            say(out, &format!("{} dropped", dropped.len()))
        }
    }
}

fn show(out: &mut impl Write, event: &QuarantinedEvent, json: bool, raw: bool) -> Result<Exit, Failure> {
    if json {
        write_json(out, std::slice::from_ref(event))?;
        return Ok(Exit::Done);
    }
    let bytes = STANDARD.decode(&event.bytes_base64);
    let bytes = bytes.map_err(|_| Failure::Failed("the daemon answered an event that is not base64".to_owned()))?;
    if raw {
        out.write_all(&bytes).and_then(|()| out.flush()).map_err(Failure::output)?;
        return Ok(Exit::Done);
    }
    say(out, &format!("{}\n{}", line(&event.entry), printable(&String::from_utf8_lossy(&bytes))))
}

/// `channel  offset  time  reason  event id  the reason in words`.
fn line(QuarantineEntry { channel, facts, .. }: &QuarantineEntry) -> String {
    let time = rfc3339(facts.at).unwrap_or_else(|| "-".to_owned());
    let (offset, reason, detail) = (facts.offset, &facts.reason, printable(&facts.detail));
    format!("{channel:24}  {offset:>10}  {time:20}  {reason:20}  {:36}  {detail}", id(facts.event_id))
}

fn outcome(retried: &Retried) -> String {
    match &retried.fate {
        Fate::Delivering => "holds: goes to the sinks that passed it".to_owned(),
        Fate::Waiting => "has no proof yet: it is waited for again".to_owned(),
        Fate::ReadInOrder => "holds, but no sink has come so far: it is read again in order".to_owned(),
        Fate::Kept { reason, detail } => format!("kept: {}: {}", printable(reason), printable(detail)),
        Fate::NotThere => "is not in the quarantine".to_owned(),
    }
}

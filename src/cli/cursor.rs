//! `channeld cursor`: how far each sink has got, and setting that.

use std::io::Write;
use std::path::Path;

use clap::Subcommand;

use super::connect;
use super::exit::{Exit, Failure};
use super::operate::{Operator, write_each};
use crate::api::Client;
use crate::config::Channel;
use crate::event::{ChannelId, Offset};
use crate::ledger::Cursor;
use crate::operator::api::{CursorMove, CursorPosition, ListCursors, SetCursors};

/// Show how far each sink of each channel has got, or set that.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the cursors: the last offset up to which everything was delivered, set aside for its late proof, or quarantined.
    Show {
        /// Only this channel: its name in the configuration, or its UUID.
        channel: Option<String>,
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Set the cursors of a channel, or of one of its sinks.
    ///
    /// Says first how many events would be delivered again or passed over, as a distance in offsets: there are at most that
    /// many. Nothing is changed without --yes. A file sink passes over what it still holds of the events that come again.
    Set {
        /// The channel: its name in the configuration, or its UUID.
        channel: String,
        /// Only this sink of it.
        #[arg(long, value_name = "SINK")]
        sink: Option<String>,
        /// The last OFFSET that counts as dealt with, as `cursor show` prints it: what is above it is delivered next.
        /// `earliest` is before the first event, `latest` the newest event that the service has now.
        #[arg(long, value_name = "OFFSET|earliest|latest", value_parser = target)]
        to: Target,
        /// Do it.
        #[arg(long)]
        yes: bool,
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Earliest,
    Latest,
    Offset(Offset),
}

fn target(text: &str) -> Result<Target, String> {
    match text {
        "earliest" => Ok(Target::Earliest),
        "latest" => Ok(Target::Latest),
        number => number
            .parse()
            .ok()
            .and_then(Offset::new)
            .map(Target::Offset)
            .ok_or_else(|| "it is an offset (a whole number from 0), `earliest` or `latest`".to_owned()),
    }
}

/// Shows or sets.
///
/// # Errors
/// [`Failure`]: nothing was changed.
pub async fn run(args: Args, file: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let operator = Operator::open(file)?;
    match args.command {
        Command::Show { channel, json } => {
            write_each(out, json, &operator.ask(&ListCursors { channel }).await?, position)?;
            Ok(Exit::Done)
        }
        Command::Set { channel, sink, to, yes, json } => {
            let to = to.offset(file, operator.channels(), &channel).await?;
            let request = SetCursors { channel, sink, to, apply: yes };
            write_each(out, json, &operator.ask(&request).await?, |one| moved(&request, one))?;
            if yes {
                return Ok(Exit::Done);
            }
            Err(Failure::Usage("nothing was changed: say --yes to do it".to_owned()))
        }
    }
}

impl Target {
    /// The service is asked only for the latest event.
    async fn offset(self, file: Option<&Path>, channels: &[Channel], channel: &str) -> Result<Option<Offset>, Failure> {
        match self {
            Self::Earliest => Ok(None),
            Self::Offset(offset) => Ok(Some(offset)),
            Self::Latest => latest(&connect::client(&connect::load(file)?)?, id(channels, channel)?).await,
        }
    }
}

fn id(channels: &[Channel], name_or_id: &str) -> Result<ChannelId, Failure> {
    let named = channels.iter().find(|configured| &*configured.channel.name == name_or_id);
    match named {
        Some(configured) => Ok(configured.channel.id),
        None => name_or_id
            .parse()
            .map_err(|_| Failure::Usage(format!("`{name_or_id}` is neither a configured channel nor a UUID"))),
    }
}

async fn latest(client: &Client, channel: ChannelId) -> Result<Option<Offset>, Failure> {
    let page = client.poll(channel, None, 1).await.map_err(Failure::api("the latest event could not be asked for"))?;
    Ok(page.events.first().map(|event| event.offset))
}

fn position(CursorPosition { channel, sink, configured, cursor, owed, .. }: &CursorPosition) -> String {
    let note = if *configured { "" } else { "  (not configured)" };
    let cursor = Cursor { through: *cursor }.to_string();
    format!("{channel:24}  {sink:24}  {cursor:>12}  {owed} owed{note}")
}

fn moved(request: &SetCursors, CursorMove { sink, from, to, repeated, passed_over }: &CursorMove) -> String {
    let (from, to) = (Cursor { through: *from }, Cursor { through: *to });
    let will = if request.apply { "" } else { "would be " };
    let consequence = match (repeated, passed_over) {
        (0, 0) => "nothing changes".to_owned(),
        (0, passed_over) => format!("at most {passed_over} events {will}passed over, never delivered"),
        (repeated, _) => format!("at most {repeated} events {will}delivered again"),
    };
    format!("{} {sink}: from {from} to {to}: {consequence}", request.channel)
}

#[cfg(test)]
mod tests;

//! `channeld cursor`: shows and sets the cursor of each sink.

use clap::Subcommand;

use crate::cli::arguments::Printed;
use crate::cli::context::{CommandError, Context, Exit, client, configured};
use channel::counted;
use ledger::Cursor;
use operator::api::{ChannelEntry, CursorMove, CursorPosition, ListCursors, SetCursors};
use operator::find;
use proof::event::Offset;

/// Show or set the cursor of each sink of each channel.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  channeld cursor show settlements
  channeld cursor set settlements --sink ledger --to 15520          # only shows the effect
  channeld cursor set settlements --sink ledger --to 15520 --yes
  channeld cursor set settlements --back-to 15520 --yes             # no sink skips an event")]
pub(crate) enum Command {
    Show(Printed<ListCursors>),
    Set {
        #[command(flatten)]
        request: SetCursors,
        /// The new cursor, in the form that `cursor show` prints: the highest offset that counts as processed. Events
        /// above it are delivered next. `earliest` is before the first event, and `latest` is the newest event that the
        /// service has now.
        #[arg(long, value_name = "OFFSET|earliest|latest", value_parser = target)]
        #[arg(required_unless_present = "back_to", conflicts_with = "back_to")]
        to: Option<Target>,
        /// Like `--to`, but only moves cursors that are above this offset, so no event is skipped.
        #[arg(long, value_name = "OFFSET|earliest", value_parser = target)]
        back_to: Option<Target>,
        /// Make the change. Without this flag, only the effect is shown.
        #[arg(long)]
        yes: bool,
        /// Print one JSON object per line.
        #[arg(long)]
        json: bool,
    },
}

/// The new cursor: everything up to and including this offset counts as processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Earliest,
    Latest,
    Offset(Offset),
}

fn target(text: &str) -> Result<Target, &'static str> {
    match text {
        "earliest" => Ok(Target::Earliest),
        "latest" => Ok(Target::Latest),
        number => number
            .parse()
            .map(Target::Offset)
            .map_err(|_| "it is an offset (a whole number from 0), `earliest` or `latest`"),
    }
}

pub(crate) async fn run(command: Command, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let operator = cx.operator()?;
    match command {
        Command::Show(Printed { request, json }) => {
            cx.say_list(json, &operator.ask(&request).await?, (&heading(), "No cursor is recorded yet."), position)
        }
        Command::Set { request, to, back_to, yes, json } => {
            let target = to.or(back_to).expect("one of the two is required");
            let through = match target {
                Target::Earliest => None,
                Target::Offset(offset) => Some(offset),
                Target::Latest => {
                    let channel = find(&configured(&operator.config.channels), &request.channel)?;
                    let page = client(&cx.config()?)?.poll(channel.id, None, 1).await;
                    let page = page.map_err(CommandError::api("the latest event could not be requested"))?;
                    page.events.first().map(|event| event.offset)
                }
            };
            let request = SetCursors { to: Cursor { through }, only_back: to.is_none(), apply: yes, ..request };
            cx.say_each(json, &operator.ask(&request).await?, |one| moved(&request, one))?;
            if yes {
                return Ok(Exit::Done);
            }
            Err(CommandError::usage("nothing was changed: add --yes to make the change"))
        }
    }
}

fn heading() -> String {
    format!("{:24}  {:24}  {:>12}  PENDING", "CHANNEL", "SINK", "CURSOR")
}

fn position(ChannelEntry { channel, facts, .. }: &ChannelEntry<CursorPosition>) -> String {
    let CursorPosition { sink, configured, cursor, due } = facts;
    let note = if *configured { "" } else { "  (not configured)" };
    let cursor = cursor.to_string();
    format!("{channel:24}  {sink:24}  {cursor:>12}  {due} pending{note}")
}

fn moved(request: &SetCursors, CursorMove { sink, from, to, repeated, passed_over }: &CursorMove) -> String {
    let will = if request.apply { "" } else { "would be " };
    let consequence = match (repeated, passed_over) {
        (0, 0) => "nothing changes".to_owned(),
        (0, passed_over) => format!("at most {} {will}skipped and never delivered", counted(*passed_over, "event")),
        (repeated, _) => format!("at most {} {will}delivered again", counted(*repeated, "event")),
    };
    format!("{} {sink}: from {from} to {to}: {consequence}", request.channel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_word_or_an_offset() {
        assert_eq!(target("earliest"), Ok(Target::Earliest));
        assert_eq!(target("latest"), Ok(Target::Latest));
        assert_eq!(target("7"), Ok(Target::Offset(Offset::new(7).unwrap())));
        for wrong in ["-1", "newest", "", "1.5"] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }
}

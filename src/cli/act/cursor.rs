//! `channeld cursor`: shows and sets the cursor of each sink.

use std::iter;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::cli::arguments::Printed;
use crate::cli::context::{CommandError, Context, Exit, client, configured};
use crate::cli::first_event::{self, Search};
use crate::cli::terminal::{Cell, Table};
use crate::cli::verdict_line::printable;
use channel::{FirstEvent, OffsetOrTime, counted};
use ledger::Cursor;
use net::time::Time;
use operator::api::{ChannelEntry, CursorMove, CursorPosition, ListCursors, SetCursors};
use operator::find;

/// Show or set the cursor of each sink of each channel.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  channeld cursor show settlements
  channeld cursor set settlements --sink ledger --to 15520          # only shows the effect
  channeld cursor set settlements --sink ledger --to 15520 --yes
  channeld cursor set settlements --back-to 15520 --yes             # no sink skips an event
  channeld cursor set settlements --back-to 2026-11-01 --yes        # delivers everything since that day again")]
pub(crate) enum Command {
    Show(Printed<ListCursors>),
    Set {
        #[command(flatten)]
        request: SetCursors,
        /// The new cursor, in the form that `cursor show` prints: the highest offset that counts as processed. Events
        /// above it are delivered next. `earliest` is before the first event, and `latest` is the newest event that the
        /// service has now. With a time (2026-11-01T00:00:00Z, 2026-11-01, @1793491200 in Unix seconds, or 7d for that
        /// long ago), events that were created at this time or later are delivered next.
        #[arg(long, value_name = "OFFSET|TIME|earliest|latest", value_parser = target)]
        #[arg(required_unless_present = "back_to", conflicts_with = "back_to")]
        to: Option<Target>,
        /// Like `--to`, but only moves cursors that are above this offset, so no event is skipped.
        #[arg(long, value_name = "OFFSET|TIME|earliest", value_parser = target)]
        back_to: Option<Target>,
        /// Make the change. Without this flag, only the effect is shown.
        #[arg(long)]
        yes: bool,
        /// Print one JSON object per line.
        #[arg(long)]
        json: bool,
    },
}

/// The new cursor. With an offset, everything up to and including this offset counts as processed. With a time, everything
/// before the first event that was created at this time or later counts as processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Earliest,
    Latest,
    At(OffsetOrTime),
}

fn target(text: &str) -> Result<Target, String> {
    match text {
        "earliest" => Ok(Target::Earliest),
        "latest" => Ok(Target::Latest),
        text => text
            .parse()
            .map(Target::At)
            .map_err(|needed: &str| format!("`earliest` and `latest` are possible; any other value {needed}")),
    }
}

pub(crate) async fn run(command: Command, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let operator = cx.operator()?;
    match command {
        Command::Show(Printed { request, json }) => {
            let cursors = operator.ask(&request).await?;
            cx.say_table(json, &cursors, "No cursor is recorded yet.", table)
        }
        Command::Set { request, to, back_to, yes, json } => {
            let target = to.or(back_to).expect("one of the two is required");
            let mut since = None;
            let through = match target {
                Target::Earliest => None,
                Target::At(OffsetOrTime::Offset(offset)) => Some(offset),
                Target::At(OffsetOrTime::Time(time)) => {
                    let channel = find(&configured(&operator.config.channels), &request.channel)?.id;
                    let client = client(&cx.config()?, channel)?;
                    let first = Search { client, channel }.first_since(time).await?;
                    let through = first.before();
                    since = Some((time, first));
                    through
                }
                Target::Latest => {
                    let channel = find(&configured(&operator.config.channels), &request.channel)?;
                    let page = client(&cx.config()?, channel.id)?.poll(channel.id, None, 1).await;
                    let page = page.map_err(CommandError::api("the latest event could not be requested"))?;
                    page.events.first().map(|event| event.offset)
                }
            };
            let request = SetCursors { to: Cursor { through }, only_back: to.is_none(), apply: yes, ..request };
            let moves = operator.ask(&request).await?;
            if json {
                cx.say_each(
                    true,
                    &moves.iter().map(|one| json_of(one, since.as_ref())).collect::<Vec<_>>(),
                    Value::to_string,
                )?;
            } else {
                let first = since.iter().map(|(time, first)| first_event::line(*time, first));
                cx.say_lines(first.chain(moves.iter().map(|one| moved(&request, one))))?;
            }
            if yes {
                return Ok(Exit::Done);
            }
            Err(CommandError::usage("nothing was changed: add --yes to make the change"))
        }
    }
}

fn table(cursors: &[ChannelEntry<CursorPosition>]) -> Table {
    let heading = vec![Cell::text("CHANNEL"), Cell::text("SINK"), Cell::quantity(Some("CURSOR"))];
    let rows = cursors.iter().map(|ChannelEntry { channel, facts, .. }| {
        let CursorPosition { sink, configured, cursor, due } = facts;
        let note = if *configured { "" } else { "  (not configured)" };
        let cells = vec![Cell::whole(printable(channel)), Cell::whole(printable(sink)), Cell::quantity(Some(cursor))];
        (cells, format!("{due} pending{note}"))
    });
    Table(iter::once((heading, "PENDING".to_owned())).chain(rows).collect())
}

/// A move of a cursor, as JSON for programs. If the target is a time, the member `first` is the first event since this time.
fn json_of(one: &CursorMove, since: Option<&(Time, FirstEvent)>) -> Value {
    let mut shown = json!(one);
    if let Some((_, first)) = since {
        shown["first"] = first_event::json_of(first);
    }
    shown
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
    fn cursors_are_aligned_below_long_names() {
        let of = |channel: &str, cursor: i64| {
            let facts = CursorPosition {
                sink: "warehouse".into(),
                configured: true,
                cursor: Cursor { through: proof::event::Offset::new(cursor) },
                due: 3,
            };
            ChannelEntry { channel: channel.into(), channel_id: uuid::Uuid::nil().to_string().parse().unwrap(), facts }
        };
        let text = table(&[of("fund-administration-europe", 7), of("c0", 1_234)]).to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "CHANNEL                     SINK       CURSOR  PENDING");
        assert_eq!(lines[1], "fund-administration-europe  warehouse       7  3 pending");
        assert_eq!(lines[2], "c0                          warehouse    1234  3 pending");
    }

    #[test]
    fn a_target_is_a_word_an_offset_or_a_time() {
        assert_eq!(target("earliest"), Ok(Target::Earliest));
        assert_eq!(target("latest"), Ok(Target::Latest));
        let offset = proof::event::Offset::new(7).unwrap();
        assert_eq!(target("7"), Ok(Target::At(OffsetOrTime::Offset(offset))));
        for time in ["2026-11-01", "2026-11-01T00:00:00Z", "@1760000000", "7d"] {
            assert_eq!(target(time), Ok(Target::At(OffsetOrTime::Time(time.parse().unwrap()))), "{time}");
        }
        for wrong in ["-1", "newest", "", "1.5", "@", "99999999999999999999"] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }
}

//! `channeld consumers`: shows the consumers of the feed, and sets their cursors.

use clap::Subcommand;
use jiff::Timestamp;
use serde::Serialize;

use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::look::status::feed::consumers;
use crate::cli::terminal::for_stdout;
use channel::counted;
use operator::api::{ConsumerCursorMove, ListConsumers, SetConsumerCursor};
use operator::feed::FeedConsumer;

/// Show the consumers of the feed, or set the cursor of a consumer.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  channeld consumers show
  channeld consumers set ledger settlements 15520          # only shows the effect
  channeld consumers set ledger settlements 15520 --yes")]
pub(crate) enum Command {
    /// Show the cursor, the lag and the lease of each consumer.
    ///
    /// The lag is the number of events that the consumer has not committed. OLDEST is the age of the first of these events,
    /// measured from its delivery to the table. A consumer with the state `no cursor` has never asked for a lease: it stores
    /// its position itself, or has not begun.
    Show {
        /// Print one JSON object per line.
        #[arg(long)]
        json: bool,
    },
    /// Set the cursor of a consumer in one channel.
    ///
    /// First prints how many events would be delivered again or skipped. Without --yes, nothing is changed. The change ends
    /// the lease of the consumer: events that it has not committed are then delivered again.
    Set {
        #[command(flatten)]
        request: SetConsumerCursor,
        /// Make the change. Without this flag, only the effect is shown.
        #[arg(long)]
        yes: bool,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) async fn run(command: Command, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let operator = cx.operator()?;
    let known = operator.ask_daemon(&ListConsumers {}).await?.consumers;
    match command {
        Command::Show { json: true } => cx.say_each(true, &known, |_| String::new()),
        Command::Show { json: false } if known.is_empty() => cx.say("The feed has no consumers."),
        Command::Show { json: false } => cx.say(for_stdout(consumers(&known, Timestamp::now()).to_string().trim_end())),
        Command::Set { request, yes, json } => {
            let known = request.check(&known)?;
            let moved = if yes {
                operator.ask_daemon(&request).await?
            } else {
                let (consumer, channel) = (known.consumer.clone(), known.channel.clone());
                ConsumerCursorMove { consumer, channel, from: known.through, to: request.through }
            };
            if json {
                cx.say_json(&ShownMove { moved: &moved, changed: yes })?
            } else {
                cx.say(effect(&moved, known, yes))?
            };
            if yes {
                return Ok(Exit::Done);
            }
            Err(CommandError::usage("nothing was changed: add --yes to make the change"))
        }
    }
}

/// The effect as JSON.
#[derive(Serialize)]
struct ShownMove<'m> {
    #[serde(flatten)]
    moved: &'m ConsumerCursorMove,
    /// Whether the cursor was set.
    changed: bool,
}

/// The effect as text. `known` is the consumer before the change. Events before its oldest one were deleted, so they cannot be skipped.
fn effect(moved: &ConsumerCursorMove, known: &FeedConsumer, is_set: bool) -> String {
    let ConsumerCursorMove { consumer, channel, from, to } = moved;
    let will = if is_set { "" } else { "would be " };
    let consequence = match to.cmp(from) {
        std::cmp::Ordering::Equal if known.leased_until.is_some() => {
            "its lease ends, and the leased events are delivered again".to_owned()
        }
        std::cmp::Ordering::Equal if !known.has_cursor => "a cursor is created".to_owned(),
        std::cmp::Ordering::Equal => "nothing changes".to_owned(),
        std::cmp::Ordering::Less => format!("at most {} {will}delivered again", counted(from.abs_diff(*to), "event")),
        std::cmp::Ordering::Greater => {
            let first = known.oldest.map_or(*from, |oldest| (oldest - 1).clamp(*from, *to));
            let deleted = first.abs_diff(*from);
            let deleted =
                if deleted > 0 { format!("; {} deleted before", counted(deleted, "event")) } else { String::new() };
            format!("{} {will}skipped{deleted}", counted(to.abs_diff(first), "event"))
        }
    };
    format!("{consumer} {channel}: from {from} to {to}: {consequence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effect_is_a_number_of_repeated_or_skipped_events() {
        let leased = Some(Timestamp::MAX);
        for (has_cursor, leased_until, from, to, is_set, said) in [
            (true, None, 1, 4, true, "ledger c0: from 1 to 4: 0 events skipped; 3 events deleted before"),
            (true, None, 1, 6, false, "ledger c0: from 1 to 6: 2 events would be skipped; 3 events deleted before"),
            (true, None, 7, 4, false, "ledger c0: from 7 to 4: at most 3 events would be delivered again"),
            (true, leased, 7, 8, true, "ledger c0: from 7 to 8: 1 event skipped"),
            (true, None, 7, 7, true, "ledger c0: from 7 to 7: nothing changes"),
            (
                true,
                leased,
                7,
                7,
                false,
                "ledger c0: from 7 to 7: its lease ends, and the leased events are delivered again",
            ),
            (false, None, 4, 4, true, "ledger c0: from 4 to 4: a cursor is created"),
        ] {
            let moved = ConsumerCursorMove { consumer: "ledger".to_owned(), channel: "c0".to_owned(), from, to };
            let known = FeedConsumer {
                consumer: "ledger".to_owned(),
                channel: "c0".to_owned(),
                channel_id: String::new(),
                has_cursor,
                through: from,
                newest: 8,
                oldest: Some(5),
                lag: 8 - from,
                waiting_since: None,
                leased_until,
                gone: false,
            };
            assert_eq!(effect(&moved, &known, is_set), said);
        }
    }
}

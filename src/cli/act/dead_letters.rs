//! `channeld dead-letters`: lists, shows, replays and drops the events that sinks gave up on.

use clap::Subcommand;
use serde_json::json;

use super::list::{self, Ages, Listed, ListedEvent};
use crate::cli::arguments::{Confirmed, Printed};
use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::terminal::Cell;
use crate::cli::verdict_line::{id, printable, time};
use channel::counted;
use operator::api::{
    ChannelEntry, DeadLetter, DeadLetterEvent, DropDeadLetters, ListDeadLetters, ReplayDeadLetters, ShowDeadLetter,
};

/// List, show, replay or drop dead letters.
///
/// A dead letter is an event that channeld no longer sends to a sink, because the sink refused the event for longer
/// than `give_up_after`. If this key of the sink is not set, no event becomes a dead letter.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  channeld dead-letters list settlements
  channeld dead-letters replay settlements --sink ledger --all
  channeld dead-letters replay settlements --sink ledger --since 2h")]
pub(crate) enum Command {
    List(Listed<ListDeadLetters>),
    Show {
        #[command(flatten)]
        request: ShowDeadLetter,
        /// Print one JSON object. Its field `event` contains the event.
        #[arg(long)]
        json: bool,
    },
    Replay(Printed<ReplayDeadLetters>),
    Drop(Confirmed<DropDeadLetters>),
}

/// If a command fails, nothing was changed. The exception is a failure of the state: then it is unknown whether anything
/// changed.
pub(crate) async fn run(command: Command, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let operator = cx.operator()?;
    match command {
        Command::List(Listed { request, selection }) => list::say(cx, &selection, &operator.ask(&request).await?),
        Command::Show { request, json: true } => cx.say_json(&operator.ask(&request).await?),
        Command::Show { request, json: false } => {
            let DeadLetterEvent { entry, event } = operator.ask(&request).await?;
            cx.say_lines([line(&entry), printable(event.get())])
        }
        Command::Replay(Printed { request, json }) => {
            let offsets = operator.ask(&request).await?;
            if json {
                return cx.say_lines(offsets.iter().map(|offset| json!({ "offset": offset })));
            }
            let sink = &request.which.sink;
            cx.say(format!("{} will be delivered to {sink} again", counted(offsets.len() as u64, "dead letter")))
        }
        Command::Drop(Confirmed { yes: false, .. }) => {
            Err(CommandError::usage("nothing was dropped: add --yes to drop these dead letters permanently"))
        }
        Command::Drop(Confirmed { request, yes: true }) => {
            cx.say(format!("{} dropped", operator.ask(&request).await?.len()))
        }
    }
}

/// The first line of `show`.
fn line(ChannelEntry { channel, facts: DeadLetter { sink, facts }, .. }: &ChannelEntry<DeadLetter>) -> String {
    let (offset, attempts, reason) = (facts.offset, counted(facts.attempts.into(), "try"), printable(&facts.reason));
    let (at, event) = (time(Some(facts.at)), id(facts.event_id));
    format!("{channel}  {sink}  {offset}  {at}  {event}  {attempts}  {reason}")
}

impl ListedEvent for ChannelEntry<DeadLetter> {
    const NOUN: &'static str = "dead letter";
    const NONE: &'static str = "No dead letters.";
    const ADVICE: &'static str = "For the causes and remedies: `channeld explain ChanneldDeadLetters`.";

    fn reason(&self) -> &str {
        &self.facts.facts.reason
    }

    fn heading(ages: &Ages) -> (Vec<Cell>, String) {
        let [channel, sink, event] = ["CHANNEL", "SINK", "EVENT"].map(Cell::text);
        let [offset, tries] = ["OFFSET", "TRIES"].map(|text| Cell::quantity(Some(text)));
        (vec![channel, sink, offset, ages.heading("GIVEN UP"), event, tries], "REASON".to_owned())
    }

    fn row(&self, ages: &Ages) -> (Vec<Cell>, String) {
        let DeadLetter { sink, facts } = &self.facts;
        let [channel, sink, event] = [printable(&self.channel), printable(sink), id(facts.event_id)].map(Cell::text);
        let (offset, tries) = (Cell::quantity(Some(facts.offset)), Cell::quantity(Some(facts.attempts)));
        (vec![channel, sink, offset, ages.cell(facts.at), event, tries], printable(&facts.reason))
    }
}

impl Command {
    /// Whether the command prints a list for people.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Self::List(list) if !list.selection.json)
    }
}

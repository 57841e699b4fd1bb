//! `channeld dead-letters`: lists, shows, replays and drops the events that sinks gave up on.

use clap::Subcommand;
use serde_json::json;

use crate::cli::arguments::{Confirmed, Printed};
use crate::cli::context::{CommandError, Context, Exit};
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
    List(Printed<ListDeadLetters>),
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
        Command::List(Printed { request, json }) => {
            cx.say_list(json, &operator.ask(&request).await?, (&heading(), "No dead letters."), line)
        }
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

fn heading() -> String {
    format!(
        "{:24}  {:24}  {:>10}  {:20}  {:36}  {:>6}  REASON",
        "CHANNEL", "SINK", "OFFSET", "GIVEN UP", "EVENT", "TRIES"
    )
}

fn line(ChannelEntry { channel, facts: DeadLetter { sink, facts }, .. }: &ChannelEntry<DeadLetter>) -> String {
    let (offset, attempts, reason) = (facts.offset, facts.attempts, printable(&facts.reason));
    format!(
        "{channel:24}  {sink:24}  {offset:>10}  {:20}  {:36}  {attempts:>6}  {reason}",
        time(Some(facts.at)),
        id(facts.event_id)
    )
}

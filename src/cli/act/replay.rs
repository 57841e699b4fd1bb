//! `channeld replay`: starts, lists, pauses, resumes and cancels replays of past events.

use clap::ArgGroup;

use crate::cli::context::{CommandError, Context, Exit, client, configured};
use crate::cli::first_event::{self, Search};
use channel::{OffsetOrTime, ReplayStatus, grouped};
use ledger::ReplayId;
use net::time::Time;
use operator::api::{ChannelEntry, ListReplays, ReplayAction, SetReplay, StartReplay};
use operator::find;
use proof::event::Offset;

/// Replay past events of a channel to its sinks.
///
/// The daemon reads the events from the service again without gaps, verifies them again, and sends them to the sinks as
/// late deliveries with their original ids. A receiver that deduplicates by id therefore drops events that it already
/// has. The cursors of the sinks do not move, and their filters apply. Quarantined events are not replayed. If the cursor
/// of a sink has not reached the end of the range, nothing is delivered.
///
/// The range can have any size. A replay runs in the background: new events are not delayed. It survives a restart of the
/// daemon. If no daemon runs, it begins when a daemon starts.
#[derive(Debug, clap::Args)]
#[command(
    group = ArgGroup::new("change").args(["list", "pause", "resume", "cancel"]),
    override_usage = "channeld replay [OPTIONS] <CHANNEL> --from <OFFSET|TIME> --to <OFFSET|TIME>
       channeld replay [CHANNEL] --list
       channeld replay <CHANNEL> --pause <ID>|--resume <ID>|--cancel <ID>",
    after_help = "Examples:
  channeld replay settlements --from 15520 --to 15540 --sink ledger
  channeld replay settlements --from 2026-11-01 --to 2026-11-01T06:00:00Z
  channeld replay settlements --from 2h --to 1h --sink ledger
  channeld replay --list
  channeld replay settlements --cancel 3"
)]
pub(crate) struct Args {
    /// The channel: its name in the configuration, or its UUID.
    #[arg(required_unless_present_any = ["list", "flag"])]
    channel: Option<String>,
    /// The same as CHANNEL.
    #[arg(long = "channel", value_name = "CHANNEL", conflicts_with = "channel")]
    flag: Option<String>,
    /// Only this sink. Default: one replay for each sink of the channel.
    #[arg(long, conflicts_with = "change")]
    sink: Option<String>,
    /// The offset of the first event, or a time (2026-11-01T00:00:00Z, 2026-11-01, @1793491200 in Unix seconds, or 7d for
    /// that long ago). With a time, events that were created at this time or later are replayed.
    #[arg(long, value_name = "OFFSET|TIME", conflicts_with = "change")]
    #[arg(required_unless_present_any = ["list", "pause", "resume", "cancel"])]
    from: Option<OffsetOrTime>,
    /// The offset of the last event, or a time. With a time, events that were created up to this time are replayed.
    #[arg(long, value_name = "OFFSET|TIME", conflicts_with = "change")]
    #[arg(required_unless_present_any = ["list", "pause", "resume", "cancel"])]
    to: Option<OffsetOrTime>,
    /// List the replays, with their numbers and their progress.
    #[arg(long)]
    list: bool,
    /// Pause this replay. Events that were already read are still delivered.
    #[arg(long, value_name = "ID")]
    pause: Option<ReplayId>,
    /// Resume this replay.
    #[arg(long, value_name = "ID")]
    resume: Option<ReplayId>,
    /// Cancel this replay permanently. Events that were already read are still delivered.
    #[arg(long, value_name = "ID")]
    cancel: Option<ReplayId>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// The offsets of the first and the last event.
#[derive(Clone, Copy, Debug)]
struct Range {
    from: Offset,
    to: Offset,
}

pub(crate) async fn run(args: &Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    if args.list {
        return list(args, cx).await;
    }
    let channel = args.channel().ok_or_else(|| CommandError::usage("the channel is missing"))?.to_owned();
    if let Some((id, action)) = args.change() {
        let changed = cx.operator()?.ask(&SetReplay { channel, id, action }).await?;
        return say(args, std::slice::from_ref(&changed), cx);
    }
    let (Some(from), Some(to)) = (args.from, args.to) else {
        return Err(CommandError::usage("--from and --to are missing"));
    };
    let Range { from, to } = range(&channel, from, to, cx).await?;
    let request = StartReplay { channel, sink: args.sink.clone(), from, to };
    let started = cx.operator()?.ask(&request).await?;
    say(args, &started, cx)
}

impl Args {
    fn channel(&self) -> Option<&str> {
        self.channel.as_deref().or(self.flag.as_deref())
    }

    fn change(&self) -> Option<(ReplayId, ReplayAction)> {
        let Self { pause, resume, cancel, .. } = self;
        let pause = pause.map(|id| (id, ReplayAction::Pause));
        let resume = resume.map(|id| (id, ReplayAction::Resume));
        pause.or(resume).or(cancel.map(|id| (id, ReplayAction::Cancel)))
    }
}

async fn list(args: &Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let request = ListReplays { channel: args.channel().map(str::to_owned) };
    let replays = cx.operator()?.ask(&request).await?;
    cx.say_list(args.json, &replays, (&heading(), "No replays."), line)
}

/// Prints the states of replays after a change.
fn say(args: &Args, replays: &[ChannelEntry<ReplayStatus>], cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    cx.say_each(args.json, replays, |ChannelEntry { channel, facts: replay, .. }| {
        let ReplayStatus { id, sinks, from, to, state, .. } = replay;
        let (state, sinks) = (<&str>::from(*state), sinks.join(", "));
        format!("replay {id} of channel {channel}, from {from} to {to}, to {sinks}: {state}")
    })
}

fn heading() -> String {
    format!(
        "{:24}  {:>6}  {:9}  {:>10}  {:>10}  {:>10}  {:24}  READ",
        "CHANNEL", "ID", "STATE", "FROM", "TO", "EVENTS", "SINKS"
    )
}

fn line(ChannelEntry { channel, facts: replay, .. }: &ChannelEntry<ReplayStatus>) -> String {
    let ReplayStatus { id, sinks, from, to, state, events, .. } = replay;
    let (state, sinks, progress) = (<&str>::from(*state), sinks.join(", "), replay.progress());
    format!("{channel:24}  {id:>6}  {state:9}  {from:>10}  {to:>10}  {:>10}  {sinks:24}  {progress}", grouped(*events))
}

/// Finds the offsets of times, and prints the first event since a time.
async fn range(
    channel: &str,
    from: OffsetOrTime,
    to: OffsetOrTime,
    cx: &mut Context<'_>,
) -> Result<Range, CommandError> {
    if let (OffsetOrTime::Offset(from), OffsetOrTime::Offset(to)) = (from, to) {
        return if from > to { Err(CommandError::usage("--from is above --to")) } else { Ok(Range { from, to }) };
    }
    let config = cx.config()?;
    let known = find(&configured(&config.channels), channel)?;
    let search = Search { client: client(&config, known.id)?, channel: known.id };
    let none = |time: Time, when: &str| {
        CommandError::failed(format!(
            "channel {channel} has no event created at {time} or {when}: nothing is delivered"
        ))
    };
    let to = match to {
        OffsetOrTime::Offset(to) => to,
        OffsetOrTime::Time(time) => search.last_until(time).await?.ok_or_else(|| none(time, "earlier"))?,
    };
    let from = match from {
        OffsetOrTime::Offset(from) => from,
        OffsetOrTime::Time(time) => {
            let first = search.first_since(time).await?;
            let from = first.offset().ok_or_else(|| none(time, "later"))?;
            cx.say(first_event::line(time, &first))?;
            from
        }
    };
    if from > to {
        return Err(CommandError::failed(format!(
            "channel {channel} has no event in this range, from offset {from} to offset {to}: nothing is delivered"
        )));
    }
    Ok(Range { from, to })
}

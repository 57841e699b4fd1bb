//! `channeld check --history`: compares the service's history of a channel with the contents of the channel's sinks. Works
//! with and without a running daemon. Nothing is delivered or recorded.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::context::{CommandError, Context, Exit, client, configured_channel};
use crate::cli::first_event::{self, Search};
use crate::cli::operate::Operator;
use crate::cli::terminal::progress::ProgressBar;
use crate::cli::verdict_line::{id, printable, time};
use crate::config::{Channel, Config, SinkSettings};
use crate::daemon::assembly;
use channel::{
    Accounts, Comparison, ExpectedEvent, History, NotCompared, Scope, SinkComparison, Tally, counted, first_since,
    grouped, unobserved,
};
use net::Chain;
use net::retry::{Retry, RetryPolicy};
use net::time::Time;
use operator::api::GetAccounts;
use operator::check_sink;
use proof::event::Offset;
use record::ChannelRef;

/// The number of events that are compared at a time. Each event uses about 200 bytes of memory. The files of a file sink are
/// read once for this many events.
const PIECE: usize = 500_000;

/// The longest wait before a failed request is repeated, unless the service asks for a longer wait.
const MAX_WAIT: Duration = Duration::from_secs(2);

const READING: &str = "the history of the channel could not be read";

// The arguments of this part of the command. A doc comment here would replace the command's help text.
#[derive(Debug, clap::Args)]
pub(super) struct Selection {
    /// Compare all events of this channel (name or UUID) in the service with its sinks, and list missing events.
    ///
    /// Files and the tables of SQLite and PostgreSQL can be compared. Each event is verified and filtered as the daemon
    /// does. An event is missing if a sink should have it but does not, and if it is not pending, quarantined or a dead
    /// letter. A sink is compared from the first event that it contains up to its cursor. Nothing is changed or
    /// delivered, and the daemon may run. Exits with 1 if an event is missing or a sink could not be read.
    #[arg(long, value_name = "CHANNEL", conflicts_with_all = ["connect", "effective"])]
    pub(super) history: Option<String>,
    /// With --history: from this time on: RFC 3339, Unix seconds such as @1793491200, or an age such as 7d.
    ///
    /// Events of the minute before this time are compared too, because events can have times that are not in the order of
    /// their offsets.
    #[arg(long, value_name = "TIME", requires = "history", value_parser = net::time::seconds)]
    since: Option<i64>,
    /// With --history: start at this offset, even if the first event in a sink has a higher offset.
    #[arg(long, value_name = "OFFSET", requires = "history", conflicts_with = "since")]
    from: Option<Offset>,
    /// With --history: only this sink.
    #[arg(long, requires = "history")]
    sink: Option<String>,
}

pub(super) async fn run(
    channel: &str,
    selection: &Selection,
    json: bool,
    cx: &mut Context<'_>,
) -> Result<Exit, CommandError> {
    let config = cx.config()?;
    let channel = configured_channel(&config, channel)?;
    let id = channel.channel.id;
    let client = client(&config, id)?;
    let operator = cx.operator()?;
    let (search_client, source) = (client.clone(), unobserved(client, id));
    let (mut since, mut first) = (None, None);
    if let Some(time) = selection.since {
        since = Some(first_since(&*source, time).await.map_err(CommandError::api(READING))?);
        let time = Time::At(Timestamp::from_second(time).unwrap_or_default());
        first = Some((time, Search { client: search_client, channel: id }.first_since(time).await?));
    }
    let scope = Scope { from: selection.from, since, is_shared: config.state.database.is_some() };
    let sinks = sinks(&config, channel, selection.sink.as_deref(), scope).await?;
    let settings = Arc::new(assembly::settings(&config, channel));
    let RetryPolicy { wait, max_wait } = settings.retry;
    let mut retry = Retry::new(RetryPolicy { wait: wait.min(MAX_WAIT), max_wait: max_wait.min(MAX_WAIT) });
    let mut comparison = Comparison::new(settings, sinks, accounts(&operator, channel).await?, PIECE);
    if let Some((from, to)) = comparison.range() {
        let mut history = History::of(source, from, to, config.api.page_limit);
        let mut bar = ProgressBar::begin();
        loop {
            let page = Comparison::page(&mut history, &mut retry).await.map_err(CommandError::reading(READING))?;
            let last = page.last().map(|last| last.offset);
            comparison.add(page).await;
            comparison.look_if_due(last.is_none(), || accounts(&operator, channel)).await?;
            let Some(last) = last else { break };
            bar.tell_offset(last, from, to, "compared: ");
        }
    }
    let is_complete = comparison.sinks.iter().all(|sink| {
        let is_wanted = !matches!(sink.from, Err(NotCompared::Failed(_)));
        is_wanted && sink.tally.missing == 0
    });
    if json {
        let sinks: Vec<_> = comparison.sinks.iter().map(|sink| json_of(&channel.channel, sink)).collect();
        let mut shown = json!({ "channel": &*channel.channel.name, "channel_id": id, "sinks": sinks });
        if let Some((_, first)) = &first {
            shown["first"] = first_event::json_of(first);
        }
        cx.say_json(&shown)?;
    } else {
        cx.say_lines(first.iter().map(|(time, first)| first_event::line(*time, first)))?;
        cx.say_lines(comparison.sinks.iter().flat_map(|sink| lines(&channel.channel, sink)))?;
    }
    Ok(if is_complete { Exit::Done } else { Exit::Failed })
}

/// The sinks to compare: every sink of the channel that can list its events, or the sink `only`.
async fn sinks(
    config: &Config,
    channel: &Channel,
    only: Option<&str>,
    scope: Scope,
) -> Result<Vec<SinkComparison>, CommandError> {
    if let Some(only) = only {
        check_sink(&channel.channel.name, only, &channel.sinks)?;
    }
    let names = channel.sinks.iter().filter(|name| only.is_none_or(|only| only == **name));
    let (mut sinks, mut others) = (Vec::new(), Vec::new());
    for name in names {
        // A sink for standard output is never built here, because standard output belongs to this command.
        if matches!(config.sinks[name].settings, SinkSettings::Stdout) {
            others.push(format!("{name}: {}", NotCompared::CannotSay));
            continue;
        }
        let lane_settings = assembly::lane_settings_of(config, channel, name)
            .map_err(|error| CommandError::failed(format!("sink {name} could not be created: {}", Chain(&error))))?;
        let sink = SinkComparison::begin(lane_settings, channel.channel.id, scope).await;
        match &sink.from {
            Err(why @ (NotCompared::CannotSay | NotCompared::Local)) => others.push(format!("{name}: {why}")),
            _ => sinks.push(sink),
        }
    }
    if sinks.is_empty() {
        let (name, others) = (&channel.channel.name, others.join("; "));
        let message = format!("no sink of channel {name} can be compared with the service; {others}");
        return Err(CommandError::usage(message));
    }
    Ok(sinks)
}

/// The events that the ledger accounts for. They come from the running daemon or, if none runs, from the state.
async fn accounts(operator: &Operator, channel: &Channel) -> Result<Accounts, CommandError> {
    operator.ask(&GetAccounts { channel: channel.channel.id.to_string() }).await
}

fn lines(channel: &ChannelRef, sink: &SinkComparison) -> Vec<String> {
    let (name, events) = (sink.name(), counted(sink.tally.events, "event"));
    let from = match &sink.from {
        Ok(from) => from,
        Err(why) => return vec![format!("sink {name}: not compared: {}", Chain(why))],
    };
    let Tally { held, pending, quarantined, dead_letters, excluded, rejected, above_cursor, missing, .. } = sink.tally;
    let verdict = if missing == 0 {
        format!("no event is missing among {events} of the service")
    } else {
        format!("missing: {} of {events} of the service", grouped(missing))
    };
    let counts = [
        ("in the sink", held),
        ("pending", pending),
        ("quarantined", quarantined),
        ("dead letters", dead_letters),
        ("excluded by filter", excluded),
        ("rejected", rejected),
        ("above the cursor", above_cursor),
        ("missing", missing),
    ];
    let counts = counts.map(|(what, count)| format!("{what} {}", grouped(count)));
    let mut lines = vec![
        format!("sink {name}: {verdict}, from offset {from} to its cursor {}", sink.cursor),
        format!("  {}", counts.join(", ")),
    ];
    if missing == 0 {
        return lines;
    }
    lines.push(format!("  {:>10}  {:36}  {:16}  {:20}  EXPECTED AS", "OFFSET", "EVENT", "TYPE", "TIME"));
    for event in &sink.missing {
        let (kind, time) = (printable(event.kind.as_ref()), time(event.time));
        let (offset, id) = (event.key.offset, id(event.key.id));
        lines.push(format!("  {offset:>10}  {id:36}  {kind:16}  {time:20}  {}", expected_as(event)));
    }
    let unlisted = missing - sink.missing.len() as u64;
    if unlisted > 0 {
        lines.push(format!("  and {} more above them", grouped(unlisted)));
    }
    lines.push("  to deliver them:".to_owned());
    lines.extend(sink.ranges().into_iter().map(|range| format!("  {}", command(channel, sink, range))));
    lines
}

fn json_of(channel: &ChannelRef, sink: &SinkComparison) -> Value {
    let name = &**sink.name();
    let from = match &sink.from {
        Ok(from) => from,
        Err(why) => return json!({ "sink": name, "compared": false, "reason": Chain(why).to_string() }),
    };
    let event = |event: &ExpectedEvent| {
        json!({
            "offset": event.key.offset,
            "event_id": event.key.id,
            "type": event.kind,
            "time": event.time.and_then(|time| Timestamp::from_second(time).ok()),
            "expected": expected_as(event),
        })
    };
    let replay =
        |range: (Offset, Offset)| json!({ "from": range.0, "to": range.1, "command": command(channel, sink, range) });
    let mut shown = json!(sink.tally);
    shown["sink"] = json!(name);
    shown["compared"] = json!(true);
    shown["from"] = json!(from);
    shown["cursor"] = json!(sink.cursor);
    shown["missing_events"] = sink.missing.iter().map(event).collect();
    shown["replay"] = sink.ranges().into_iter().map(replay).collect();
    shown
}

fn expected_as(event: &ExpectedEvent) -> &'static str {
    if event.is_verified { "verified" } else { "unsigned" }
}

fn command(channel: &ChannelRef, sink: &SinkComparison, (from, to): (Offset, Offset)) -> String {
    let (channel, sink) = (&channel.name, sink.name());
    format!("channeld replay --channel {channel} --sink {sink} --from {from} --to {to}")
}

//! `channeld check --history`: compares all events that the service has of a channel with the channel's sinks.
//!
//! # Invariants
//!
//! * **Nothing changes.** Sinks are read, the daemon is asked, and nothing is delivered or recorded.
//! * **Works with or without a running daemon.**

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::connect;
use crate::cli::exit::{Exit, Failure};
use crate::cli::operate::Operator;
use crate::cli::output::{say, say_json};
use crate::cli::shown::{id, printable, time};
use crate::cli::terminal::progress::Bar;
use crate::config::{Channel, Config, SinkSettings};
use crate::daemon::assembly;
use channel::{
    Accounts, Comparison, ExpectedEvent, History, NotCompared, Scope, SinkComparison, Tally, first_since, grouped,
    unobserved,
};
use net::Chain;
use operator::api::GetAccounts;
use operator::{check_sink, find, names};
use proof::event::Offset;
use record::ChannelRef;

/// How many events the sinks are asked for at once, about 200 bytes each. Files are read once for each such request.
const PIECE: usize = 500_000;

/// The error message for a failure of the service.
const READING: &str = "the history of the channel could not be read";

/// The arguments of the command.
pub(super) struct Asked<'a> {
    pub(super) channel: &'a str,
    /// Unix seconds.
    pub(super) since: Option<i64>,
    pub(super) from: Option<Offset>,
    pub(super) sink: Option<&'a str>,
    pub(super) json: bool,
}

pub(super) async fn run(asked: Asked<'_>, file: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let config = Config::load(file)?;
    let client = connect::client(&config)?;
    let channel = asked.channel(&config)?;
    let operator = Operator::open(file)?;
    let id = channel.channel.id;
    let source = unobserved(client, id);
    let since = match asked.since {
        Some(since) => Some(first_since(&*source, since).await.map_err(Failure::api(READING))?),
        None => None,
    };
    let scope = Scope { from: asked.from, since, is_shared: config.state.database.is_some() };
    let sinks = asked.sinks(&config, channel, scope).await?;
    let settings = Arc::new(assembly::settings(&config, channel));
    let mut comparison = Comparison::new(settings, sinks, accounts(&operator, channel).await?, PIECE);
    if let Some((from, to)) = comparison.range() {
        let mut history = History::of(source, from, to, config.api.page_limit);
        let mut bar = Bar::begin();
        let distance = |to: Offset| u64::try_from(to.get() - from.get()).unwrap_or_default() + 1;
        loop {
            let page = history.next().await.map_err(Failure::reading(READING))?;
            let last = page.last().map(|last| last.offset);
            comparison.add(page).await;
            comparison.look_if_due(last.is_none(), || accounts(&operator, channel)).await?;
            let Some(last) = last else { break };
            bar.tell(distance(last), distance(to), "compared: ");
        }
        bar.hide();
    }
    let is_complete = comparison.sinks.iter().all(|sink| {
        let is_wanted = !matches!(sink.from, Err(NotCompared::Failed(_)));
        is_wanted && sink.tally.missing == 0
    });
    if asked.json {
        let sinks: Vec<_> = comparison.sinks.iter().map(|sink| json_of(&channel.channel, sink)).collect();
        say_json(out, &json!({ "channel": &*channel.channel.name, "channel_id": id, "sinks": sinks }))?;
    } else {
        for sink in &comparison.sinks {
            write(out, &channel.channel, sink)?;
        }
    }
    Ok(if is_complete { Exit::Done } else { Exit::Failed })
}

impl Asked<'_> {
    /// The channel, which has to be configured: otherwise it has no sinks.
    fn channel<'c>(&self, config: &'c Config) -> Result<&'c Channel, Failure> {
        let configured = connect::configured(&config.channels);
        let found = find(&configured, self.channel)?;
        config.channels.iter().find(|channel| channel.channel == found).ok_or_else(|| {
            let (name, names) = (printable(self.channel), names(&configured));
            Failure(Exit::Usage, format!("channel {name} is not configured; the configured channels are: {names}"))
        })
    }

    /// The sinks to compare: every sink of the channel that can list its events, or the requested one.
    async fn sinks(&self, config: &Config, channel: &Channel, scope: Scope) -> Result<Vec<SinkComparison>, Failure> {
        if let Some(asked) = self.sink {
            check_sink(&channel.channel.name, asked, &channel.sinks)?;
        }
        let names = channel.sinks.iter().filter(|name| self.sink.is_none_or(|asked| asked == **name));
        let (mut sinks, mut others) = (Vec::new(), Vec::new());
        for name in names {
            // Standard output cannot be built if it is closed, or the output of this command.
            if matches!(config.sinks[name].settings, SinkSettings::Stdout) {
                others.push(format!("{name}: {}", NotCompared::CannotSay));
                continue;
            }
            let outlet = assembly::outlet_of(config, channel, name).map_err(|error| {
                Failure(Exit::Failed, format!("sink {name} could not be created: {}", Chain(&error)))
            })?;
            let sink = SinkComparison::begin(outlet, channel.channel.id, scope).await;
            match &sink.from {
                Err(why @ (NotCompared::CannotSay | NotCompared::Local)) => others.push(format!("{name}: {why}")),
                _ => sinks.push(sink),
            }
        }
        if sinks.is_empty() {
            let message = format!(
                "no sink of channel {} can be compared with the service; {}",
                channel.channel.name,
                others.join("; ")
            );
            return Err(Failure(Exit::Usage, message));
        }
        Ok(sinks)
    }
}

/// The events that the ledger accounts for. The daemon answers or, if none runs, the state.
async fn accounts(operator: &Operator, channel: &Channel) -> Result<Accounts, Failure> {
    operator.ask(&GetAccounts { channel: channel.channel.id.to_string() }).await
}

fn write(out: &mut impl Write, channel: &ChannelRef, sink: &SinkComparison) -> Result<(), Failure> {
    let (name, events) = (sink.name(), grouped(sink.tally.events));
    let from = match &sink.from {
        Ok(from) => from,
        Err(why) => return say(out, format!("sink {name}: not compared: {}", Chain(why))).map(drop),
    };
    let Tally { held, pending, quarantined, dead_letters, excluded, rejected, above_cursor, missing, .. } = sink.tally;
    let verdict = if missing == 0 {
        format!("no event is missing; {events} events of the service were compared")
    } else {
        format!("{} of {events} events of the service are missing", grouped(missing))
    };
    say(out, format!("sink {name}: {verdict}, from offset {from} to its cursor {}", sink.cursor))?;
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
    let counts: Vec<_> = counts.iter().map(|(what, count)| format!("{what} {}", grouped(*count))).collect();
    say(out, format!("  {}", counts.join(", ")))?;
    if missing == 0 {
        return Ok(());
    }
    say(out, format!("  {:>10}  {:36}  {:16}  {:20}  EXPECTED AS", "OFFSET", "EVENT", "TYPE", "TIME"))?;
    for event in &sink.missing {
        let (kind, time) = (printable(event.kind.as_ref()), time(event.time));
        let (offset, id) = (event.key.offset, id(event.key.id));
        say(out, format!("  {offset:>10}  {id:36}  {kind:16}  {time:20}  {}", expected_as(event)))?;
    }
    let unlisted = missing - sink.missing.len() as u64;
    if unlisted > 0 {
        say(out, format!("  and {} more above them", grouped(unlisted)))?;
    }
    say(out, "  to deliver them:")?;
    for range in sink.ranges() {
        say(out, format!("  {}", command(channel, sink, range)))?;
    }
    Ok(())
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
    json!({
        "sink": name,
        "compared": true,
        "from": from,
        "cursor": sink.cursor,
        "events": sink.tally.events,
        "held": sink.tally.held,
        "pending": sink.tally.pending,
        "quarantined": sink.tally.quarantined,
        "dead_letters": sink.tally.dead_letters,
        "excluded": sink.tally.excluded,
        "rejected": sink.tally.rejected,
        "above_cursor": sink.tally.above_cursor,
        "missing": sink.tally.missing,
        "missing_events": sink.missing.iter().map(event).collect::<Vec<_>>(),
        "replay": sink.ranges().into_iter().map(replay).collect::<Vec<_>>(),
    })
}

fn expected_as(event: &ExpectedEvent) -> &'static str {
    if event.is_verified { "verified" } else { "unsigned" }
}

fn command(channel: &ChannelRef, sink: &SinkComparison, (from, to): (Offset, Offset)) -> String {
    let (channel, sink) = (&channel.name, sink.name());
    format!("channeld replay --channel {channel} --sink {sink} --from {from} --to {to}")
}

//! The changes that an operator can request: a description of each, and the request that makes it.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::fmt::friendly::SpanParser;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use tokio::time::{sleep, timeout};

use crate::daemon_connection::DaemonConnection;
use crate::event_page::of_table;
use crate::page::{self, events};
use crate::state::State;
use crate::text::text;
use operator::api::{
    AcknowledgeLost, DeadLetterSelection, DropDeadLetters, DropQuarantined, Fate, GetJourney, Journey, ListDeadLetters,
    ListQuarantine, Reload, ReplayDeadLetters, ReplayEvents, RetriedEvent, RetryQuarantined, SetPaused,
};
use proof::event::{ChannelId, Offset};

#[cfg(test)]
mod tests;

/// How long a browser waits until an event arrives at its sink, and the interval between two requests to the daemon
/// during the wait.
const ARRIVAL_WAIT: Duration = Duration::from_secs(3);
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A change and its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OperatorRequest {
    what: Action,
    /// The values as they were received. The form on the page contains the same values.
    channel: String,
    channel_id: String,
    sink: String,
    reason: String,
    offset: Option<Offset>,
    /// The highest offset of several events. Events that come after the confirmation was shown are not changed.
    up_to: Option<Offset>,
    /// The number of these events when the confirmation was shown.
    count: Option<u64>,
    until: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
enum Action {
    Retry,
    Drop,
    RedeliverDead,
    DropDead,
    Redeliver,
    Pause,
    Resume,
    Acknowledge,
    Reload,
}

impl OperatorRequest {
    /// Reads a change from a query or a form. Returns `None` if the target is missing.
    pub(super) fn parse(what: &str, members: &[u8]) -> Option<Self> {
        let what: Action = what.parse().ok()?;
        let member = |name| page::member(members, name).unwrap_or_default();
        let lasts = SpanParser::new().parse_unsigned_duration(&*member("for")).ok().filter(|lasts| !lasts.is_zero());
        let ends = lasts.and_then(|lasts| SignedDuration::try_from(lasts).ok());
        let offset = |name| {
            let offset = member(name);
            if offset.is_empty() { Some(None) } else { offset.parse().ok().map(Some) }
        };
        let request = Self {
            what,
            channel: member("channel"),
            channel_id: member("channel_id"),
            sink: member("sink"),
            reason: member("reason"),
            offset: offset("offset")?,
            up_to: offset("up_to")?,
            count: member("count").parse().ok(),
            until: ends.and_then(|ends| Timestamp::now().checked_add(ends).ok()),
        };
        let (has_channel, has_sink) = (!request.channel.is_empty(), !request.sink.is_empty());
        let is_whole = match what {
            Action::Retry | Action::Drop => has_channel && (request.offset.is_some() || !request.reason.is_empty()),
            Action::RedeliverDead | Action::DropDead => has_channel && has_sink,
            Action::Redeliver => has_channel && has_sink && request.offset.is_some() && !request.channel_id.is_empty(),
            Action::Pause | Action::Resume => has_channel,
            Action::Acknowledge | Action::Reload => true,
        };
        is_whole.then_some(request)
    }

    /// The fields of the form.
    pub(super) fn members(&self) -> Vec<(&'static str, String)> {
        let text = |offset: Option<Offset>| offset.map(|offset| offset.to_string()).unwrap_or_default();
        let members = [
            ("channel", self.channel.clone()),
            ("channel_id", self.channel_id.clone()),
            ("sink", self.sink.clone()),
            ("reason", self.reason.clone()),
            ("offset", text(self.offset)),
            ("up_to", text(self.up_to)),
            ("count", self.count.map(|count| count.to_string()).unwrap_or_default()),
        ];
        members.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    /// The name of the change. `count` is the number of events that it is about, if several events can match.
    pub(super) fn title(&self, count: Option<u64>) -> String {
        let several = |verb: &str, all: &str| match count {
            Some(count) => format!("{verb} {}", events(count)),
            None => format!("{verb} {all}"),
        };
        let title = match (self.what, self.offset) {
            (Action::Retry, Some(_)) => "Retry the quarantined event",
            (Action::Retry, None) => return several("Retry", "all matching events"),
            (Action::Drop, Some(_)) => "Drop the quarantined event",
            (Action::Drop, None) => return several("Drop", "all matching events"),
            (Action::RedeliverDead, Some(_)) => "Replay the dead letter",
            (Action::RedeliverDead, None) => return several("Replay", "all dead letters of the sink"),
            (Action::DropDead, Some(_)) => "Drop the dead letter",
            (Action::DropDead, None) => return several("Drop", "all dead letters of the sink"),
            (Action::Redeliver, _) => "Replay the event",
            (Action::Pause, _) => return format!("Pause {}", self.place()),
            (Action::Resume, _) => return format!("Resume {}", self.place()),
            (Action::Acknowledge, _) => "Acknowledge the loss",
            (Action::Reload, _) => "Reload the configuration",
        };
        title.to_owned()
    }

    /// The text of the button, if the title is too long for a button.
    pub(super) fn verb(&self) -> Option<&'static str> {
        match self.what {
            Action::Pause => Some("Pause"),
            Action::Resume => Some("Resume"),
            _ => None,
        }
    }

    /// The channel or the sink that the change is about.
    fn place(&self) -> String {
        let Self { channel, sink, .. } = self;
        if sink.is_empty() { format!("channel {channel}") } else { format!("sink {sink} of channel {channel}") }
    }

    /// The offsets of the stored events that the change is about, up to `up_to` if it is set. `None` if the change is about one
    /// event or about none, or if the daemon does not answer.
    async fn matching(&self, daemon: &DaemonConnection) -> Option<Vec<Offset>> {
        let channel = Some(self.channel.clone());
        let mut offsets: Vec<_> = match (self.what, self.offset) {
            (Action::Retry | Action::Drop, None) => {
                let events = daemon.ask(&ListQuarantine { channel }).await.ok()?.into_iter();
                events.filter(|entry| entry.facts.reason == self.reason).map(|entry| entry.facts.offset).collect()
            }
            (Action::RedeliverDead | Action::DropDead, None) => {
                let letters = daemon.ask(&ListDeadLetters { channel, sink: Some(self.sink.clone()) }).await.ok()?;
                letters.into_iter().map(|letter| letter.facts.facts.offset).collect()
            }
            _ => return None,
        };
        offsets.retain(|offset| self.up_to.is_none_or(|up_to| *offset <= up_to));
        Some(offsets)
    }

    /// Limits the change to the events that match now. Returns their number; `None` like [`matching`](Self::matching).
    pub(super) async fn limit(&mut self, daemon: &DaemonConnection) -> Option<u64> {
        let offsets = self.matching(daemon).await?;
        (self.up_to, self.count) = (offsets.iter().max().copied(), Some(offsets.len() as u64));
        self.count
    }

    /// Describes the effect of the change. Each element is a paragraph.
    pub(super) fn effects(&self) -> Vec<Markup> {
        let which = |one: &str, all: &str| {
            html! {
                @if let Some(offset) = self.offset { (one) " " (offset.get()) } @else { (all) }
                @if let Some(up_to) = self.up_to { " up to offset " (up_to.get()) }
                " of channel " (text(&self.channel))
            }
        };
        let sink = html! { "sink " (text(&self.sink)) };
        match self.what {
            Action::Retry => vec![
                html! { (which("Event", "Every event")) @if self.offset.is_none() { " that was rejected for " code { (text(&self.reason)) } }
                " is verified again with the currently configured signers." },
                html! { "Events that pass verification are delivered to the channel's sinks as late deliveries. Other events stay in the quarantine." },
            ],
            Action::Drop => vec![
                html! { (which("Event", "Every event")) @if self.offset.is_none() { " that was rejected for " code { (text(&self.reason)) } }
                " is removed from the quarantine, including its bytes. " strong { "This cannot be undone." } },
                html! { "A dropped event is not delivered to any sink." },
            ],
            Action::RedeliverDead => vec![
                html! { (which("Event", "Every dead letter")) " is sent to " (sink) " again, with the same event id." },
                html! { "The daemon first verifies the event again. If the sink keeps refusing the event, the event becomes a dead letter again." },
            ],
            Action::DropDead => {
                vec![html! { (which("Dead letter", "Every dead letter")) " at " (sink) " is removed. "
                strong { "This cannot be undone in the console. " }
                code { "channeld replay" } " can read the event from the service again." }]
            }
            Action::Redeliver => vec![
                html! { (which("Event", "Every event")) " is delivered to " (sink) " again, with the same event id. A sink "
                "that deduplicates by id stores the event once. A sink without deduplication gets a duplicate." },
                html! { "The daemon first verifies the event again. The sink's cursor does not change. An event that the sink's filter \
                excludes is not delivered." },
            ],
            Action::Pause if self.sink.is_empty() => vec![
                html! { "Channel " (text(&self.channel)) " is no longer polled, and its events are not delivered. The current batch is finished first. No events are lost: "
                "reading continues at the cursor when the channel is resumed." },
                html! { "The pause survives a restart of the daemon." },
            ],
            Action::Pause => vec![
                html! { "Events of channel " (text(&self.channel)) " are not delivered to " (sink) ". Other sinks continue. Delivery "
                "continues at the sink's cursor when the sink is resumed. A sink that is blocked stays blocked when the pause ends." },
            ],
            Action::Resume if self.sink.is_empty() => vec![html! {
                "Channel " (text(&self.channel)) " continues at its cursor. A sink that refuses events is retried immediately."
            }],
            Action::Resume => vec![html! {
                "Channel " (text(&self.channel)) ", " (sink) ", continues at its cursor. A sink that refuses events is retried immediately."
            }],
            Action::Acknowledge => vec![
                html! { "This confirms that you know about the loss that a damaged state caused. The loss then no longer prevents the daemon from being ready." },
            ],
            Action::Reload => vec![
                html! { "The daemon reloads its configuration and secrets, either completely or not at all. Channels and sinks whose settings did not change keep running." },
            ],
        }
    }

    /// Whether the change removes data permanently.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.what, Action::Drop | Action::DropDead)
    }

    pub(super) fn takes_time(&self) -> bool {
        self.what == Action::Pause
    }

    /// The page that offers the change.
    pub(super) fn back(&self) -> String {
        match (self.what, self.offset) {
            (Action::Redeliver, Some(offset)) if self.channel_id.parse::<ChannelId>().is_ok() => {
                format!("/event/{}/{offset}", self.channel_id)
            }
            (Action::Pause | Action::Resume | Action::Acknowledge | Action::Reload, _) => "/daemon".to_owned(),
            (Action::RedeliverDead | Action::DropDead, _) => "/held?list=dead".to_owned(),
            _ => "/held".to_owned(),
        }
    }

    /// Sends the request to the daemon and returns the result in words.
    pub(super) async fn carry_out(&self, state: &State, browser: u64) -> Result<String, String> {
        let Self { channel, sink, reason, offset, .. } = self;
        let daemon = &state.daemon;
        let offsets = match (self.what, *offset) {
            (Action::Retry | Action::Drop | Action::RedeliverDead | Action::DropDead, None) => {
                let matching = self.matching(daemon).await.ok_or("The daemon does not answer.")?;
                let count = matching.len() as u64;
                if count == 0 || self.count != Some(count) {
                    let now = events(count);
                    return Err(format!("Nothing was changed: {now} match now. Check the list, and try again."));
                }
                // Two events can have one offset.
                BTreeSet::from_iter(matching).into_iter().collect()
            }
            (_, offset) => Vec::from_iter(offset),
        };
        let which = || DeadLetterSelection {
            channel: channel.clone(),
            sink: sink.clone(),
            offsets: offsets.clone(),
            ..DeadLetterSelection::default()
        };
        match self.what {
            Action::Retry => {
                let reason = Some(reason.clone()).filter(|reason| !reason.is_empty());
                let request = RetryQuarantined { channel: channel.clone(), offsets, all: false, reason };
                describe_retries(&daemon.ask_for(browser, &request).await?)
            }
            Action::Drop => {
                let reason = Some(reason.clone()).filter(|_| offset.is_none());
                let request = DropQuarantined { channel: channel.clone(), offsets, reason, all: false };
                let dropped = daemon.ask_for(browser, &request).await?.len() as u64;
                Ok(format!("Dropped: {}.", events(dropped)))
            }
            Action::RedeliverDead => {
                let since = Timestamp::now();
                let sent = daemon.ask_for(browser, &ReplayDeadLetters { which: which() }).await?;
                self.sent(state, &sent, since).await
            }
            Action::DropDead => {
                let dropped = daemon.ask_for(browser, &DropDeadLetters { which: which() }).await?.len() as u64;
                Ok(format!("Dropped: {}.", events(dropped)))
            }
            Action::Redeliver => self.redeliver(state, browser).await,
            Action::Pause | Action::Resume => {
                let paused = self.what == Action::Pause;
                let only = Some(sink.clone()).filter(|sink| !sink.is_empty());
                let until = self.until.filter(|_| paused);
                let request = SetPaused { channel: channel.clone(), sink: only, paused, until, accept_loss: false };
                let changed = daemon.ask_for(browser, &request).await?;
                let now = if paused { "paused" } else { "running" };
                let what = if sink.is_empty() { channel.clone() } else { format!("{channel}, sink {sink}") };
                Ok(format!("{what}: {}{now}.", if changed { "" } else { "already " }))
            }
            Action::Acknowledge => {
                let lost = daemon.ask_for(browser, &AcknowledgeLost {}).await?;
                Ok(if lost.is_some() { "Acknowledged." } else { "No loss to acknowledge." }.to_owned())
            }
            Action::Reload => {
                let changes = daemon.ask_for(browser, &Reload {}).await?;
                let warnings: Vec<_> = changes.warnings.iter().map(|warning| format!(" Warning: {warning}")).collect();
                let lanes: Vec<_> = changes.lanes.iter().map(|lane| format!(" {lane}")).collect();
                Ok(format!("The configuration was reloaded.{}{}", lanes.concat(), warnings.concat()))
            }
        }
    }

    /// Sends the event's bytes from the table to the daemon.
    async fn redeliver(&self, state: &State, browser: u64) -> Result<String, String> {
        let (Ok(id), Some(offset)) = (self.channel_id.parse(), self.offset) else {
            return Err("The form does not identify an event.".to_owned());
        };
        let (_, found) = of_table(state, id, offset.get()).await.map_err(|(_, why)| why)?;
        let event =
            found.event().ok_or("The table does not contain the service's event. Use `channeld replay` instead.")?;
        let (channel, sink, events) = (self.channel.clone(), self.sink.clone(), vec![STANDARD.encode(event)]);
        let since = Timestamp::now();
        let sent = state.daemon.ask_for(browser, &ReplayEvents { channel, sink, events }).await?;
        self.sent(state, &sent, since).await
    }

    /// Waits up to [`ARRIVAL_WAIT`] until an event reaches its sink, and describes the state of the event. Several
    /// events are reported as queued, without a wait.
    async fn sent(&self, state: &State, offsets: &[Offset], since: Timestamp) -> Result<String, String> {
        let Self { channel, sink, .. } = self;
        let &[offset] = offsets else {
            return Ok(format!("Queued for replay to {sink}: {}.", events(offsets.len() as u64)));
        };
        let request = GetJourney { channel: channel.clone(), offset };
        let asked = async {
            loop {
                let journey = state.daemon.ask(&request).await?;
                if let Some(answer) = arrival(&journey, sink, since) {
                    return answer;
                }
                sleep(ASK_AGAIN).await;
            }
        };
        let queued = || Ok(format!("Queued for replay to {sink}. The event is not delivered yet."));
        timeout(ARRIVAL_WAIT, asked).await.unwrap_or_else(|_| queued())
    }
}

/// The result for an event that was sent to the sink again at `since`; `None` while it is queued.
fn arrival(journey: &Journey, sink: &str, since: Timestamp) -> Option<Result<String, String>> {
    // The daemon rounds its times down to milliseconds.
    let is_new = |at: Timestamp| at.as_millisecond() >= since.as_millisecond();
    if let Some(late) = journey.delivered_late.iter().find(|late| *late.sink == *sink && is_new(late.at)) {
        return Some(Ok(format!("Replayed to {sink} at {} UTC.", late.at.strftime("%H:%M:%S"))));
    }
    if journey.late.as_ref().is_some_and(|late| late.owed.iter().any(|owed| **owed == *sink)) {
        return None;
    }
    // An older dead letter does not count.
    let given_up =
        journey.dead_letters.iter().find(|letter| *letter.sink == *sink && letter.facts.at >= since.as_second());
    Some(match given_up {
        Some(letter) => Err(format!("Sink {sink} refused the event: {}.", letter.facts.reason)),
        None => Ok(format!("Sink {sink} already has the event, or its filter excludes it.")),
    })
}

/// Describes the results for events that were verified again.
fn describe_retries(retried: &[RetriedEvent]) -> Result<String, String> {
    let count = |is: fn(&Fate) -> bool| retried.iter().filter(|one| is(&one.fate)).count();
    let results = [
        (count(|fate| matches!(fate, Fate::Delivering)), "verified and queued for delivery"),
        (count(|fate| matches!(fate, Fate::Waiting)), "pending: the proof has not arrived yet"),
        (count(|fate| matches!(fate, Fate::ReadInOrder)), "verified and will be read again in order"),
        (count(|fate| matches!(fate, Fate::Kept { .. })), "still rejected and kept in the quarantine"),
    ];
    let said = results.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let said = said.collect::<Vec<_>>().join("; ");
    if said.is_empty() {
        return Err("No quarantined event matches.".to_owned());
    }
    let why = retried.iter().find_map(|one| match &one.fate {
        Fate::Kept { detail, .. } => Some(detail),
        _ => None,
    });
    match why {
        Some(detail) => Err(format!("Retried: {said} ({detail}).")),
        None => Ok(format!("Retried: {said}.")),
    }
}

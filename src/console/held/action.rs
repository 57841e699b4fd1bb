//! The changes that an operator can request: a description of each, and the request that makes it.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::fmt::friendly::SpanParser;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use tokio::time::{sleep, timeout};

use crate::one::of_table;
use crate::page::{self, events};
use crate::state::State;
use crate::text::text;
use operator::api::{
    AcknowledgeLost, DeadLetterSelection, DropDeadLetters, DropQuarantined, Fate, GetJourney, Journey, Reload,
    ReplayDeadLetters, ReplayEvents, RetriedEvent, RetryQuarantined, SetPaused,
};
use proof::event::{ChannelId, Offset};

/// How long a browser waits for an event to arrive, and how often the daemon is asked during this time.
const A_MOMENT: Duration = Duration::from_secs(3);
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A change and its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Action {
    what: What,
    /// The values as they were received, the same on the page and in the form.
    channel: String,
    channel_id: String,
    sink: String,
    reason: String,
    offset: Option<Offset>,
    until: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
enum What {
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

impl Action {
    /// Reads a change from a query or a form. Returns `None` if the target is missing.
    pub(super) fn parse(what: &str, members: &[u8]) -> Option<Self> {
        let what: What = what.parse().ok()?;
        let member = |name| page::member(members, name).unwrap_or_default();
        let lasts = SpanParser::new().parse_unsigned_duration(&*member("for")).ok().filter(|lasts| !lasts.is_zero());
        let ends = lasts.and_then(|lasts| SignedDuration::try_from(lasts).ok());
        let offset = member("offset");
        let action = Self {
            what,
            channel: member("channel"),
            channel_id: member("channel_id"),
            sink: member("sink"),
            reason: member("reason"),
            offset: if offset.is_empty() { None } else { Some(offset.parse().ok()?) },
            until: ends.and_then(|ends| Timestamp::now().checked_add(ends).ok()),
        };
        let (has_channel, has_sink) = (!action.channel.is_empty(), !action.sink.is_empty());
        let is_whole = match what {
            What::Retry | What::Drop => has_channel && (action.offset.is_some() || !action.reason.is_empty()),
            What::RedeliverDead | What::DropDead => has_channel && has_sink,
            What::Redeliver => has_channel && has_sink && action.offset.is_some() && !action.channel_id.is_empty(),
            What::Pause | What::Resume => has_channel,
            What::Acknowledge | What::Reload => true,
        };
        is_whole.then_some(action)
    }

    /// The fields of the form.
    pub(super) fn members(&self) -> Vec<(&'static str, String)> {
        let offset = self.offset.map(|offset| offset.to_string()).unwrap_or_default();
        let members = [
            ("channel", self.channel.clone()),
            ("channel_id", self.channel_id.clone()),
            ("sink", self.sink.clone()),
            ("reason", self.reason.clone()),
            ("offset", offset),
        ];
        members.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    pub(super) fn title(&self) -> &'static str {
        match (self.what, self.offset) {
            (What::Retry, Some(_)) => "Verify again and deliver what holds",
            (What::Retry, None) => "Verify all of these again",
            (What::Drop, Some(_)) => "Drop the quarantined event",
            (What::Drop, None) => "Drop all of these",
            (What::RedeliverDead, Some(_)) => "Redeliver the dead letter",
            (What::RedeliverDead, None) => "Redeliver all dead letters of the sink",
            (What::DropDead, Some(_)) => "Drop the dead letter",
            (What::DropDead, None) => "Drop all dead letters of the sink",
            (What::Redeliver, _) => "Redeliver the event",
            (What::Pause, _) => "Pause",
            (What::Resume, _) => "Resume",
            (What::Acknowledge, _) => "Acknowledge the loss",
            (What::Reload, _) => "Read the configuration again",
        }
    }

    /// Describes the effect, in one or two sentences per paragraph.
    pub(super) fn will(&self) -> Vec<Markup> {
        let which = |one: &str, all: &str| {
            html! {
                @if let Some(offset) = self.offset { (one) " " (offset.get()) } @else { (all) }
                " of channel " (text(&self.channel))
            }
        };
        let sink = html! { "sink " (text(&self.sink)) };
        match self.what {
            What::Retry => vec![
                html! { (which("Event", "Every event")) @if self.offset.is_none() { " that was rejected for " code { (text(&self.reason)) } }
                " is verified again, with the signers that the daemon has configured now." },
                html! { "Events that verify now are delivered to the channel's sinks once, as late events. The others stay in the quarantine." },
            ],
            What::Drop => vec![
                html! { (which("Event", "Every event")) @if self.offset.is_none() { " that was rejected for " code { (text(&self.reason)) } }
                " leaves the quarantine, with its bytes. " strong { "It cannot be brought back from here." } },
                html! { "It was delivered nowhere, and will not be." },
            ],
            What::RedeliverDead => vec![
                html! { (which("Event", "Every dead letter")) " is offered to " (sink) " once more, with the id that it had." },
                html! { "It is verified again first. If the sink refuses it for too long, it is a dead letter again." },
            ],
            What::DropDead => vec![html! { (which("Dead letter", "Every dead letter")) " at " (sink) " is removed. "
            strong { "It cannot be brought back from here" } ", only from the service, by " code { "channeld replay" } "." }],
            What::Redeliver => vec![
                html! { (which("Event", "Every event")) " is delivered to " (sink) " once more, with the id that it had. A sink "
                "that knows the id keeps it once; another has it twice." },
                html! { "It is verified again first. What the sink gets next stays as it is. An event that the sink's filter leaves out is \
                not delivered." },
            ],
            What::Pause if self.sink.is_empty() => vec![
                html! { "Channel " (text(&self.channel)) " reads and delivers nothing. The current batch is finished first, and nothing is lost: "
                "later events are read after it is resumed." },
                html! { "A restart of the daemon does not end the pause." },
            ],
            What::Pause => vec![
                html! { "Channel " (text(&self.channel)) " delivers nothing to " (sink) ". The other sinks continue. Later events are "
                "delivered after it is resumed." },
            ],
            What::Resume => vec![
                html! { "Channel " (text(&self.channel)) @if !self.sink.is_empty() { ", " (sink) "," } " continues at its cursor. "
                "A sink that refuses is tried again at once." },
            ],
            What::Acknowledge => vec![
                html! { "You say that you have seen what was lost to a damaged state. The daemon is ready again, as far as that is concerned." },
            ],
            What::Reload => vec![
                html! { "The daemon reloads its configuration and secrets completely or not at all. Unchanged parts keep running." },
            ],
        }
    }

    /// Whether the change removes data permanently.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.what, What::Drop | What::DropDead)
    }

    pub(super) fn takes_time(&self) -> bool {
        self.what == What::Pause
    }

    /// The page that offers the change.
    pub(super) fn back(&self) -> String {
        match (self.what, self.offset) {
            (What::Redeliver, Some(offset)) if self.channel_id.parse::<ChannelId>().is_ok() => {
                format!("/event/{}/{offset}", self.channel_id)
            }
            (What::Pause | What::Resume | What::Acknowledge | What::Reload, _) => "/daemon".to_owned(),
            _ => "/held".to_owned(),
        }
    }

    /// Sends the request to the daemon and returns the result in words.
    pub(super) async fn carry_out(&self, state: &State, browser: u64) -> Result<String, String> {
        let Self { channel, sink, reason, offset, .. } = self;
        let offsets = Vec::from_iter(*offset);
        let which = || DeadLetterSelection {
            channel: channel.clone(),
            sink: sink.clone(),
            offsets: offsets.clone(),
            ..DeadLetterSelection::default()
        };
        let link = &state.link;
        match self.what {
            What::Retry => {
                let reason = Some(reason.clone()).filter(|reason| !reason.is_empty());
                let request = RetryQuarantined { channel: channel.clone(), offsets, all: false, reason };
                said_of(&link.ask_for(browser, &request).await?)
            }
            What::Drop => {
                let reason = Some(reason.clone()).filter(|_| offset.is_none());
                let request = DropQuarantined { channel: channel.clone(), offsets, reason, all: false };
                let dropped = link.ask_for(browser, &request).await?.len() as u64;
                Ok(format!("Dropped: {}.", events(dropped)))
            }
            What::RedeliverDead => {
                let since = Timestamp::now();
                let sent = link.ask_for(browser, &ReplayDeadLetters { which: which() }).await?;
                self.sent(state, &sent, since).await
            }
            What::DropDead => {
                let dropped = link.ask_for(browser, &DropDeadLetters { which: which() }).await?.len() as u64;
                Ok(format!("Dropped: {}.", events(dropped)))
            }
            What::Redeliver => self.redeliver(state, browser).await,
            What::Pause | What::Resume => {
                let paused = self.what == What::Pause;
                let only = Some(sink.clone()).filter(|sink| !sink.is_empty());
                let until = self.until.filter(|_| paused);
                let request = SetPaused { channel: channel.clone(), sink: only, paused, until };
                let changed = link.ask_for(browser, &request).await?;
                let now = if paused { "paused" } else { "going on" };
                let what = if sink.is_empty() { channel.clone() } else { format!("{channel}, sink {sink}") };
                Ok(format!("{what}: {}{now}.", if changed { "" } else { "already " }))
            }
            What::Acknowledge => {
                let lost = link.ask_for(browser, &AcknowledgeLost {}).await?;
                Ok(if lost.is_some() { "Acknowledged." } else { "Nothing had to be acknowledged." }.to_owned())
            }
            What::Reload => {
                let changes = link.ask_for(browser, &Reload {}).await?;
                let warnings: Vec<_> = changes.warnings.iter().map(|warning| format!(" Careful: {warning}")).collect();
                Ok(format!("The configuration was read again, and is in force.{}", warnings.concat()))
            }
        }
    }

    /// Sends the event's bytes from the table to the daemon.
    async fn redeliver(&self, state: &State, browser: u64) -> Result<String, String> {
        let (Ok(id), Some(offset)) = (self.channel_id.parse(), self.offset) else {
            return Err("The form does not say which event.".to_owned());
        };
        let (_, found) = of_table(state, id, offset.get()).await.map_err(|(_, why)| why)?;
        let event = found.event().ok_or("The service's event is not in this table: use `channeld replay`.")?;
        let (channel, sink, events) = (self.channel.clone(), self.sink.clone(), vec![STANDARD.encode(event)]);
        let since = Timestamp::now();
        let sent = state.link.ask_for(browser, &ReplayEvents { channel, sink, events }).await?;
        self.sent(state, &sent, since).await
    }

    /// Waits up to [`A_MOMENT`] for a single event to reach its sink, and describes its state. Several events are only
    /// reported as on their way.
    async fn sent(&self, state: &State, offsets: &[Offset], since: Timestamp) -> Result<String, String> {
        let Self { channel, sink, .. } = self;
        let &[offset] = offsets else {
            return Ok(format!("On the way to {sink} once more: {}.", events(offsets.len() as u64)));
        };
        let request = GetJourney { channel: channel.clone(), offset };
        let asked = async {
            loop {
                let journey = state.link.ask(&request).await?;
                if let Some(answer) = arrival(&journey, sink, since) {
                    return answer;
                }
                sleep(ASK_AGAIN).await;
            }
        };
        let on_its_way = || Ok(format!("On its way to {sink} once more, and not there yet."));
        timeout(A_MOMENT, asked).await.unwrap_or_else(|_| on_its_way())
    }
}

/// The result for an event that was sent to the sink again at `since`; `None` while it is on its way.
fn arrival(journey: &Journey, sink: &str, since: Timestamp) -> Option<Result<String, String>> {
    // The daemon's times are in milliseconds.
    let is_new = |at: Timestamp| at.as_millisecond() >= since.as_millisecond();
    if let Some(late) = journey.delivered_late.iter().find(|late| *late.sink == *sink && is_new(late.at)) {
        return Some(Ok(format!("Delivered to {sink} once more, at {} UTC.", late.at.strftime("%H:%M:%S"))));
    }
    if journey.late.as_ref().is_some_and(|late| late.owed.iter().any(|owed| **owed == *sink)) {
        return None;
    }
    // An older dead letter does not count.
    let given_up =
        journey.dead_letters.iter().find(|letter| *letter.sink == *sink && letter.facts.at >= since.as_second());
    Some(match given_up {
        Some(letter) => Err(format!("Sink {sink} has refused it: {}.", letter.facts.reason)),
        None => Ok(format!("Sink {sink} has it, or leaves it out by its filter.")),
    })
}

/// Describes the results for events that were verified again.
fn said_of(retried: &[RetriedEvent]) -> Result<String, String> {
    let count = |is: fn(&Fate) -> bool| retried.iter().filter(|one| is(&one.fate)).count();
    let delivering = count(|fate| matches!(fate, Fate::Delivering));
    let waiting = count(|fate| matches!(fate, Fate::Waiting));
    let in_order = count(|fate| matches!(fate, Fate::ReadInOrder));
    let kept = count(|fate| matches!(fate, Fate::Kept { .. }));
    let results = [
        (delivering, "hold, and are on the way to their sinks"),
        (waiting, "have no proof yet: it is waited for again"),
        (in_order, "hold, and are read again in order"),
        (kept, "still do not hold, and stay"),
    ];
    let said = results.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let said = said.collect::<Vec<_>>().join("; ");
    if said.is_empty() {
        return Err("No event had to be verified again.".to_owned());
    }
    let why = retried.iter().find_map(|one| match &one.fate {
        Fate::Kept { detail, .. } => Some(format!(" ({detail})")),
        _ => None,
    });
    let text = format!("Verified again: {said}{}.", why.unwrap_or_default());
    if kept > 0 { Err(text) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use channel::LateDelivery;
    use ledger::PendingEvent;

    #[test]
    fn an_action_needs_its_subject() {
        for (what, members, is_one) in [
            ("retry", "channel=c0&offset=7", true),
            ("retry", "channel=c0&reason=too-few-signatures", true),
            ("retry", "channel=c0", false),
            ("drop", "offset=7", false),
            ("drop", "channel=c0&offset=-1", false),
            ("drop-dead", "channel=c0&sink=hook", true),
            ("drop-dead", "channel=c0", false),
            ("redeliver", "channel=c0&sink=hook&offset=7", false),
            ("pause", "channel=c0", true),
            ("rob", "channel=c0", false),
        ] {
            assert_eq!(Action::parse(what, members.as_bytes()).is_some(), is_one, "{what} {members}");
        }
    }

    #[test]
    fn the_confirmed_action_is_the_requested_one() {
        let asked = Action::parse("drop", b"channel=c0&offset=7&reason=x%26y").unwrap();
        let members =
            crate::page::form(&asked.members().iter().map(|(name, value)| (*name, &**value)).collect::<Vec<_>>());
        assert_eq!(Action::parse("drop", members.as_bytes()), Some(asked));
    }

    #[test]
    fn an_event_counts_as_arrived_after_its_delivery() {
        let since = Timestamp::from_second(1_800_000_000).unwrap();
        let taken = |second| LateDelivery {
            offset: Offset::new(7).unwrap(),
            sink: "hook".into(),
            at: since.checked_add(SignedDuration::from_secs(second)).unwrap(),
            is_asked_for: true,
        };
        let mut journey = Journey { delivered_late: vec![taken(-1)], ..Journey::default() };
        let left_out = arrival(&journey, "hook", since).unwrap().unwrap();
        assert_eq!(left_out, "Sink hook has it, or leaves it out by its filter.", "earlier deliveries do not count");
        let owed = std::iter::once("hook".into()).collect();
        journey.late = Some(PendingEvent {
            event_id: None,
            first_seen: 0,
            asked_at: None,
            received: None,
            owed,
            appeared: false,
            bytes: 0,
        });
        assert_eq!(arrival(&journey, "hook", since), None);
        journey.delivered_late.push(taken(0));
        let said = arrival(&journey, "hook", since).unwrap().unwrap();
        assert_eq!(said, "Delivered to hook once more, at 08:00:00 UTC.");
    }

    #[test]
    fn an_action_redirects_only_to_own_pages() {
        let asked = Action::parse("redeliver", b"channel=c0&sink=hook&offset=7&channel_id=//evil.example").unwrap();
        assert_eq!(asked.back(), "/held");
    }
}

//! An event as its page shows it, independent of where it was found, and the verifier's findings.

use bytes::Bytes;
use jiff::Timestamp;
use maud::{Markup, html};

use super::history::{EventOrigin, HistoryStep};
use crate::page::Badge;
use channel::LaneStatus;
use proof::event::{ChannelId, Event};
use proof::verify::{Dissected, Report, Verdict, Verifier};
use record::ObjectVerdict;

pub(super) struct ShownEvent {
    /// The list that contains the event: address and name.
    pub(super) list: (&'static str, &'static str),
    pub(super) channel: String,
    pub(super) channel_id: ChannelId,
    pub(super) offset: i64,
    pub(super) event_id: Option<String>,
    /// The verifier's input: a record, or only the service's event.
    pub(super) json: Bytes,
    /// Only the service's event, if it is available.
    pub(super) event: Option<Bytes>,
    /// The address to download `event` from; empty if it cannot be downloaded.
    pub(super) raw: String,
    /// The verdict that came with the event. If the verifier disagrees, the page shows `stored_verdict_intro` and this
    /// verdict.
    pub(super) stored_verdict: Badge,
    pub(super) stored_verdict_intro: &'static str,
    /// `proved` is not set, because only the verifier knows this time.
    pub(super) origin: EventOrigin,
    pub(super) delivered: Option<Timestamp>,
    /// The earliest delivery of the events that follow this one.
    pub(super) followed: Option<Timestamp>,
    /// The later steps of the event's history.
    pub(super) history: Vec<HistoryStep>,
    pub(super) actions: Markup,
    /// The links to the previous and the next event of the channel.
    pub(super) neighbors: Markup,
    /// A notice above the content.
    pub(super) notice: Markup,
}

pub(super) struct Examination {
    pub(super) outcome: ObjectVerdict,
    pub(super) verdict: Option<Verdict>,
    pub(super) event: Option<Event>,
    pub(super) dissected: Option<Dissected>,
    pub(super) verifier: Verifier,
    pub(super) took: std::time::Duration,
}

impl ShownEvent {
    /// Creates an event about which nothing else is known. The event counts as read by channeld.
    pub(super) fn new(channel: &str, channel_id: ChannelId, offset: i64, json: Bytes, stored_verdict: Badge) -> Self {
        Self {
            list: ("/", "Events"),
            channel: channel.to_owned(),
            channel_id,
            offset,
            event_id: None,
            json,
            event: None,
            raw: String::new(),
            stored_verdict,
            stored_verdict_intro: "",
            origin: EventOrigin { was_read: true, ..EventOrigin::default() },
            delivered: None,
            followed: None,
            history: Vec::new(),
            actions: html! {},
            neighbors: html! {},
            notice: html! {},
        }
    }

    /// The complete history. `proved` is the time at which the network made the proof, if the proof is valid.
    pub(super) fn full_history(&mut self, proved: Option<Timestamp>) -> Vec<HistoryStep> {
        let origin = EventOrigin { proved, ..self.origin };
        let mut steps = origin.steps();
        steps.extend(origin.wait(self.delivered, self.followed));
        steps.append(&mut self.history);
        steps
    }
}

impl Examination {
    /// When the network made the proof, if the proof is valid.
    pub(super) fn proved(&self) -> Option<Timestamp> {
        let verified = matches!(self.verdict, Some(Verdict::Verified(_))) && self.outcome.reason.is_none();
        let dissected = self.dissected.as_ref().filter(|_| verified)?;
        Timestamp::from_second(Report::parse(&dissected.report)?.timestamp.into()).ok()
    }
}

/// The event's own creation time.
pub(super) fn created(event: &Bytes) -> Option<Timestamp> {
    let second = Event::parse(event.clone()).ok()?.payload.timestamp?;
    Timestamp::from_second(second).ok()
}

pub(super) fn lanes(report: &operator::Report, channel: ChannelId) -> impl Iterator<Item = &LaneStatus> {
    let known = report.channels.iter().filter(move |known| known.channel_id == channel);
    known.flat_map(|known| &known.lanes)
}

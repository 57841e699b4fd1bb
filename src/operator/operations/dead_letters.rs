//! Lists, shows, drops and replays dead letters. Also replays past events whose bytes the request contains.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::value::{RawValue, to_raw_value};
use tracing::warn;

use super::AT_ONCE;
use crate::api::{
    ChannelEntry, DeadLetter, DeadLetterEvent, DeadLetterSelection, DropDeadLetters, ListDeadLetters,
    ReplayDeadLetters, ReplayEvents, ShowDeadLetter,
};
use crate::{Operations, Refusal, check_sink};
use channel::LeasedChannel;
use ledger::{Change, Commit, DeadLetterFacts, Key, LATE, Ledger, Pending, SinkName};
use net::tasks::lock;
use proof::event::{EventKey, Offset, RawEvent};
use record::ChannelRef;
use telemetry::ALWAYS;

impl Operations {
    pub(crate) async fn list_dead_letters(
        &self,
        request: &ListDeadLetters,
    ) -> Result<Vec<ChannelEntry<DeadLetter>>, Refusal> {
        let of_sink = |sink: &str| request.sink.as_deref().is_none_or(|only| only == sink);
        let letters = |_: &ChannelRef, ledger: &Ledger| {
            ledger.dead_letters().iter().filter(|((_, sink), _)| of_sink(sink)).map(DeadLetter::of).collect()
        };
        self.list(request.channel.as_deref(), letters).await
    }

    pub(crate) async fn show_dead_letter(&self, request: &ShowDeadLetter) -> Result<DeadLetterEvent, Refusal> {
        let (channel, offset) = (self.find(&request.channel)?, request.offset);
        let sink = SinkName::from(&*request.sink);
        let ledger = self.ledger(&channel).await?;
        let is_meant = |((_, of), facts): &(&(EventKey, SinkName), &DeadLetterFacts)| {
            *of == sink && facts.offset == offset && (request.event_id.is_none() || request.event_id == facts.event_id)
        };
        let facts = lock(&ledger).dead_letters().iter().find(is_meant).map(|(_, facts)| facts.clone());
        let missing = || {
            let name = &channel.name;
            Refusal::Usage(format!(
                "sink {sink} of channel {name} has no dead letter {offset}: see `dead-letters list`"
            ))
        };
        let facts = facts.ok_or_else(missing)?;
        let body = self.ledgers.store.body(channel.id, Key::DeadBody(facts.event_key(), sink.clone())).await?;
        let body = body.ok_or_else(missing)?;
        let event = RawValue::from_string(String::from_utf8_lossy(&body).into_owned());
        let event = event.or_else(|_| to_raw_value(&String::from_utf8_lossy(&body))).expect("a text is JSON");
        let entry = ChannelEntry::of(&channel, DeadLetter { sink: sink.to_string(), facts });
        Ok(DeadLetterEvent { entry, event })
    }

    pub(crate) async fn drop_dead_letters(&self, request: &DropDeadLetters) -> Result<Vec<Offset>, Refusal> {
        let which = &request.which;
        let (channel, sink) = (self.find(&which.channel)?, SinkName::from(&*which.sink));
        let owned = self.owned(&channel).await?;
        let letters = which.of(&owned.leased.ledger());
        let offsets: Vec<_> = letters.iter().map(|facts| facts.offset).collect();
        let drop = |facts: &DeadLetterFacts| Change::DropDeadLetter { sink: sink.clone(), key: facts.event_key() };
        owned.leased.commit(Commit(letters.iter().map(drop).collect())).await?;
        let (events, first, last) = summary(&offsets);
        warn!(target: ALWAYS, channel = %channel.name, %sink, events, first, last, "dead letters dropped by an operator");
        Ok(offsets)
    }

    /// Records dead letters as late deliveries to their sink. Each event keeps its original id.
    pub(crate) async fn replay_dead_letters(&self, request: &ReplayDeadLetters) -> Result<Vec<Offset>, Refusal> {
        let which = &request.which;
        let (channel, sink) = self.lane(&which.channel, &which.sink)?;
        let owned = self.owned(&channel).await?;
        let letters = which.of(&owned.leased.ledger());
        check_room(&channel, &owned, letters.len())?;
        let first_seen = Timestamp::now().as_second();
        let mut replayed = Vec::with_capacity(letters.len());
        for chunk in letters.chunks(AT_ONCE) {
            let mut changes = Vec::with_capacity(2 * chunk.len());
            for facts in chunk {
                let (offset, event_id, received) = (facts.offset, facts.event_id, facts.received);
                let key = facts.event_key();
                let Some(json) = owned.leased.body(Key::DeadBody(key, sink.clone())).await? else { continue };
                let event = Pending { offset, event_id, first_seen, received, appeared: false, json };
                changes.push(Change::Owe { sink: sink.clone(), event });
                changes.push(Change::DropDeadLetter { sink: sink.clone(), key });
                replayed.push(offset);
            }
            owned.leased.commit(Commit(changes)).await?;
        }
        Ok(finish_replay(&channel, &sink, &owned, replayed))
    }

    /// Records past events as late deliveries to one sink. The sink's cursor does not move.
    pub(crate) async fn replay_events(&self, request: &ReplayEvents) -> Result<Vec<Offset>, Refusal> {
        let (channel, sink) = self.lane(&request.channel, &request.sink)?;
        let owned = self.owned(&channel).await?;
        check_room(&channel, &owned, request.events.len())?;
        let cursor = owned.leased.ledger().cursor(&sink).unwrap_or_default().through;
        let first_seen = Timestamp::now().as_second();
        let (mut changes, mut keys) = (Vec::new(), Vec::new());
        for event in &request.events {
            let json = STANDARD.decode(event).map_err(|_| Refusal::Failed("an event is not in base64".to_owned()))?;
            let RawEvent { offset, id: event_id, json } = RawEvent::locate(json.into())
                .ok_or_else(|| Refusal::Failed("an event has no offset that can be read".to_owned()))?;
            if Some(offset) > cursor {
                let name = &channel.name;
                return Err(Refusal::Usage(format!(
                    "sink {sink} of channel {name} has not reached offset {offset}: the sink will receive that event in order"
                )));
            }
            let event = Pending { offset, event_id, first_seen, received: None, appeared: false, json };
            keys.push(event.event_key());
            changes.push(Change::ReplayEvent { sink: sink.clone(), event });
        }
        owned.leased.commit(Commit(changes)).await?;
        let offsets = keys.iter().map(|key| key.offset).collect();
        self.handles.of(channel.id).board().comparisons.replayed(&sink, keys);
        Ok(finish_replay(&channel, &sink, &owned, offsets))
    }

    /// Returns a configured lane.
    fn lane(&self, channel: &str, sink: &str) -> Result<(ChannelRef, SinkName), Refusal> {
        let channel = self.find(channel)?;
        check_sink(&channel.name, sink, &self.configured(&channel)?.sinks)?;
        Ok((channel, sink.into()))
    }
}

impl DeadLetterSelection {
    /// Returns the selected dead letters in ascending order.
    fn of(&self, ledger: &Ledger) -> Vec<DeadLetterFacts> {
        let letters = ledger.dead_letters().iter();
        let letters = letters.filter(|((_, sink), facts)| **sink == *self.sink && self.takes(facts));
        letters.map(|(_, facts)| facts.clone()).collect()
    }

    fn takes(&self, facts: &DeadLetterFacts) -> bool {
        let (offset, at) = (facts.offset, facts.at);
        let named = self.offsets.is_empty() || self.offsets.contains(&offset);
        let in_range = self.from.is_none_or(|from| from <= offset) && self.to.is_none_or(|to| offset <= to);
        let since = self.since.is_none_or(|since| since.as_second() <= at);
        let until = self.until.is_none_or(|until| at <= until.as_second());
        named && in_range && since && until
    }
}

impl DeadLetter {
    pub(crate) fn of(((_, sink), facts): (&(EventKey, SinkName), &DeadLetterFacts)) -> Self {
        Self { sink: sink.to_string(), facts: facts.clone() }
    }
}

/// Checks the bound that pending events and replayed events share.
fn check_room(channel: &ChannelRef, owned: &LeasedChannel, events: usize) -> Result<(), Refusal> {
    let room = LATE.events.saturating_sub(owned.leased.ledger().late_room().events);
    if events as u64 <= room {
        return Ok(());
    }
    let name = &channel.name;
    Err(Refusal::Failed(format!(
        "{events} events are more than channel {name} has room for now ({room}): replay fewer events at a time; `status` shows the pending events"
    )))
}

/// Wakes the channel, if it runs, and logs the replayed events.
fn finish_replay(channel: &ChannelRef, sink: &str, owned: &LeasedChannel, offsets: Vec<Offset>) -> Vec<Offset> {
    owned.released.notify_one();
    let (events, first, last) = summary(&offsets);
    warn!(target: ALWAYS, channel = %channel.name, sink, events, first, last, "replay requested by an operator");
    offsets
}

/// Returns the number of offsets, the first and the last.
fn summary(offsets: &[Offset]) -> (usize, Option<i64>, Option<i64>) {
    (offsets.len(), offsets.first().map(|first| first.get()), offsets.last().map(|last| last.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_combines_its_conditions() {
        let at = |number| Offset::new(number).unwrap();
        let facts = DeadLetterFacts {
            offset: at(5),
            event_id: None,
            reason: String::new(),
            attempts: 1,
            since: 90,
            at: 100,
            received: None,
            bytes: 0,
        };
        let time = |second| Some(Timestamp::from_second(second).unwrap());
        let all = DeadLetterSelection::default();
        let takes = [
            (all.clone(), true),
            (DeadLetterSelection { offsets: vec![at(4), at(5)], ..all.clone() }, true),
            (DeadLetterSelection { offsets: vec![at(4)], ..all.clone() }, false),
            (DeadLetterSelection { from: Some(at(5)), to: Some(at(5)), ..all.clone() }, true),
            (DeadLetterSelection { from: Some(at(6)), ..all.clone() }, false),
            (DeadLetterSelection { to: Some(at(4)), ..all.clone() }, false),
            (DeadLetterSelection { since: time(100), until: time(100), ..all.clone() }, true),
            (DeadLetterSelection { since: time(101), ..all.clone() }, false),
            (DeadLetterSelection { from: Some(at(1)), until: time(99), ..all }, false),
        ];
        for (selection, expected) in takes {
            assert_eq!(selection.takes(&facts), expected, "{selection:?}");
        }
    }
}

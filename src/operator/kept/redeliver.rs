//! Delivers events to one sink again: dead letters, and past events.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use tracing::warn;

use super::AT_ONCE;
use crate::api::{Redeliver, RedeliverDeadLetters};
use crate::{Operations, Refusal, check_sink};
use channel::Owned;
use ledger::{Change, Commit, Key, LATE, Pending, SinkName};
use proof::event::{Offset, RawEvent};
use record::ChannelRef;
use telemetry::ALWAYS;

impl Operations {
    /// Makes dead letters late events again, each with its original id.
    pub(crate) async fn redeliver_dead_letters(&self, request: &RedeliverDeadLetters) -> Result<Vec<Offset>, Refusal> {
        let which = &request.which;
        let (channel, sink) = self.lane(&which.channel, &which.sink)?;
        let owned = self.owned(&channel).await?;
        let letters = which.of(&owned.claim.ledger());
        check_room(&channel, &owned, letters.len())?;
        let first_seen = Timestamp::now().as_second();
        let mut redelivered = Vec::with_capacity(letters.len());
        for chunk in letters.chunks(AT_ONCE) {
            let mut changes = Vec::with_capacity(2 * chunk.len());
            for facts in chunk {
                let (offset, event_id, received) = (facts.offset, facts.event_id, facts.received);
                let key = facts.event_key();
                let Some(json) = owned.claim.body(Key::DeadBody(key, sink.clone())).await? else { continue };
                let event = Pending { offset, event_id, first_seen, received, appeared: false, json };
                changes.push(Change::Owe { sink: sink.clone(), event });
                changes.push(Change::DropDeadLetter { sink: sink.clone(), key });
                redelivered.push(offset);
            }
            owned.claim.commit(Commit(changes)).await?;
        }
        Ok(released(&channel, &sink, &owned, redelivered))
    }

    /// Makes past events late for one sink. The sink's cursor does not move.
    pub(crate) async fn redeliver(&self, request: &Redeliver) -> Result<Vec<Offset>, Refusal> {
        let (channel, sink) = self.lane(&request.channel, &request.sink)?;
        let owned = self.owned(&channel).await?;
        check_room(&channel, &owned, request.events.len())?;
        let passed = owned.claim.ledger().cursor(&sink).unwrap_or_default().through;
        let first_seen = Timestamp::now().as_second();
        let (mut changes, mut keys) = (Vec::new(), Vec::new());
        for event in &request.events {
            let json = STANDARD.decode(event).map_err(|_| Refusal::Failed("an event is not in base64".to_owned()))?;
            let RawEvent { offset, id: event_id, json } = RawEvent::locate(json.into())
                .ok_or_else(|| Refusal::Failed("an event has no offset that can be read".to_owned()))?;
            if Some(offset) > passed {
                let name = &channel.name;
                return Err(Refusal::Usage(format!(
                    "sink {sink} of channel {name} has not reached offset {offset}: it will receive that event in order"
                )));
            }
            let event = Pending { offset, event_id, first_seen, received: None, appeared: false, json };
            keys.push(event.event_key());
            changes.push(Change::Owe { sink: sink.clone(), event });
        }
        owned.claim.commit(Commit(changes)).await?;
        let offsets = keys.iter().map(|key| key.offset).collect();
        self.handles.of(channel.id).board().replayed(&sink, keys);
        Ok(released(&channel, &sink, &owned, offsets))
    }

    /// Returns a configured lane.
    fn lane(&self, channel: &str, sink: &str) -> Result<(ChannelRef, SinkName), Refusal> {
        let channel = self.find(channel)?;
        check_sink(&channel.name, sink, &self.configured(&channel)?.sinks)?;
        Ok((channel, sink.into()))
    }
}

/// Checks the bound that pending events and replayed events share.
fn check_room(channel: &ChannelRef, owned: &Owned, events: usize) -> Result<(), Refusal> {
    let room = LATE.events.saturating_sub(owned.claim.ledger().late_room().events);
    if events as u64 <= room {
        return Ok(());
    }
    let name = &channel.name;
    Err(Refusal::Failed(format!(
        "{events} events are more than channel {name} has room for now ({room}): take fewer at a time; `status` shows the pending events"
    )))
}

/// Wakes the channel, if it runs, and logs the events that are delivered again.
fn released(channel: &ChannelRef, sink: &str, owned: &Owned, offsets: Vec<Offset>) -> Vec<Offset> {
    owned.released.notify_one();
    let (events, first, last) = summary(&offsets);
    warn!(target: ALWAYS, channel = %channel.name, sink, events, first, last, "redelivered by an operator");
    offsets
}

/// Returns the number of offsets, the first and the last.
pub(crate) fn summary(offsets: &[Offset]) -> (usize, Option<i64>, Option<i64>) {
    (offsets.len(), offsets.first().map(|first| first.get()), offsets.last().map(|last| last.get()))
}

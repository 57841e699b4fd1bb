//! What sinks gave up on: looked into, delivered once more, thrown away. And events of the past that one sink is to get
//! once more.
//!
//! Both kinds of delivery go the way of late events: durably owed to the lane, and judged again before they are delivered.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tracing::warn;

use super::{AT_ONCE, Again, Answer, DeadSelection, Known, Letter, Operations, Refusal, check_sink};
use crate::channel::MAX_LATE;
use crate::event::{ChannelId, Offset, RawEvent};
use crate::record::ChannelRef;
use crate::state::{Commit, DeadLetter, GivenUp, LaneKey, Pending};
use crate::telemetry::ALWAYS;

impl Operations {
    pub(super) fn dead_letters(&self, channel: Option<&str>, sink: Option<&str>) -> Result<Answer, Refusal> {
        let channel = channel.map(|channel| self.find(channel)).transpose()?;
        let letters = self.letters(channel.map(|channel| channel.id), sink)?.into_iter();
        Ok(Answer::DeadLetters(letters.map(|(lane, letter)| self.letter(&lane, letter.facts)).collect()))
    }

    pub(super) fn dead_letter(&self, channel: &str, sink: &str, offset: Offset) -> Result<Answer, Refusal> {
        let channel = self.find(channel)?;
        let (lane, letter) =
            self.letters_of(&channel, sink)?.into_iter().find(|(_, it)| it.facts.offset == offset).ok_or_else(
                || {
                    Refusal::Usage(format!(
                        "sink {sink} of channel {} has no dead letter {offset}: see `dead-letters list`",
                        channel.name
                    ))
                },
            )?;
        let event = String::from_utf8_lossy(&letter.json).into_owned();
        Ok(Answer::DeadLetter { letter: self.letter(&lane, letter.facts), event })
    }

    /// Has dead letters delivered once more, each with the id that it had.
    pub(super) async fn revive(&self, channel: &str, sink: &str, which: &DeadSelection) -> Result<Answer, Refusal> {
        let channel = self.find(channel)?;
        let known = self.lane(&channel, sink)?;
        let letters: Vec<_> = self.letters_of(&channel, sink)?.into_iter().filter(|(_, it)| which.takes(it)).collect();
        self.room_for(known, letters.len())?;
        let since = jiff::Timestamp::now().as_second();
        for some in letters.chunks(AT_ONCE) {
            let owed = |(lane, letter): &(LaneKey, DeadLetter)| {
                let DeadLetter { facts, json } = letter.clone();
                (lane.clone(), Pending { offset: facts.offset, event_id: facts.event_id, first_seen: since, json })
            };
            let unburied = some.iter().map(|(lane, letter)| (lane.clone(), letter.facts.offset)).collect();
            let pending = some.iter().map(owed).collect();
            self.state.commit(Commit { pending, unburied, ..Commit::default() }).await?;
        }
        Ok(self.deliver(&channel, sink, letters.iter().map(|(_, letter)| letter.facts.offset).collect()))
    }

    pub(super) async fn unbury(&self, channel: &str, sink: &str, which: &DeadSelection) -> Result<Answer, Refusal> {
        let channel = self.find(channel)?;
        let letters = self.letters_of(&channel, sink)?.into_iter().filter(|(_, it)| which.takes(it));
        let unburied: Vec<_> = letters.map(|(lane, letter)| (lane, letter.facts.offset)).collect();
        let offsets = unburied.iter().map(|(_, offset)| *offset).collect();
        self.state.commit(Commit { unburied, ..Commit::default() }).await?;
        warn!(target: ALWAYS, channel = %channel.name, sink, ?offsets, "dead letters dropped by an operator");
        Ok(Answer::Dropped(offsets))
    }

    /// Has a sink get events of the past once more. Its cursor stays where it is.
    pub(super) async fn replay(&self, channel: &str, sink: &str, events: Vec<Again>) -> Result<Answer, Refusal> {
        let channel = self.find(channel)?;
        let known = self.lane(&channel, sink)?;
        self.room_for(known, events.len())?;
        let lane = LaneKey { channel: channel.id, sink: sink.into() };
        let passed = self.state.lane(&lane)?.cursor.unwrap_or_default().through;
        let since = jiff::Timestamp::now().as_second();
        let (mut pending, mut offsets) = (Vec::with_capacity(events.len()), Vec::with_capacity(events.len()));
        for again in events {
            let json =
                STANDARD.decode(&again.json).map_err(|_| Refusal::Failed("an event is not in base64".to_owned()))?;
            let event = RawEvent::locate(Bytes::from(json))
                .ok_or_else(|| Refusal::Failed("an event has no offset that can be read".to_owned()))?;
            if Some(event.offset) > passed {
                return Err(Refusal::Usage(format!(
                    "sink {sink} of channel {} has not come as far as {}: it gets that in its turn",
                    channel.name, event.offset
                )));
            }
            offsets.push(event.offset);
            let RawEvent { offset, id: event_id, json } = event;
            pending.push((lane.clone(), Pending { offset, event_id, first_seen: since, json }));
        }
        self.state.commit(Commit { pending, ..Commit::default() }).await?;
        Ok(self.deliver(&channel, sink, offsets))
    }

    /// What is owed now is looked for at once, where the channel runs.
    fn deliver(&self, channel: &ChannelRef, sink: &str, offsets: Vec<Offset>) -> Answer {
        self.handles.of(channel.id).acquitted();
        let (first, last) = (offsets.first().copied(), offsets.last().copied());
        warn!(target: ALWAYS, channel = %channel.name, sink, events = offsets.len(), ?first, ?last, "delivered once more by an operator's word");
        Answer::Replaying(offsets)
    }

    /// What waits for a proof and what is delivered once more share one bound.
    fn room_for(&self, known: &Known, events: usize) -> Result<(), Refusal> {
        let waiting = self.state.late(known.channel.id)?.len();
        let room = MAX_LATE.saturating_sub(waiting);
        if events <= room {
            return Ok(());
        }
        let name = &known.channel.name;
        Err(Refusal::Failed(format!(
            "{events} events are more than channel {name} has room for now ({room}): take fewer at a time, and see `status` \
             for what waits"
        )))
    }

    fn lane(&self, channel: &ChannelRef, sink: &str) -> Result<&Known, Refusal> {
        let known = self.verified(channel)?;
        check_sink(channel, sink, &known.sinks)?;
        Ok(known)
    }

    fn letters_of(&self, channel: &ChannelRef, sink: &str) -> Result<Vec<(LaneKey, DeadLetter)>, Refusal> {
        self.letters(Some(channel.id), Some(sink))
    }

    /// Of one channel or of all, of one sink or of all.
    fn letters(&self, channel: Option<ChannelId>, sink: Option<&str>) -> Result<Vec<(LaneKey, DeadLetter)>, Refusal> {
        let letters = self.state.dead_letters(channel)?.into_iter();
        Ok(letters.filter(|(lane, _)| sink.is_none_or(|sink| *lane.sink == *sink)).collect())
    }

    fn letter(&self, lane: &LaneKey, facts: GivenUp) -> Letter {
        let channel_id = lane.channel;
        let channel = self.channel(channel_id).name.to_string();
        Letter { channel, channel_id, sink: lane.sink.to_string(), facts }
    }
}

impl DeadSelection {
    fn takes(&self, letter: &DeadLetter) -> bool {
        let (offset, at) = (letter.facts.offset, letter.facts.at);
        let named = self.offsets.is_empty() || self.offsets.contains(&offset);
        let in_range = self.from.is_none_or(|from| from <= offset) && self.to.is_none_or(|to| offset <= to);
        let in_time = self.since.is_none_or(|since| since <= at) && self.until.is_none_or(|until| at <= until);
        named && in_range && in_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_takes_that_to_which_all_of_it_applies() {
        let at = |number| Offset::new(number).unwrap();
        let facts = GivenUp { offset: at(5), event_id: None, reason: String::new(), attempts: 1, since: 90, at: 100 };
        let letter = DeadLetter { facts, json: Bytes::new() };
        let all = DeadSelection::default();
        let takes = [
            (all.clone(), true),
            (DeadSelection { offsets: vec![at(4), at(5)], ..all.clone() }, true),
            (DeadSelection { offsets: vec![at(4)], ..all.clone() }, false),
            (DeadSelection { from: Some(at(5)), to: Some(at(5)), ..all.clone() }, true),
            (DeadSelection { from: Some(at(6)), ..all.clone() }, false),
            (DeadSelection { to: Some(at(4)), ..all.clone() }, false),
            (DeadSelection { since: Some(100), until: Some(100), ..all.clone() }, true),
            (DeadSelection { since: Some(101), ..all.clone() }, false),
            (DeadSelection { from: Some(at(1)), until: Some(99), ..all }, false),
        ];
        for (selection, expected) in takes {
            assert_eq!(selection.takes(&letter), expected, "{selection:?}");
        }
    }
}

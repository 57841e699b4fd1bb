//! An operator's commands on dead letters: to deliver them once more, and to drop them.

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::channel::owned::Owned;
use crate::event::Offset;
use crate::ledger::{Change, Commit, GivenUp, Key, Pending, SinkName};
use crate::record::ChannelRef;
use crate::telemetry::ALWAYS;

use super::{AT_ONCE, CommandError, Done, summary};

/// A selection of a sink's dead letters: those to which all of this applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterSelection {
    /// These, or all where none is named.
    pub offsets: Vec<Offset>,
    /// Those at this offset or above.
    pub from: Option<Offset>,
    /// Those at this offset or below.
    pub to: Option<Offset>,
    /// Those given up at this second or later, Unix seconds.
    pub since: Option<i64>,
    /// Those given up at this second or earlier.
    pub until: Option<i64>,
}

impl Owned {
    /// Makes dead letters late events again, each with the id that it had.
    pub(super) async fn redeliver_dead_letters(
        &self,
        channel: &ChannelRef,
        sink: SinkName,
        which: &DeadLetterSelection,
    ) -> Result<Done, CommandError> {
        let letters = self.dead_letters(&sink, which);
        self.check_room(channel, letters.len())?;
        let since = jiff::Timestamp::now().as_second();
        let mut redelivered = Vec::with_capacity(letters.len());
        for chunk in letters.chunks(AT_ONCE) {
            let mut changes = Vec::with_capacity(2 * chunk.len());
            for facts in chunk {
                let offset = facts.offset;
                let Some(json) = self.claim.body(Key::DeadBody(offset, sink.clone())).await? else { continue };
                let event = Pending { offset, event_id: facts.event_id, first_seen: since, json };
                changes.push(Change::Owe { sink: sink.clone(), event });
                changes.push(Change::DropDeadLetter { sink: sink.clone(), offset });
                redelivered.push(offset);
            }
            self.claim.commit(Commit(changes)).await?;
        }
        Ok(self.redelivering(channel, &sink, redelivered))
    }

    pub(super) async fn drop_dead_letters(
        &self,
        channel: &ChannelRef,
        sink: SinkName,
        which: &DeadLetterSelection,
    ) -> Result<Done, CommandError> {
        let offsets: Vec<_> = self.dead_letters(&sink, which).iter().map(|facts| facts.offset).collect();
        let drop = |offset: &Offset| Change::DropDeadLetter { sink: sink.clone(), offset: *offset };
        self.claim.commit(Commit(offsets.iter().map(drop).collect())).await?;
        let (events, first, last) = summary(&offsets);
        warn!(target: ALWAYS, channel = %channel.name, %sink, events, first, last, "dead letters dropped by an operator");
        Ok(Done::Dropped(offsets))
    }

    fn dead_letters(&self, sink: &str, which: &DeadLetterSelection) -> Vec<GivenUp> {
        let ledger = self.claim.ledger();
        let letters = ledger.dead_letters().iter().filter(|((_, of), facts)| **of == *sink && which.takes(facts));
        letters.map(|(_, facts)| facts.clone()).collect()
    }
}

impl DeadLetterSelection {
    fn takes(&self, facts: &GivenUp) -> bool {
        let (offset, at) = (facts.offset, facts.at);
        let named = self.offsets.is_empty() || self.offsets.contains(&offset);
        let in_range = self.from.is_none_or(|from| from <= offset) && self.to.is_none_or(|to| offset <= to);
        let in_time = self.since.is_none_or(|since| since <= at) && self.until.is_none_or(|until| at <= until);
        named && in_range && in_time
    }
}

#[cfg(test)]
mod tests;

//! Lists, shows and drops dead letters. See `redeliver` for delivering them again.

use serde_json::value::{RawValue, to_raw_value};
use tracing::warn;

use super::redeliver::summary;
use crate::api::{
    DeadLetter, DeadLetterEvent, DeadLetterSelection, DropDeadLetters, Entry, ListDeadLetters, ShowDeadLetter,
};
use crate::operations::look;
use crate::{Operations, Refusal};
use ledger::{Change, Commit, GivenUp, Key, Ledger, SinkName};
use proof::event::Offset;
use record::ChannelRef;
use telemetry::ALWAYS;

impl Operations {
    pub(crate) async fn list_dead_letters(&self, request: &ListDeadLetters) -> Result<Vec<Entry<DeadLetter>>, Refusal> {
        let of_sink = |sink: &str| request.sink.as_deref().is_none_or(|only| only == sink);
        let letters = |_: &ChannelRef, ledger: &Ledger| {
            let letters = ledger.dead_letters().iter().filter(|((_, sink), _)| of_sink(sink));
            letters.map(|((_, sink), facts)| DeadLetter { sink: sink.to_string(), facts: facts.clone() }).collect()
        };
        self.list(request.channel.as_deref(), letters).await
    }

    pub(crate) async fn show_dead_letter(&self, request: &ShowDeadLetter) -> Result<DeadLetterEvent, Refusal> {
        let (channel, offset) = (self.find(&request.channel)?, request.offset);
        let sink = SinkName::from(&*request.sink);
        let ledger = self.ledger(&channel).await?;
        let is_meant = |facts: &&GivenUp| {
            facts.offset == offset && (request.event_id.is_none() || request.event_id == facts.event_id)
        };
        let facts = look(&ledger, |ledger| {
            let letters = ledger.dead_letters().iter().filter(|((_, of), _)| *of == sink);
            letters.map(|(_, facts)| facts).find(is_meant).cloned()
        });
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
        let entry = Entry::of(&channel, DeadLetter { sink: sink.to_string(), facts });
        Ok(DeadLetterEvent { entry, event })
    }

    pub(crate) async fn drop_dead_letters(&self, request: &DropDeadLetters) -> Result<Vec<Offset>, Refusal> {
        let which = &request.which;
        let (channel, sink) = (self.find(&which.channel)?, SinkName::from(&*which.sink));
        let owned = self.owned(&channel).await?;
        let letters = which.of(&owned.claim.ledger());
        let offsets: Vec<_> = letters.iter().map(|facts| facts.offset).collect();
        let drop = |facts: &GivenUp| Change::DropDeadLetter { sink: sink.clone(), key: facts.event_key() };
        owned.claim.commit(Commit(letters.iter().map(drop).collect())).await?;
        let (events, first, last) = summary(&offsets);
        warn!(target: ALWAYS, channel = %channel.name, %sink, events, first, last, "dead letters dropped by an operator");
        Ok(offsets)
    }
}

impl DeadLetterSelection {
    /// Returns the selected dead letters in ascending order.
    pub(crate) fn of(&self, ledger: &Ledger) -> Vec<GivenUp> {
        let letters = ledger.dead_letters().iter();
        let letters = letters.filter(|((_, sink), facts)| **sink == *self.sink && self.takes(facts));
        letters.map(|(_, facts)| facts.clone()).collect()
    }

    fn takes(&self, facts: &GivenUp) -> bool {
        let (offset, at) = (facts.offset, facts.at);
        let named = self.offsets.is_empty() || self.offsets.contains(&offset);
        let in_range = self.from.is_none_or(|from| from <= offset) && self.to.is_none_or(|to| offset <= to);
        let since = self.since.is_none_or(|since| since.as_second() <= at);
        let until = self.until.is_none_or(|until| at <= until.as_second());
        named && in_range && since && until
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_selection_takes_that_to_which_all_of_it_applies() {
        let at = |number| Offset::new(number).unwrap();
        let facts = GivenUp {
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

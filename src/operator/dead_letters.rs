//! Dead letters: listed, shown, delivered once more, dropped. And events of the past that one sink is given once more.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::api::{
    DeadLetterEntry, DeadLetterEvent, DropDeadLetters, ListDeadLetters, Redeliver, RedeliverDeadLetters, ShowDeadLetter,
};
use super::{Operations, Refusal, check_sink, look};
use crate::channel::{Command, Done};
use crate::event::Offset;
use crate::ledger::{GivenUp, Key, SinkName};
use crate::record::ChannelRef;

impl Operations {
    /// Events that sinks gave up on, of one channel or of all, of one sink or of all.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn list_dead_letters(&self, request: &ListDeadLetters) -> Result<Vec<DeadLetterEntry>, Refusal> {
        let mut entries = Vec::new();
        for channel in self.selected(request.channel.as_deref()).await? {
            let ledger = self.ledger(&channel).await?;
            look(&ledger, |ledger| {
                let letters = ledger.dead_letters().iter();
                let of_sink = |sink: &str| request.sink.as_deref().is_none_or(|only| only == sink);
                let letters = letters.filter(|((_, sink), _)| of_sink(sink));
                entries.extend(letters.map(|((_, sink), facts)| entry(&channel, sink, facts.clone())));
            });
        }
        Ok(entries)
    }

    /// One dead letter with its event.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn show_dead_letter(&self, request: &ShowDeadLetter) -> Result<DeadLetterEvent, Refusal> {
        let (channel, offset) = (self.find(&request.channel)?, request.offset);
        let sink = SinkName::from(&*request.sink);
        let ledger = self.ledger(&channel).await?;
        let facts = look(&ledger, |ledger| ledger.dead_letters().get(&(offset, sink.clone())).cloned());
        let body = self.ledgers.store.body(channel.id, Key::DeadBody(offset, sink.clone())).await?;
        let (Some(facts), Some(body)) = (facts, body) else {
            let name = &channel.name;
            return Err(Refusal::Usage(format!(
                "sink {sink} of channel {name} has no dead letter {offset}: see `dead-letters list`"
            )));
        };
        let event = String::from_utf8_lossy(&body).into_owned();
        Ok(DeadLetterEvent { entry: entry(&channel, &sink, facts), event })
    }

    /// Has dead letters delivered once more, each with the id that it had.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn redeliver_dead_letters(&self, request: &RedeliverDeadLetters) -> Result<Vec<Offset>, Refusal> {
        let (channel, sink) = self.lane(&request.channel, &request.sink)?;
        let command = Command::RedeliverDeadLetters(sink, request.which.clone());
        self.perform(&channel, command).await.map(Done::into_offsets)
    }

    /// Removes dead letters for good.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn drop_dead_letters(&self, request: &DropDeadLetters) -> Result<Vec<Offset>, Refusal> {
        let channel = self.find(&request.channel)?;
        let command = Command::DropDeadLetters((*request.sink).into(), request.which.clone());
        self.perform(&channel, command).await.map(Done::into_offsets)
    }

    /// Has a sink get events of the past once more. Its cursor stays where it is.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn redeliver(&self, request: &Redeliver) -> Result<Vec<Offset>, Refusal> {
        let (channel, sink) = self.lane(&request.channel, &request.sink)?;
        let decode = |event: &String| STANDARD.decode(event).map(Bytes::from);
        let events: Result<Vec<_>, _> = request.events.iter().map(decode).collect();
        let events = events.map_err(|_| Refusal::Failed("an event is not in base64".to_owned()))?;
        self.perform(&channel, Command::Redeliver(sink, events)).await.map(Done::into_offsets)
    }

    /// A configured lane.
    fn lane(&self, channel: &str, sink: &str) -> Result<(ChannelRef, SinkName), Refusal> {
        let channel = self.find(channel)?;
        check_sink(&channel, sink, &self.configured(&channel)?.sinks)?;
        Ok((channel, sink.into()))
    }
}

fn entry(channel: &ChannelRef, sink: &str, facts: GivenUp) -> DeadLetterEntry {
    DeadLetterEntry { channel: channel.name.to_string(), channel_id: channel.id, sink: sink.to_owned(), facts }
}

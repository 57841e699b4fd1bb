//! Lists the consumers of the feed, and sets their cursors.
//!
//! The cursors are in the database of the feed's sink, so any instance with a feed answers.

use tracing::warn;

use crate::api::{ConsumerCursorMove, ConsumerList, ListConsumers, SetConsumerCursor};
use crate::feed::{FeedConsumer, FeedHandle};
use crate::{Operations, Refusal};
use telemetry::ALWAYS;

impl Operations {
    /// Returns the consumers as they are now.
    pub(crate) async fn list_consumers(&self, _: &ListConsumers) -> Result<ConsumerList, Refusal> {
        Ok(ConsumerList { consumers: self.feed()?.consumers().await? })
    }

    /// Sets the cursor of a consumer in one channel, and ends its lease.
    pub(crate) async fn set_consumer_cursor(&self, request: &SetConsumerCursor) -> Result<ConsumerCursorMove, Refusal> {
        let feed = self.feed()?;
        let consumers = feed.consumers().await?;
        let FeedConsumer { consumer, channel, through: from, .. } = request.check(&consumers)?;
        let (from, to) = (*from, request.through);
        feed.set_cursor(consumer, channel, to).await?;
        warn!(target: ALWAYS, consumer, channel, from, to, "cursor of a consumer set by an operator");
        Ok(ConsumerCursorMove { consumer: consumer.clone(), channel: channel.clone(), from, to })
    }

    fn feed(&self) -> Result<&FeedHandle, Refusal> {
        if self.daemon.is_none() {
            return Err(Refusal::Failed(
                "no daemon is running: only a running daemon can read the consumers of its feed".to_owned(),
            ));
        }
        let none = || {
            Refusal::NotFound("no feed is configured; add a [feed] table to serve events to applications".to_owned())
        };
        self.feed.as_ref().ok_or_else(none)
    }
}

impl SetConsumerCursor {
    /// Returns the consumer of the request, if its cursor can be set to the requested position.
    ///
    /// # Errors
    /// If the consumer is unknown, or the position is not between its oldest and its newest event.
    pub fn check<'c>(&self, consumers: &'c [FeedConsumer]) -> Result<&'c FeedConsumer, Refusal> {
        let Self { consumer, channel, through } = self;
        let of_consumer: Vec<_> = consumers.iter().filter(|known| known.consumer == *consumer).collect();
        if of_consumer.is_empty() {
            let mut names: Vec<_> = consumers.iter().map(|known| &*known.consumer).collect();
            names.dedup();
            let names = names.join(", ");
            return Err(Refusal::Usage(format!("the feed has no consumer {consumer}; its consumers are: {names}")));
        }
        let is_named =
            |known: &&FeedConsumer| known.channel == *channel || known.channel_id.eq_ignore_ascii_case(channel);
        let Some(known) = of_consumer.iter().copied().find(is_named) else {
            let channels: Vec<_> = of_consumer.iter().map(|known| &*known.channel).collect();
            let channels = channels.join(", ");
            return Err(Refusal::Usage(format!(
                "consumer {consumer} does not read channel {channel}; its channels are: {channels}"
            )));
        };
        let possible = known.possible_cursors();
        if possible.contains(through) {
            return Ok(known);
        }
        let (lowest, highest) = possible.into_inner();
        Err(Refusal::Usage(format!(
            "the position must be between {lowest} (before the oldest event) and {highest} (the newest event) in channel {channel}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumer(consumer: &str, channel: &str, oldest: Option<i64>, newest: i64) -> FeedConsumer {
        let (consumer, channel) = (consumer.to_owned(), channel.to_owned());
        FeedConsumer {
            consumer,
            channel_id: format!("id-of-{channel}"),
            channel,
            oldest,
            newest,
            ..FeedConsumer::default()
        }
    }

    #[test]
    fn a_cursor_is_set_only_to_a_position_that_the_consumer_can_continue_after() {
        let consumers = [
            consumer("audit", "c0", None, 0),
            consumer("ledger", "c0", Some(5), 9),
            consumer("ledger", "c1", Some(10), 9),
        ];
        let set = |consumer: &str, channel: &str, through| {
            let (consumer, channel) = (consumer.to_owned(), channel.to_owned());
            SetConsumerCursor { consumer, channel, through }.check(&consumers).map(|known| known.channel.clone())
        };
        for (channel, through) in [("c0", 4), ("c0", 9), ("ID-of-c0", 7), ("c1", 9)] {
            assert!(set("ledger", channel, through).is_ok(), "{channel} {through}");
        }
        assert!(set("audit", "c0", 0).is_ok());
        for (consumer, channel, through, said) in [
            ("ledger", "c0", 3, "between 4 (before the oldest event)"),
            ("ledger", "c0", 10, "and 9 (the newest event)"),
            ("ledger", "c0", -1, "between 4"),
            ("ledger", "c1", 8, "between 9"),
            ("audit", "c0", 1, "between 0"),
            ("audit", "c1", 0, "its channels are: c0"),
            ("nobody", "c0", 5, "its consumers are: audit, ledger"),
        ] {
            let refused = set(consumer, channel, through).unwrap_err();
            assert!(matches!(&refused, Refusal::Usage(text) if text.contains(said)), "{refused}");
        }
    }
}

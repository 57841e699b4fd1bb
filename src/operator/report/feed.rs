//! The feed in the status.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// The feed of a daemon.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FeedStatus {
    /// The address on which it listens.
    pub address: String,
    /// How many requests and streams wait for events now.
    pub waiting: usize,
    /// The consumers, one entry for each channel that a consumer may read, as they were when they were read last.
    pub consumers: Vec<FeedConsumer>,
    /// When the consumers were read. `None` if they were never read.
    pub read: Option<Timestamp>,
    /// Why the consumers cannot be read now. `None` if the last attempt succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A consumer of the feed in one channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedConsumer {
    /// The name of the consumer.
    pub consumer: String,
    /// The configured name of the channel.
    pub channel: String,
    /// The id of the channel.
    pub channel_id: String,
    /// Whether the feed stores a cursor for the consumer: from its first lease on. A consumer that only reads events stores its position
    /// itself.
    pub has_cursor: bool,
    /// The cursor: the position of the last event that the consumer has committed. Without a cursor, the position before the oldest
    /// event.
    pub through: i64,
    /// The newest position of the channel.
    pub newest: i64,
    /// The oldest position that can be read. `None` if the channel never had an event.
    pub oldest: Option<i64>,
    /// How many events the consumer has not committed.
    pub lag: i64,
    /// When the oldest event that the consumer has not committed was delivered. `None` if the lag is 0.
    pub waiting_since: Option<Timestamp>,
    /// The end of the lease. `None` if no lease is valid.
    pub leased_until: Option<Timestamp>,
    /// Whether the next event of the consumer was deleted. Its requests are then answered 410.
    pub gone: bool,
}

/// The state of a consumer in one channel: the first of these that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum FeedConsumerState {
    /// The consumer stores its position itself, or has not begun.
    #[strum(serialize = "no cursor")]
    NoCursor,
    /// Its next event was deleted.
    Gone,
    /// Its cursor is above the newest position: the table was restored or created again. The next delivery moves the cursor back.
    Ahead,
    /// It has committed all events.
    Ok,
    /// It has a lease.
    Leased,
    /// It has not committed all events, and has no lease.
    Behind,
}

impl FeedConsumer {
    /// The state.
    pub fn state(&self) -> FeedConsumerState {
        match self {
            Self { has_cursor: false, .. } => FeedConsumerState::NoCursor,
            Self { gone: true, .. } => FeedConsumerState::Gone,
            Self { through, newest, .. } if through > newest => FeedConsumerState::Ahead,
            Self { lag: 0, .. } => FeedConsumerState::Ok,
            Self { leased_until: Some(_), .. } => FeedConsumerState::Leased,
            _ => FeedConsumerState::Behind,
        }
    }

    /// The cursors whose next event can be read, now or later.
    pub fn possible_cursors(&self) -> RangeInclusive<i64> {
        self.oldest.map_or(0, |oldest| oldest - 1)..=self.newest
    }

    /// How long the oldest event that the consumer has not committed has been waiting, in seconds. 0 if the lag is 0.
    pub fn age_seconds(&self, now: Timestamp) -> u64 {
        let since = self.waiting_since.map_or(0, |since| now.as_second() - since.as_second());
        u64::try_from(since).unwrap_or_default()
    }
}

impl FeedStatus {
    /// The warning that the consumers cannot be read.
    pub(crate) fn warning(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        let known = match self.read {
            Some(read) => format!("their lag is from {read:.0}"),
            None => "their lag is not known".to_owned(),
        };
        Some(format!("the consumers of the feed cannot be read, {known}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_is_never_negative() {
        let now = Timestamp::from_second(1_000).unwrap();
        for (since, age) in [(None, 0), (Some(400), 600), (Some(2_000), 0)] {
            let waiting_since = since.map(|since| Timestamp::from_second(since).unwrap());
            assert_eq!(FeedConsumer { waiting_since, ..FeedConsumer::default() }.age_seconds(now), age);
        }
    }
}

//! What arrived at a webhook from all instances, and whether that is what they promise.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use simulator::Simulator;

use crate::support::{Database, Receiver, deliverable};

/// What a webhook's lane has in hand: requests between two records of what has arrived.
pub(super) const BATCH: usize = 8;

/// What arrived, by channel.
pub(super) struct Arrivals {
    channels: Vec<Channel>,
}

#[derive(Clone, Default)]
struct Channel {
    /// In their order.
    arrived: Vec<(Instant, i64)>,
    offsets: BTreeSet<i64>,
}

impl Arrivals {
    pub(super) fn of(channels: usize) -> Self {
        Self { channels: vec![Channel::default(); channels] }
    }

    /// Takes what has come since the last time.
    pub(super) fn gather(&mut self, receiver: &Receiver) {
        for post in receiver.drain() {
            for record in post.delivered() {
                let number: usize = record.channel[1..].parse().unwrap();
                self.channels[number].arrived.push((post.at, record.offset));
                self.channels[number].offsets.insert(record.offset);
            }
        }
    }

    /// How many events have arrived of a channel, each counted once.
    pub(super) fn count(&self, channel: usize) -> usize {
        self.channels[channel].offsets.len()
    }

    /// How many have arrived of all channels.
    pub(super) fn total(&self) -> usize {
        self.channels.iter().map(|channel| channel.offsets.len()).sum()
    }

    /// How many came again.
    pub(super) fn repeats(&self) -> usize {
        self.channels.iter().map(Channel::repeats).sum()
    }

    /// From a moment to the next arrival of a channel.
    pub(super) fn next_after(&self, channel: usize, moment: Instant) -> Option<Duration> {
        let arrived = &self.channels[channel].arrived;
        arrived.iter().map(|(at, _)| *at).filter(|at| *at > moment).min().map(|at| at - moment)
    }

    /// The longest time without an arrival of a channel, of those that overlap with a time.
    pub(super) fn longest_gap(&self, from: Instant, to: Instant) -> Duration {
        let gap = |pair: &[(Instant, i64)]| {
            let ((before, _), (after, _)) = (pair[0], pair[1]);
            if after > from && before < to { after.saturating_duration_since(before) } else { Duration::ZERO }
        };
        self.channels.iter().flat_map(|channel| channel.arrived.windows(2).map(gap)).max().unwrap_or_default()
    }

    /// Asserts that everything arrived, and nothing forged.
    pub(super) fn assert_all_arrived(&self, simulator: &Simulator) {
        for (number, channel) in self.channels.iter().enumerate() {
            let expected: BTreeSet<_> = deliverable(simulator, number).into_iter().collect();
            let lost: Vec<_> = expected.difference(&channel.offsets).collect();
            let forged: Vec<_> = channel.offsets.difference(&expected).collect();
            assert!(lost.is_empty() && forged.is_empty(), "c{number}: lost {lost:?}, forged {forged:?}");
        }
    }

    /// Asserts that everything arrived, that no more came again than a batch for each time that a channel was claimed anew,
    /// and that SQL finds nothing wrong.
    pub(super) async fn assert_whole(&self, simulator: &Simulator, database: &Database) {
        database.assert_sound().await;
        self.assert_all_arrived(simulator);
        for (number, channel) in self.channels.iter().enumerate() {
            let claims = database.claims(simulator.announcement().channels[number]).await;
            let repeats = channel.repeats();
            assert!(repeats <= BATCH * (claims - 1), "c{number}: {repeats} repeats, and {claims} claims");
        }
    }
}

impl Channel {
    fn repeats(&self) -> usize {
        self.arrived.len() - self.offsets.len()
    }
}

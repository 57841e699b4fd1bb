//! Collects the events that a webhook receives from all instances, and checks them against the promises.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use simulator::Simulator;

use crate::support::{Database, Receiver, deliverable};

/// The number of events that a webhook's lane delivers between two commits.
pub(super) const BATCH: usize = 8;

/// The events that the webhook received, per channel.
pub(super) struct Arrivals {
    channels: Vec<Channel>,
}

#[derive(Clone, Default)]
struct Channel {
    /// Every received event in order of arrival, including repeats.
    arrived: Vec<(Instant, i64)>,
    offsets: BTreeSet<i64>,
}

impl Arrivals {
    pub(super) fn of(channels: usize) -> Self {
        Self { channels: vec![Channel::default(); channels] }
    }

    /// Adds the requests that the webhook received since the last call.
    pub(super) fn gather(&mut self, receiver: &Receiver) {
        for post in receiver.drain() {
            for record in post.delivered() {
                let number: usize = record.channel[1..].parse().unwrap();
                self.channels[number].arrived.push((post.at, record.offset));
                self.channels[number].offsets.insert(record.offset);
            }
        }
    }

    /// The number of distinct events received from a channel.
    pub(super) fn count(&self, channel: usize) -> usize {
        self.channels[channel].offsets.len()
    }

    /// Whether this event was received.
    pub(super) fn has(&self, channel: usize, offset: i64) -> bool {
        self.channels[channel].offsets.contains(&offset)
    }

    /// The offsets received from a channel in order of arrival, including repeats.
    pub(super) fn in_order(&self, channel: usize) -> Vec<i64> {
        self.channels[channel].arrived.iter().map(|(_, offset)| *offset).collect()
    }

    /// The number of distinct events received from all channels.
    pub(super) fn total(&self) -> usize {
        self.channels.iter().map(|channel| channel.offsets.len()).sum()
    }

    /// The number of repeated deliveries.
    pub(super) fn repeats(&self) -> usize {
        self.channels.iter().map(Channel::repeats).sum()
    }

    /// The time from `moment` to the next arrival of an event of the channel.
    pub(super) fn next_after(&self, channel: usize, moment: Instant) -> Option<Duration> {
        let arrived = &self.channels[channel].arrived;
        arrived.iter().map(|(at, _)| *at).filter(|at| *at > moment).min().map(|at| at - moment)
    }

    /// The longest time without an arrival in one channel. Only gaps that overlap with the given period count.
    pub(super) fn longest_gap(&self, from: Instant, to: Instant) -> Duration {
        let gap = |pair: &[(Instant, i64)]| {
            let ((before, _), (after, _)) = (pair[0], pair[1]);
            if after > from && before < to { after.saturating_duration_since(before) } else { Duration::ZERO }
        };
        self.channels.iter().flat_map(|channel| channel.arrived.windows(2).map(gap)).max().unwrap_or_default()
    }

    /// Asserts that every deliverable event arrived, and no other event.
    pub(super) fn assert_all_arrived(&self, simulator: &Simulator) {
        for (number, channel) in self.channels.iter().enumerate() {
            let expected: BTreeSet<_> = deliverable(simulator, number).into_iter().collect();
            let lost: Vec<_> = expected.difference(&channel.offsets).collect();
            let forged: Vec<_> = channel.offsets.difference(&expected).collect();
            assert!(lost.is_empty() && forged.is_empty(), "c{number}: lost {lost:?}, forged {forged:?}");
        }
    }

    /// Asserts that every deliverable event arrived, that a channel has at most one batch of repeats for each claim
    /// after the first, and that the audit found no breach.
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

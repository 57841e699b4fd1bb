//! Estimates how many files and connections a configuration can have open at the same time.

use std::cmp::max;

use super::{Config, Sink, SinkSettings};
use sink::Dispatch;

/// The standard streams, the async runtimes, the signals, the state and its reserve, the control socket and the admin listener.
const OF_PROCESS: usize = 64;

/// The clients of the admin listener and of the control socket.
const OF_OPERATORS: usize = 80;

/// The listener of the feed, its refused clients, and its connections to the database.
const OF_FEED: usize = 32;

/// The connections to a database of the state.
const OF_STATE: usize = 8;

/// The requests that a channel sends at once: the poll, the request ahead of it, and one for late proofs. Each lane that catches up
/// sends another one.
const OF_CHANNEL: usize = 3;

/// The files or connections of a sink that all its lanes share.
const OF_SINK: usize = 8;

/// The clients of the Kafka library: each has connections to the brokers and a few descriptors of its own.
const OF_KAFKA_LANE: usize = 8;

impl Config {
    /// The number of descriptors that the daemon can need if every endpoint is slow, every lane catches up, and every operator's
    /// connection is in use. Usually it needs far fewer.
    pub fn descriptors(&self) -> usize {
        let of_channels = self.channels.iter().map(|channel| OF_CHANNEL + channel.sinks.len());
        let of_sinks = self.sinks.iter().map(|(name, sink)| {
            let lanes = self.channels.iter().filter(|channel| channel.sinks.contains(name)).count();
            of_sink(sink, lanes)
        });
        let of_state = if self.state.database.is_some() { OF_STATE } else { 0 };
        let of_feed = self.feed.as_ref().map_or(0, |feed| OF_FEED + feed.settings.connections);
        OF_PROCESS + OF_OPERATORS + of_state + of_feed + of_channels.chain(of_sinks).sum::<usize>()
    }
}

fn of_sink(sink: &Sink, lanes: usize) -> usize {
    if lanes == 0 {
        return 0;
    }
    match &sink.settings {
        SinkSettings::Stdout => 1,
        SinkSettings::Webhook(settings) => {
            let of_lane = match settings.dispatch {
                Dispatch::Single { concurrency } => max(concurrency, 1),
                Dispatch::Batches { .. } => 1,
            };
            // One more for the request of an access token.
            lanes * of_lane + 1
        }
        SinkSettings::Kafka(_) => OF_SINK + lanes * OF_KAFKA_LANE,
        // Each lane reads the files once when it resumes.
        SinkSettings::File(_) | SinkSettings::Sqlite(_) => OF_SINK + 2 * lanes,
        SinkSettings::Nats(_) | SinkSettings::Postgres(_) => OF_SINK,
    }
}

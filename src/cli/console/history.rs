//! The last hour of the daemon, as far as this console has seen it.
//!
//! # Invariants
//!
//! * **Bounded.** `KEPT` samples, each with a few numbers a channel.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;

use crate::operator::Report;

#[cfg(test)]
mod tests;

/// An hour.
const KEPT: usize = 360;

/// What was seen, the newest last.
#[derive(Debug, Default)]
pub(super) struct History {
    samples: VecDeque<Sample>,
    /// What was counted at the last sample.
    counted: BTreeMap<Arc<str>, Counted>,
}

#[derive(Debug)]
struct Sample {
    at: Timestamp,
    channels: BTreeMap<Arc<str>, Seen>,
}

/// A channel at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// Offsets between the newest event and the slowest sink.
    pub(super) lag: Option<f64>,
    /// Events that its sinks have taken, a second, since the sample before.
    pub(super) rate: Option<f64>,
    /// How long after it was read an event was delivered since then, in seconds, on average.
    pub(super) latency: Option<f64>,
}

/// The counters of a channel, all sinks together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counted {
    delivered: f64,
    waited: f64,
    waits: f64,
}

/// One of the quantities over time, as far as it is known: when, and what.
pub(super) type Series = Vec<(Timestamp, Option<f64>)>;

impl History {
    /// Notes a sample; without a report, that there was none.
    pub(super) fn note(&mut self, at: Timestamp, report: Option<&Report>, metrics: &str) {
        let counted = counted(metrics);
        let seconds = self.samples.back().map(|last| at.duration_since(last.at).as_secs_f64());
        let seen = |channel: &crate::channel::ChannelStatus| {
            let before = self.counted.get(&channel.channel);
            let since = before.zip(counted.get(&channel.channel)).zip(seconds.filter(|seconds| *seconds > 0.0));
            let mut seen = Seen { lag: channel.lag_events.map(number), ..Seen::default() };
            // Less than before: the daemon has started anew.
            if let Some(((before, now), seconds)) = since.filter(|((before, now), _)| now.delivered >= before.delivered)
            {
                seen.rate = Some((now.delivered - before.delivered) / seconds);
                let waits = now.waits - before.waits;
                seen.latency = (waits > 0.0).then(|| (now.waited - before.waited) / waits);
            }
            (channel.channel.clone(), seen)
        };
        let channels = report.map(|report| report.channels.iter().map(seen).collect()).unwrap_or_default();
        self.counted = counted;
        self.samples.push_back(Sample { at, channels });
        while self.samples.len() > KEPT {
            self.samples.pop_front();
        }
    }

    pub(super) fn series(&self, channel: &str, what: impl Fn(&Seen) -> Option<f64>) -> Series {
        self.samples.iter().map(|sample| (sample.at, sample.channels.get(channel).and_then(&what))).collect()
    }
}

/// Counts of events are far below what a float holds.
#[expect(clippy::cast_precision_loss, reason = "a picture is less precise")]
fn number(count: u64) -> f64 {
    count as f64
}

/// The counters in Prometheus's text.
fn counted(metrics: &str) -> BTreeMap<Arc<str>, Counted> {
    let mut channels: BTreeMap<Arc<str>, Counted> = BTreeMap::new();
    for line in metrics.lines() {
        let Some((name, rest)) = line.split_once('{') else { continue };
        let into: fn(&mut Counted) -> &mut f64 = match name {
            "channeld_events_delivered_total" => |counted| &mut counted.delivered,
            "channeld_delivered_after_reading_seconds_sum" => |counted| &mut counted.waited,
            "channeld_delivered_after_reading_seconds_count" => |counted| &mut counted.waits,
            _ => continue,
        };
        let channel = rest.split_once("channel=\"").and_then(|(_, rest)| rest.split_once('"'));
        let value = rest.rsplit_once("} ").and_then(|(_, value)| value.trim().parse::<f64>().ok());
        if let Some(((channel, _), value)) = channel.zip(value) {
            *into(channels.entry(channel.into()).or_default()) += value;
        }
    }
    channels
}

//! Records the last hour of a channel in this process, minute by minute: the lag, the events delivered, and the delivery time.
//!
//! # Invariants
//!
//! * **Bounded.** At most [`SAMPLES`] samples are kept per channel. They use at most 2 KiB.
//! * **A gap is not a zero.** Two samples can be further apart than [`GAP`], because another instance ran the channel or the
//!   machine slept. Nothing is reported for the time between such samples.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

const MINUTE: i64 = 60;

/// An hour, in seconds.
pub const HOUR: i64 = 60 * MINUTE;

/// Two samples that are further apart than this, in seconds, have a gap between them.
pub const GAP: i64 = 150;

/// The number of samples in an hour: one per minute, and the sample at which the hour begins.
const SAMPLES: usize = 61;

const _: () = assert!(SAMPLES.next_power_of_two() * size_of::<Sample>() <= 2_048, "2 KiB a channel");

/// The last hour of a channel, as far as this process observed it.
#[derive(Debug, Default)]
pub struct Hour {
    samples: VecDeque<Sample>,
    taken: DeliverySums,
}

/// The state of a channel at one moment, and the deliveries since the previous sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When the sample was taken, in Unix seconds.
    pub at: i64,
    /// Offsets between the newest event and the slowest sink's cursor. `None` if the newest offset is unknown.
    pub lag_events: Option<u32>,
    /// Events delivered per second, counted separately for each sink. `None` in the first sample and after a gap.
    pub events_per_second: Option<f32>,
    /// The average time from reading an event to its delivery, in seconds. `None` if no event was delivered.
    pub delivery_seconds: Option<f32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct DeliverySums {
    events: u64,
    /// The number of events whose read time is known. `waited` is the sum of the delivery times of these events, in seconds.
    timed: u64,
    waited: f64,
}

impl Hour {
    /// Records that a sink accepted `events` events. `waited` is the time from reading them to their delivery.
    pub(crate) fn took(&mut self, events: usize, waited: Option<Duration>) {
        let events = events as u64;
        self.taken.events += events;
        if let Some(waited) = waited {
            self.taken.timed += events;
            self.taken.waited += waited.as_secs_f64() * float(events);
        }
    }

    /// Stores a sample, unless the current minute of the clock already has one.
    pub fn note(&mut self, now: i64, lag: Option<u64>) {
        if self.samples.back().is_some_and(|last| last.at.div_euclid(MINUTE) == now.div_euclid(MINUTE)) {
            return;
        }
        let sample = self.sample(now, lag);
        self.taken = DeliverySums::default();
        // If the clock was set back, some samples are in the future.
        self.samples.retain(|kept| (now - HOUR..now).contains(&kept.at));
        while self.samples.len() >= SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// Returns the samples of the last hour.
    pub fn samples(&self, now: i64) -> impl Iterator<Item = Sample> {
        self.samples.iter().filter(move |sample| (now - HOUR..=now).contains(&sample.at)).copied()
    }

    /// Returns a sample for this moment, without storing it.
    pub fn sample(&self, now: i64, lag: Option<u64>) -> Sample {
        let since = self.samples.back().map(|last| now - last.at).filter(|seconds| (1..=GAP).contains(seconds));
        let DeliverySums { events, timed, waited } = self.taken;
        Sample {
            at: now,
            lag_events: lag.map(|lag| u32::try_from(lag).unwrap_or(u32::MAX)),
            events_per_second: since.map(|seconds| rounded(float(events) / float(seconds.unsigned_abs()))),
            delivery_seconds: since.filter(|_| timed > 0).map(|_| rounded(waited / float(timed))),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of one minute are exact as floats")]
fn float(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, reason = "a picture is less precise, and a sample small")]
fn rounded(value: f64) -> f32 {
    value as f32
}

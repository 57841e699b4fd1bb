//! The last hour of a channel, minute by minute: how far it was behind, how many events its sinks took, and how soon.
//!
//! # Invariants
//!
//! * **Bounded.** At most [`SAMPLES`] are kept. With them a channel's hour takes 2 KiB.
//! * **A gap is no zero.** Where no sample was taken for more than two minutes, because the channel ran elsewhere or the
//!   machine slept, nothing is said of that time.
//! * **Of one process.** It outlives the runs and the configurations of its channel, and ends with the process.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

const MINUTE: i64 = 60;

/// An hour, in seconds.
pub const HOUR: i64 = 60 * MINUTE;

/// Samples further apart than this, in seconds, have a gap between them.
pub const GAP: i64 = 150;

/// One a minute, and the one at which the hour begins.
const SAMPLES: usize = 61;

const _: () = assert!(SAMPLES.next_power_of_two() * size_of::<Sample>() <= 2_048, "2 KiB a channel");

/// The last hour, as far as this process has seen it.
#[derive(Debug, Default)]
pub struct Hour {
    /// The newest last.
    samples: VecDeque<Sample>,
    /// Since the newest.
    taken: Taken,
}

/// How a channel was at one moment, and what its sinks did since the sample before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When, in Unix seconds.
    pub at: i64,
    /// Offsets between the newest event and the slowest sink's cursor; none where the newest is not known.
    pub lag_events: Option<u32>,
    /// Events that its sinks took, each counted for itself, a second. None in the first sample and in one after a gap.
    pub events_per_second: Option<f32>,
    /// How long after it was read an event was taken, on average. None where none was.
    pub delivery_seconds: Option<f32>,
}

/// What sinks took.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    events: u64,
    /// Those of which it is known when they were read, and how long ago that was, together.
    timed: u64,
    waited: f64,
}

impl Hour {
    /// A sink took so many events, which had been read so long ago.
    pub(super) fn took(&mut self, events: usize, waited: Option<Duration>) {
        let events = events as u64;
        self.taken.events += events;
        if let Some(waited) = waited {
            self.taken.timed += events;
            self.taken.waited += waited.as_secs_f64() * float(events);
        }
    }

    /// Keeps a sample, where there is none yet of this minute of the clock.
    pub fn note(&mut self, now: i64, lag: Option<u64>) {
        if self.samples.back().is_some_and(|last| last.at.div_euclid(MINUTE) == now.div_euclid(MINUTE)) {
            return;
        }
        let sample = self.sample(now, lag);
        self.taken = Taken::default();
        // A clock that was set back leaves samples of the future behind.
        self.samples.retain(|kept| (now - HOUR..now).contains(&kept.at));
        while self.samples.len() >= SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// The samples of the last hour.
    pub fn samples(&self, now: i64) -> impl Iterator<Item = Sample> {
        self.samples.iter().filter(move |sample| (now - HOUR..=now).contains(&sample.at)).copied()
    }

    /// What a sample of this moment says.
    pub fn sample(&self, now: i64, lag: Option<u64>) -> Sample {
        let since = self.samples.back().map(|last| now - last.at).filter(|seconds| (1..=GAP).contains(seconds));
        let Taken { events, timed, waited } = self.taken;
        Sample {
            at: now,
            lag_events: lag.map(|lag| u32::try_from(lag).unwrap_or(u32::MAX)),
            events_per_second: since.map(|seconds| rounded(float(events) / float(seconds.unsigned_abs()))),
            delivery_seconds: since.filter(|_| timed > 0).map(|_| rounded(waited / float(timed))),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "what is counted in a minute is far below what a float holds")]
fn float(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, reason = "a picture is less precise, and a sample small")]
fn rounded(value: f64) -> f32 {
    value as f32
}

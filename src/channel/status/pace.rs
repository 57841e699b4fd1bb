//! Measures the rate of a lane, estimates the remaining time, and formats both for display. At most one sample per second is
//! kept. Of the samples older than [`WINDOW`], only the newest is kept.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use proof::event::Offset;

/// The rate is averaged over this window. With a shorter window, a single page would look like a burst. With a longer window,
/// the rate would reach zero too late after a stop.
const WINDOW: Duration = Duration::from_secs(15);

/// The minimum interval between two samples.
const SAMPLE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Pace {
    samples: VecDeque<(Instant, Offset)>,
}

impl Pace {
    pub(crate) fn note(&mut self, position: Offset, now: Instant) {
        let is_due = |(last, _): &(Instant, Offset)| now.saturating_duration_since(*last) >= SAMPLE;
        if self.samples.back().is_none_or(is_due) {
            // Of the samples that are older than the window, only the newest is kept.
            while self.samples.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) > WINDOW) {
                self.samples.pop_front();
            }
            self.samples.push_back((now, position));
        }
    }

    /// Returns the rate in offsets per second, for a lane that is now at `position`. Returns `None` if no earlier sample can
    /// be compared with this position.
    pub(crate) fn per_second(&self, position: Offset, now: Instant) -> Option<f64> {
        let (since, before) = self.within(now)?;
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        if seconds < SAMPLE.as_secs_f64() {
            return None;
        }
        let gone = position.get().saturating_sub(before.get()).max(0);
        #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
        let gone = gone as f64;
        Some((gone / seconds * 10.0).round() / 10.0)
    }

    /// Returns the sample to compare with. Normally this is the oldest sample in the window. Two other cases use the newest
    /// sample from before the window. If the oldest sample in the window is younger than [`SAMPLE`], the older sample is
    /// returned instead, if it exists. If the window has no sample, the position of the older sample is returned with the
    /// time of the window's start.
    fn within(&self, now: Instant) -> Option<(Instant, Offset)> {
        let age = |(at, _): &(Instant, Offset)| now.saturating_duration_since(*at);
        let before = self.samples.iter().rev().find(|sample| age(sample) > WINDOW);
        match (self.samples.iter().find(|sample| age(sample) <= WINDOW), before) {
            (Some(first), Some(before)) if age(first) < SAMPLE => Some(*before),
            (Some(first), _) => Some(*first),
            (None, before) => Some((now.checked_sub(WINDOW)?, before?.1)),
        }
    }
}

/// Returns the number of seconds, rounded up, that `offsets` offsets take at this rate. Returns `None` if the rate is zero.
pub(crate) fn seconds_left(offsets: u64, per_second: f64) -> Option<u64> {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let seconds = offsets as f64 / per_second;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked, and never negative")]
    let seconds = (per_second > 0.0 && seconds.is_finite()).then(|| seconds.ceil() as u64);
    seconds
}

/// The progress of a task: `69,850 of 200,028, 4,400/s, about 30 s left`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// The amount that is done.
    pub done: u64,
    /// The total amount.
    pub of: u64,
    /// The amount done per second, if known.
    pub per_second: Option<f64>,
    /// The estimated seconds until the task is complete, if known.
    pub seconds_left: Option<u64>,
}

impl Progress {
    /// Builds the progress and estimates the remaining time from the rate.
    pub fn at(done: u64, of: u64, per_second: Option<f64>) -> Self {
        let seconds_left = per_second.and_then(|per_second| seconds_left(of.saturating_sub(done), per_second));
        Self { done, of, per_second, seconds_left }
    }

    /// Returns the completed share, from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
    pub fn share(&self) -> f64 {
        if self.of == 0 { 1.0 } else { (self.done as f64 / self.of as f64).clamp(0.0, 1.0) }
    }

    /// Returns a progress bar of `columns` columns, including the brackets.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "few columns"
    )]
    pub fn bar(&self, columns: usize) -> String {
        let inside = columns.saturating_sub(2);
        let full = ((self.share() * inside as f64) as usize).min(inside);
        format!("[{}{}]", "#".repeat(full), "-".repeat(inside - full))
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", grouped(self.done), grouped(self.of))?;
        if let Some(per_second) = self.per_second {
            write!(f, ", {}", rate(per_second))?;
        }
        self.seconds_left.map_or(Ok(()), |seconds| write!(f, ", about {} left", span(seconds)))
    }
}

/// Formats a rate: `4,400/s`. A rate below ten has one decimal.
pub fn rate(per_second: f64) -> String {
    if per_second < 10.0 {
        return format!("{per_second:.1}/s");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked, and no rate comes near")]
    let whole = per_second.round() as u64;
    format!("{}/s", grouped(whole))
}

/// Formats a number with a comma between groups of three digits.
pub fn grouped(number: u64) -> String {
    grouped_digits(&number.to_string())
}

/// Formats a number of any length, which is given as its decimal digits, like [`grouped`].
pub fn grouped_digits(digits: &str) -> String {
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// Formats a number of things: `1 event`, `2,500 events`, `3 entries`.
pub fn counted(number: u64, noun: &str) -> String {
    match noun.strip_suffix('y') {
        _ if number == 1 => format!("1 {noun}"),
        Some(stem) => format!("{} {stem}ies", grouped(number)),
        None => format!("{} {noun}s", grouped(number)),
    }
}

/// Formats a duration in seconds, minutes, hours or days, rounded down.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;

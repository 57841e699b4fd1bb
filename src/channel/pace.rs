//! How fast a lane goes on, how long it needs for what is left, and how that is said.
//!
//! # Invariants
//!
//! * **Bounded.** A sample a second at most, and no more than [`WINDOW`] back.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use proof::event::Offset;

/// The rate is that of so long. Shorter, and a page would look like a rush; longer, and a standstill would show late.
const WINDOW: Duration = Duration::from_secs(15);

/// Between two samples.
const SAMPLE: Duration = Duration::from_secs(1);

/// The positions of a lane over the last seconds.
#[derive(Debug, Default)]
pub(super) struct Pace {
    samples: VecDeque<(Instant, Offset)>,
}

impl Pace {
    /// Notes where the lane is now.
    pub(super) fn note(&mut self, position: Offset, now: Instant) {
        let is_due = |(last, _): &(Instant, Offset)| now.saturating_duration_since(*last) >= SAMPLE;
        if self.samples.back().is_none_or(is_due) {
            self.forget(now);
            self.samples.push_back((now, position));
        }
    }

    /// Offsets a second, by where the lane is now; `None` before there are two moments to compare.
    pub(super) fn per_second(&self, position: Offset, now: Instant) -> Option<f64> {
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

    /// The sample to compare with: the oldest of the window; where that is the last one, the one before it; and where the
    /// lane has stood still for longer than the window, where it was when the window began.
    fn within(&self, now: Instant) -> Option<(Instant, Offset)> {
        let age = |(at, _): &(Instant, Offset)| now.saturating_duration_since(*at);
        let before = self.samples.iter().rev().find(|sample| age(sample) > WINDOW);
        match (self.samples.iter().find(|sample| age(sample) <= WINDOW), before) {
            (Some(first), Some(before)) if age(first) < SAMPLE => Some(*before),
            (Some(first), _) => Some(*first),
            (None, before) => Some((now.checked_sub(WINDOW)?, before?.1)),
        }
    }

    /// Forgets what is older than the window, but for the last of it.
    fn forget(&mut self, now: Instant) {
        while self.samples.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) > WINDOW) {
            self.samples.pop_front();
        }
    }
}

/// Whole seconds for so many offsets at that rate; `None` where it stands still.
pub(super) fn seconds_left(offsets: u64, per_second: f64) -> Option<u64> {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let seconds = offsets as f64 / per_second;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked, and never negative")]
    let seconds = (per_second > 0.0 && seconds.is_finite()).then(|| seconds.ceil() as u64);
    seconds
}

/// How far something has got: `69,850 of 200,028, 4,400/s, about 30 s left`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// How much is done.
    pub done: u64,
    /// Of how much.
    pub of: u64,
    /// How much is done a second, where that is known.
    pub per_second: Option<f64>,
    /// How long the rest takes, where that is known.
    pub seconds_left: Option<u64>,
}

impl Progress {
    /// By how much is done a second.
    pub fn at(done: u64, of: u64, per_second: Option<f64>) -> Self {
        let seconds_left = per_second.and_then(|per_second| seconds_left(of.saturating_sub(done), per_second));
        Self { done, of, per_second, seconds_left }
    }

    /// How much is done, from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
    pub fn share(&self) -> f64 {
        if self.of == 0 { 1.0 } else { (self.done as f64 / self.of as f64).clamp(0.0, 1.0) }
    }

    /// A bar of so many columns, its ends included.
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

/// So much a second: `4,400/s`, and below ten with a decimal.
pub fn rate(per_second: f64) -> String {
    if per_second < 10.0 {
        return format!("{per_second:.1}/s");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked, and no rate comes near")]
    let whole = per_second.round() as u64;
    format!("{}/s", grouped(whole))
}

/// A number with a comma between its thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A time in the largest whole unit that tells.
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

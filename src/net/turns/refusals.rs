//! Turns the refusals of a server into a pause for all callers, followed by a spread of their turns. No I/O and no clock.
//!
//! The first turns after a pause are spread over a time as long as the pause. After each spread, the next one is half as
//! long, until nobody waits or the turns are close together. If the server accepts requests after a pause, and then refuses one,
//! the next spread is twice as long. The rate therefore approaches the rate that the server accepts. If the server has accepted
//! no request since the pause, the pause was too short, and the spread stays as it is.
//!
//! A refusal may concern only one caller. A pause is therefore limited to [`TRUSTED`] at first. If the server accepts a
//! request although the pause that it asked for has not ended, the refusal did not concern all callers: the pause ends, and
//! the next pause needs more refusals in a row. If the server refuses again, the next pause may be twice as long.

use std::time::Duration;

use tokio::time::Instant;

use crate::http::MAX_RETRY_AFTER;

/// The longest pause after the first refusal, because the refusal may concern only one caller.
const TRUSTED: Duration = Duration::from_secs(10);

/// The default of the first pause if the server asks for none.
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// The longest pause if the server asks for none.
const MAX_PAUSE: Duration = Duration::from_secs(60);

const MIN_SPREAD: Duration = Duration::from_secs(1);

const MAX_SPREAD: Duration = Duration::from_secs(60);

/// Turns that are closer together than this are no longer spread.
const DENSE: Duration = Duration::from_millis(1);

/// The highest number of refusals in a row that a pause can need.
const MAX_NEEDED: u32 = 16;

#[derive(Debug)]
pub(super) struct Refusals {
    /// The first pause if the server asks for none.
    pub(super) first_pause: Duration,
    pause: Option<Pause>,
    /// The number of refusals since the server accepted a request.
    in_a_row: u32,
    /// The number of refusals in a row that begin a pause.
    needed: u32,
}

#[derive(Debug)]
struct Pause {
    began: Instant,
    until: Instant,
    /// The length of the pause.
    wait: Duration,
    /// When the pause that the server asked for ends. This may be later than `until`.
    asked_until: Instant,
    /// The longest pause that the evidence justifies.
    trusted: Duration,
    /// Over how long the turns after the pause are spread now, and until when.
    spread: Duration,
    spread_until: Instant,
    /// The number of callers whose turns are spread.
    callers: u32,
    /// Whether the server has accepted a request that was sent after the pause began.
    accepted: bool,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { first_pause: FIRST_PAUSE, pause: None, in_a_row: 0, needed: 1 }
    }
}

impl Refusals {
    /// Forgets what the server said.
    pub(super) fn forget(&mut self) {
        *self = Self { first_pause: self.first_pause, ..Self::default() };
    }

    /// Records that the server refused a request that was sent at `sent`, and asked for a pause.
    pub(super) fn refused(&mut self, sent: Instant, asked: Option<Duration>, now: Instant) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        if self.in_a_row < self.needed {
            return;
        }
        let before = self.pause.take().filter(|pause| now < pause.spread_until + pause.spread);
        // Requests that were sent before the pause can be refused during it. Only a later refusal is a new one.
        let is_again = before.as_ref().is_some_and(|pause| sent >= pause.until);
        let spread = match &before {
            Some(pause) if is_again && pause.accepted => pause.spread * 2,
            Some(pause) => pause.spread,
            None => Duration::ZERO,
        };
        let trusted = match &before {
            Some(pause) if is_again && !pause.accepted => {
                self.needed = 1;
                (pause.trusted * 2).min(MAX_RETRY_AFTER)
            }
            Some(pause) => pause.trusted,
            None => TRUSTED,
        };
        let own = match &before {
            Some(pause) if is_again => pause.wait * 2,
            Some(pause) => pause.wait,
            None => self.first_pause,
        };
        let asked = asked.unwrap_or_else(|| own.min(MAX_PAUSE));
        let wait = asked.min(trusted);
        let spread = spread.max(wait).clamp(MIN_SPREAD, MAX_SPREAD);
        let current = before.filter(|_| !is_again);
        let later = |before: Option<Instant>, after: Duration| before.map_or(now + after, |it| it.max(now + after));
        let until = later(current.as_ref().map(|pause| pause.until), wait);
        self.pause = Some(Pause {
            began: current.as_ref().map_or(now, |pause| pause.began),
            until,
            wait,
            asked_until: later(current.as_ref().map(|pause| pause.asked_until), asked),
            trusted,
            spread,
            spread_until: until + spread,
            callers: 0,
            accepted: false,
        });
    }

    /// Records that the server did not refuse a request that was sent at `sent`. Returns whether this ends the pause.
    pub(super) fn accepted(&mut self, sent: Instant, now: Instant) -> bool {
        let Some(pause) = &mut self.pause else {
            self.in_a_row = 0;
            return false;
        };
        if sent < pause.began {
            return false;
        }
        (self.in_a_row, pause.accepted) = (0, true);
        let is_refuted = now < pause.asked_until;
        if is_refuted {
            self.needed = (self.needed * 2).min(MAX_NEEDED);
            self.pause = None;
        }
        is_refuted
    }

    /// When the pause ends. This may be in the past.
    pub(super) fn until(&self) -> Option<Instant> {
        self.pause.as_ref().map(|pause| pause.until)
    }

    /// The wait between a turn at `now` and the next turn, while `waiting` other callers wait for a turn.
    pub(super) fn interval(&mut self, now: Instant, waiting: usize, callers: usize) -> Duration {
        let Some(pause) = self.pause.as_mut().filter(|pause| now >= pause.until) else { return Duration::ZERO };
        let callers = u32::try_from(waiting.max(callers)).unwrap_or(u32::MAX);
        pause.callers = pause.callers.max(callers).max(1);
        while now >= pause.spread_until {
            pause.spread /= 2;
            if waiting == 0 || pause.spread / pause.callers < DENSE {
                self.pause = None;
                return Duration::ZERO;
            }
            pause.spread_until += pause.spread;
        }
        // The turns of a single caller need no spread.
        if pause.callers == 1 { Duration::ZERO } else { pause.spread / pause.callers }
    }
}

//! Decides when each of several callers may send its next request to a server that they share. This moment is the caller's
//! turn.
//!
//! # Invariants
//!
//! * **Spaced.** With a rate, turns are at least an interval apart. Unused turns do not accumulate: no burst follows a
//!   pause.
//! * **Fair.** While several callers wait, they get their turns alternately, no matter how many requests each of them has.
//! * **A refusal counts for all callers.** After the server has refused a request because of its rate, no caller gets a turn
//!   during the pause that the server asked for. Afterwards the turns are spread. See `refusals.rs`.
//! * **Safe to cancel.** A wait that is dropped uses no turn.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::tasks::lock;
use refusals::Refusals;

mod refusals;
#[cfg(test)]
mod tests;

/// A turn that is late by at most this time does not delay the turns after it. Timers are late by about a millisecond.
const LATE: Duration = Duration::from_millis(5);

/// A number of requests per duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The number of requests. At least one.
    pub requests: u32,
    /// The duration. Never zero.
    pub per: Duration,
}

/// The turns of all callers of a server. They have no rate until [`Turns::limit`] sets one.
#[derive(Debug, Default)]
pub struct Turns(Mutex<TurnState>);

#[derive(Debug, Default)]
struct TurnState {
    rate: Option<Rate>,
    /// The number of processes that share the rate, or zero if this is unknown.
    processes: u32,
    /// The number of callers that take part in the turns regularly.
    callers: usize,
    /// The earliest next turn. `None` means now.
    next: Option<Instant>,
    refusals: Refusals,
    /// The waiting requests, in the order of their turns.
    waiting: BTreeMap<Place, Arc<Notify>>,
    /// The round of the last turn.
    round: u64,
    /// The number of requests that ever waited.
    entered: u64,
}

/// A place in the queue: the round, and the order of arrival. In each round, each caller has at most one turn.
type Place = (u64, u64);

/// One caller of the server.
#[derive(Debug)]
pub struct Caller {
    all: Arc<Turns>,
    /// Whether the caller is one of [`TurnState::callers`].
    is_counted: bool,
    /// The round of the caller's last request. Accessed only while the state is locked.
    round: AtomicU64,
    waits: Mutex<Waits>,
}

/// The waits of a caller for its turns.
#[derive(Debug, Default)]
struct Waits {
    /// The number of requests that wait now.
    now: usize,
    /// When the last wait ended.
    ended: Option<std::time::Instant>,
}

/// When a request was sent.
#[derive(Clone, Copy, Debug)]
pub struct Turn(Instant);

impl Turns {
    /// Sets the rate, or removes it.
    pub fn limit(&self, rate: Option<Rate>) {
        self.change(|state| state.rate = rate);
    }

    /// Sets the first pause after a refusal if the server asks for none.
    pub fn first_pause(&self, pause: Duration) {
        self.change(|state| state.refusals.first_pause = pause);
    }

    /// Divides the rate among this number of processes.
    pub fn share_among(&self, processes: usize) {
        self.change(|state| state.processes = u32::try_from(processes).unwrap_or(u32::MAX));
    }

    /// Forgets the refusals, because they concerned other credentials or another server.
    pub fn forget_refusals(&self) {
        self.change(|state| state.refusals.forget());
    }

    fn change(&self, change: impl FnOnce(&mut TurnState)) {
        let mut state = lock(&self.0);
        let before = state.interval();
        change(&mut state);
        if state.interval() != before {
            state.next = None;
        }
        state.wake_first();
    }

    /// How long the pause that the server asked for still lasts. `None` if there is no pause.
    pub fn pause(&self) -> Option<Duration> {
        let left = lock(&self.0).refusals.until()?.saturating_duration_since(Instant::now());
        Some(left).filter(|left| !left.is_zero())
    }

    /// Records that the server refused a request because of its rate. The server may have asked for a pause.
    pub fn refused(&self, Turn(sent): Turn, asked: Option<Duration>) {
        lock(&self.0).refusals.refused(sent, asked, Instant::now());
    }

    /// Records that the server answered a request, and did not refuse it because of its rate.
    pub fn accepted(&self, Turn(sent): Turn) {
        let mut state = lock(&self.0);
        if state.refusals.accepted(sent, Instant::now()) {
            // The turns are no longer spread.
            let soon = Instant::now() + state.interval();
            state.next = state.next.map(|next| next.min(soon));
            state.wake_first();
        }
    }
}

impl TurnState {
    fn interval(&self) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| (rate.per / rate.requests.max(1)).saturating_mul(self.processes.max(1)))
    }

    fn wake_first(&self) {
        if let Some((_, first)) = self.waiting.first_key_value() {
            first.notify_one();
        }
    }

    /// Gives the turn to a request if it is first in the queue and its turn is due. `place` is `None` if the request is not
    /// in the queue. If the turn is not due, the error is the time to wait for, or `None` if the request is not the first.
    fn take(&mut self, place: Option<Place>, caller: &Caller, now: Instant) -> Result<Turn, Option<Instant>> {
        if self.waiting.keys().next() != place.as_ref() {
            return Err(None);
        }
        let due = self.next.max(self.refusals.until());
        if let Some(due) = due.filter(|due| *due > now) {
            return Err(Some(due));
        }
        let others = self.waiting.len() - usize::from(place.is_some());
        let interval = self.interval().max(self.refusals.interval(now, others, self.callers));
        // A request that waited may have been woken late.
        let late = place.and(due).map_or(Duration::ZERO, |due| now - due).min(LATE);
        self.next = Some(now - late + interval);
        self.round = place.map_or_else(|| caller.next_round(self.round), |(round, _)| round);
        Ok(Turn(now))
    }
}

impl Turn {
    /// A request that is sent now, without a wait for a turn.
    pub fn now() -> Self {
        Self(Instant::now())
    }
}

impl Caller {
    /// Adds a caller of the server.
    pub fn of(all: &Arc<Turns>) -> Arc<Self> {
        Arc::new(Self::new(all.clone(), true))
    }

    /// Adds a caller that rarely sends a request. It waits for its turns, but the turns of others are not spread because of it.
    pub fn occasional(all: &Arc<Turns>) -> Arc<Self> {
        Arc::new(Self::new(all.clone(), false))
    }

    fn new(all: Arc<Turns>, is_counted: bool) -> Self {
        lock(&all.0).callers += usize::from(is_counted);
        Self { all, is_counted, round: AtomicU64::new(0), waits: Mutex::default() }
    }

    /// Whether the caller uses these turns.
    pub fn is_of(&self, all: &Arc<Turns>) -> bool {
        Arc::ptr_eq(&self.all, all)
    }

    /// Waits for the caller's turn.
    ///
    /// # Cancellation
    ///
    /// Can be cancelled at any point. The turn stays unused.
    pub async fn turn(&self) -> Turn {
        if let Ok(turn) = lock(&self.all.0).take(None, self, Instant::now()) {
            return turn;
        }
        let mut waiting = Waiting::begin(self);
        loop {
            let taken = lock(&self.all.0).take(Some(waiting.place), self, Instant::now());
            match taken {
                Ok(turn) => {
                    waiting.has_turn = true;
                    return turn;
                }
                Err(Some(due)) => {
                    tokio::select! { biased; () = waiting.first.notified() => {}, () = sleep_until(due) => {} }
                }
                Err(None) => waiting.first.notified().await,
            }
        }
    }

    /// See [`Turns::refused`].
    pub fn refused(&self, turn: Turn, asked: Option<Duration>) {
        self.all.refused(turn, asked);
    }

    /// See [`Turns::accepted`].
    pub fn accepted(&self, turn: Turn) {
        self.all.accepted(turn);
    }

    /// Whether the caller waits for its turn.
    pub fn waits(&self) -> bool {
        lock(&self.waits).now > 0
    }

    /// When the caller last waited for its turn: now, if it still waits. `None` if it never waited.
    pub fn waited_until(&self) -> Option<std::time::Instant> {
        let waits = lock(&self.waits);
        if waits.now > 0 { Some(std::time::Instant::now()) } else { waits.ended }
    }

    /// The round of the caller's next request. `current` is the round of the last turn.
    fn next_round(&self, current: u64) -> u64 {
        let round = self.round.load(Ordering::Relaxed).max(current) + 1;
        self.round.store(round, Ordering::Relaxed);
        round
    }
}

/// A caller without other callers.
impl Default for Caller {
    fn default() -> Self {
        Self::new(Arc::default(), true)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        lock(&self.all.0).callers -= usize::from(self.is_counted);
    }
}

/// A request in the queue. It leaves the queue when this value is dropped.
struct Waiting<'a> {
    caller: &'a Caller,
    place: Place,
    /// Notified when the request becomes the first in the queue, or when its turn may be due earlier.
    first: Arc<Notify>,
    has_turn: bool,
}

impl<'a> Waiting<'a> {
    fn begin(caller: &'a Caller) -> Self {
        let (mut state, first) = (lock(&caller.all.0), Arc::<Notify>::default());
        state.entered += 1;
        let place = (caller.next_round(state.round), state.entered);
        state.waiting.insert(place, first.clone());
        drop(state);
        lock(&caller.waits).now += 1;
        Self { caller, place, first, has_turn: false }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.caller.all.0);
        state.waiting.remove(&self.place);
        if !self.has_turn {
            // The caller keeps its place in the order of the callers.
            self.caller.round.fetch_sub(1, Ordering::Relaxed);
        }
        state.wake_first();
        drop(state);
        let mut waits = lock(&self.caller.waits);
        waits.now -= 1;
        waits.ended = Some(std::time::Instant::now());
    }
}

//! The parts of a history that its service, sinks and machine share: the steps, the time, and the end of the current run.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::Channel;
use crate::channel::controls::Handle;
use ledger::Pause;
use ledger::testing::Write;
use net::tasks::lock;
use proof::event::Offset;

use super::history::{End, History, Paused, PlannedFault, Run};
use super::reload::reload;
use super::sink::AcceptedEvents;
use super::sink_name;
use super::totals::Totals;

/// The time at which a history begins, in Unix seconds.
const BEGINNING: i64 = 1_750_000_000;

/// The number of writes that fail in a run in which the store is unavailable for some time.
const UNAVAILABLE_TRIES: usize = 7;

/// The maximum number of lines of the trace that are shown. These are the last lines.
const MAX_LINES: usize = 25000;

pub(super) struct World {
    pub(super) history: Arc<History>,
    pub(super) offsets: Vec<Offset>,
    pub(super) began: Instant,
    logs: bool,
    inner: Mutex<Inner>,
    own: Weak<Self>,
}

/// The parts that change while a history runs.
#[derive(Default)]
pub(super) struct Inner {
    /// The number of events that the service has.
    pub(super) published: usize,
    pub(super) seen: Vec<EventReadings>,
    pub(super) lanes: Vec<AcceptedEvents>,
    /// The first contradiction between the history and the model.
    pub(super) problem: Option<String>,
    pub(super) totals: Totals,
    /// Set when the service was restored: the number of the first event that differs, and the time from which the service has
    /// the different event.
    restored: Option<(usize, Instant)>,
    /// Whether an operator has accepted the service's current events.
    pub(super) accepted: bool,
    requests: usize,
    clock_shift: i64,
    run: RunInHand,
    trace: Vec<String>,
}

/// The past readings of an event.
#[derive(Clone, Debug, Default)]
pub(super) struct EventReadings {
    pub(super) published: Option<Instant>,
    pub(super) readings: usize,
    /// When the event was first shown without its proof, by the daemon's clock.
    pub(super) bare: Option<i64>,
    /// The number of consecutive requests for the event that were not answered.
    pub(super) unanswered: usize,
    /// Whether the service was asked for the event and did not confirm it. If so, the event may be rejected.
    pub(super) denied: bool,
}

#[derive(Default)]
struct RunInHand {
    ends: Option<Run>,
    step: usize,
    crash_at: Option<usize>,
    crashed: bool,
    write: Option<Write>,
    unavailable: usize,
    overtaken: bool,
    /// Fires when nothing more may happen in the run.
    over: CancellationToken,
    stop: CancellationToken,
    handle: Option<Arc<Handle>>,
    channel: Weak<Channel>,
}

/// A point at which a run can end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Answer,
    Offer,
    PartTaken,
    Taken,
    Write,
    Written,
}

impl Inner {
    /// Returns the time from which the service has a different event instead of the event with this number. Returns `None` if
    /// the service keeps the event.
    pub(super) fn renewed_at(&self, at: usize) -> Option<Instant> {
        self.restored.filter(|(first, _)| *first <= at).map(|(_, since)| since)
    }

    /// Returns whether the service was restored.
    pub(super) fn is_restored(&self) -> bool {
        self.restored.is_some()
    }
}

impl World {
    pub(super) fn new(history: Arc<History>, logs: bool) -> Arc<Self> {
        let offsets = history.offsets();
        let inner = Inner {
            seen: vec![EventReadings::default(); offsets.len()],
            lanes: history.sinks.iter().map(|_| AcceptedEvents::default()).collect(),
            totals: Totals { histories: 1, ..Totals::default() },
            ..Inner::default()
        };
        let inner = Mutex::new(inner);
        Arc::new_cyclic(|own| Self { history, offsets, began: Instant::now(), logs, inner, own: own.clone() })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Begins a run. The first token fires when nothing more may happen. The second token stops the run in order.
    pub(super) fn begin(&self, ends: Option<Run>, handle: &Arc<Handle>) -> (CancellationToken, CancellationToken) {
        let mut inner = self.lock();
        inner.totals.runs += 1;
        let crash_at = ends.filter(|run| run.ends == End::Crash).map(|run| run.step);
        inner.run = RunInHand { ends, crash_at, handle: Some(handle.clone()), ..RunInHand::default() };
        (inner.run.over.clone(), inner.run.stop.clone())
    }

    /// Sets the channel of the current run.
    pub(super) fn runs(&self, channel: &Arc<Channel>) {
        self.lock().run.channel = Arc::downgrade(channel);
    }

    pub(super) fn crashed(&self) -> bool {
        self.lock().run.crashed
    }

    /// Returns immediately if the run has not crashed. Never returns if the run has crashed.
    pub(super) async fn goes_on(&self) {
        if self.crashed() {
            std::future::pending::<()>().await;
        }
    }

    /// Adds a line to the trace.
    pub(super) fn log(&self, what: impl FnOnce() -> String) {
        if self.logs {
            let at = self.began.elapsed();
            let mut inner = self.lock();
            let step = inner.run.step;
            inner.trace.push(format!("{:>10.3}s step {step:>3}  {}", at.as_secs_f64(), what()));
        }
    }

    /// Returns the last lines of the trace.
    pub(super) fn trace(&self) -> String {
        let trace = &self.lock().trace;
        trace[trace.len().saturating_sub(MAX_LINES)..].join("\n")
    }

    /// Records that the history contradicts the model, and ends the run.
    pub(super) fn fail(&self, problem: impl FnOnce() -> String) {
        let problem = problem();
        self.log(|| format!("WRONG: {problem}"));
        let mut inner = self.lock();
        inner.problem.get_or_insert(problem);
        inner.run.over.cancel();
    }

    /// Makes a step. Never returns if the run has crashed.
    pub(super) async fn step(&self, step: Step, number: usize) {
        if !self.passes(step, number) {
            std::future::pending::<()>().await;
        }
    }

    fn passes(&self, step: Step, number: usize) -> bool {
        let mut inner = self.lock();
        if inner.run.crashed || inner.problem.is_some() {
            return false;
        }
        inner.run.step += 1;
        inner.totals.steps += 1;
        let (total, now) = (inner.totals.steps, self.began.elapsed().as_nanos());
        let parts = [u64::try_from(now).unwrap(), step as u64, number as u64];
        inner.totals.digest = parts.iter().fold(inner.totals.digest, |digest, part| {
            (digest.rotate_left(5) ^ part).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        });
        let at = inner.run.step;
        let due = |when: usize| u64::try_from(when).is_ok_and(|when| when == total);
        let shift: i64 = self.history.clock.iter().filter(|(when, _)| due(*when)).map(|(_, by)| by).sum();
        inner.clock_shift += shift;
        let pauses: Vec<_> = self.history.pauses.iter().filter(|(when, ..)| due(*when)).collect();
        let reloads: Vec<_> = self.history.reloads.iter().filter(|(when, _)| due(*when)).collect();
        inner.totals.reloads += reloads.len() as u64;
        let handle = inner.run.handle.clone().expect("a run has begun");
        let channel = inner.run.channel.clone();
        match inner.run.ends {
            Some(Run { step, ends: End::Stop }) if step == at => inner.run.stop.cancel(),
            Some(Run { step, ends: End::CrashWhileStopping(later) }) if step == at => {
                inner.run.stop.cancel();
                inner.run.crash_at = Some(step + later.max(1));
            }
            Some(Run { step, ends: End::Overtaken }) if step == at => inner.run.overtaken = true,
            _ => {}
        }
        let overtaken = inner.run.overtaken;
        let crashes = inner.run.crash_at == Some(at);
        if crashes {
            inner.run.crashed = true;
            inner.totals.crashes += 1;
            inner.run.over.cancel();
        }
        drop(inner);
        if overtaken && let Some(owned) = handle.owned() {
            owned.leased.lease.lost.cancel();
        }
        if shift != 0 {
            self.log(|| format!("the clock is set {shift:+} s"));
        }
        for (_, what, seconds) in pauses {
            self.pause(&handle, *what, *seconds);
        }
        for (_, what) in reloads {
            self.log(|| format!("the configuration changes: {what:?}"));
            if let Some(world) = self.own.upgrade() {
                reload(&world, &channel, *what);
            }
        }
        if crashes {
            self.log(|| format!("CRASH at {step:?}"));
        }
        !crashes
    }

    fn pause(&self, handle: &Arc<Handle>, what: Paused, seconds: u64) {
        self.log(|| format!("{what:?} is paused for {seconds} s"));
        set_paused(handle, what, true);
        let handle = handle.clone();
        tokio::spawn(async move {
            sleep(Duration::from_secs(seconds)).await;
            set_paused(&handle, what, false);
        });
    }

    /// Makes a request. Returns the fault if the request gets no answer.
    pub(super) async fn request(&self, what: impl FnOnce() -> String + Send) -> Option<PlannedFault> {
        let number = {
            let mut inner = self.lock();
            inner.totals.requests += 1;
            inner.requests += 1;
            inner.requests - 1
        };
        self.log(|| format!("request {number}: {}", what()));
        wait(&self.history.delays, number).await;
        self.step(Step::Answer, number).await;
        self.publish(number);
        if self.restore(number) {
            return Some(PlannedFault::Unavailable);
        }
        let fault = self.history.faults.iter().find(|(at, _)| *at == number).map(|(_, fault)| *fault);
        if let Some(fault) = fault {
            self.log(|| format!("request {number} fails: {fault:?}"));
        }
        fault
    }

    /// Publishes the events that arrive up to this request.
    fn publish(&self, request: usize) {
        let mut inner = self.lock();
        let published = self.history.published_at(request).max(inner.published);
        let new = inner.published..published;
        inner.seen[new.clone()].iter_mut().for_each(|seen| seen.published = Some(Instant::now()));
        inner.published = published;
        drop(inner);
        if !new.is_empty() {
            self.log(|| format!("{} events arrive: {published} in total", new.len()));
        }
    }

    /// Restores the service if the history contains a restore at this request. Returns whether the service was restored.
    fn restore(&self, request: usize) -> bool {
        let Some(restored) = self.history.restored.filter(|restored| restored.request == request) else { return false };
        let mut inner = self.lock();
        let first = inner.published.saturating_sub(restored.events);
        inner.restored = Some((first, Instant::now() + Duration::from_secs(restored.seconds)));
        inner.totals.restored += 1;
        drop(inner);
        self.log(|| format!("the service is restored: from event {first} on, it has different events"));
        true
    }

    /// Returns the outcome of a write. After a write has failed permanently, no further write of the run succeeds.
    pub(super) fn outcome_of_write(&self, commits: usize) -> Write {
        let mut inner = self.lock();
        inner.totals.commits += commits as u64;
        match inner.run.ends {
            Some(Run { ends: End::Overtaken, .. }) if inner.run.overtaken => Write::Overtaken,
            Some(Run { ends: End::WriteFails(write @ (Write::Unavailable | Write::Late)), step })
                if inner.run.step >= step =>
            {
                // The failure lasts for a few writes. The channel tries again, and the run continues.
                inner.run.unavailable += 1;
                if inner.run.unavailable <= UNAVAILABLE_TRIES { write } else { Write::Done }
            }
            Some(Run { step, ends: End::WriteFails(write) }) if inner.run.step >= step => {
                inner.totals.failed_writes += u64::from(inner.run.write.replace(write).is_none());
                write
            }
            _ => Write::Done,
        }
    }

    /// Returns whether a write of the current run has failed.
    pub(super) fn write_failed(&self) -> bool {
        self.lock().run.write.is_some()
    }

    /// Returns whether another instance has the channel.
    pub(super) fn is_overtaken(&self) -> bool {
        self.lock().run.overtaken
    }

    /// Returns the time in Unix seconds, by the daemon's clock.
    pub(super) fn now(&self) -> i64 {
        BEGINNING + i64::try_from(self.began.elapsed().as_secs()).unwrap() + self.lock().clock_shift
    }
}

fn set_paused(handle: &Handle, what: Paused, paused: bool) {
    let sink = match what {
        Paused::Channel => None,
        Paused::Sink(number) => Some(sink_name(number)),
    };
    handle.set_paused(sink.as_ref(), paused.then_some(Pause { since: Timestamp::UNIX_EPOCH, until: None }));
}

/// Waits for one of the delays. The delays are used in rotation.
pub(super) async fn wait(delays: &[u64], number: usize) {
    match delays {
        [] => {}
        _ => match delays[number % delays.len()] {
            0 => {}
            delay => sleep(Duration::from_millis(delay)).await,
        },
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

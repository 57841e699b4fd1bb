//! Reading and judging, one batch after another: what the channel's lanes are fed with.
//!
//! The channel has one that feeds every lane that keeps up; a lane that has fallen behind has one of its own until it has
//! caught up.
//!
//! # Invariants
//!
//! * **Contiguous.** Each batch begins where the one before it ended.
//! * **Nothing overtakes in strict ordering.** An event without its proof ends a batch, and the next begins with what
//!   became of it. Since when it is waited for is in the state: a restart does not wait anew.
//! * **Nonsense moves nothing.** Evidence whose place the service does not confirm is quarantined, but reading goes on
//!   above it only where something else is there: in the same range, or above the range and seen before the range was read
//!   once more. What had come below that would then be in the range.
//! * **Evidence is never dropped for want of room.** While the quarantine is full, what has to go there is not handed on,
//!   and nothing after it. It takes what is in hand already, and so a few pages more than its bounds.
//!
//! # Cancellation
//!
//! At any point before a batch is returned: it is read again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use crate::api::ApiError;
use crate::event::Offset;
use crate::retry::Retry;
use crate::state::{Blocker, Commit, Evidence, Held, Pending, Quarantined};
use crate::trace::Trace;

use super::ahead::{Ahead, Arrived};
use super::batch::{Batch, Outcome, Sorted};
use super::judge::{Hearing, PROOF_TIMEOUT};
use super::reader::{Range, ReadError};
use super::shared::{Shared, Way};
use super::status::Activity;
use super::teller::Teller;
use super::trouble::Trouble;
use super::{ChannelError, pause};

/// While there is more than a page to read, or nobody takes what was read, the service is asked so often how far it goes:
/// no page shows it.
const LOOK_AHEAD: Duration = Duration::from_secs(10);

/// How long reading waits for the answer, which it does without as well.
const LOOK_AHEAD_PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct Intake {
    shared: Arc<Shared>,
    way: Arc<Way>,
    ahead: Ahead,
    position: Option<Offset>,
    /// Judged, and not handed on yet.
    waiting: Vec<Outcome>,
    /// The range that they came in, as long as any of it waits.
    trace: Option<Trace>,
    /// What they wait for, in strict ordering.
    held: Option<Pending>,
    /// Above this offset something was seen that has its place.
    shown_above: Option<Offset>,
    /// The last page said that there is no more: that is worth a wait before asking again.
    caught_up: bool,
    /// When it was last known how far the channel goes.
    looked_ahead: Instant,
    retry: Retry,
    trouble: Trouble,
    teller: Teller,
}

/// What came next.
#[derive(Debug)]
pub(super) enum Taken {
    /// The next batch.
    Batch(Batch),
    /// There is no more, for now.
    Nothing,
    /// `stop` fired.
    Stopped,
}

impl Intake {
    /// Begins above `position`, and reads in one way.
    pub(super) fn new(shared: Arc<Shared>, way: Arc<Way>, position: Option<Offset>, teller: Teller) -> Self {
        Self {
            ahead: Ahead::new(way.clone()),
            position,
            waiting: Vec::new(),
            trace: None,
            held: None,
            shown_above: None,
            caught_up: false,
            looked_ahead: Instant::now(),
            retry: shared.machine.retry(way.settings.retry),
            trouble: Trouble::new(&shared.channel, &teller),
            teller,
            shared,
            way,
        }
    }

    /// The next batch. Errors of the service are waited out.
    pub(super) async fn next(&mut self, stop: &CancellationToken) -> Result<Taken, ChannelError> {
        self.teller.says(Activity::Reading);
        let taken = self.take(stop).await?;
        if let Taken::Nothing = taken {
            self.teller.has_read_all();
            self.teller.waits(Activity::Idle, self.way.settings.idle_wait);
        } else {
            self.teller.says(Activity::Delivering);
        }
        Ok(taken)
    }

    async fn take(&mut self, stop: &CancellationToken) -> Result<Taken, ChannelError> {
        loop {
            if let Some(pending) = self.held.take() {
                let Some(settled) = self.hold(pending, stop).await? else { return Ok(Taken::Stopped) };
                self.waiting.insert(0, settled);
            }
            if !self.waiting.is_empty() {
                if self.waiting.iter().any(Outcome::is_evidence) && !self.room(stop).await {
                    return Ok(Taken::Stopped);
                }
                let top = self.waiting.last().map(Outcome::offset);
                if let Some(batch) = self.sort().await? {
                    return Ok(Taken::Batch(batch));
                }
                if self.held.is_none() && (self.caught_up || !self.look_above(top, stop).await?) {
                    // Nonsense, which will be there again.
                    return Ok(Taken::Nothing);
                }
                continue;
            }
            if std::mem::take(&mut self.caught_up) {
                return Ok(Taken::Nothing);
            }
            match self.read(stop).await? {
                Read::Again => {}
                Read::Nothing => return Ok(Taken::Nothing),
                Read::Stopped => return Ok(Taken::Stopped),
            }
        }
    }

    /// Waits for the proof of the event that everything after it waits for; `None` where `stop` fired first.
    async fn hold(&self, mut pending: Pending, stop: &CancellationToken) -> Result<Option<Outcome>, ChannelError> {
        let (state, channel, offset) = (&self.shared.state, self.shared.channel.id, pending.offset);
        let timed_out = |facts: &Quarantined| facts.reason == PROOF_TIMEOUT;
        if let Some(facts) = state.quarantined_at(channel, offset)?.filter(timed_out) {
            // Those who are ahead have waited for it already.
            return Ok(Some(Outcome::Condemned(Evidence { facts, json: pending.json })));
        }
        if let Some(known) = state.blocker(channel)?.filter(|known| known.offset == offset) {
            pending.first_seen = known.first_seen;
        } else {
            let blocker = Some((channel, Blocker { offset, first_seen: pending.first_seen }));
            state.commit(Commit { blocker, ..Commit::default() }).await?;
        }
        self.way.judge.hold(pending, self.hearing(self.trace.as_ref(), stop)).await
    }

    /// Waits until the quarantine takes more; `false` where `stop` fired first.
    async fn room(&self, stop: &CancellationToken) -> bool {
        let mut held = self.shared.state.held();
        let Held { events, bytes } = *held.borrow();
        if !(Held { events, bytes }).is_full() {
            return true;
        }
        self.teller.says(Activity::QuarantineFull);
        let channel = &self.shared.channel.name;
        error!(%channel, events, bytes, "quarantine is full: reading stops, because evidence would be lost; look into it with `channeld quarantine list`, then retry or drop");
        let room = tokio::select! {
            biased;
            () = stop.cancelled() => false,
            room = held.wait_for(|held| !held.is_full()) => room.is_ok(),
        };
        if room {
            info!(%channel, "quarantine has room again: reading goes on");
        }
        room
    }

    /// Sorts what waits, as far as it may go on.
    async fn sort(&mut self) -> Result<Option<Batch>, ChannelError> {
        let trace = self.trace.take().expect("it is kept as long as anything waits");
        let Sorted { mut batch, mut unplaced, held, rest } =
            Batch::sort(&self.way.settings, &trace, std::mem::take(&mut self.waiting));
        (self.held, self.waiting) = (held, rest);
        let top = unplaced.last().map(|evidence| evidence.facts.offset);
        if let Some(top) = top.filter(|top| batch.is_none() && Some(*top) <= self.shown_above) {
            batch = Some(Batch::of_evidence(std::mem::take(&mut unplaced), top, trace.clone()));
        }
        // It ends with what became of the range: who has read all of it holds on to none of it.
        self.trace = Some(trace).filter(|_| self.held.is_some() || !self.waiting.is_empty());
        self.quarantine(unplaced).await?;
        if let Some(batch) = &batch {
            self.position = Some(batch.through);
        }
        Ok(batch)
    }

    async fn quarantine(&self, unplaced: Vec<Evidence>) -> Result<(), ChannelError> {
        if unplaced.is_empty() {
            return Ok(());
        }
        let quarantined = unplaced.into_iter().map(|evidence| (self.shared.channel.id, evidence)).collect();
        Ok(self.shared.state.commit(Commit { quarantined, ..Commit::default() }).await?)
    }

    /// Whether anything that has its place stands above nonsense that fills its range, which is then worth reading again.
    /// Nonsense that is found instead is evidence too.
    async fn look_above(&mut self, top: Option<Offset>, stop: &CancellationToken) -> Result<bool, ChannelError> {
        let mut reader = self.way.reader();
        let mut above = top;
        loop {
            let began = SystemTime::now();
            let range = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(false),
                range = reader.next(above) => range,
            };
            let Range { events, more } = match range {
                Ok(range) => range,
                Err(ReadError::Api(ApiError::ChannelGone(_))) => return Err(ChannelError::Gone),
                // What is wrong will be said when the range itself is read.
                Err(_) => return Ok(false),
            };
            let trace = self.begin(began);
            let heard = self.way.judge.hear(events).await?;
            let Some(judged) = self.way.judge.page(heard, self.hearing(Some(&trace), stop)).await? else {
                return Ok(false);
            };
            if judged.iter().any(|outcome| !matches!(outcome, Outcome::Unplaced(_))) {
                self.shown_above = above;
                // What it has read of the range already is from before.
                self.ahead.forget();
                return Ok(true);
            }
            above = judged.last().map(Outcome::offset).or(above);
            if !judged.is_empty() {
                if !self.room(stop).await {
                    return Ok(false);
                }
                self.quarantine(Batch::sort(&self.way.settings, &trace, judged).unplaced).await?;
            }
            if !more {
                return Ok(false);
            }
        }
    }

    fn begin(&self, since: SystemTime) -> Trace {
        self.shared.handle.traces().begin(&self.shared.channel, since)
    }

    fn hearing<'a>(&'a self, trace: Option<&Trace>, stop: &'a CancellationToken) -> Hearing<'a> {
        Hearing { teller: &self.teller, stop, trace: trace.map(Trace::id) }
    }

    fn tell_judged(&self, trace: &Trace, judged: &[Outcome]) {
        let [Some(first), Some(last)] = [judged.first(), judged.last()].map(|at| at.map(Outcome::offset)) else {
            return;
        };
        let (channel, trace_id, events) = (&self.shared.channel.name, trace.id(), judged.len());
        debug!(%channel, %trace_id, %first, %last, events, "batch judged");
        trace.note(|| {
            let of = |counts: fn(&Outcome) -> bool| judged.iter().filter(|outcome| counts(outcome)).count();
            let counts = [
                ("events", events),
                ("pending", of(|outcome| matches!(outcome, Outcome::Pending(_)))),
                ("rejected", of(Outcome::is_evidence)),
            ];
            let counts = counts.map(|(name, count)| (name, i64::try_from(count).unwrap_or(i64::MAX)));
            counts.into_iter().chain([("first_offset", first.get()), ("last_offset", last.get())]).collect()
        });
    }

    /// Waits for what may take long, and asks now and then how far the channel goes meanwhile.
    pub(super) async fn meanwhile<T>(&self, doing: impl Future<Output = T>) -> T {
        let source = self.way.judge.source();
        let looking = async {
            let mut wait = LOOK_AHEAD;
            loop {
                sleep(wait).await;
                let asked = source.poll(None, 1).await.err().and_then(|error| error.retry_after());
                wait = LOOK_AHEAD.max(asked.unwrap_or_default());
            }
        };
        tokio::select! { biased; done = doing => done, never = looking => never }
    }

    /// Asks how far the channel goes, where a page has not said so for a while; `false` where `stop` fired first.
    async fn look_ahead(&mut self, stop: &CancellationToken) -> bool {
        if self.caught_up {
            self.looked_ahead = Instant::now();
        }
        if !self.teller.reads_first() || self.looked_ahead.elapsed() < LOOK_AHEAD {
            return true;
        }
        self.looked_ahead = Instant::now();
        let source = self.way.judge.source();
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            // Whoever is asked tells the handle; an error will be said when it concerns what is read.
            _ = timeout(LOOK_AHEAD_PATIENCE, source.poll(None, 1)) => true,
        }
    }

    async fn read(&mut self, stop: &CancellationToken) -> Result<Read, ChannelError> {
        let Arrived { range, took, early } = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(Read::Stopped),
            arrived = self.ahead.next(self.position) => arrived,
        };
        let error = match range {
            Ok(range) => {
                self.retry.reset();
                self.trouble.over();
                if range.last.is_none() {
                    return Ok(if range.more || early { Read::Again } else { Read::Nothing });
                }
                let trace = self.begin(took.start);
                trace.past("poll", took);
                self.caught_up = !range.more && !early;
                if !self.look_ahead(stop).await {
                    return Ok(Read::Stopped);
                }
                let judging = trace.part("judge");
                let hearing = self.hearing(Some(&trace), stop);
                let Some(judged) = self.way.judge.page(range.heard().await?, hearing).await? else {
                    return Ok(Read::Stopped);
                };
                drop(judging);
                self.tell_judged(&trace, &judged);
                (self.waiting, self.trace) = (judged, Some(trace));
                return Ok(Read::Again);
            }
            Err(ReadError::Api(ApiError::ChannelGone(_))) => return Err(ChannelError::Gone),
            Err(error) => error,
        };
        let wait: Duration = self.retry.next_wait(error.retry_after());
        self.trouble.report("reading events", &error, wait);
        Ok(if pause(wait, stop).await { Read::Again } else { Read::Stopped })
    }
}

/// What came of reading.
enum Read {
    /// Something, or the wait after an error is over.
    Again,
    Nothing,
    Stopped,
}

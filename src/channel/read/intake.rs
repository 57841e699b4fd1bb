//! Reading and verifying, one batch after another, for the lanes.
//!
//! The channel has one intake for every lane that keeps up. A lane that has fallen behind has one of its own until it has
//! caught up.
//!
//! # Invariants
//!
//! * **Contiguous.** Each batch begins where the one before it ended.
//! * **Nothing overtakes in strict ordering.** An event without its proof ends a batch, and the next batch begins with the
//!   event's outcome. The state knows since when the event is waited for: a restart does not begin the wait anew.
//! * **An unconfirmed offset does not move the position.** An event that the service does not confirm is quarantined.
//!   Reading goes on above it only where a confirmed event is above it: in the same range, or above the range and seen
//!   before the range was read once more. An event that came below in the meantime would then be in the range.
//! * **No rejected event is dropped for want of room.** While the quarantine is full, neither a rejected event nor anything
//!   after it is handed on. What is in hand already still goes in, so the quarantine may exceed its bounds by a few pages.
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
use crate::channel::context::{ReadPlan, RunContext};
use crate::channel::deliver::batch::{Batch, Outcome, Sorted};
use crate::channel::read::ahead::{Ahead, Arrived};
use crate::channel::read::reader::{Range, ReadError};
use crate::channel::reporter::StatusReporter;
use crate::channel::status::Activity;
use crate::channel::trouble::Trouble;
use crate::channel::verify::{PROOF_TIMEOUT, StageContext};
use crate::channel::{ChannelError, pause};
use crate::event::Offset;
use crate::ledger::{Blocker, Change, Commit, Pending, QUARANTINE, QuarantinedEvent};
use crate::retry::Retry;
use crate::telemetry::trace::Trace;

/// How often the service is asked for its newest offset while no page shows it: while there is more than a page to read, or
/// while what was read waits to be taken.
const LOOK_AHEAD: Duration = Duration::from_secs(10);

/// How long reading waits for that answer. It goes on without.
const LOOK_AHEAD_TIMEOUT: Duration = Duration::from_secs(2);

pub(in crate::channel) struct Intake {
    shared: Arc<RunContext>,
    read_plan: Arc<ReadPlan>,
    ahead: Ahead,
    /// The last offset of the batch before.
    position: Option<Offset>,
    /// Outcomes that are not handed on yet.
    waiting: Vec<Outcome>,
    /// The trace of their range, while any of it waits.
    trace: Option<Trace>,
    /// In strict ordering, the event whose proof they wait for.
    held: Option<Pending>,
    /// A confirmed event was seen above this offset.
    shown_above: Option<Offset>,
    /// The last page said that there is no more: wait before the next poll.
    caught_up: bool,
    /// When the channel's newest offset was last known.
    looked_ahead: Instant,
    retry: Retry,
    trouble: Trouble,
    reporter: StatusReporter,
}

/// The next step of an intake.
#[derive(Debug)]
pub(in crate::channel) enum Taken {
    /// The next batch.
    Batch(Batch),
    /// There is no more, for now.
    Nothing,
    /// `stop` fired.
    Stopped,
}

impl Intake {
    /// Begins above `position`, and reads by one plan.
    pub(in crate::channel) fn new(
        shared: Arc<RunContext>,
        read_plan: Arc<ReadPlan>,
        position: Option<Offset>,
        reporter: StatusReporter,
    ) -> Self {
        Self {
            ahead: Ahead::new(read_plan.clone()),
            position,
            waiting: Vec::new(),
            trace: None,
            held: None,
            shown_above: None,
            caught_up: false,
            looked_ahead: Instant::now(),
            retry: shared.machine.retry(read_plan.settings.retry),
            trouble: Trouble::new(&shared.channel, &reporter, None),
            reporter,
            shared,
            read_plan,
        }
    }

    /// The next batch. Errors of the service are waited out.
    pub(in crate::channel) async fn next(&mut self, stop: &CancellationToken) -> Result<Taken, ChannelError> {
        self.reporter.says(Activity::Reading);
        let taken = self.take(stop).await?;
        if let Taken::Nothing = taken {
            self.reporter.has_read_all();
            self.reporter.waits(Activity::Idle, self.read_plan.settings.idle_wait);
        } else {
            self.reporter.says(Activity::Delivering);
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
                if self.waiting.iter().any(Outcome::is_rejected) && !self.room(stop).await {
                    return Ok(Taken::Stopped);
                }
                let top = self.waiting.last().map(Outcome::offset);
                if let Some(batch) = self.sort().await? {
                    return Ok(Taken::Batch(batch));
                }
                if self.held.is_none() && (self.caught_up || !self.look_above(top, stop).await?) {
                    // Unconfirmed events alone: the next poll shows them again.
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

    /// In strict ordering, waits for the proof of an event; `None` where `stop` fired first.
    async fn hold(&self, mut pending: Pending, stop: &CancellationToken) -> Result<Option<Outcome>, ChannelError> {
        let offset = pending.offset;
        let (quarantined, blocker) =
            self.shared.look(|ledger| (ledger.quarantined().get(&offset).cloned(), ledger.blocker()));
        if let Some(facts) = quarantined.filter(|facts| facts.reason == PROOF_TIMEOUT) {
            // Another intake has waited for it already.
            return Ok(Some(Outcome::Rejected(QuarantinedEvent { facts, json: pending.json })));
        }
        if let Some(known) = blocker.filter(|known| known.offset == offset) {
            pending.first_seen = known.first_seen;
        } else {
            let blocker = Change::Block(Blocker { offset, first_seen: pending.first_seen });
            self.shared.claim().commit(Commit(vec![blocker])).await?;
        }
        self.read_plan.stage.hold(pending, self.context(self.trace.as_ref(), stop)).await
    }

    /// Waits until the quarantine has room; `false` where `stop` fired first.
    async fn room(&self, stop: &CancellationToken) -> bool {
        let taken = self.shared.look(crate::ledger::Ledger::quarantine_room);
        if !taken.is_full(QUARANTINE) {
            return true;
        }
        self.reporter.says(Activity::QuarantineFull);
        let (channel, events, bytes) = (&self.shared.channel.name, taken.events, taken.bytes);
        error!(%channel, events, bytes, "the channel's quarantine is full: reading stops, because rejected events would be lost; look at them with `channeld quarantine list`, then retry or drop them");
        let room = tokio::select! {
            biased;
            () = stop.cancelled() => false,
            () = self.shared.claim().until(|ledger| !ledger.quarantine_room().is_full(QUARANTINE)) => true,
        };
        if room {
            info!(%channel, "quarantine has room again: reading goes on");
        }
        room
    }

    /// Sorts the waiting outcomes, as far as they may be handed on.
    async fn sort(&mut self) -> Result<Option<Batch>, ChannelError> {
        let trace = self.trace.take().expect("the trace is kept while outcomes wait");
        let Sorted { mut batch, mut unconfirmed, held, rest } =
            Batch::sort(&self.read_plan.settings, &trace, std::mem::take(&mut self.waiting));
        (self.held, self.waiting) = (held, rest);
        let top = unconfirmed.last().map(|event| event.facts.offset);
        if let Some(top) = top.filter(|top| batch.is_none() && Some(*top) <= self.shown_above) {
            batch = Some(Batch::of_rejected(std::mem::take(&mut unconfirmed), top, trace.clone()));
        }
        // The trace ends with the range's last outcome.
        self.trace = Some(trace).filter(|_| self.held.is_some() || !self.waiting.is_empty());
        self.quarantine(unconfirmed).await?;
        if let Some(batch) = &batch {
            self.position = Some(batch.through);
        }
        Ok(batch)
    }

    async fn quarantine(&self, unconfirmed: Vec<QuarantinedEvent>) -> Result<(), ChannelError> {
        if unconfirmed.is_empty() {
            return Ok(());
        }
        let quarantined = unconfirmed.into_iter().map(Change::Quarantine).collect();
        Ok(self.shared.claim().commit(Commit(quarantined)).await?)
    }

    /// Whether a confirmed event is above a range that holds unconfirmed events only: the range is then read again.
    /// Unconfirmed events that are found on the way are quarantined too.
    async fn look_above(&mut self, top: Option<Offset>, stop: &CancellationToken) -> Result<bool, ChannelError> {
        let mut reader = self.read_plan.reader();
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
                // The error is reported when the range itself is read.
                Err(_) => return Ok(false),
            };
            let trace = self.begin(began);
            let checked = self.read_plan.stage.check(events).await?;
            let Some(outcomes) = self.read_plan.stage.page(checked, self.context(Some(&trace), stop)).await? else {
                return Ok(false);
            };
            if outcomes.iter().any(|outcome| !matches!(outcome, Outcome::Unconfirmed(_))) {
                self.shown_above = above;
                // What was read ahead is older than what was seen above.
                self.ahead.forget();
                return Ok(true);
            }
            above = outcomes.last().map(Outcome::offset).or(above);
            if !outcomes.is_empty() {
                if !self.room(stop).await {
                    return Ok(false);
                }
                self.quarantine(Batch::sort(&self.read_plan.settings, &trace, outcomes).unconfirmed).await?;
            }
            if !more {
                return Ok(false);
            }
        }
    }

    fn begin(&self, since: SystemTime) -> Trace {
        self.shared.traces.begin(&self.shared.channel, since)
    }

    fn context<'a>(&'a self, trace: Option<&Trace>, stop: &'a CancellationToken) -> StageContext<'a> {
        StageContext { reporter: &self.reporter, stop, trace: trace.map(Trace::id) }
    }

    fn log_verified(&self, trace: &Trace, outcomes: &[Outcome]) {
        let [Some(first), Some(last)] = [outcomes.first(), outcomes.last()].map(|at| at.map(Outcome::offset)) else {
            return;
        };
        let (channel, trace_id, events) = (&self.shared.channel.name, trace.id(), outcomes.len());
        debug!(%channel, %trace_id, %first, %last, events, "batch verified");
        trace.note(|| {
            let of = |counts: fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| counts(outcome)).count();
            let counts = [
                ("events", events),
                ("pending", of(|outcome| matches!(outcome, Outcome::Pending(_)))),
                ("rejected", of(Outcome::is_rejected)),
            ];
            let counts = counts.map(|(name, count)| (name, i64::try_from(count).unwrap_or(i64::MAX)));
            counts.into_iter().chain([("first_offset", first.get()), ("last_offset", last.get())]).collect()
        });
    }

    /// Waits for what may take long. Asks the service for the newest offset now and then meanwhile.
    pub(in crate::channel) async fn meanwhile<T>(&self, doing: impl Future<Output = T>) -> T {
        let source = self.read_plan.stage.source();
        let looking = async {
            let mut wait = LOOK_AHEAD;
            loop {
                sleep(wait).await;
                let retry_after = source.poll(None, 1).await.err().and_then(|error| error.retry_after());
                wait = LOOK_AHEAD.max(retry_after.unwrap_or_default());
            }
        };
        tokio::select! { biased; done = doing => done, never = looking => never }
    }

    /// Asks for the newest offset, if no page has shown it for a while; `false` where `stop` fired first.
    async fn look_ahead(&mut self, stop: &CancellationToken) -> bool {
        if self.caught_up {
            self.looked_ahead = Instant::now();
        }
        if !self.reporter.reads_first() || self.looked_ahead.elapsed() < LOOK_AHEAD {
            return true;
        }
        self.looked_ahead = Instant::now();
        let source = self.read_plan.stage.source();
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            // The source puts the answer on the board. An error is reported when it concerns what is read.
            _ = timeout(LOOK_AHEAD_TIMEOUT, source.poll(None, 1)) => true,
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
                let verifying = trace.part("verify");
                let context = self.context(Some(&trace), stop);
                let Some(outcomes) = self.read_plan.stage.page(range.checked().await?, context).await? else {
                    return Ok(Read::Stopped);
                };
                drop(verifying);
                self.log_verified(&trace, &outcomes);
                (self.waiting, self.trace) = (outcomes, Some(trace));
                return Ok(Read::Again);
            }
            Err(ReadError::Api(ApiError::ChannelGone(_))) => return Err(ChannelError::Gone),
            Err(error) => error,
        };
        let wait = self.retry.next_wait(error.retry_after());
        self.trouble.report("reading events", &error, wait);
        Ok(if pause(wait, stop).await { Read::Again } else { Read::Stopped })
    }
}

/// What follows a request for a range.
enum Read {
    /// There are outcomes, or the wait after an error is over.
    Again,
    Nothing,
    Stopped,
}

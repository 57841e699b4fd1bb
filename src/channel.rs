//! One channel's loop: poll, verify, order, deliver, record. In that order, forever.
//!
//! ```text
//! reader ──► judge ──► batch ──┬─► lane ─► sink      one lane a sink, each with its own cursor
//!              ▲               └─► lane ─► sink
//!              └── late ◄── pending events, read again by id until their proof comes
//! ```
//!
//! # Invariants
//!
//! * **Verified before delivered.** A lane is given [`Record`](crate::record::Record)s, and only a judged event becomes
//!   one.
//! * **Delivered before recorded.** A crash at any point repeats events and never skips one.
//! * **Read once, remembered per lane.** Reading starts at the lane that is furthest behind; each lane passes over what
//!   its own cursor covers.
//! * **Bounded.** At most `QUEUE_BATCHES` batches wait for a lane; then reading waits.
//!
//! # Cancellation
//!
//! `stop` is observed while polling or waiting, never between delivering a batch and recording it. What waits in a
//! queue when `stop` fires is not started: it is not recorded either, and is read again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::api::{ApiError, Client};
use crate::config::{Ordering, Start, UnsignedPolicy};
use crate::event::{Offset, RawEvent};
use crate::record::ChannelRef;
use crate::retry::{Retry, RetryPolicy};
use crate::sink::Sink;
use crate::state::{Commit, Cursor, LaneKey, LaneState, State, StateError};
use crate::telemetry::Chain;
use crate::verify::Verifier;

mod batch;
mod judge;
mod lane;
mod late;
mod reader;
mod source;
mod trouble;
mod walk;

use batch::{Batch, Sorted, Work};
use judge::{Awaited, Judge};
use lane::Lane;
use late::{Late, LateBook};
use reader::{ReadError, Reader};
use source::{Service, Source};
use trouble::Trouble;

/// Batches that wait for one lane before reading waits for it.
const QUEUE_BATCHES: usize = 2;

/// Events of one channel that may wait for their proof at the same time before reading waits for them.
const MAX_LATE: usize = 10_000;

/// How a channel is read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which one.
    pub channel: ChannelRef,
    /// Where lanes begin that have no cursor yet.
    pub start: Start,
    /// What proves its events.
    pub verifier: Arc<Verifier>,
    /// What becomes of notices that nobody signs.
    pub unsigned: UnsignedPolicy,
    /// Whether later events wait for a late proof.
    pub ordering: Ordering,
    /// After this time without its proof an event is quarantined.
    pub proof_timeout: Duration,
    /// Events asked for at once.
    pub page_limit: u16,
    /// Waits after an error.
    pub retry: RetryPolicy,
    /// The wait when there is no more.
    pub idle_wait: Duration,
}

/// A sink as one channel uses it.
#[derive(Clone, Debug)]
pub struct Outlet {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// Where the events go.
    pub sink: Arc<dyn Sink>,
    /// Waits while it refuses.
    pub retry: RetryPolicy,
}

/// Why a channel's loop ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The service says the channel is gone. This channel ends; the others go on.
    #[error("the channel does not exist or is archived")]
    Gone,
    /// The record of where we are may be wrong: an operator must look before anything is read again.
    #[error("the state could not be read or written")]
    State(#[from] StateError),
    /// A sink's reader has gone for good: the daemon ends.
    #[error("nobody reads sink {sink} any more")]
    SinkClosed {
        /// The sink.
        sink: Arc<str>,
    },
    /// A part of the loop panicked. A defect; the channel starts again from its cursors.
    #[error("a part of the channel's loop panicked")]
    Panicked(#[source] JoinError),
}

/// One channel, ready to run.
#[derive(Debug)]
pub struct Channel {
    settings: Settings,
    source: Arc<dyn Source>,
    state: Arc<State>,
    outlets: Vec<Outlet>,
}

impl Channel {
    /// Nothing happens before [`run`](Self::run).
    #[must_use]
    pub fn new(settings: Settings, api: Client, state: Arc<State>, outlets: Vec<Outlet>) -> Self {
        let source = Arc::new(Service::new(api, settings.channel.id));
        Self { settings, source, state, outlets }
    }

    /// Which channel it is.
    #[must_use]
    pub fn channel(&self) -> &ChannelRef {
        &self.settings.channel
    }

    /// Runs until `stop` fires or the channel ends by itself, and returns when every lane has finished the batch in
    /// hand.
    ///
    /// # Errors
    /// [`ChannelError`], where it ended by itself.
    pub async fn run(&self, stop: &CancellationToken) -> Result<(), ChannelError> {
        let Some(positions) = self.positions(stop).await? else { return Ok(()) };
        let furthest_behind = positions.iter().filter_map(|position| position.cursor).min().unwrap_or_default();
        info!(channel = %self.settings.channel.name, after = %furthest_behind, "channel started");

        let stop = stop.child_token();
        let mut lanes = JoinSet::new();
        let queues = self.spawn_lanes(positions, &stop, &mut lanes);
        let ended = tokio::select! {
            ended = self.read_and_settle(furthest_behind, queues, &stop) => ended,
            Some(lane) = lanes.join_next() => lane.unwrap_or_else(|panic| Err(ChannelError::Panicked(panic))),
        };
        if let Err(ChannelError::Gone) = ended {
            let (channel, channel_id) = (&self.settings.channel.name, self.settings.channel.id);
            error!(%channel, %channel_id, "channel does not exist or is archived: stopped, the others go on");
        } else {
            // Also where reading ended because a lane had: the other lanes must not wait for their sinks.
            stop.cancel();
        }
        drain(lanes, ended).await
    }

    /// Where every lane is, after `start` has been applied, and recorded, where it had no cursor.
    async fn positions(&self, stop: &CancellationToken) -> Result<Option<Vec<LaneState>>, ChannelError> {
        let mut positions = Vec::with_capacity(self.outlets.len());
        for outlet in &self.outlets {
            let lane = self.lane_key(outlet);
            let mut position = self.state.lane(&lane)?;
            if position.cursor.is_none() {
                let Some(cursor) = self.start(stop).await? else { return Ok(None) };
                self.state.commit(Commit { cursor: Some((lane, cursor)), ..Commit::default() }).await?;
                position.cursor = Some(cursor);
            }
            positions.push(position);
        }
        Ok(Some(positions))
    }

    /// The cursor that `start` means; `None` where `stop` fired before the service said what the latest event is.
    async fn start(&self, stop: &CancellationToken) -> Result<Option<Cursor>, ChannelError> {
        let through = match self.settings.start {
            Start::Earliest => None,
            Start::Offset(first) => first.before(),
            Start::Latest => {
                let latest = || self.source.poll(None, 1);
                match self.insist("asking for the latest event", stop, latest).await? {
                    None => return Ok(None),
                    Some(page) => page.events.first().map(|event| event.offset),
                }
            }
        };
        Ok(Some(Cursor { through }))
    }

    /// Asks the service until it answers; `None` where `stop` fired first.
    async fn insist<T, F: Future<Output = Result<T, ApiError>>>(
        &self,
        doing: &'static str,
        stop: &CancellationToken,
        ask: impl Fn() -> F,
    ) -> Result<Option<T>, ChannelError> {
        let (mut retry, mut trouble) = (Retry::new(self.settings.retry), Trouble::new(&self.settings.channel));
        loop {
            let answer = tokio::select! { answer = ask() => answer, () = stop.cancelled() => return Ok(None) };
            let error = match answer {
                Ok(value) => return Ok(Some(value)),
                Err(ApiError::ChannelGone(_)) => return Err(ChannelError::Gone),
                Err(error) => error,
            };
            let wait = retry.next_wait(error.retry_after());
            trouble.report(doing, &ReadError::Api(error), wait);
            tokio::select! { () = tokio::time::sleep(wait) => {}, () = stop.cancelled() => return Ok(None) }
        }
    }

    fn spawn_lanes(
        &self,
        positions: Vec<LaneState>,
        stop: &CancellationToken,
        lanes: &mut JoinSet<Result<(), ChannelError>>,
    ) -> Queues {
        let mut queues = Vec::with_capacity(self.outlets.len());
        for (outlet, position) in self.outlets.iter().zip(positions) {
            let (queue, work) = mpsc::channel(QUEUE_BATCHES);
            let key = self.lane_key(outlet);
            let lane = Lane::new(self.settings.channel.clone(), key, outlet.clone(), self.state.clone(), position);
            lanes.spawn(lane.run(work, stop.clone()));
            queues.push(queue);
        }
        Queues(queues)
    }

    fn lane_key(&self, outlet: &Outlet) -> LaneKey {
        LaneKey { channel: self.settings.channel.id, sink: outlet.name.clone() }
    }

    /// Reads on, while late proofs are asked for beside it.
    async fn read_and_settle(
        &self,
        from: Cursor,
        queues: Queues,
        stop: &CancellationToken,
    ) -> Result<(), ChannelError> {
        let earlier = self.state.late(self.settings.channel.id)?.into_iter();
        let book = LateBook::new(earlier.map(|(offset, late)| Awaited {
            offset,
            event_id: late.event_id,
            first_seen: late.first_seen,
        }));
        let judge = Judge::new(&self.settings, self.source.clone());
        let late = Late::new(&self.settings, &judge, &self.state, &book, queues.clone());
        tokio::select! {
            ended = self.read(from, queues, &judge, &book, stop) => ended,
            ended = late.run(stop) => ended,
        }
    }

    async fn read(
        &self,
        from: Cursor,
        queues: Queues,
        judge: &Judge,
        book: &LateBook,
        stop: &CancellationToken,
    ) -> Result<(), ChannelError> {
        let mut reader = Reader::new(self.source.clone(), self.settings.page_limit);
        let (mut retry, mut trouble) = (Retry::new(self.settings.retry), Trouble::new(&self.settings.channel));
        let mut position = from.through;
        loop {
            let range =
                tokio::select! { range = reader.next(position) => range, () = stop.cancelled() => return Ok(()) };
            let wait = match range {
                Ok(range) => {
                    retry.reset();
                    trouble.over();
                    let (before, nothing_new) = (position, range.events.is_empty());
                    if !self.hand_on(range.events, &mut position, &queues, judge, book, stop).await? {
                        return Ok(());
                    }
                    // Nonsense that reading does not go on above will be there again.
                    let moved = nothing_new || position != before;
                    if range.more && moved { Duration::ZERO } else { self.settings.idle_wait }
                }
                Err(ReadError::Api(ApiError::ChannelGone(_))) => return Err(ChannelError::Gone),
                Err(error) => {
                    let wait = retry.next_wait(error.retry_after());
                    trouble.report("reading events", &error, wait);
                    wait
                }
            };
            if !pause(wait, stop).await {
                return Ok(());
            }
        }
    }

    /// Judges a range and hands it to the lanes, moving `position` along; `false` where `stop` fired before it was handed
    /// on as a whole.
    async fn hand_on(
        &self,
        events: Vec<RawEvent>,
        position: &mut Option<Offset>,
        queues: &Queues,
        judge: &Judge,
        book: &LateBook,
        stop: &CancellationToken,
    ) -> Result<bool, ChannelError> {
        let Some(mut outcomes) = judge.page(events, stop).await? else { return Ok(false) };
        while !outcomes.is_empty() {
            let Sorted { batch, unplaced, held, rest } = Batch::sort(&self.settings, outcomes);
            let awaited = batch.iter().flat_map(|batch| &batch.pending).map(Awaited::from).collect();
            if let Some(batch) = batch {
                let through = batch.through;
                if !queues.send(&Work::Batch(Arc::new(batch)), stop).await {
                    return Ok(false);
                }
                *position = Some(through);
            }
            if !unplaced.is_empty() {
                let quarantined = unplaced.into_iter().map(|evidence| (self.settings.channel.id, evidence)).collect();
                self.state.commit(Commit { quarantined, ..Commit::default() }).await?;
            }
            if !book.add(awaited, stop).await {
                return Ok(false);
            }
            outcomes = rest;
            if let Some(pending) = held {
                let Some(settled) = judge.hold(pending, stop).await? else { return Ok(false) };
                outcomes.insert(0, settled);
            }
        }
        Ok(true)
    }
}

/// The queues of a channel's lanes.
#[derive(Clone, Debug)]
struct Queues(Vec<mpsc::Sender<Work>>);

impl Queues {
    /// Puts the same work into every queue, waiting for room; `false` where `stop` fired or a lane has ended.
    async fn send(&self, work: &Work, stop: &CancellationToken) -> bool {
        for queue in &self.0 {
            let sent =
                tokio::select! { sent = queue.send(work.clone()) => sent.is_ok(), () = stop.cancelled() => false };
            if !sent {
                return false;
            }
        }
        true
    }
}

/// Waits; `false` where `stop` fired first.
async fn pause(wait: Duration, stop: &CancellationToken) -> bool {
    if wait.is_zero() {
        return !stop.is_cancelled();
    }
    tokio::select! { () = tokio::time::sleep(wait) => true, () = stop.cancelled() => false }
}

/// Waits for every lane to end. Of several errors the gravest counts.
async fn drain(
    mut lanes: JoinSet<Result<(), ChannelError>>,
    mut ended: Result<(), ChannelError>,
) -> Result<(), ChannelError> {
    while let Some(lane) = lanes.join_next().await {
        let lane = lane.unwrap_or_else(|panic| Err(ChannelError::Panicked(panic)));
        if let Err(error) = &lane
            && gravity(&lane) <= gravity(&ended)
        {
            error!(error = %Chain(error), "another lane failed too");
        }
        if gravity(&lane) > gravity(&ended) {
            ended = lane;
        }
    }
    ended
}

/// The more parts of the daemon an end concerns, the graver it is.
fn gravity(ended: &Result<(), ChannelError>) -> u8 {
    match ended {
        Ok(()) => 0,
        Err(ChannelError::Gone) => 1,
        Err(ChannelError::Panicked(_)) => 2,
        Err(ChannelError::SinkClosed { .. }) => 3,
        Err(ChannelError::State(_)) => 4,
    }
}

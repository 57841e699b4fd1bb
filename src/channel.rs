//! One channel's loop: poll, verify, order, deliver, record. In that order, forever.
//!
//! ```text
//! reader ──► judge ──► batch ──► hub ──┬─► lane ─► sink      one lane a sink, each with its own cursor
//! └──────── intake ────────┘           └─► lane ─► sink      one that falls behind has an intake of its own
//!              ▲
//!              └── late ◄── pending events, read again by id until their proof comes
//! ```
//!
//! # Invariants
//!
//! * **Verified before delivered.** A lane is given [`Record`](crate::record::Record)s, and only a judged event becomes
//!   one.
//! * **Nothing old as news.** A proof that comes again elsewhere, or other content in a place that was read before, is
//!   quarantined, as far as [`RecentEvents`] tell.
//! * **Delivered before recorded.** A crash at any point repeats events and never skips one.
//! * **One writer a cursor.** Only a lane moves its cursor, whoever feeds it.
//! * **A slow sink holds up nobody.** See the hub.
//! * **Bounded.** At most `QUEUE_BATCHES` batches wait for a lane, and at most `MAX_LATE` events for their proof; then
//!   reading waits.
//!
//! # Cancellation
//!
//! `stop` is observed while polling or waiting, never between delivering a batch and recording it. What waits in a
//! queue when `stop` fires is not started: it is not recorded either, and is read again.
//!
//! Where several things may happen at once, each `select!` says which counts: the same history goes the same way twice.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::api::{ApiError, Client, Page};
use crate::config::{Ordering, Start, UnsignedPolicy};
use crate::event::Offset;
use crate::metrics::ChannelMetrics;
use crate::record::{ChannelRef, Filter, Shape};
use crate::retry::RetryPolicy;
use crate::sink::Sink;
use crate::state::{Commit, Cursor, LaneKey, LaneState, State, StateError};
use crate::telemetry::Chain;
use crate::verify::Verifier;

mod batch;
mod handle;
mod history;
mod hub;
mod intake;
mod judge;
mod lane;
mod late;
mod machine;
#[cfg(test)]
mod model;
mod newest;
mod pace;
mod reader;
mod replay;
mod seen;
mod sightings;
mod source;
mod status;
mod teller;
#[cfg(test)]
mod tests;
mod trouble;
mod walk;

pub use handle::{Handle, Handles, Paused, StandingStill};
pub use history::History;
pub use newest::Newest;
pub use pace::Standstill;
pub use reader::ReadError;
pub use replay::RecentEvents;
pub use sightings::Sightings;
pub use status::{Activity, LaneCondition, LaneNow, LaneStatus, Problem, Status};

use hub::Hub;
use intake::{Intake, Taken};
use judge::{Awaited, Judge, Notes};
use lane::Lane;
use late::LateBook;
use machine::{Machine, ThisMachine};
use source::{Service, Source, Told};
use teller::Teller;
use trouble::Trouble;

/// Batches that wait for one lane before reading waits for it.
const QUEUE_BATCHES: usize = 2;

/// Events of one channel that may wait for their proof at the same time before reading waits for them.
pub const MAX_LATE: usize = 10_000;

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
    /// The shape that it wants them in.
    pub shape: Shape,
    /// Which of them it is given; without one, all.
    pub filter: Option<Arc<Filter>>,
    /// Waits while it refuses.
    pub retry: RetryPolicy,
    /// After this time of refusals an event becomes a dead letter; without it, never.
    pub gives_up_after: Option<Duration>,
}

impl Outlet {
    /// A sink that is given every event as a record, and that is never given up.
    #[must_use]
    pub fn new(name: &str, sink: Arc<dyn Sink>, retry: RetryPolicy) -> Self {
        Self { name: name.into(), sink, shape: Shape::default(), filter: None, retry, gives_up_after: None }
    }
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
    recent: Arc<RecentEvents>,
    outlets: Vec<Outlet>,
    handle: Arc<Handle>,
    machine: Arc<dyn Machine>,
    metrics: Arc<ChannelMetrics>,
    /// A request is answered, or given up, in this time.
    answers_within: Duration,
}

/// What the parts of one run of a channel share.
#[derive(Debug)]
struct Shared {
    settings: Settings,
    state: Arc<State>,
    judge: Judge,
    book: LateBook,
    hub: Hub,
    handle: Arc<Handle>,
    machine: Arc<dyn Machine>,
    metrics: Arc<ChannelMetrics>,
}

impl Channel {
    /// Nothing happens before [`run`](Self::run). All channels of a process share the `state` and the `recent` events.
    #[must_use]
    pub fn new(
        settings: Settings,
        api: Client,
        state: Arc<State>,
        recent: Arc<RecentEvents>,
        outlets: Vec<Outlet>,
        handle: Arc<Handle>,
    ) -> Self {
        let (machine, metrics) = (Arc::new(ThisMachine::new()), Arc::new(handle.metrics().channel(&settings.channel)));
        let answers_within = api.request_timeout();
        let told = Told { handle: handle.clone(), metrics: metrics.clone() };
        let source = Arc::new(Service::new(api, settings.channel.id, Some(told)));
        Self { settings, source, state, recent, outlets, handle, machine, metrics, answers_within }
    }

    /// Notes that a run of it panicked.
    pub fn panicked(&self) {
        self.metrics.panicked();
    }

    /// Which channel it is.
    #[must_use]
    pub fn channel(&self) -> &ChannelRef {
        &self.settings.channel
    }

    /// Runs until `stop` fires or the channel ends by itself, and returns when every lane has finished the batch in
    /// hand. While the channel is paused it does nothing, and begins again from its cursors when it is resumed.
    ///
    /// # Errors
    /// [`ChannelError`], where it ended by itself.
    pub async fn run(&self, stop: &CancellationToken) -> Result<(), ChannelError> {
        while self.handle.until_channel(false, stop).await {
            let pausing = stop.child_token();
            let running = self.run_once(&pausing);
            tokio::pin!(running);
            tokio::select! {
                biased;
                ended = &mut running => return ended,
                true = self.handle.until_channel(true, stop) => {}
            }
            pausing.cancel();
            running.await?;
            info!(channel = %self.settings.channel.name, "channel paused");
        }
        Ok(())
    }

    async fn run_once(&self, stop: &CancellationToken) -> Result<(), ChannelError> {
        let _running = self.handle.run(&self.settings.channel.name, self.answers_within).await;
        let Some(positions) = self.positions(stop).await? else { return Ok(()) };
        let cursors = || positions.iter().filter_map(|position| position.cursor);
        let (lowest, highest) = (cursors().min().unwrap_or_default(), cursors().max().unwrap_or_default());
        let shared = Arc::new(self.shared(highest)?);
        info!(channel = %self.settings.channel.name, after = %lowest, "channel started");

        let stop = stop.child_token();
        let mut lanes = JoinSet::new();
        for (outlet, position) in self.outlets.iter().zip(positions) {
            lanes.spawn(Lane::new(shared.clone(), outlet.clone(), position).run(stop.clone()));
        }
        let ended = tokio::select! {
            biased;
            ended = feed(&shared, highest.through, &stop) => ended,
            ended = late::settle(&shared, &stop) => ended,
            Some(lane) = lanes.join_next() => lane.unwrap_or_else(|panic| Err(ChannelError::Panicked(panic))),
        };
        if let Err(ChannelError::Gone) = ended {
            let (channel, channel_id) = (&self.settings.channel.name, self.settings.channel.id);
            error!(%channel, %channel_id, "channel does not exist or is archived: stopped, the others go on");
            self.handle.observe(|seen| seen.says(Activity::Gone, Duration::ZERO));
        } else {
            // Also where reading ended because a lane had: the other lanes must not wait for their sinks.
            stop.cancel();
        }
        shared.hub.close();
        // Whatever is waited for now, it is the lanes and their sinks.
        self.handle.observe(|seen| seen.pace.rest());
        drain(lanes, ended).await
    }

    /// What a run shares whose lanes are fed from `highest` on.
    fn shared(&self, highest: Cursor) -> Result<Shared, ChannelError> {
        let earlier = self.state.late(self.settings.channel.id)?;
        Ok(Shared {
            settings: self.settings.clone(),
            state: self.state.clone(),
            judge: self.judge(),
            book: LateBook::new(self.machine.clone(), earlier.into_iter().map(Awaited::from)),
            hub: Hub::new(self.settings.channel.clone(), highest.through),
            handle: self.handle.clone(),
            machine: self.machine.clone(),
            metrics: self.metrics.clone(),
        })
    }

    fn judge(&self) -> Judge {
        let signers = self.handle.sightings(self.settings.verifier.signers());
        let notes = Notes::new(self.metrics.clone(), signers);
        Judge::new(&self.settings, self.source.clone(), self.recent.clone(), self.machine.clone(), notes)
    }

    /// Where every lane is, after `start` has been applied, and recorded, where it had no cursor.
    async fn positions(&self, stop: &CancellationToken) -> Result<Option<Vec<LaneState>>, ChannelError> {
        let mut positions = Vec::with_capacity(self.outlets.len());
        for outlet in &self.outlets {
            let lane = LaneKey { channel: self.settings.channel.id, sink: outlet.name.clone() };
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
            Start::Latest => match self.latest(stop).await? {
                None => return Ok(None),
                Some(page) => page.events.first().map(|event| event.offset),
            },
        };
        Ok(Some(Cursor { through }))
    }

    /// Asks the service for its latest event until it answers; `None` where `stop` fired first.
    async fn latest(&self, stop: &CancellationToken) -> Result<Option<Page>, ChannelError> {
        let mut trouble = Trouble::new(&self.settings.channel, &Teller::channel(&self.handle));
        let mut retry = self.machine.retry(self.settings.retry);
        loop {
            let answer = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(None),
                answer = self.source.poll(None, 1) => answer,
            };
            let error = match answer {
                Ok(page) => return Ok(Some(page)),
                Err(ApiError::ChannelGone(_)) => return Err(ChannelError::Gone),
                Err(error) => error,
            };
            let wait = retry.next_wait(error.retry_after());
            trouble.report("asking for the latest event", &ReadError::Api(error), wait);
            if !pause(wait, stop).await {
                return Ok(None);
            }
        }
    }
}

/// Reads on, and feeds every lane that keeps up.
async fn feed(shared: &Arc<Shared>, from: Option<Offset>, stop: &CancellationToken) -> Result<(), ChannelError> {
    let teller = Teller::channel(&shared.handle);
    let mut intake = Intake::new(shared.clone(), from, teller.clone());
    loop {
        let go_on = match intake.next(stop).await? {
            Taken::Batch(batch) => {
                let awaited = batch.pending.iter().map(Awaited::from).collect();
                let handing_on =
                    async { shared.hub.hand_on(batch, stop).await && shared.book.add(awaited, &teller, stop).await };
                intake.meanwhile(handing_on).await
            }
            Taken::Nothing => pause(shared.settings.idle_wait, stop).await,
            Taken::Stopped => false,
        };
        if !go_on {
            return Ok(());
        }
    }
}

/// Waits; `false` where `stop` fired first.
async fn pause(wait: Duration, stop: &CancellationToken) -> bool {
    if wait.is_zero() {
        return !stop.is_cancelled();
    }
    tokio::select! { biased; () = stop.cancelled() => false, () = tokio::time::sleep(wait) => true }
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

//! What an operator decides about a channel while it runs, and the way to its claim.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::board::Board;
use crate::status::Problem;
use crate::tail::Tail;
use crate::verify::recent::RecentEvents;
use ledger::{Change, Claim, Claimed, Commit, CommitError, Pause, Paused, SinkName};
use net::memory::{ChannelMemory, Memory};
use net::tasks::lock;
use proof::event::ChannelId;
use record::ChannelRef;

/// How long a clock that was set, or a machine that slept, can delay the end of a pause.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(10);

/// One channel as an operator reaches it. Outlives the channel's runs and configurations.
#[derive(Debug, Default)]
pub struct Handle {
    board: Mutex<Board>,
    pauses: watch::Sender<Pauses>,
    /// Fires when an operator asks for a poll.
    polls: Notify,
    /// What its pages and events in hand take.
    pub(super) memory: Arc<ChannelMemory>,
}

/// A claimed channel, as its own task and operators' commands work on it.
#[derive(Debug)]
pub struct Owned {
    /// The right to change the channel's ledger.
    pub claim: Claim,
    /// Fires when an operator's command has made events late: they are looked at at once.
    pub released: Notify,
    /// Held while the channel runs, and while its cursors are moved by an operator.
    pub running: tokio::sync::Mutex<()>,
}

/// What stands still.
#[derive(Clone, Debug, Default)]
pub struct Pauses {
    /// As the ledger has it.
    pub paused: Paused,
    /// Sinks that want no more events, and why: they are offered nothing until an operator resumes them.
    pub(super) gone: BTreeMap<String, Problem>,
    /// How often an operator has resumed each sink.
    resumed: BTreeMap<String, u64>,
}

impl Pauses {
    pub(super) fn sink_goes_on(&self, sink: &str) -> bool {
        !self.paused.sinks.contains_key(sink) && !self.gone.contains_key(sink)
    }
}

impl Handle {
    /// Of a channel that has that memory.
    pub(super) fn of(memory: Arc<ChannelMemory>) -> Self {
        Self { board: Mutex::new(Board::of(memory.clone())), memory, ..Self::default() }
    }

    /// The channel's status board. Not to be held across an await.
    pub fn board(&self) -> MutexGuard<'_, Board> {
        lock(&self.board)
    }

    /// What is paused.
    pub fn pauses(&self) -> Pauses {
        self.pauses.borrow().clone()
    }

    /// Pauses or resumes the channel as a whole or a sink; `false` where that changes nothing. A sink that is gone is resumed
    /// too, and events that wait after a refusal are offered at once. Not durable: see [`Owned::pause`].
    pub(super) fn set_paused(&self, sink: Option<SinkName>, pause: Option<Pause>) -> bool {
        let mut has_changed = false;
        self.pauses.send_modify(|pauses| {
            let before = pauses.paused.clone();
            pauses.paused.set(sink.clone(), pause);
            has_changed = pauses.paused != before;
            if let (Some(sink), None) = (sink, pause) {
                has_changed |= pauses.gone.remove(&*sink).is_some();
                *pauses.resumed.entry(sink.to_string()).or_default() += 1;
            }
        });
        has_changed
    }

    /// Notes that a sink wants no more events.
    pub(super) fn sink_is_gone(&self, sink: &str, why: Problem) {
        self.pauses.send_modify(|pauses| drop(pauses.gone.insert(sink.to_owned(), why)));
    }

    /// Notes that a sink has changed: it is offered events again, even if it was gone.
    pub fn sink_is_another(&self, sink: &str) {
        self.pauses.send_if_modified(|pauses| pauses.gone.remove(sink).is_some());
    }

    /// Waits until an operator resumes a sink, whether or not it was paused.
    pub(super) async fn sink_resumed(&self, sink: &str) {
        let mut pauses = self.pauses.subscribe();
        let before = pauses.borrow().resumed.get(sink).copied();
        // No error: `self` holds the sender.
        let _ = pauses.wait_for(|pauses| pauses.resumed.get(sink).copied() != before).await;
    }

    /// Waits until `holds`; `false` where `stop` fired first.
    pub(super) async fn until(&self, holds: impl FnMut(&Pauses) -> bool, stop: &CancellationToken) -> bool {
        let mut pauses = self.pauses.subscribe();
        tokio::select! { biased; () = stop.cancelled() => false, held = pauses.wait_for(holds) => held.is_ok() }
    }

    /// Has a channel that waits for its next poll poll now. One that reads anyway goes on.
    pub fn poll_now(&self) {
        self.polls.notify_waiters();
    }

    /// Waits until an operator asks for a poll.
    pub(super) async fn poll_asked(&self) {
        self.polls.notified().await;
    }

    /// The channel as this process owns it; `None` where it does not.
    pub fn owned(&self) -> Option<Arc<Owned>> {
        self.board().owned.upgrade()
    }

    /// Makes the proofs that were delivered in the channel known to all others, its ledger readable, and the channel
    /// reachable for operators' commands.
    pub fn own(&self, channel: &ChannelRef, (claim, proofs): Claimed, recent: &RecentEvents) -> Arc<Owned> {
        for (mine, other) in recent.remember(channel.id, &proofs) {
            let channel = &channel.name;
            error!(%channel, offset = mine.get(), %other, "the same proof was delivered in two channels: one of them was shown an event that is not its own");
        }
        recent.learn(&claim.ledger().shown_elsewhere());
        recent.workflows.remember(channel.id, claim.ledger().workflows());
        let owned = Arc::new(Owned { claim, released: Notify::new(), running: tokio::sync::Mutex::default() });
        let paused = owned.claim.ledger().paused().clone();
        self.pauses.send_modify(|pauses| pauses.paused = paused);
        let mut board = self.board();
        board.ledger = Some(owned.claim.ledger.clone());
        board.owned = Arc::downgrade(&owned);
        drop(board);
        owned
    }
}

impl Owned {
    /// Pauses or resumes, durably: `false` if that changes nothing.
    ///
    /// # Errors
    /// [`CommitError`]: it is not known whether that was recorded.
    pub async fn pause(
        &self,
        handle: &Handle,
        sink: Option<SinkName>,
        pause: Option<Pause>,
    ) -> Result<bool, CommitError> {
        self.claim.commit(Commit(vec![Change::Pause { sink: sink.clone(), pause }])).await?;
        Ok(handle.set_paused(sink, pause))
    }

    /// Ends the pauses whose time is up, each at its time.
    pub(super) async fn end_pauses(&self, handle: &Handle, channel: &ChannelRef) -> Result<Infallible, CommitError> {
        let mut pauses = handle.pauses.subscribe();
        loop {
            let paused = pauses.borrow_and_update().paused.clone();
            let ends = |(sink, pause): (Option<&SinkName>, Pause)| Some((pause.until?, sink.cloned()));
            let next = paused.each().filter_map(ends).min();
            let Some((until, sink)) = next else {
                // No error: the handle holds the sender.
                let _ = pauses.changed().await;
                continue;
            };
            let left = Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default();
            if left.is_zero() {
                info!(channel = %channel.name, sink = sink.as_deref(), "the pause is over");
                self.pause(handle, sink, None).await?;
            } else {
                tokio::select! { _ = pauses.changed() => {} () = sleep(left.min(LOOK_AT_CLOCK)) => {} }
            }
        }
    }
}

/// The handles of all channels.
#[derive(Debug, Default)]
pub struct Handles {
    each: Mutex<HashMap<ChannelId, Arc<Handle>>>,
    /// What all channels share.
    pub memory: Arc<Memory>,
    /// What their sinks took lately.
    pub tail: Arc<Tail>,
}

impl Handles {
    /// The handle of a channel: always the same.
    pub fn of(&self, channel: ChannelId) -> Arc<Handle> {
        let new = || Arc::new(Handle::of(ChannelMemory::of(&self.memory)));
        lock(&self.each).entry(channel).or_insert_with(new).clone()
    }
}

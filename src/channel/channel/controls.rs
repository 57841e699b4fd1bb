//! An operator's controls of a running channel, and access to its leased ledger.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::account_turns::AccountTurns;
use crate::deliver::beyond::AcceptedBeyond;
use crate::status::board::Board;
use crate::status::deliveries::DeliveryTail;
use crate::status::{Pauses, Problem};
use crate::verify::recent::RecentEvents;
use api::AccountName;
use ledger::{Change, Commit, CommitError, LeasedLedger, LedgerAndProofs, Pause, SinkName};
use net::memory::{ChannelMemory, Memory};
use net::tasks::lock;
use net::turns::{Caller, Turns};
use proof::event::ChannelId;
use record::ChannelRef;

/// The interval at which the clock is compared with the end of a pause. If the clock was set or the machine slept, a pause
/// ends late by at most this time.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(10);

/// An operator's access to one channel. A handle outlives the channel's runs and configurations.
#[derive(Debug, Default)]
pub struct Handle {
    board: Mutex<Board>,
    owned: Mutex<Weak<LeasedChannel>>,
    pauses: watch::Sender<Pauses>,
    pub(crate) polls: Notify,
    /// The memory account for the channel's pages and its events in progress.
    pub(crate) memory: Arc<ChannelMemory>,
}

/// A channel together with its lease, which this process has. The channel's task and operators' commands share this object.
#[derive(Debug)]
pub struct LeasedChannel {
    /// The right to change the channel's ledger.
    pub leased: LeasedLedger,
    /// Notified when an operator's command has made events late. The channel then processes these events immediately.
    pub released: Notify,
    /// Locked while the channel runs, and while an operator moves its cursors.
    pub running: tokio::sync::Mutex<()>,
    pub(crate) accepted: AcceptedBeyond,
}

impl Handle {
    pub(crate) fn of(memory: Arc<ChannelMemory>, turns: Arc<Caller>) -> Self {
        Self { board: Mutex::new(Board::of(memory.clone(), turns)), memory, ..Self::default() }
    }

    /// Returns the turns of the channel's requests to the service.
    pub(crate) fn turns(&self) -> Arc<Caller> {
        self.board().turns.clone()
    }

    /// Joins the turns of an account. If the channel belonged to another account, it leaves the turns of that account.
    /// Returns the turns of the channel.
    pub(crate) fn take_part_in(&self, of_account: &Arc<Turns>) -> Arc<Caller> {
        let turns = &mut self.board().turns;
        if !turns.is_of(of_account) {
            *turns = Caller::of(of_account);
        }
        turns.clone()
    }

    /// Returns the channel's status board. The guard must not be kept across an await.
    pub fn board(&self) -> MutexGuard<'_, Board> {
        lock(&self.board)
    }

    /// Returns the current pauses.
    pub fn pauses(&self) -> Pauses {
        self.pauses.borrow().clone()
    }

    /// Pauses or resumes the whole channel or a sink. Returns `false` if nothing changes. If the sink has refused events, its lane
    /// offers them again immediately. The change is not durable: see [`LeasedChannel::pause`].
    pub(crate) fn set_paused(&self, sink: Option<&SinkName>, pause: Option<Pause>) -> bool {
        let mut has_changed = false;
        self.pauses.send_modify(|pauses| {
            let before = pauses.paused.clone();
            pauses.paused.set(sink.cloned(), pause);
            has_changed = pauses.paused != before;
            if let (Some(sink), None) = (sink, pause) {
                *pauses.resumed.entry(sink.to_string()).or_default() += 1;
            }
        });
        has_changed
    }

    /// Lets the lane of a sink continue that closed itself, or that has lost its data if `accept_loss` is set. Returns `false` if
    /// nothing changes.
    fn accept(&self, sink: &str, accept_loss: bool) -> bool {
        self.pauses.send_if_modified(|pauses| {
            let may_continue = |why: &Problem| accept_loss || why.kind != Problem::POSITION_MISSING;
            pauses.gone.get(sink).is_some_and(may_continue) && pauses.gone.remove(sink).is_some()
        })
    }

    /// Returns why nothing is delivered to a sink that has lost its data. An operator has to decide about it.
    pub fn lost_data(&self, sink: &str) -> Option<Problem> {
        self.pauses.borrow().gone.get(sink).filter(|why| why.kind == Problem::POSITION_MISSING).cloned()
    }

    pub(crate) fn sink_is_gone(&self, sink: &str, why: Problem) {
        self.pauses.send_modify(|pauses| drop(pauses.gone.insert(sink.to_owned(), why)));
    }

    /// Records that the configuration of a sink has changed. If the sink was gone, its lane offers events to it again.
    pub fn sink_is_another(&self, sink: &str) {
        self.accept(sink, true);
    }

    /// Waits until an operator resumes a sink. The sink does not have to be paused.
    pub(crate) async fn sink_resumed(&self, sink: &str) {
        let mut pauses = self.pauses.subscribe();
        let before = pauses.borrow().resumed.get(sink).copied();
        // The wait cannot fail, because `self` owns the sender.
        let _ = pauses.wait_for(|pauses| pauses.resumed.get(sink).copied() != before).await;
    }

    /// Waits until `holds` returns `true` for the current pauses. Returns `false` if `stop` fires first.
    pub(crate) async fn until(&self, holds: impl FnMut(&Pauses) -> bool, stop: &CancellationToken) -> bool {
        let mut pauses = self.pauses.subscribe();
        tokio::select! { biased; () = stop.cancelled() => false, held = pauses.wait_for(holds) => held.is_ok() }
    }

    /// Ends the channel's wait for its next poll. Does nothing if the channel does not wait, because it is already reading.
    pub fn poll_now(&self) {
        self.polls.notify_waiters();
    }

    /// Returns the leased channel, or `None` if this process does not have the lease.
    pub fn owned(&self) -> Option<Arc<LeasedChannel>> {
        lock(&self.owned).upgrade()
    }

    /// Takes over a channel after its lease was acquired. All other channels then know the channel's delivered proofs, the
    /// board shows its ledger, and operators' commands can use the leased channel.
    pub fn own(
        &self,
        channel: &ChannelRef,
        (leased, proofs): LedgerAndProofs,
        recent: &RecentEvents,
    ) -> Arc<LeasedChannel> {
        for (mine, other) in recent.remember(channel.id, &proofs) {
            let channel = &channel.name;
            error!(%channel, offset = mine.get(), %other, "the same proof was delivered in two channels: in at least one of them, the service showed an event that belongs to another channel");
        }
        recent.learn(&leased.ledger().shown_elsewhere());
        recent.workflows.remember(channel.id, leased.ledger().workflows());
        let (released, running, accepted) = (Notify::new(), tokio::sync::Mutex::default(), AcceptedBeyond::default());
        let owned = Arc::new(LeasedChannel { leased, released, running, accepted });
        let paused = owned.leased.ledger().paused().clone();
        // Another instance may have run the channel meanwhile, and an operator may have decided there about a sink that was gone.
        self.pauses.send_modify(|pauses| (pauses.paused, pauses.gone) = (paused, BTreeMap::new()));
        self.board().ledger = Some(owned.leased.ledger.clone());
        *lock(&self.owned) = Arc::downgrade(&owned);
        owned
    }
}

impl LeasedChannel {
    /// Pauses or resumes the channel or a sink durably, as an operator requests. Returns `false` if nothing changes.
    ///
    /// A resumed sink that closed itself is tried again. The lane of a sink that has lost its data continues only with
    /// `accept_loss`. Otherwise a resume with another purpose would lose these events for good.
    ///
    /// # Errors
    /// [`CommitError`] if it is unknown whether the change was recorded.
    pub async fn pause(
        &self,
        handle: &Handle,
        sink: Option<SinkName>,
        pause: Option<Pause>,
        accept_loss: bool,
    ) -> Result<bool, CommitError> {
        let has_changed = self.set_paused(handle, sink.as_ref(), pause).await?;
        let is_accepted = pause.is_none() && sink.is_some_and(|sink| handle.accept(&sink, accept_loss));
        Ok(has_changed || is_accepted)
    }

    /// Forgets the events above the cursor that a sink has accepted, because an operator has set the cursor. The sink may have
    /// lost these events.
    pub fn forget_accepted(&self, sink: &str) {
        self.accepted.forget(sink);
    }

    async fn set_paused(
        &self,
        handle: &Handle,
        sink: Option<&SinkName>,
        pause: Option<Pause>,
    ) -> Result<bool, CommitError> {
        self.leased.commit(Commit(vec![Change::Pause { sink: sink.cloned(), pause }])).await?;
        Ok(handle.set_paused(sink, pause))
    }

    pub(crate) async fn end_pauses(&self, handle: &Handle, channel: &ChannelRef) -> Result<Infallible, CommitError> {
        let mut pauses = handle.pauses.subscribe();
        loop {
            let paused = pauses.borrow_and_update().paused.clone();
            let ends = |(sink, pause): (Option<&SinkName>, Pause)| Some((pause.until?, sink.cloned()));
            let next = paused.each().filter_map(ends).min();
            let Some((until, sink)) = next else {
                // The wait cannot fail, because the handle owns the sender.
                let _ = pauses.changed().await;
                continue;
            };
            let left = Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default();
            if left.is_zero() {
                info!(channel = %channel.name, sink = sink.as_deref(), "the pause has ended");
                self.set_paused(handle, sink.as_ref(), None).await?;
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
    /// The memory that all channels share.
    pub memory: Arc<Memory>,
    /// The turns of the requests to the service, for each account.
    pub turns: Arc<AccountTurns>,
    /// The latest deliveries to the sinks of all channels.
    pub tail: Arc<DeliveryTail>,
}

impl Handles {
    /// Returns the handle of a channel. Every call for the channel returns the same handle.
    pub fn of(&self, channel: ChannelId) -> Arc<Handle> {
        let new = || {
            Arc::new(Handle::of(ChannelMemory::of(&self.memory), Caller::of(&self.turns.of(&AccountName::default()))))
        };
        lock(&self.each).entry(channel).or_insert_with(new).clone()
    }

    /// Returns the number of channels.
    pub(crate) fn number(&self) -> usize {
        lock(&self.each).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::{Receives, begun, channel};

    #[tokio::test]
    async fn only_an_explicit_resume_accepts_a_sink_that_lost_its_data() {
        let (channel, handle) = channel(0, Arc::new(Receives::Everything));
        let owned = begun(&channel).await.0.owned.clone();
        let (sink, since) = (SinkName::from("sink"), Timestamp::UNIX_EPOCH);
        let kind = Problem::POSITION_MISSING.to_owned();
        let problem = Problem { kind, message: String::new(), since, times: 1, needs_attention: true };
        handle.sink_is_gone(&sink, problem);
        let pause =
            async |pause, accept_loss| owned.pause(&handle, Some(sink.clone()), pause, accept_loss).await.unwrap();
        let is_gone = || handle.pauses().gone.contains_key(&*sink);
        assert!(pause(Some(Pause { since, until: None }), false).await);
        assert!(pause(None, false).await && is_gone(), "this resume ends the pause");
        assert!(!pause(None, false).await && is_gone(), "a repeated resume decides nothing");
        assert!(pause(None, true).await && !is_gone(), "this resume is a decision");
        assert!(!pause(None, true).await);
    }
}

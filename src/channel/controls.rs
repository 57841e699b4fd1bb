//! What an operator decides about a channel while it runs, and the way to the task that owns it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::channel::board::Board;
use crate::channel::command::Message;
use crate::channel::status::Problem;
use crate::event::ChannelId;

/// One channel as an operator reaches it. Outlives the channel's runs and configurations.
#[derive(Debug, Default)]
pub struct Handle {
    /// An operator's decisions.
    pub controls: Controls,
    /// The channel's status board.
    pub board: Board,
}

/// An operator's decisions about one channel.
#[derive(Debug, Default)]
pub struct Controls {
    pauses: watch::Sender<Pauses>,
    /// How often an operator has resumed each sink.
    resumed: watch::Sender<BTreeMap<String, u64>>,
    /// The inbox of the task that owns the channel, while there is one.
    owner: Mutex<Option<mpsc::Sender<Message>>>,
}

/// What is paused until an operator resumes it. Forgotten when the process ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// The channel as a whole.
    pub channel: bool,
    /// These of its sinks.
    pub sinks: BTreeSet<String>,
    /// Sinks that want no more events, and why: they are offered nothing until an operator resumes them.
    pub(super) gone: BTreeMap<String, Problem>,
}

impl Controls {
    /// What is paused.
    #[must_use]
    pub fn pauses(&self) -> Pauses {
        self.pauses.borrow().clone()
    }

    /// Pauses a sink; `false` where it was.
    pub fn pause_sink(&self, sink: &str) -> bool {
        self.change(|pauses| {
            pauses.sinks.insert(sink.to_owned());
        })
    }

    /// Resumes a sink that was paused or gone; `false` where it was neither. Events that wait after a refusal are offered at
    /// once.
    pub fn resume_sink(&self, sink: &str) -> bool {
        let changed = self.change(|pauses| {
            pauses.sinks.remove(sink);
            pauses.gone.remove(sink);
        });
        self.resumed.send_modify(|times| *times.entry(sink.to_owned()).or_default() += 1);
        changed
    }

    /// Pauses or resumes the channel as a whole; `false` where that changes nothing.
    pub fn pause_channel(&self, paused: bool) -> bool {
        self.change(|pauses| pauses.channel = paused)
    }

    /// Waits until an operator resumes a sink, whether or not it was paused.
    pub(super) async fn sink_resumed(&self, sink: &str) {
        let mut resumed = self.resumed.subscribe();
        let before = resumed.borrow_and_update().get(sink).copied();
        // No error: `self` holds the sender.
        let _ = resumed.wait_for(|times| times.get(sink).copied() != before).await;
    }

    /// Notes that a sink wants no more events.
    pub(super) fn sink_is_gone(&self, sink: &str, why: Problem) {
        self.change(|pauses| drop(pauses.gone.insert(sink.to_owned(), why)));
    }

    /// Notes that a sink has changed: it is offered events again, even if it was gone.
    pub(super) fn sink_is_another(&self, sink: &str) {
        self.change(|pauses| drop(pauses.gone.remove(sink)));
    }

    fn change(&self, change: impl FnOnce(&mut Pauses)) -> bool {
        self.pauses.send_if_modified(|pauses| {
            let before = pauses.clone();
            change(pauses);
            *pauses != before
        })
    }

    /// Waits until the channel is, or is not, paused as a whole; `false` where `stop` fired first.
    pub(super) async fn until_channel(&self, paused: bool, stop: &CancellationToken) -> bool {
        self.until(|pauses| pauses.channel == paused, stop).await
    }

    /// Waits while a sink is paused or gone; `false` where `stop` fired first.
    pub(super) async fn until_sink_goes_on(&self, sink: &str, stop: &CancellationToken) -> bool {
        self.until(|pauses| !pauses.sinks.contains(sink) && !pauses.gone.contains_key(sink), stop).await
    }

    async fn until(&self, holds: impl FnMut(&Pauses) -> bool, stop: &CancellationToken) -> bool {
        let mut pauses = self.pauses.subscribe();
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            held = pauses.wait_for(holds) => held.is_ok(),
        }
    }

    /// The inbox of the task that owns the channel; `None` while there is none.
    pub(crate) fn owner(&self) -> Option<mpsc::Sender<Message>> {
        self.lock_owner().clone()
    }

    /// Sets the inbox of the task that owns the channel from now on.
    pub(super) fn owned_by(&self, owner: Option<mpsc::Sender<Message>>) {
        *self.lock_owner() = owner;
    }

    fn lock_owner(&self) -> MutexGuard<'_, Option<mpsc::Sender<Message>>> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handles of all channels.
#[derive(Debug, Default)]
pub struct Handles {
    known: Mutex<HashMap<ChannelId, Arc<Handle>>>,
}

impl Handles {
    /// The handle of a channel: always the same.
    #[must_use]
    pub fn of(&self, channel: ChannelId) -> Arc<Handle> {
        self.known().entry(channel).or_default().clone()
    }

    /// The first part of a channel that should have made progress and has not, by more than `allowance`, and for how long.
    #[must_use]
    pub fn standstill(&self, allowance: Duration) -> Option<String> {
        self.known().values().find_map(|handle| handle.board.standstill(allowance))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<ChannelId, Arc<Handle>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! What an operator decides about a channel while it runs, and the way to its claim.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::channel::board::Board;
use crate::channel::status::Problem;
use crate::channel::verify::recent::RecentEvents;
use crate::event::ChannelId;
use crate::ledger::{Claim, Claimed};
use crate::memory::{ChannelMemory, Memory};
use crate::record::ChannelRef;
use crate::tasks::lock;

/// One channel as an operator reaches it. Outlives the channel's runs and configurations.
#[derive(Debug, Default)]
pub struct Handle {
    board: Mutex<Board>,
    pauses: watch::Sender<Pauses>,
    /// What its pages and events in hand take.
    pub(super) memory: Arc<ChannelMemory>,
}

/// A claimed channel, as its own task and operators' commands work on it.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) claim: Claim,
    /// Fires when an operator's command has made events late: they are looked at at once.
    pub(crate) released: Notify,
    /// Held while the channel runs, and while its cursors are moved by an operator.
    pub(crate) running: tokio::sync::Mutex<()>,
}

/// What is paused until an operator resumes it. Forgotten when the process ends.
#[derive(Clone, Debug, Default)]
pub struct Pauses {
    /// The channel as a whole.
    pub channel: bool,
    /// These of its sinks.
    pub sinks: BTreeSet<String>,
    /// Sinks that want no more events, and why: they are offered nothing until an operator resumes them.
    pub(super) gone: BTreeMap<String, Problem>,
    /// How often an operator has resumed each sink.
    resumed: BTreeMap<String, u64>,
}

impl Pauses {
    pub(super) fn sink_goes_on(&self, sink: &str) -> bool {
        !self.sinks.contains(sink) && !self.gone.contains_key(sink)
    }
}

impl Handle {
    /// The channel's status board. Not to be held across an await.
    pub fn board(&self) -> MutexGuard<'_, Board> {
        lock(&self.board)
    }

    /// What is paused.
    pub fn pauses(&self) -> Pauses {
        self.pauses.borrow().clone()
    }

    /// Pauses or resumes the channel as a whole; `false` where that changes nothing.
    pub fn pause_channel(&self, paused: bool) -> bool {
        self.pauses.send_if_modified(|pauses| std::mem::replace(&mut pauses.channel, paused) != paused)
    }

    /// Pauses a sink; `false` where it was.
    pub fn pause_sink(&self, sink: &str) -> bool {
        self.pauses.send_if_modified(|pauses| pauses.sinks.insert(sink.to_owned()))
    }

    /// Resumes a sink that was paused or gone; `false` where it was neither. Events that wait after a refusal are offered at
    /// once.
    pub fn resume_sink(&self, sink: &str) -> bool {
        let mut was_waiting = false;
        self.pauses.send_modify(|pauses| {
            was_waiting = pauses.sinks.remove(sink) | pauses.gone.remove(sink).is_some();
            *pauses.resumed.entry(sink.to_owned()).or_default() += 1;
        });
        was_waiting
    }

    /// Notes that a sink wants no more events.
    pub(super) fn sink_is_gone(&self, sink: &str, why: Problem) {
        self.pauses.send_modify(|pauses| drop(pauses.gone.insert(sink.to_owned(), why)));
    }

    /// Notes that a sink has changed: it is offered events again, even if it was gone.
    pub(super) fn sink_is_another(&self, sink: &str) {
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

    /// The channel as this process owns it; `None` where it does not.
    pub(crate) fn owned(&self) -> Option<Arc<Owned>> {
        self.board().owned.upgrade()
    }

    /// Makes the proofs that were delivered in the channel known to all others, its ledger readable, and the channel
    /// reachable for operators' commands.
    pub(crate) fn own(&self, channel: &ChannelRef, (claim, proofs): Claimed, recent: &RecentEvents) -> Arc<Owned> {
        for (mine, other) in recent.remember(channel.id, &proofs) {
            let channel = &channel.name;
            error!(%channel, offset = %mine, %other, "the same proof was delivered in two channels: one of them was shown an event that is not its own");
        }
        let owned = Arc::new(Owned { claim, released: Notify::new(), running: tokio::sync::Mutex::default() });
        let mut board = self.board();
        board.ledger = Some(owned.claim.ledger.clone());
        board.owned = Arc::downgrade(&owned);
        drop(board);
        owned
    }
}

/// The handles of all channels.
#[derive(Debug, Default)]
pub struct Handles {
    each: Mutex<HashMap<ChannelId, Arc<Handle>>>,
    /// What all channels share.
    pub memory: Arc<Memory>,
}

impl Handles {
    /// The handle of a channel: always the same.
    pub fn of(&self, channel: ChannelId) -> Arc<Handle> {
        let new = || Arc::new(Handle { memory: ChannelMemory::of(&self.memory), ..Handle::default() });
        lock(&self.each).entry(channel).or_insert_with(new).clone()
    }
}

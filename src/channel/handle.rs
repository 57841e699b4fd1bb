//! The end of a channel that others hold while it runs, stands still or starts again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Turn, MutexGuard as Turned, Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::event::ChannelId;

/// One channel as an operator reaches it. Outlives the channel's runs and configurations.
#[derive(Debug, Default)]
pub struct Handle {
    running: Turn<()>,
    pub(super) acquitted: Notify,
    paused: watch::Sender<Paused>,
}

/// What an operator has paused. Forgotten when the process ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paused {
    /// The channel as a whole.
    pub channel: bool,
    /// These sinks of it.
    pub sinks: BTreeSet<String>,
}

/// As long as this lives, the channel does not run.
#[derive(Debug)]
pub struct StandingStill<'a> {
    _turn: Turned<'a, ()>,
}

impl Handle {
    /// Keeps the channel from running; `None` where it runs.
    pub fn stand_still(&self) -> Option<StandingStill<'_>> {
        self.running.try_lock().ok().map(|turn| StandingStill { _turn: turn })
    }

    /// What is paused.
    #[must_use]
    pub fn paused(&self) -> Paused {
        self.paused.borrow().clone()
    }

    /// Pauses or resumes; `false` where that changes nothing.
    pub fn change(&self, change: impl FnOnce(&mut Paused)) -> bool {
        self.paused.send_if_modified(|paused| {
            let before = paused.clone();
            change(paused);
            *paused != before
        })
    }

    /// Waits until the channel is, or is not, paused as a whole; `false` where `stop` fired first.
    pub(super) async fn until_channel(&self, paused: bool, stop: &CancellationToken) -> bool {
        self.until(|state| state.channel == paused, stop).await
    }

    /// Waits as long as a sink is paused; `false` where `stop` fired first.
    pub(super) async fn until_sink_goes_on(&self, sink: &str, stop: &CancellationToken) -> bool {
        self.until(|state| !state.sinks.contains(sink), stop).await
    }

    async fn until(&self, holds: impl FnMut(&Paused) -> bool, stop: &CancellationToken) -> bool {
        let mut paused = self.paused.subscribe();
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            held = paused.wait_for(holds) => held.is_ok(),
        }
    }

    /// Says that events have left the quarantine.
    pub fn acquitted(&self) {
        self.acquitted.notify_one();
    }

    /// As long as the answer lives, the channel runs.
    pub(super) async fn run(&self) -> Turned<'_, ()> {
        self.running.lock().await
    }
}

/// The handles of all channels.
#[derive(Debug, Default)]
pub struct Handles(Mutex<HashMap<ChannelId, Arc<Handle>>>);

impl Handles {
    /// The handle of a channel: always the same.
    #[must_use]
    pub fn of(&self, channel: ChannelId) -> Arc<Handle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(channel).or_default().clone()
    }
}

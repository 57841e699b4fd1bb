//! The end of a channel that others hold while it runs, stands still or starts again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as Turn, MutexGuard as Turned, Notify};

use crate::event::ChannelId;

/// One channel as an operator reaches it. Outlives the channel's runs and configurations.
#[derive(Debug, Default)]
pub struct Handle {
    running: Turn<()>,
    pub(super) acquitted: Notify,
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

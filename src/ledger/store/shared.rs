//! A store that several instances share: which of them live, and who owns which channel.
//!
//! # Invariants
//!
//! * **No two owners.** An instance is taken for dead when the store's clock says that its lease is over. It stops earlier
//!   by itself: [`Hold`] ends a [`MARGIN`] before, counted from before the heartbeat was sent.
//! * **Suspended time counts.** A machine that slept wakes without its channels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

use super::StateError;
use crate::HeldBack;
use proof::event::ChannelId;

mod requests;

pub use requests::{Answer, Asked, RequestId, Requests, Standing};

/// An instance stops so much earlier than others take over.
pub const MARGIN: Duration = Duration::from_secs(1);

/// Names a process for as long as it runs. A restart is another instance.
pub type InstanceId = Uuid;

/// What instances know of each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Those that live.
    pub instances: BTreeMap<InstanceId, Instance>,
    /// Every channel that any of them has ever configured.
    pub channels: BTreeMap<ChannelId, Ownership>,
    /// What of their quarantines other channels showed before.
    pub held_back: BTreeMap<ChannelId, Vec<HeldBack>>,
}

impl View {
    /// The instance that owns a channel.
    pub fn owner(&self, channel: ChannelId) -> Option<(InstanceId, &Instance)> {
        match self.channels.get(&channel)? {
            Ownership::Owned { by, .. } => self.instances.get(by).map(|instance| (*by, instance)),
            Ownership::Orphaned { .. } => None,
        }
    }

    /// How many channels each instance that lives owns.
    pub fn counts(&self) -> BTreeMap<InstanceId, usize> {
        let mut counts: BTreeMap<_, _> = self.instances.keys().map(|id| (*id, 0)).collect();
        for owner in self.channels.values() {
            if let Ownership::Owned { by, .. } = owner {
                *counts.entry(*by).or_default() += 1;
            }
        }
        counts
    }

    /// The channels that an instance owns.
    pub fn owned_by(&self, instance: InstanceId) -> impl Iterator<Item = ChannelId> {
        self.epochs_of(instance).map(|(channel, _)| channel)
    }

    /// The channels that an instance owns, and under which epochs.
    pub fn epochs_of(&self, instance: InstanceId) -> impl Iterator<Item = (ChannelId, u64)> {
        self.channels.iter().filter_map(move |(channel, owner)| match owner {
            Ownership::Owned { by, epoch } if *by == instance => Some((*channel, *epoch)),
            _ => None,
        })
    }
}

/// An instance that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// For people.
    pub name: String,
    /// What it configures.
    pub channels: Arc<BTreeSet<ChannelId>>,
}

impl Instance {
    /// Whether it is one of those that share the channels, and not a command that reaches them.
    pub fn shares(&self) -> bool {
        !self.channels.is_empty()
    }
}

/// Who owns a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// An instance that lives, under this epoch.
    Owned {
        /// The owner.
        by: InstanceId,
        /// Its epoch.
        epoch: u64,
    },
    /// No instance, or none that lives, for so long.
    Orphaned {
        /// Since the last owner gave it up, or its lease was over.
        since: Duration,
    },
}

/// The instances of a store.
#[async_trait]
pub trait Membership: Requests {
    /// This one.
    fn me(&self) -> InstanceId;

    /// How long an instance is taken to live after its heartbeat.
    fn lease(&self) -> Duration;

    /// Until when what this instance has claimed is its own.
    fn hold(&self) -> &Hold;

    /// Says that this instance lives and configures these channels, and looks at the others. Prolongs the [`Hold`], and
    /// tells the leases that others have taken over.
    ///
    /// # Errors
    /// If the store cannot be reached.
    async fn beat(&self, channels: &Arc<BTreeSet<ChannelId>>) -> Result<View, StateError>;

    /// Whether this process has the channel in hand: it has claimed it, and neither lost it nor given it up.
    fn has_claimed(&self, channel: ChannelId) -> bool;

    /// Gives up channels that this instance owns under these epochs.
    ///
    /// # Errors
    /// If the store cannot be reached.
    async fn give_up(&self, channels: &BTreeMap<ChannelId, u64>) -> Result<(), StateError>;

    /// Tells every lease that it is lost. Nothing is begun any more.
    fn lose_all(&self);

    /// Says that this instance is no more, and owns nothing. Best effort: others find out when its lease is over.
    async fn leave(&self);
}

/// Until when an instance may work its channels, by the clock that counts suspended time.
#[derive(Debug, Default)]
pub struct Hold {
    /// Nanoseconds of that clock; 0 before the first heartbeat.
    until: AtomicU64,
}

impl Hold {
    /// The clock.
    pub fn now() -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
    }

    /// Prolongs it: a heartbeat that began at `began` was accepted.
    pub fn prolong(&self, began: Duration, lease: Duration) {
        let until = began + lease.saturating_sub(MARGIN);
        self.until.store(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// How long it lasts.
    pub fn left(&self) -> Duration {
        Duration::from_nanos(self.until.load(Ordering::Acquire)).saturating_sub(Self::now())
    }

    /// Ends it.
    pub fn end(&self) {
        self.until.store(0, Ordering::Release);
    }
}

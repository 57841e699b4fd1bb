//! A store that several instances share. It records which instances are alive and which instance owns each channel.
//!
//! # Invariants
//!
//! * **Never two owners.** An instance is considered dead when its lease ends on the store's clock. The instance itself
//!   stops earlier: its [`LeaseTerm`] starts when the heartbeat is sent, not when the store accepts it, and is shorter
//!   than the lease by [`MARGIN`].
//! * **Suspended time counts.** A machine that was suspended for longer than the lease has no lease when it wakes.
//! * **At most once.** A request is taken once, by the instance that it is addressed to. A request that is withdrawn
//!   before that is never taken.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

use crate::{QuarantinedDuplicates, StateError};
use proof::event::ChannelId;

mod configured;

pub use configured::{Configured, SettingDigests};

/// An instance stops its channels this long before other instances can take them over.
pub const MARGIN: Duration = Duration::from_secs(1);

/// The number of heartbeats per lease duration. A heartbeat must be answered before the next one is due.
pub const BEATS: u32 = 3;

/// Identifies a process while it runs. After a restart the process is a different instance.
pub type InstanceId = Uuid;

/// The state of all instances and channels, as one instance sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// The live instances.
    pub instances: BTreeMap<InstanceId, Instance>,
    /// The instances whose lease has ended although they have not left. Some are dead. After an outage of the store, the others
    /// will send their next heartbeat soon. A member removes an instance that has been silent for some time.
    pub silent: BTreeMap<InstanceId, Instance>,
    /// Every channel that any instance has ever configured.
    pub channels: BTreeMap<ChannelId, Ownership>,
    /// By channel, the quarantined events whose proofs another channel showed first.
    pub held_back: BTreeMap<ChannelId, Vec<QuarantinedDuplicates>>,
    /// The rows that cannot be read. Everything else in this view is complete.
    pub unreadable: BTreeSet<UnreadableRow>,
}

/// A row about an instance or a channel that cannot be read, completely or in part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnreadableRow {
    /// The channel that the row is about. `None` for a row about an instance.
    pub channel: Option<ChannelId>,
    /// The problem, its consequence, and the remedy.
    pub what: String,
}

impl ClusterView {
    /// The instance that owns a channel.
    pub fn owner(&self, channel: ChannelId) -> Option<(InstanceId, &Instance)> {
        match self.channels.get(&channel)? {
            Ownership::Owned { by, .. } => self.instances.get(by).map(|instance| (*by, instance)),
            Ownership::Orphaned { .. } => None,
        }
    }

    /// Whether an instance may claim a channel. Among the instances that configure the channel, the one that joined first
    /// decides how the events are verified. An instance that would verify them in another way claims the channel only when
    /// no such instance lives any more: its configuration may be wrong, and events that it verifies may be forged.
    pub fn may_claim(&self, instance: InstanceId, channel: ChannelId) -> bool {
        self.verifies_like_first(instance, channel, self.instances.iter())
    }

    /// Whether an instance would verify a channel in another way than a silent instance that joined before all live ones. The
    /// silent instance decides if it still runs.
    pub fn defers(&self, instance: InstanceId, channel: ChannelId) -> bool {
        !self.verifies_like_first(instance, channel, self.instances.iter().chain(&self.silent))
    }

    /// Whether a live instance configures a channel, and verifies it like the first of these instances that joined.
    fn verifies_like_first<'v>(
        &'v self,
        instance: InstanceId,
        channel: ChannelId,
        all: impl Iterator<Item = (&'v InstanceId, &'v Instance)>,
    ) -> bool {
        let configured = |instance: &Instance| instance.configured.channels.contains(&channel);
        let of_channel = all.filter(|(_, instance)| configured(instance));
        let first = of_channel.min_by_key(|(id, instance)| (instance.joined, **id)).map(|(_, first)| first);
        let own = self.instances.get(&instance).filter(|own| configured(own));
        own.zip(first).is_some_and(|(own, first)| own.configured.verifies_like(&first.configured, channel))
    }

    /// The number of channels that each live instance owns.
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

    /// The channels that an instance owns, with their epochs.
    pub fn epochs_of(&self, instance: InstanceId) -> impl Iterator<Item = (ChannelId, u64)> {
        self.channels.iter().filter_map(move |(channel, owner)| match owner {
            Ownership::Owned { by, epoch } if *by == instance => Some((*channel, *epoch)),
            _ => None,
        })
    }
}

/// A live instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    /// The name that `cluster.instance` configures.
    pub name: String,
    /// When it joined, in microseconds of the store's clock.
    pub joined: i64,
    /// The published part of its configuration.
    pub configured: Arc<Configured>,
}

impl Instance {
    /// Whether the instance shares the work, as opposed to a command that only accesses the channels.
    pub fn shares(&self) -> bool {
        !self.configured.channels.is_empty()
    }
}

/// The owner of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the texts describe the fields")]
pub enum Ownership {
    /// A live instance owns it under this epoch.
    Owned { by: InstanceId, epoch: u64 },
    /// No live instance has owned the channel for this long: since the last owner released the channel, or since that
    /// owner's lease ended.
    Orphaned { since: Duration },
}

/// Identifies a request while its sender waits for the answer.
pub type RequestId = i64;

/// A request with the parts of an HTTP request. The path includes the query.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "HTTP defines these names")]
pub struct ForwardedRequest {
    pub method: String,
    pub path: String,
    pub body: Vec<u8>,
}

/// An answer with the parts of an HTTP response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "HTTP defines these names")]
pub struct ForwardedResponse {
    pub status: u16,
    pub body: Vec<u8>,
}

/// The state of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the texts describe the fields")]
pub enum RequestState {
    /// The answer has not arrived.
    Waiting,
    /// The answer has arrived. The request is removed.
    Answered(ForwardedResponse),
    /// No answer will arrive, because the instance has died or the request was withdrawn. The request is removed. If
    /// the request was `taken`, it may have been executed.
    Ended { taken: bool },
}

/// The instances of a store, and the requests between them. A request forwards an operator's command to the instance
/// that owns the channel. A method fails if the store cannot be reached.
#[async_trait]
pub trait Membership: Send + Sync + fmt::Debug {
    /// The id of this instance.
    fn me(&self) -> InstanceId;

    /// How long an instance is considered alive after a heartbeat.
    fn lease(&self) -> Duration;

    /// The time until which this instance may run its channels.
    fn term(&self) -> &LeaseTerm;

    /// Reports that this instance is alive and has this configuration. Forgets the instances in `dead` whose lease ended long
    /// ago. Returns the state of all instances and channels. Prolongs the [`LeaseTerm`], and cancels the leases of channels
    /// that other instances have taken over. If only the state cannot be read, the term is prolonged although this method
    /// fails.
    async fn beat(&self, configured: &Arc<Configured>, dead: &[InstanceId]) -> Result<ClusterView, StateError>;

    /// Whether this process currently has the lease of the channel: it claimed the channel, and has neither lost nor
    /// released it.
    fn has_claimed(&self, channel: ChannelId) -> bool;

    /// Releases channels that this instance owns under these epochs.
    async fn give_up(&self, channels: &BTreeMap<ChannelId, u64>) -> Result<(), StateError>;

    /// Cancels every lease. No new work starts.
    fn lose_all(&self);

    /// Reports that this instance has ended and owns nothing. If the report fails, the other instances take over when the
    /// lease ends.
    async fn leave(&self);

    /// Sends a request to an instance. Even if this method fails, the request may be executed.
    async fn ask(&self, instance: InstanceId, request: &ForwardedRequest) -> Result<RequestId, StateError>;

    /// Checks for the answer. If `withdraw` is set, the request ends in any case.
    async fn look(&self, request: RequestId, withdraw: bool) -> Result<RequestState, StateError>;

    /// Takes the requests that are addressed to this instance.
    async fn take(&self) -> Result<Vec<(RequestId, ForwardedRequest)>, StateError>;

    /// Answers a request that was taken. Does nothing if the sender no longer waits for it.
    async fn answer(&self, request: RequestId, answer: &ForwardedResponse) -> Result<(), StateError>;
}

/// The time until which an instance may run its channels. It is measured with the boot-time clock, which includes suspended
/// time.
#[derive(Debug, Default)]
pub struct LeaseTerm {
    /// The end in nanoseconds of the boot-time clock. 0 before the first heartbeat.
    until: AtomicU64,
}

impl LeaseTerm {
    /// The current time of the boot-time clock.
    pub fn now() -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
    }

    /// Prolongs the lease term after a heartbeat that was sent at `began` was accepted.
    pub fn prolong(&self, began: Duration, lease: Duration) {
        let until = began + lease.saturating_sub(MARGIN);
        self.until.store(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// The remaining time.
    pub fn left(&self) -> Duration {
        Duration::from_nanos(self.until.load(Ordering::Acquire)).saturating_sub(Self::now())
    }

    /// Ends the lease term now.
    pub fn end(&self) {
        self.until.store(0, Ordering::Release);
    }
}

//! Decides which channels this instance runs if several instances share them. No instance is a leader. Each instance decides
//! for itself, from the store's view of all instances. The store ensures that only one instance gets a channel.
//!
//! # Invariants
//!
//! * **Released, never stolen.** A channel moves to another instance only after its owner has released it, or after the
//!   owner's lease has ended.
//! * **No work without a lease.** If the store has accepted no heartbeat for too long, this instance loses all its
//!   channels at once.
//! * **Safe to cancel** at any point. The instance still owns its channels until its lease ends, or until it calls
//!   [`Membership::leave`].

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::field::display;
use tracing::{debug, info, warn};

use ledger::store::shared::{BEATS, ClusterView, Configured, InstanceId, Membership, UnreadableRow};
use net::Chain;
use plan::{Plan, plan};
use proof::event::ChannelId;
use telemetry::ALWAYS;

mod peers;
mod plan;

pub use peers::{Peers, Unanswered, answer};

/// How long the set of live instances must be unchanged before a channel is released to another instance.
const STABLE: Duration = Duration::from_secs(10);

/// How long an instance may still decide about its channels after its lease has ended. Heartbeats must succeed in this time:
/// during an outage of the store, the silence says nothing about the instance.
const LATE: Duration = Duration::from_secs(10);

/// The number of attempts in the time of one heartbeat if heartbeats fail at once.
const ATTEMPTS: u32 = 10;

/// This instance as a member of the cluster.
#[derive(Debug)]
pub struct Member {
    membership: Arc<dyn Membership>,
    configured: watch::Receiver<Arc<Configured>>,
    seen: watch::Sender<ClusterState>,
    /// The channels that this instance is releasing.
    releasing: BTreeSet<ChannelId>,
    /// Channels that this instance owns but does not run, each with the epoch of its lease. Either this instance lost them,
    /// or a release failed.
    unworked: BTreeMap<ChannelId, u64>,
    /// The live instances, and when this set last changed.
    live: (Vec<InstanceId>, Instant),
    /// The instances whose lease has ended, and since when the heartbeats of this instance have found this without a failure.
    silent: BTreeMap<InstanceId, Instant>,
    /// The unreadable rows at the last heartbeat.
    unreadable: BTreeSet<UnreadableRow>,
}

/// The state of the cluster as this instance sees it, and the channels that it should run.
#[derive(Clone, Debug, Default)]
pub struct ClusterState {
    /// The channels to run on this instance.
    pub work: BTreeSet<ChannelId>,
    /// All instances and channels at the last heartbeat.
    pub view: Arc<ClusterView>,
    /// Why the heartbeats after `view` have failed. `None` if the last heartbeat succeeded.
    pub trouble: Option<String>,
}

impl Member {
    /// Creates a member for this instance. The instance joins the cluster when [`run`](Self::run) is called.
    pub fn new(membership: Arc<dyn Membership>, configured: watch::Receiver<Arc<Configured>>) -> Self {
        let live = (Vec::new(), Instant::now());
        let (releasing, unworked) = (BTreeSet::new(), BTreeMap::new());
        let (seen, silent, unreadable) = (watch::Sender::default(), BTreeMap::new(), BTreeSet::new());
        Self { membership, configured, seen, releasing, unworked, live, silent, unreadable }
    }

    /// Returns a receiver of the current and future states of the cluster.
    pub fn seen(&self) -> watch::Receiver<ClusterState> {
        self.seen.subscribe()
    }

    /// Runs the membership until the returned future is dropped. After `stop` fires, the instance claims no more channels.
    pub async fn run(mut self, stop: CancellationToken) {
        let every = self.membership.lease() / BEATS;
        loop {
            let mut next = Instant::now() + every;
            if self.membership.term().left().is_zero() {
                self.lose_all();
            }
            let configured = self.configured.borrow_and_update().clone();
            let beat = timeout(every, self.beat(&configured)).await;
            match beat {
                Ok(Ok(view)) => {
                    let unworked = self.look(view, &configured.channels, stop.is_cancelled());
                    // If the release fails, the next heartbeat finds the same channels again.
                    let _ = timeout(every, self.give_up(unworked)).await;
                }
                Ok(Err(trouble)) => {
                    self.fail(trouble);
                    // The connection may only have been cut. Without an early attempt, a few cuts would cost the lease.
                    next = Instant::now() + every / ATTEMPTS;
                }
                Err(_) => self.fail(format!("the state's database has not answered for {every:?}")),
            }
            self.wait(next).await;
        }
    }

    /// Sends a heartbeat. It runs in a task of its own, so that a panic fails only this heartbeat.
    async fn beat(&self, configured: &Arc<Configured>) -> Result<ClusterView, String> {
        let (membership, configured) = (self.membership.clone(), configured.clone());
        let dead = self.silent.iter().filter(|(_, since)| since.elapsed() >= LATE);
        let dead: Vec<_> = dead.map(|(instance, _)| *instance).collect();
        let beating = tokio::spawn(async move { membership.beat(&configured, &dead).await });
        match AbortOnDropHandle::new(beating).await {
            Ok(beat) => beat.map_err(|error| Chain(&error).to_string()),
            Err(panic) => Err(format!("the heartbeat failed because of a defect: {panic}")),
        }
    }

    /// Waits for the next heartbeat or a changed configuration. If the lease term ends first, all channels are lost.
    async fn wait(&mut self, next: Instant) {
        let left = self.membership.term().left();
        tokio::select! {
            biased;
            () = sleep(left), if !left.is_zero() && !self.seen.borrow().work.is_empty() => self.lose_all(),
            () = sleep_until(next) => {}
            Ok(()) = self.configured.changed() => {}
        }
    }

    fn lose_all(&mut self) {
        self.membership.lose_all();
        self.releasing.clear();
        let lost = self.seen.send_if_modified(|seen| !std::mem::take(&mut seen.work).is_empty());
        if lost {
            warn!(target: ALWAYS, "no heartbeat was accepted for too long: every channel stops until a heartbeat is accepted");
        }
    }

    fn fail(&mut self, trouble: String) {
        self.silent.clear();
        self.seen.send_if_modified(|seen| {
            let is_new = seen.trouble.as_ref() != Some(&trouble);
            if is_new {
                warn!(error = trouble, "heartbeat failed: the state's database cannot be used");
                seen.trouble = Some(trouble);
            }
            is_new
        });
    }

    /// Releases the channels that, at two heartbeats in a row, this instance owned under the same epoch but did not run. One
    /// heartbeat is not enough, because the channel may just be moving to another instance.
    async fn give_up(&mut self, unworked: BTreeMap<ChannelId, u64>) {
        let before = std::mem::replace(&mut self.unworked, unworked.clone());
        let left: BTreeMap<_, _> =
            unworked.into_iter().filter(|(channel, epoch)| before.get(channel) == Some(epoch)).collect();
        if left.is_empty() {
            return;
        }
        if let Err(error) = self.membership.give_up(&left).await {
            debug!(error = %Chain(&error), "leases of channels that do not run here could not be released");
        }
    }

    /// Decides which channels to run from now on. Returns the channels that this instance owns but should not run, and that
    /// none of its tasks has claimed.
    fn look(
        &mut self,
        mut view: ClusterView,
        configured: &BTreeSet<ChannelId>,
        is_stopping: bool,
    ) -> BTreeMap<ChannelId, u64> {
        let me = self.membership.me();
        for UnreadableRow { channel, what } in view.unreadable.difference(&self.unreadable) {
            let channel = channel.map(display);
            warn!(target: ALWAYS, channel, what, "a row of the state's database cannot be read");
        }
        self.unreadable.clone_from(&view.unreadable);
        let sharing = || view.instances.iter().filter(|(_, instance)| instance.shares());
        let live: Vec<_> = sharing().map(|(id, _)| *id).collect();
        if live != self.live.0 {
            let names: Vec<_> = sharing().map(|(_, instance)| &*instance.name).collect();
            // A command without configured channels does not report on other instances.
            if !configured.is_empty() {
                info!(target: ALWAYS, instances = names.join(", "), "these instances are alive");
            }
            self.live = (live, Instant::now());
        }
        self.silent.retain(|instance, _| view.silent.contains_key(instance));
        view.silent.retain(|instance, _| self.silent.entry(*instance).or_insert_with(Instant::now).elapsed() < LATE);
        let owned: BTreeSet<_> = view.owned_by(me).collect();
        self.releasing.retain(|channel| owned.contains(channel));
        let mut work: BTreeSet<_> = owned.intersection(configured).copied().collect();
        if !is_stopping {
            let is_stable = self.live.1.elapsed() >= STABLE;
            let Plan { claim, release } = plan(&view, me, &self.releasing, is_stable, self.membership.lease());
            if !claim.is_empty() || !release.is_empty() {
                info!(target: ALWAYS, claims = claim.len(), gives = release.len(), "channels change hands");
            }
            work.extend(claim);
            self.releasing.extend(release);
        }
        work.retain(|channel| !self.releasing.contains(channel));
        let is_unworked = |channel: &ChannelId| !work.contains(channel) && !self.membership.has_claimed(*channel);
        let unworked = view.epochs_of(me).filter(|(channel, _)| is_unworked(channel)).collect();
        self.seen.send_replace(ClusterState { work, view: Arc::new(view), trouble: None });
        unworked
    }
}

impl ClusterState {
    /// Returns whether this process does not know the current state of a channel. A daemon knows only the channels that it
    /// runs. A command without a daemon reads the recorded state. The recorded state is current only if no instance owns the
    /// channel.
    pub fn is_elsewhere(&self, channel: ChannelId, is_daemon: bool) -> bool {
        !self.work.contains(&channel) && (is_daemon || self.view.owner(channel).is_some())
    }
}

#[cfg(test)]
mod tests;

//! Which channels this instance works, where several instances share them. There is no leader: each decides for itself from
//! what the store says of all, and the store lets one of them have a channel.
//!
//! # Invariants
//!
//! * **Given, never stolen.** A channel changes hands when its owner gives it up, or when the owner's lease is over.
//! * **Not without a lease.** When the store has accepted no heartbeat for too long, every channel here is lost at once.
//!
//! # Cancellation
//!
//! At any point: what is owned stays so until the lease is over, or [`Membership::leave`] is called.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use ledger::store::shared::{InstanceId, Membership, View};
use net::Chain;
use proof::event::ChannelId;
use telemetry::ALWAYS;

mod peers;
mod plan;

pub use peers::{Peers, Unanswered, answer};
pub use plan::{MOST_GIVEN, ORPHANED_LEASES, Plan, plan};

/// Heartbeats in the time of a lease.
const BEATS: u32 = 3;

/// For so long the same instances have to live before a channel is given to another.
const STABLE: Duration = Duration::from_secs(10);

/// This instance among the others.
#[derive(Debug)]
pub struct Member {
    membership: Arc<dyn Membership>,
    /// The channels that are configured here.
    configured: watch::Receiver<Arc<BTreeSet<ChannelId>>>,
    seen: watch::Sender<Seen>,
    /// Those that this instance gives up, until they are given up.
    giving: BTreeSet<ChannelId>,
    /// Those that the store has as this instance's, under these epochs, though they are not worked here: they were lost, or
    /// giving them up has failed.
    unworked: BTreeMap<ChannelId, u64>,
    /// Which instances live, and since when these.
    live: (Vec<InstanceId>, Instant),
}

/// What this instance has seen of the others, and what follows for it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The channels to work here.
    pub work: BTreeSet<ChannelId>,
    /// All instances and channels, as they were at the last heartbeat.
    pub view: Arc<View>,
    /// Why there has been no heartbeat since.
    pub trouble: Option<String>,
}

impl Member {
    /// Not a member yet: see [`run`](Self::run).
    pub fn new(membership: Arc<dyn Membership>, configured: watch::Receiver<Arc<BTreeSet<ChannelId>>>) -> Self {
        let live = (Vec::new(), Instant::now());
        let (giving, unworked) = (BTreeSet::new(), BTreeMap::new());
        Self { membership, configured, seen: watch::Sender::default(), giving, unworked, live }
    }

    /// What it sees.
    pub fn seen(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    /// Is a member. When `stop` fires it takes no more channels, and is one still, until it is dropped.
    pub async fn run(mut self, stop: CancellationToken) {
        let every = self.membership.lease() / BEATS;
        loop {
            let next = Instant::now() + every;
            if self.membership.hold().left().is_zero() {
                self.lose_all();
            }
            let configured = self.configured.borrow_and_update().clone();
            let beat = timeout(every, self.membership.beat(&configured)).await;
            match beat {
                Ok(Ok(view)) => {
                    let unworked = self.look(view, &configured, stop.is_cancelled());
                    // Where this fails, they are found again.
                    let _ = timeout(every, self.give_up(unworked)).await;
                }
                Ok(Err(error)) => self.fail(Chain(&error).to_string()),
                Err(_) => self.fail(format!("the state's database has not answered for {every:?}")),
            }
            self.wait(next).await;
        }
    }

    /// Waits for the next heartbeat, or for another configuration. Where the hold ends before, all is lost then.
    async fn wait(&mut self, next: Instant) {
        let left = self.membership.hold().left();
        tokio::select! {
            biased;
            () = sleep(left), if !left.is_zero() && !self.seen.borrow().work.is_empty() => self.lose_all(),
            () = sleep_until(next) => {}
            Ok(()) = self.configured.changed() => {}
        }
    }

    fn lose_all(&mut self) {
        self.membership.lose_all();
        self.giving.clear();
        let lost = self.seen.send_if_modified(|seen| !std::mem::take(&mut seen.work).is_empty());
        if lost {
            warn!(target: ALWAYS, "no heartbeat has been accepted for too long: every channel stands still until one is");
        }
    }

    fn fail(&self, trouble: String) {
        self.seen.send_if_modified(|seen| {
            let is_new = seen.trouble.as_ref() != Some(&trouble);
            if is_new {
                warn!(error = trouble, "no heartbeat: the state's database cannot be used");
                seen.trouble = Some(trouble);
            }
            is_new
        });
    }

    /// Gives up what was not worked here at the last look either: before, it may be about to be claimed, or given up.
    async fn give_up(&mut self, unworked: BTreeMap<ChannelId, u64>) {
        let before = std::mem::take(&mut self.unworked);
        self.unworked.clone_from(&unworked);
        let left: BTreeMap<_, _> =
            unworked.into_iter().filter(|(channel, epoch)| before.get(channel) == Some(epoch)).collect();
        if left.is_empty() {
            return;
        }
        if let Err(error) = self.membership.give_up(&left).await {
            debug!(error = %Chain(&error), "channels that are not worked here could not be given up");
        }
    }

    /// Decides what to work from now on. Gives the channels that are this instance's and not in hand, nor to be worked.
    fn look(&mut self, view: View, configured: &BTreeSet<ChannelId>, is_stopping: bool) -> BTreeMap<ChannelId, u64> {
        let me = self.membership.me();
        let sharing = || view.instances.iter().filter(|(_, instance)| instance.shares());
        let live: Vec<_> = sharing().map(|(id, _)| *id).collect();
        if live != self.live.0 {
            let names: Vec<_> = sharing().map(|(_, instance)| &*instance.name).collect();
            // A command that configures nothing says nothing of the others.
            if !configured.is_empty() {
                info!(target: ALWAYS, instances = names.join(", "), "these instances live");
            }
            self.live = (live, Instant::now());
        }
        let owned: BTreeSet<_> = view.owned_by(me).collect();
        self.giving.retain(|channel| owned.contains(channel));
        let mut work: BTreeSet<_> = owned.intersection(configured).copied().collect();
        if !is_stopping {
            let is_stable = self.live.1.elapsed() >= STABLE;
            let Plan { claim, give } = plan(&view, me, &self.giving, is_stable, self.membership.lease());
            if !claim.is_empty() || !give.is_empty() {
                info!(target: ALWAYS, claims = claim.len(), gives = give.len(), "channels change hands");
            }
            work.extend(claim);
            self.giving.extend(give);
        }
        work.retain(|channel| !self.giving.contains(channel));
        let is_unworked = |channel: &ChannelId| !work.contains(channel) && !self.membership.has_claimed(*channel);
        let unworked = view.epochs_of(me).filter(|(channel, _)| is_unworked(channel)).collect();
        self.seen.send_replace(Seen { work, view: Arc::new(view), trouble: None });
        unworked
    }
}

impl Seen {
    /// Whether nothing is known here of how a channel is. A command that no daemon carries out shows what is recorded.
    pub fn is_elsewhere(&self, channel: ChannelId, is_daemon: bool) -> bool {
        !self.work.contains(&channel) && (is_daemon || self.view.owner(channel).is_some())
    }
}

#[cfg(test)]
mod tests;

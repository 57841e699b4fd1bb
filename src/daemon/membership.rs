//! Connects the daemon with the other instances that share its channels: the group of instances.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use channel::AccountTurns;
use cluster::{ClusterState, Member, Peers};
use ledger::store::shared::{Configured, Membership};
use proof::event::ChannelId;

/// How long leaving the group may take when the process ends.
const LEAVING: Duration = Duration::from_secs(3);

/// This instance as a member of the group.
pub(crate) struct Sharing {
    /// Canceled when this instance must not lease any more channels.
    pub(super) stop: CancellationToken,
    pub(crate) peers: Peers,
    configured: watch::Sender<Arc<Configured>>,
    /// The channels that this instance has to run.
    pub(super) work: BTreeSet<ChannelId>,
    member: AbortOnDropHandle<()>,
}

impl Sharing {
    /// Joins the group with this configuration. A command that only contacts the other instances passes an empty one.
    pub(crate) fn begin(membership: Arc<dyn Membership>, configured: Configured) -> Self {
        let (configured, stop) = (watch::Sender::new(Arc::new(configured)), CancellationToken::new());
        let member = Member::new(membership.clone(), configured.subscribe());
        let peers = Peers { seen: member.seen(), membership };
        let task = AbortOnDropHandle::new(tokio::spawn(member.run(stop.clone())));
        Self { stop, peers, configured, work: BTreeSet::new(), member: task }
    }

    pub(super) fn configure(&self, configured: Configured) {
        let is_new = |before: &mut Arc<Configured>| {
            let is_new = **before != configured;
            if is_new {
                *before = Arc::new(configured);
            }
            is_new
        };
        self.configured.send_if_modified(is_new);
    }

    /// Leaves the group, and releases the remaining leases.
    pub(crate) async fn end(self) {
        let Self { peers, member, .. } = self;
        // After the instance has left, the member would report that its leases have ended, or join again.
        drop(member);
        // If this does not finish in time, other instances take the channels over when the leases expire.
        let _ = timeout(LEAVING, peers.membership.leave()).await;
    }
}

/// Waits until the set of channels that this instance has to run changes. Waits forever if no channels are shared.
pub(super) async fn changed(sharing: Option<&mut Sharing>) {
    if let Some(Sharing { peers, work, .. }) = sharing
        && let Ok(seen) = peers.seen.wait_for(|seen| seen.work != *work).await
    {
        work.clone_from(&seen.work);
        return;
    }
    pending::<()>().await;
}

/// Divides the rate of requests of each account among the living instances. Ends when this instance has left the group.
pub(super) async fn share_turns(mut seen: watch::Receiver<ClusterState>, turns: Arc<AccountTurns>) {
    loop {
        let instances = seen.borrow_and_update().view.instances.values().filter(|instance| instance.shares()).count();
        turns.share_among(instances);
        if seen.changed().await.is_err() {
            return;
        }
    }
}

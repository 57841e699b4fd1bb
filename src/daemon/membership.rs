//! The daemon among the instances that share its channels.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::{self, error::RecvError};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use channel::Channel;
use cluster::{Member, Peers, Seen};
use ledger::store::shared::Membership;
use proof::event::ChannelId;

/// The longest that giving up what is left may take at the end.
const LEAVING: Duration = Duration::from_secs(3);

/// What instances share, seen from this one.
pub(crate) struct Sharing {
    /// Fires when no more channels are to be taken.
    pub(super) stop: CancellationToken,
    membership: Arc<dyn Membership>,
    configured: watch::Sender<Arc<BTreeSet<ChannelId>>>,
    seen: watch::Receiver<Seen>,
    /// The channels to run here.
    pub(super) work: BTreeSet<ChannelId>,
    _member: AbortOnDropHandle<()>,
}

impl Sharing {
    /// With these channels configured. A command that reaches the others configures none.
    pub(crate) fn begin(membership: Arc<dyn Membership>, ids: BTreeSet<ChannelId>) -> Self {
        let (configured, stop) = (watch::Sender::new(Arc::new(ids)), CancellationToken::new());
        let member = Member::new(membership.clone(), configured.subscribe());
        let seen = member.seen();
        let task = AbortOnDropHandle::new(tokio::spawn(member.run(stop.clone())));
        Self { stop, membership, configured, seen, work: BTreeSet::new(), _member: task }
    }

    pub(super) fn configure(&self, channels: &[Arc<Channel>]) {
        let ids = channels.iter().map(|channel| channel.identity.id).collect();
        self.configured.send_if_modified(|before| {
            let has_changed = **before != ids;
            if has_changed {
                *before = Arc::new(ids);
            }
            has_changed
        });
    }

    pub(crate) fn peers(&self) -> Peers {
        Peers { seen: self.seen.clone(), membership: self.membership.clone() }
    }

    /// Waits until other channels are to run here. Most heartbeats change nothing of that.
    async fn changed(&mut self) -> Result<(), RecvError> {
        let work = &mut self.work;
        let seen = self.seen.wait_for(|seen| seen.work != *work).await?;
        work.clone_from(&seen.work);
        Ok(())
    }

    /// Gives up what is left.
    pub(crate) async fn end(self) {
        // Where it takes longer, others take over when the lease is over.
        let _ = timeout(LEAVING, self.membership.leave()).await;
    }
}

/// Waits until other channels are to run here: for ever, where nothing is shared.
pub(super) async fn changed(sharing: Option<&mut Sharing>) {
    let changed = match sharing {
        Some(sharing) => sharing.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        pending::<()>().await;
    }
}

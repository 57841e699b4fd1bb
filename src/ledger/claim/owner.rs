//! The owner of a channel in this process, and the release of its lease.

use std::sync::Arc;

use prometheus::IntCounter;
use tokio::sync::{OwnedMutexGuard, mpsc};

use crate::store::{Lease, Store};

/// Keeps a channel claimed in this process. When its last commit is written, the lease is released at the store.
#[derive(Debug)]
pub(super) struct Owner {
    lease: Lease,
    releases: mpsc::UnboundedSender<Lease>,
    lost: IntCounter,
    _alone: OwnedMutexGuard<()>,
}

impl Owner {
    pub(super) fn new(
        lease: Lease,
        releases: mpsc::UnboundedSender<Lease>,
        lost: IntCounter,
        alone: OwnedMutexGuard<()>,
    ) -> Self {
        Self { lease, releases, lost, _alone: alone }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.lease.is_lost() {
            self.lost.inc();
        }
        // When the process ends, the receiver is gone, and channels are not released one by one.
        let _ = self.releases.send(self.lease.clone());
    }
}

/// Releases the leases of owners that have ended.
pub(super) async fn release(store: Arc<dyn Store>, mut released: mpsc::UnboundedReceiver<Lease>) {
    while let Some(lease) = released.recv().await {
        store.release(lease).await;
    }
}

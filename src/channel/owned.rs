//! A channel that this process owns: its own task and operators' commands work on it through this.

use std::sync::Arc;

use tokio::sync::{Mutex, Notify};
use tracing::error;

use crate::channel::controls::Handle;
use crate::channel::verify::recent::RecentEvents;
use crate::ledger::{Claim, Proof};
use crate::record::ChannelRef;

/// A claimed channel, and what is shared by those who work on it.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) claim: Claim,
    pub(crate) recent: Arc<RecentEvents>,
    /// Fires when an operator's command has made events late: they are looked at at once.
    pub(crate) released: Notify,
    /// Held while the channel runs, and while its cursors are moved by an operator.
    pub(crate) running: Mutex<()>,
}

impl Owned {
    /// Makes the proofs that were delivered in the channel known to all others, its ledger readable, and the channel
    /// reachable for operators' commands.
    pub(crate) fn new(
        channel: &ChannelRef,
        (claim, proofs): (Claim, Vec<Proof>),
        recent: &Arc<RecentEvents>,
        handle: &Handle,
    ) -> Arc<Self> {
        for (mine, other) in recent.remember(channel.id, &proofs) {
            let channel = &channel.name;
            error!(%channel, offset = %mine, %other, "the same proof was delivered in two channels: one of them was shown an event that is not its own");
        }
        let ledger = claim.shared_ledger();
        handle.board.update(|state| state.ledger = Some(ledger));
        let (recent, released, running) = (recent.clone(), Notify::new(), Mutex::default());
        let owned = Arc::new(Self { claim, recent, released, running });
        handle.owned_as(&owned);
        owned
    }
}

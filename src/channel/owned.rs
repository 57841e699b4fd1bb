//! A channel that this process owns: what works on it, its own task and operators' commands, works through this.

use std::sync::Arc;

use tokio::sync::{Mutex, Notify};
use tracing::error;

use crate::channel::controls::Handle;
use crate::channel::verify::recent::RecentEvents;
use crate::event::ChannelId;
use crate::ledger::{Claim, Ledgers, Proof, StateError};
use crate::record::ChannelRef;

/// A claimed channel, and what its owner needs beside the claim.
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
    /// Claims a channel; `None` where another process owns it. Waits while another task of this process owns it.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub(crate) async fn claim(
        channel: &ChannelRef,
        ledgers: &Ledgers,
        recent: &Arc<RecentEvents>,
    ) -> Result<Option<Self>, StateError> {
        let claimed = ledgers.claim(channel.id, recent.proofs_each()).await?;
        Ok(claimed.map(|claimed| Self::new(channel, claimed, recent)))
    }

    /// Claims a channel without waiting; `None` where it has an owner.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub(crate) async fn try_claim(
        channel: &ChannelRef,
        ledgers: &Ledgers,
        recent: &Arc<RecentEvents>,
    ) -> Result<Option<Self>, StateError> {
        let claimed = ledgers.try_claim(channel.id, recent.proofs_each()).await?;
        Ok(claimed.map(|claimed| Self::new(channel, claimed, recent)))
    }

    fn new(channel: &ChannelRef, (claim, proofs): (Claim, Vec<Proof>), recent: &Arc<RecentEvents>) -> Self {
        for (mine, other) in recent.remember(channel.id, &proofs) {
            let channel = &channel.name;
            error!(%channel, offset = %mine, %other, "the same proof was delivered in two channels: one of them was shown an event that is not its own");
        }
        Self { claim, recent: recent.clone(), released: Notify::new(), running: Mutex::default() }
    }

    pub(crate) fn channel(&self) -> ChannelId {
        self.claim.channel()
    }

    /// Makes the channel reachable for operators' commands, and its ledger readable.
    pub(crate) fn show_on(self: &Arc<Self>, handle: &Handle) {
        let ledger = self.claim.shared_ledger();
        handle.board.update(|state| state.ledger = Some(ledger));
        handle.controls.owned_as(self);
    }
}

//! A channel that this process owns.

use std::sync::Arc;

use tokio::sync::{Mutex, Notify};
use tracing::error;

use crate::channel::board::Board;
use crate::channel::verify::recent::RecentEvents;
use crate::event::ChannelId;
use crate::ledger::{Claim, Proof};
use crate::record::ChannelRef;

/// A claimed channel, and what its owner needs beside the claim.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(super) claim: Claim,
    pub(super) recent: Arc<RecentEvents>,
    /// Fires when an operator's command has made events late: they are looked at at once.
    pub(super) released: Notify,
    /// Held while the channel runs, and while its cursors are moved by an operator.
    pub(super) running: Mutex<()>,
}

impl Owned {
    /// Makes the proofs that were delivered in the channel known to all others, and its ledger readable through the board.
    pub(crate) fn new(
        channel: &ChannelRef,
        (claim, proofs): (Claim, Vec<Proof>),
        recent: &Arc<RecentEvents>,
        board: &Board,
    ) -> Self {
        for (mine, other) in recent.remember(channel.id, &proofs) {
            let channel = &channel.name;
            error!(%channel, offset = %mine, %other, "the same proof was delivered in two channels: one of them was shown an event that is not its own");
        }
        let ledger = claim.shared_ledger();
        board.update(|state| state.ledger = Some(ledger));
        Self { claim, recent: recent.clone(), released: Notify::new(), running: Mutex::default() }
    }

    pub(super) fn channel(&self) -> ChannelId {
        self.claim.lease.channel
    }
}

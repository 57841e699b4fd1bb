//! Acknowledges the data that was lost to a damaged state.

use tracing::warn;

use super::api::AcknowledgeLost;
use super::{Operations, Refusal};
use ledger::Lost;
use telemetry::ALWAYS;

impl Operations {
    /// Records that an operator has seen the loss, and returns the description of the loss.
    pub(super) async fn acknowledge_lost(&self, _: &AcknowledgeLost) -> Result<Option<Lost>, Refusal> {
        let lost = self.ledgers.store.acknowledge_lost().await?;
        if let Some(Lost { quarantined, dead_letters, kept, .. }) = &lost {
            warn!(target: ALWAYS, quarantined, dead_letters, kept, "loss acknowledged by an operator");
        }
        Ok(lost)
    }
}

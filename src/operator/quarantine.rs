//! The quarantine: listed, shown, verified again, dropped.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::api::{
    DropQuarantined, ListQuarantine, QuarantineEntry, QuarantinedEvent, Retried, RetryQuarantined, ShowQuarantined,
};
use super::{Operations, Refusal, look};
use crate::channel::{Command, Done, Selection, not_quarantined};
use crate::event::Offset;
use crate::ledger::{Key, Quarantined};
use crate::record::ChannelRef;

impl Operations {
    /// The quarantined events of one channel or of all.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn list_quarantine(&self, request: &ListQuarantine) -> Result<Vec<QuarantineEntry>, Refusal> {
        let mut entries = Vec::new();
        for channel in self.selected(request.channel.as_deref()).await? {
            let ledger = self.ledger(&channel).await?;
            look(&ledger, |ledger| {
                let facts = ledger.quarantined().values().cloned();
                entries.extend(facts.map(|facts| QuarantineEntry::of(&channel, facts)));
            });
        }
        Ok(entries)
    }

    /// One quarantined event with its bytes.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn show_quarantined(&self, request: &ShowQuarantined) -> Result<QuarantinedEvent, Refusal> {
        let (channel, offset) = (self.find(&request.channel)?, request.offset);
        let ledger = self.ledger(&channel).await?;
        let facts = look(&ledger, |ledger| ledger.quarantined().get(&offset).cloned());
        let body = self.ledgers.store.body(channel.id, Key::Body(offset)).await?;
        let (Some(facts), Some(body)) = (facts, body) else {
            return Err(not_quarantined(&channel, offset).into());
        };
        Ok(QuarantinedEvent::of(QuarantineEntry::of(&channel, facts), &body))
    }

    /// Verifies quarantined events again, and has those delivered whose proof holds.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn retry_quarantined(&self, request: &RetryQuarantined) -> Result<Vec<Retried>, Refusal> {
        let channel = self.find(&request.channel)?;
        let which = Selection { offsets: request.offsets.clone(), reason: request.reason.clone() };
        match self.perform(&channel, Command::RetryQuarantined(which)).await? {
            Done::Retried(retried) => Ok(retried),
            _ => Ok(Vec::new()),
        }
    }

    /// Removes events from the quarantine for good.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn drop_quarantined(&self, request: &DropQuarantined) -> Result<Vec<Offset>, Refusal> {
        let channel = self.find(&request.channel)?;
        let command = Command::DropQuarantined(request.offsets.clone());
        self.perform(&channel, command).await.map(Done::into_offsets)
    }
}

impl QuarantineEntry {
    fn of(channel: &ChannelRef, facts: Quarantined) -> Self {
        Self { channel: channel.name.to_string(), channel_id: channel.id, facts }
    }
}

impl QuarantinedEvent {
    fn of(entry: QuarantineEntry, bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).ok().map(str::to_owned);
        Self { entry, text, bytes_base64: STANDARD.encode(bytes) }
    }
}

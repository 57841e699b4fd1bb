//! Lists, shows and drops quarantined events. See `retry` for verifying them again.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tracing::warn;

use crate::api::{DropQuarantined, Entry, ListQuarantine, QuarantinedEvent, ShowQuarantined};
use crate::operations::look;
use crate::{Operations, Refusal};
use ledger::{Change, Commit, Key, Quarantined};
use proof::event::Offset;
use record::ChannelRef;
use telemetry::ALWAYS;

impl Operations {
    pub(crate) async fn list_quarantine(&self, request: &ListQuarantine) -> Result<Vec<Entry<Quarantined>>, Refusal> {
        self.list(request.channel.as_deref(), |_, ledger| ledger.quarantined().values().cloned().collect()).await
    }

    pub(crate) async fn show_quarantined(&self, request: &ShowQuarantined) -> Result<QuarantinedEvent, Refusal> {
        let (channel, offset) = (self.find(&request.channel)?, request.offset);
        let ledger = self.ledger(&channel).await?;
        let is_meant = |facts: &&Quarantined| request.event_id.is_none() || request.event_id == facts.event_id;
        let facts = look(&ledger, |ledger| ledger.quarantined_at(offset).find(is_meant).cloned());
        let facts = facts.ok_or_else(|| not_quarantined(&channel, offset))?;
        let body = self.ledgers.store.body(channel.id, Key::Body(facts.event_key())).await?;
        let body = body.ok_or_else(|| not_quarantined(&channel, offset))?;
        let text = std::str::from_utf8(&body).ok().map(str::to_owned);
        Ok(QuarantinedEvent { entry: Entry::of(&channel, facts), text, bytes_base64: STANDARD.encode(&body) })
    }

    /// Drops all of the events. If one of them is not in the quarantine, drops none.
    pub(crate) async fn drop_quarantined(&self, request: &DropQuarantined) -> Result<Vec<Offset>, Refusal> {
        let channel = self.find(&request.channel)?;
        let owned = self.owned(&channel).await?;
        let chosen: Vec<Quarantined> = {
            let ledger = owned.claim.ledger();
            if request.reason.is_none() && !request.all {
                let missing = request.offsets.iter().find(|offset| ledger.quarantined_at(**offset).next().is_none());
                if let Some(offset) = missing {
                    return Err(not_quarantined(&channel, *offset));
                }
                request.offsets.iter().flat_map(|offset| ledger.quarantined_at(*offset)).cloned().collect()
            } else {
                let is_meant =
                    |facts: &&Quarantined| request.reason.as_ref().is_none_or(|reason| facts.reason == *reason);
                ledger.quarantined().values().filter(is_meant).cloned().collect()
            }
        };
        let drop = |facts: &Quarantined| Change::DropQuarantined(facts.event_key());
        owned.claim.commit(Commit(chosen.iter().map(drop).collect())).await?;
        for Quarantined { offset, reason, .. } in &chosen {
            warn!(target: ALWAYS, channel = %channel.name, offset = offset.get(), reason, "quarantined event dropped by an operator");
        }
        Ok(chosen.iter().map(|facts| facts.offset).collect())
    }
}

fn not_quarantined(channel: &ChannelRef, offset: Offset) -> Refusal {
    let name = &channel.name;
    Refusal::Usage(format!("event {offset} of channel {name} is not in the quarantine: see `quarantine list`"))
}

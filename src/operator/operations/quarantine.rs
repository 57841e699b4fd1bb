//! Lists, shows and drops quarantined events, and verifies them again.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::AT_ONCE;
use crate::api::{
    ChannelEntry, DropQuarantined, Fate, ListQuarantine, QuarantinedEvent, RetriedEvent, RetryQuarantined,
    ShowQuarantined,
};
use crate::{ConfiguredChannel, Operations, Refusal};
use channel::{LeasedChannel, RejectionReason};
use ledger::{Change, Commit, Key, Ledger, Quarantined};
use net::tasks::lock;
use proof::event::{Offset, RawEvent};
use proof::verify::Verdict;
use record::ChannelRef;
use telemetry::ALWAYS;

impl Operations {
    pub(crate) async fn list_quarantine(
        &self,
        request: &ListQuarantine,
    ) -> Result<Vec<ChannelEntry<Quarantined>>, Refusal> {
        self.list(request.channel.as_deref(), |_, ledger| ledger.quarantined().values().cloned().collect()).await
    }

    pub(crate) async fn show_quarantined(&self, request: &ShowQuarantined) -> Result<QuarantinedEvent, Refusal> {
        let (channel, offset) = (self.find(&request.channel)?, request.offset);
        let ledger = self.ledger(&channel).await?;
        let is_meant = |facts: &&Quarantined| request.event_id.is_none() || request.event_id == facts.event_id;
        let facts = lock(&ledger).quarantined_at(offset).find(is_meant).cloned();
        let facts = facts.ok_or_else(|| not_quarantined(&channel, offset))?;
        let body = self.ledgers.store.body(channel.id, Key::Body(facts.event_key())).await?;
        let body = body.ok_or_else(|| not_quarantined(&channel, offset))?;
        let text = std::str::from_utf8(&body).ok().map(str::to_owned);
        Ok(QuarantinedEvent { entry: ChannelEntry::of(&channel, facts), text, bytes_base64: STANDARD.encode(&body) })
    }

    /// Drops the selected events. If one of the named offsets is not in the quarantine, no event is dropped.
    pub(crate) async fn drop_quarantined(&self, request: &DropQuarantined) -> Result<Vec<Offset>, Refusal> {
        let channel = self.find(&request.channel)?;
        let owned = self.owned(&channel).await?;
        let chosen: Vec<Quarantined> = {
            let ledger = owned.leased.ledger();
            let is_meant = |facts: &&Quarantined| request.reason.as_ref().is_none_or(|reason| facts.reason == *reason);
            if request.offsets.is_empty() && (request.reason.is_some() || request.all) {
                ledger.quarantined().values().filter(is_meant).cloned().collect()
            } else {
                let missing = request.offsets.iter().find(|offset| ledger.quarantined_at(**offset).next().is_none());
                if let Some(offset) = missing {
                    return Err(not_quarantined(&channel, *offset));
                }
                let chosen = request.offsets.iter().flat_map(|offset| ledger.quarantined_at(*offset));
                chosen.filter(is_meant).cloned().collect()
            }
        };
        let drop = |facts: &Quarantined| Change::DropQuarantined(facts.event_key());
        owned.leased.commit(Commit(chosen.iter().map(drop).collect())).await?;
        for Quarantined { offset, reason, .. } in &chosen {
            warn!(target: ALWAYS, channel = %channel.name, offset = offset.get(), reason, "quarantined event dropped by an operator");
        }
        Ok(chosen.iter().map(|facts| facts.offset).collect())
    }

    /// Verifies the events with the currently configured signers. An event is released if its proof is valid or can still
    /// arrive.
    pub(crate) async fn retry_quarantined(&self, request: &RetryQuarantined) -> Result<Vec<RetriedEvent>, Refusal> {
        let channel = self.find(&request.channel)?;
        let known = self.configured(&channel)?;
        let owned = self.owned(&channel).await?;
        let (mut retried, chosen) = request.choose(&owned.leased.ledger());
        for chunk in chosen.chunks(AT_ONCE) {
            retried.append(&mut self.retry(known, &owned, chunk).await?);
        }
        Ok(retried)
    }

    async fn retry(
        &self,
        known: &ConfiguredChannel,
        owned: &LeasedChannel,
        chunk: &[Quarantined],
    ) -> Result<Vec<RetriedEvent>, Refusal> {
        let mut with_bodies = Vec::with_capacity(chunk.len());
        for facts in chunk {
            with_bodies.push((facts.clone(), owned.leased.body(Key::Body(facts.event_key())).await?));
        }
        let (operations, verified_as) = (self.clone(), known.clone());
        let verifying = move || {
            let fate = |(facts, json)| operations.fate(&verified_as, facts, json);
            with_bodies.into_iter().map(fate).collect::<Vec<_>>()
        };
        let fates = spawn_blocking(verifying).await.map_err(|panic| Refusal::Failed(panic.to_string()))?;
        let since = jiff::Timestamp::now().as_second();
        let release = |(facts, fate): (&Quarantined, &Fate)| {
            let (key, sinks) = (facts.event_key(), known.sinks.clone());
            fate.leaves().then_some(Change::Release { key, since, sinks })
        };
        owned.leased.commit(Commit(chunk.iter().zip(&fates).filter_map(release).collect())).await?;
        owned.released.notify_one();
        let ledger = owned.leased.ledger();
        let retried = chunk.iter().zip(fates).map(|(facts @ Quarantined { offset, .. }, fate)| {
            let not_passed = fate.leaves() && ledger.quarantined().contains_key(&facts.event_key());
            let fate = if not_passed { Fate::ReadInOrder } else { fate };
            info!(channel = %known.channel.name, offset = offset.get(), fate = <&str>::from(&fate), "quarantined event verified again");
            RetriedEvent { offset: *offset, fate }
        });
        Ok(retried.collect())
    }

    fn fate(&self, known: &ConfiguredChannel, facts: Quarantined, json: Option<Bytes>) -> Fate {
        let ConfiguredChannel { channel, verifier, expect, .. } = known;
        let Quarantined { offset, event_id: id, reason, detail, .. } = facts;
        let kept = |reason: &str, detail: String| Fate::Kept { reason: reason.to_owned(), detail };
        let Some(json) = json else { return Fate::NotThere };
        match verifier.verify(RawEvent { offset, id, json }) {
            Verdict::Verified(verified) => {
                let (raw, proof, signed) = (&verified.event().raw, verified.proof(), channel::decoded(&verified));
                let signed = signed.as_ref().map(|signed| signed.get().as_bytes());
                if let Err(not) = expect.check(channel.id, proof, signed) {
                    return kept(RejectionReason::from(&not).name(), not.to_string());
                }
                let expected = |other| self.known(other).map(|other| other.expect.clone());
                match self.recent.belongs(channel.id, raw, proof, signed, expect, expected) {
                    Ok(_) => Fate::Delivering,
                    Err(alarm) => kept(RejectionReason::from(alarm).name(), alarm.to_string()),
                }
            }
            Verdict::Unsigned(_) => Fate::Delivering,
            Verdict::Pending(_) if id.is_some() => Fate::Waiting,
            Verdict::Pending(_) => kept(&reason, detail),
            Verdict::Rejected(_, reason) => kept(reason.name(), reason.to_string()),
        }
    }
}

fn not_quarantined(channel: &ChannelRef, offset: Offset) -> Refusal {
    let name = &channel.name;
    Refusal::Usage(format!("event {offset} of channel {name} is not in the quarantine: see `quarantine list`"))
}

impl RetryQuarantined {
    /// Returns the outcomes of the named events that are not verified again, and then the events to verify again.
    fn choose(&self, ledger: &Ledger) -> (Vec<RetriedEvent>, Vec<Quarantined>) {
        let mut not_verified = Vec::new();
        for offset in &self.offsets {
            let mut facts = ledger.quarantined_at(*offset);
            let fate = match facts.next() {
                None => Fate::NotThere,
                Some(first) if self.takes(first) || facts.any(|facts| self.takes(facts)) => continue,
                Some(Quarantined { reason, detail, .. }) => Fate::Kept {
                    reason: reason.clone(),
                    detail: format!("{detail}: skipped, because `--reason {reason}` was not given"),
                },
            };
            not_verified.push(RetriedEvent { offset: *offset, fate });
        }
        (not_verified, ledger.quarantined().values().filter(|facts| self.takes(facts)).cloned().collect())
    }

    fn takes(&self, facts: &Quarantined) -> bool {
        let named = self.offsets.is_empty() || self.offsets.contains(&facts.offset);
        let may_retry = || RejectionReason::from_name(&facts.reason).is_none_or(RejectionReason::may_retry_unnamed);
        let by_reason = self.reason.as_ref().map(|reason| *reason == facts.reason);
        named && by_reason.unwrap_or_else(may_retry)
    }
}

impl Fate {
    /// Whether the event leaves the quarantine.
    fn leaves(&self) -> bool {
        matches!(self, Self::Delivering | Self::Waiting)
    }
}

//! Verifies quarantined events again.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use tracing::info;

use super::AT_ONCE;
use crate::api::{Fate, Retried, RetryQuarantined};
use crate::{ConfiguredChannel, Operations, Refusal};
use channel::{Expect, Owned, RecentEvents, RejectionReason};
use ledger::{Change, Commit, Key, Ledger, Quarantined};
use proof::event::{ChannelId, RawEvent};
use proof::verify::Verdict;

/// The expected contents of each configured channel.
type Others = HashMap<ChannelId, Arc<Expect>>;

impl Operations {
    /// Verifies with the signers that are configured now. An event is released if its proof is valid or may still arrive.
    pub(crate) async fn retry_quarantined(&self, request: &RetryQuarantined) -> Result<Vec<Retried>, Refusal> {
        let channel = self.find(&request.channel)?;
        let known = self.configured(&channel)?;
        let owned = self.owned(&channel).await?;
        let others = self.channels.iter().map(|other| (other.channel.id, other.expect.clone())).collect();
        let (mut retried, chosen) = request.choose(&owned.claim.ledger());
        for chunk in chosen.chunks(AT_ONCE) {
            retried.append(&mut retry(known, &owned, &self.recent, &others, chunk).await?);
        }
        Ok(retried)
    }
}

impl RetryQuarantined {
    /// Returns the outcome of the named events that are not verified again, and the events that are.
    fn choose(&self, ledger: &Ledger) -> (Vec<Retried>, Vec<Quarantined>) {
        let mut not_verified = Vec::new();
        for offset in &self.offsets {
            let mut facts = ledger.quarantined_at(*offset);
            let fate = match facts.next() {
                None => Fate::NotThere,
                Some(first) if self.takes(first) || facts.any(|facts| self.takes(facts)) => continue,
                Some(Quarantined { reason, detail, .. }) => Fate::Kept {
                    reason: reason.clone(),
                    detail: format!("{detail}: skipped, because its reason was not selected (--reason {reason})"),
                },
            };
            not_verified.push(Retried { offset: *offset, fate });
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

async fn retry(
    known: &ConfiguredChannel,
    owned: &Owned,
    recent: &Arc<RecentEvents>,
    others: &Others,
    chunk: &[Quarantined],
) -> Result<Vec<Retried>, Refusal> {
    let mut with_bodies = Vec::with_capacity(chunk.len());
    for facts in chunk {
        with_bodies.push((facts.clone(), owned.claim.body(Key::Body(facts.event_key())).await?));
    }
    let (known_here, recent, others) = (known.clone(), recent.clone(), others.clone());
    let verifying = move || {
        let fate = |(facts, json)| fate(&known_here, &recent, &others, facts, json);
        with_bodies.into_iter().map(fate).collect::<Vec<_>>()
    };
    let fates = tokio::task::spawn_blocking(verifying).await.map_err(|panic| Refusal::Failed(panic.to_string()))?;
    let since = jiff::Timestamp::now().as_second();
    let release = |(facts, fate): (&Quarantined, &Fate)| {
        let (key, sinks) = (facts.event_key(), known.sinks.clone());
        fate.leaves().then_some(Change::Release { key, since, sinks })
    };
    owned.claim.commit(Commit(chunk.iter().zip(&fates).filter_map(release).collect())).await?;
    owned.released.notify_one();
    let ledger = owned.claim.ledger();
    let retried = chunk.iter().zip(fates).map(|(facts @ Quarantined { offset, .. }, fate)| {
        let not_passed = fate.leaves() && ledger.quarantined().contains_key(&facts.event_key());
        let fate = if not_passed { Fate::ReadInOrder } else { fate };
        info!(channel = %known.channel.name, offset = offset.get(), fate = <&str>::from(&fate), "quarantined event verified again");
        Retried { offset: *offset, fate }
    });
    Ok(retried.collect())
}

fn fate(
    known: &ConfiguredChannel,
    recent: &RecentEvents,
    others: &Others,
    facts: Quarantined,
    json: Option<Bytes>,
) -> Fate {
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
            match recent.belongs(channel.id, raw, proof, signed, expect, |other| others.get(&other).cloned()) {
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

impl Fate {
    /// Whether the event leaves the quarantine.
    fn leaves(&self) -> bool {
        matches!(self, Self::Delivering | Self::Waiting)
    }
}

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
use ledger::{Change, Commit, Key, Ledger, Pending, Quarantined, SinkName};
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
        let release = || {
            let ledger = owned.leased.ledger();
            let leaving = chunk.iter().zip(&fates).filter(|(_, fate)| fate.leaves());
            Commit(leaving.flat_map(|(facts, _)| released(facts, since, &known.sinks, &ledger)).collect())
        };
        owned.leased.commit_with(release).await?;
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

/// Returns the changes that release an event. If a lane has passed the event, the event becomes pending for the other lanes too: a
/// lane may still have it in a batch that was read, and rejected it, before the release. A lane that reads it in order settles it.
fn released(facts: &Quarantined, since: i64, sinks: &[SinkName], ledger: &Ledger) -> Vec<Change> {
    let (key, offset) = (facts.event_key(), facts.offset);
    let has_cursor = sinks.iter().filter(|sink| ledger.cursor(sink).is_some());
    let has_passed = |sink: &&SinkName| ledger.cursor(sink).is_some_and(|cursor| cursor.through >= Some(offset));
    let (passed, behind): (Vec<_>, Vec<_>) = has_cursor.partition(has_passed);
    let release = Change::Release { key, since, sinks: sinks.to_vec() };
    if passed.is_empty() {
        return vec![release];
    }
    let (event_id, received, appeared, json) = (facts.event_id, facts.received, false, Bytes::new());
    let event = Pending { offset, event_id, first_seen: since, received, appeared, json };
    let owe = |sink: &SinkName| Change::Owe { sink: sink.clone(), event: event.clone() };
    [release].into_iter().chain(behind.into_iter().map(owe)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Cursor, QuarantinedEvent};

    /// Otherwise a lane whose sink was down could reject the event again, with a batch that was read before the release.
    #[test]
    fn a_released_event_becomes_pending_for_every_lane_as_soon_as_one_lane_has_passed_it() {
        let offset = Offset::new(11).unwrap();
        let (reason, detail) = ("too-few-signatures".to_owned(), String::new());
        let (received, original, digest) = (None, None, None);
        let facts = Quarantined { offset, event_id: None, reason, detail, at: 0, received, original, digest, bytes: 2 };
        let key = facts.event_key();
        let sinks = ["behind", "passed", "without-cursor"].map(SinkName::from);
        for (passed, expected) in [(12, Some(vec!["behind", "passed"])), (10, None)] {
            let mut ledger = Ledger::default();
            let set = |sink: &str, to| Change::SetCursor { sink: sink.into(), to: Cursor { through: Offset::new(to) } };
            let quarantined = QuarantinedEvent { facts: facts.clone(), json: Bytes::from_static(b"{}") };
            let before = vec![set("behind", 10), set("passed", passed), Change::Quarantine(quarantined)];
            ledger.apply(Commit(before)).unwrap();
            ledger.apply(Commit(released(&facts, 0, &sinks, &ledger))).unwrap();
            let pending = ledger.late().get(&key).map(|late| late.owed.iter().map(|sink| &**sink).collect::<Vec<_>>());
            assert_eq!(pending, expected);
            assert_eq!(ledger.quarantined().is_empty(), expected.is_some());
        }
    }
}

//! An operator's commands on quarantined events: to verify them again, and to drop them.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::channel::owned::Owned;
use crate::channel::verify::recent::Alarm;
use crate::event::{EventId, Offset, RawEvent};
use crate::ledger::{Change, Commit, Key, Place, Quarantined, Released};
use crate::record::ChannelRef;
use crate::telemetry::ALWAYS;
use crate::verify::{Proof, Verdict, Verifier};

use super::{AT_ONCE, CommandError, Configured, Done};

/// The reason of duplicates in states of format 1.
const EARLIER_DUPLICATE: &str = "replayed";

/// A selection of a channel's quarantined events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// These, or all where none is named.
    pub offsets: Vec<Offset>,
    /// Of those, only events with this reason. Duplicates and contradictions are left alone unless their reason is named.
    pub reason: Option<String>,
}

/// An event that was verified again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retried {
    /// Its place.
    pub offset: Offset,
    /// What became of it.
    #[serde(flatten)]
    pub fate: Fate,
}

/// What became of an event that was verified again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum Fate {
    /// Its proof holds: it is on its way to the sinks that passed it.
    Delivering,
    /// It has no proof yet: the proof is waited for once more.
    Waiting,
    /// Its proof holds, but no cursor has passed it: it is read again from the service in order.
    ReadInOrder,
    /// It is still rejected, and stays in the quarantine.
    Kept {
        /// The reason's constant name.
        reason: String,
        /// The reason in words.
        detail: String,
    },
    /// It is not in the quarantine.
    NotThere,
}

impl Owned {
    /// Verifies with the signers that are configured now. An event whose proof holds, or may still come, is released.
    pub(super) async fn retry(&self, channel: &Configured, which: &Selection) -> Result<Done, CommandError> {
        let verifier = channel.verifier.as_ref().ok_or_else(|| {
            let name = &channel.channel.name;
            CommandError::Usage(format!("the channel {name} is not configured: nothing says how to verify it"))
        })?;
        let (mut retried, selected) = {
            let ledger = self.claim.ledger();
            let missing = which.offsets.iter().filter(|offset| !ledger.quarantined().contains_key(offset));
            let missing = missing.map(|offset| Retried { offset: *offset, fate: Fate::NotThere });
            let left_alone = which.offsets.iter().filter_map(|offset| ledger.quarantined().get(offset));
            let left_alone = left_alone.filter(|facts| !which.takes(facts)).map(Retried::left_alone);
            let retried: Vec<_> = missing.chain(left_alone).collect();
            let selected: Vec<_> = ledger.quarantined().values().filter(|facts| which.takes(facts)).cloned().collect();
            (retried, selected)
        };
        for chunk in selected.chunks(AT_ONCE) {
            retried.append(&mut self.retry_chunk(channel, verifier, chunk).await?);
        }
        Ok(Done::Retried(retried))
    }

    async fn retry_chunk(
        &self,
        channel: &Configured,
        verifier: &Arc<Verifier>,
        chunk: &[Quarantined],
    ) -> Result<Vec<Retried>, CommandError> {
        let mut with_bodies = Vec::with_capacity(chunk.len());
        for facts in chunk {
            with_bodies.push((facts.clone(), self.claim.body(Key::Body(facts.offset)).await?));
        }
        let (verifier, recent, id) = (verifier.clone(), self.recent.clone(), self.channel());
        let verifying = move || {
            let duplicate = |event: &RawEvent, proof: &_| recent.duplicate_of(id, event, proof);
            let verify = |(facts, json)| verify(&verifier, duplicate, facts, json);
            with_bodies.into_iter().map(verify).collect::<Vec<_>>()
        };
        let mut retried =
            tokio::task::spawn_blocking(verifying).await.map_err(|panic| CommandError::Failed(panic.to_string()))?;
        let since = jiff::Timestamp::now().as_second();
        let release = |(retried, event_id): &(Retried, _)| {
            matches!(retried.fate, Fate::Delivering | Fate::Waiting).then(|| {
                let sinks = channel.sinks.clone();
                Change::Release(Released { offset: retried.offset, event_id: *event_id, since, sinks })
            })
        };
        self.claim.commit(Commit(retried.iter().filter_map(release).collect())).await?;
        self.released.notify_one();
        let ledger = self.claim.ledger();
        for (Retried { offset, fate }, _) in &mut retried {
            if matches!(fate, Fate::Delivering | Fate::Waiting) && ledger.quarantined().contains_key(offset) {
                *fate = Fate::ReadInOrder;
            }
            info!(channel = %channel.channel.name, %offset, fate = fate.name(), "quarantined event verified again");
        }
        Ok(retried.into_iter().map(|(retried, _)| retried).collect())
    }

    pub(super) async fn drop_quarantined(
        &self,
        channel: &ChannelRef,
        offsets: Vec<Offset>,
    ) -> Result<Done, CommandError> {
        let reasons: Vec<_> = {
            let ledger = self.claim.ledger();
            let reason = |offset: &Offset| {
                let facts = ledger.quarantined().get(offset);
                facts.map(|facts| facts.reason.clone()).ok_or_else(|| not_quarantined(channel, *offset))
            };
            offsets.iter().map(reason).collect::<Result<_, _>>()?
        };
        self.claim.commit(Commit(offsets.iter().map(|offset| Change::DropQuarantined(*offset)).collect())).await?;
        for (offset, reason) in offsets.iter().zip(reasons) {
            warn!(target: ALWAYS, channel = %channel.name, %offset, reason, "quarantined event dropped by an operator");
        }
        Ok(Done::Dropped(offsets))
    }
}

fn verify(
    verifier: &Verifier,
    duplicate: impl Fn(&RawEvent, &Proof) -> Option<Place>,
    facts: Quarantined,
    json: Option<Bytes>,
) -> (Retried, Option<EventId>) {
    let Quarantined { offset, event_id, .. } = facts;
    let kept = |reason: &str, detail: String| Fate::Kept { reason: reason.to_owned(), detail };
    let Some(json) = json else { return (Retried { offset, fate: Fate::NotThere }, None) };
    let fate = match verifier.judge(RawEvent { offset, id: event_id, json }) {
        Verdict::Verified(verified) => match duplicate(&verified.event().raw, verified.proof()) {
            Some(original) => {
                let alarm = Alarm::DuplicateProof(original);
                kept(alarm.name(), alarm.to_string())
            }
            None => Fate::Delivering,
        },
        Verdict::Unsigned(_) => Fate::Delivering,
        Verdict::Pending(_) if event_id.is_some() => Fate::Waiting,
        Verdict::Pending(_) => kept(&facts.reason, facts.detail),
        Verdict::Rejected(_, reason) => kept(reason.name(), reason.to_string()),
    };
    (Retried { offset, fate }, event_id)
}

/// The event is asked for, and the quarantine has none at its offset.
pub(crate) fn not_quarantined(channel: &ChannelRef, offset: Offset) -> CommandError {
    CommandError::Usage(format!(
        "there is no event {offset} of channel {} in the quarantine: see `quarantine list`",
        channel.name
    ))
}

impl Fate {
    fn name(&self) -> &'static str {
        match self {
            Self::Delivering => "delivering",
            Self::Waiting => "waiting",
            Self::ReadInOrder => "read in order",
            Self::Kept { .. } => "kept",
            Self::NotThere => "not there",
        }
    }
}

impl Retried {
    fn left_alone(facts: &Quarantined) -> Self {
        let detail =
            format!("{}: left alone, because its reason was not named (--reason {})", facts.detail, facts.reason);
        Self { offset: facts.offset, fate: Fate::Kept { reason: facts.reason.clone(), detail } }
    }
}

impl Selection {
    fn takes(&self, facts: &Quarantined) -> bool {
        let named = self.offsets.is_empty() || self.offsets.contains(&facts.offset);
        let left_alone = [Alarm::DUPLICATE_PROOF, Alarm::CONTRADICTION, EARLIER_DUPLICATE];
        named
            && match &self.reason {
                Some(reason) => *reason == facts.reason,
                None => !left_alone.contains(&&*facts.reason),
            }
    }
}

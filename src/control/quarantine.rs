//! The quarantine: looked into, judged once more, thrown away.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tracing::{info, warn};

use super::{AT_ONCE, Answer, Fate, Kept, Known, Operations, Refusal, Retried, Selection};
use crate::event::{ChannelId, Offset, RawEvent};
use crate::record::ChannelRef;
use crate::state::{Acquitted, Commit, Quarantined, State, StateError};
use crate::telemetry::ALWAYS;
use crate::verify::{Verdict, Verifier};

/// An event that is judged again, and what is to be done with it.
struct Judged {
    retried: Retried,
    acquitted: Option<Acquitted>,
}

impl Operations {
    pub(super) fn list(&self, channel: Option<&str>) -> Result<Answer, Refusal> {
        let channels = match channel {
            Some(channel) => vec![self.find(channel)?],
            None => self.state.channels_in_quarantine()?.into_iter().map(|id| self.channel(id)).collect(),
        };
        let mut kept = Vec::new();
        for channel in channels {
            let facts = self.state.quarantined(channel.id)?.into_values();
            kept.extend(facts.map(|facts| Kept::of(&channel, facts)));
        }
        Ok(Answer::Quarantine(kept))
    }

    pub(super) fn show(&self, channel: &str, offset: Offset) -> Result<Answer, Refusal> {
        let channel = self.find(channel)?;
        let facts = self.state.quarantined_at(channel.id, offset)?.ok_or_else(|| not_there(&channel, offset))?;
        let json = self.state.json(channel.id, offset)?.ok_or_else(|| not_there(&channel, offset))?;
        Ok(Answer::Evidence { kept: Kept::of(&channel, facts), bytes: STANDARD.encode(json) })
    }

    /// Judges with the signers of now. What holds, or may still get its proof, leaves the quarantine.
    pub(super) async fn retry(&self, channel: &str, which: &Selection) -> Result<Answer, Refusal> {
        let channel = self.find(channel)?;
        let known = self.verified(&channel)?;
        let mut quarantined = self.state.quarantined(channel.id)?;
        let mut retried = take_what_is_not_there(&quarantined, which);
        quarantined.retain(|_, facts| which.takes(facts));
        let quarantined: Vec<_> = quarantined.into_values().collect();
        for some in quarantined.chunks(AT_ONCE) {
            retried.extend(self.retry_some(known, some.to_vec()).await?);
        }
        Ok(Answer::Retried(retried))
    }

    async fn retry_some(&self, known: &Known, some: Vec<Quarantined>) -> Result<Vec<Retried>, Refusal> {
        let (state, verifier, sinks) = (self.state.clone(), known.verifier.clone(), known.sinks.clone());
        let (channel, now) = (known.channel.clone(), jiff::Timestamp::now().as_second());
        let judging = move || {
            let judge = |facts| judge(&state, &verifier, &sinks, channel.id, facts, now);
            some.into_iter().map(judge).collect::<Result<Vec<_>, _>>()
        };
        let judged =
            tokio::task::spawn_blocking(judging).await.map_err(|panic| Refusal::Failed(panic.to_string()))??;
        let channel = &known.channel;
        let acquitted = judged.iter().filter_map(|judged| Some((channel.id, judged.acquitted.clone()?))).collect();
        self.state.commit(Commit { acquitted, ..Commit::default() }).await?;
        self.handles.of(channel.id).acquitted();
        let left = self.state.quarantined(channel.id)?;
        let told = |Judged { mut retried, acquitted }: Judged| {
            if acquitted.is_some() && left.contains_key(&retried.offset) {
                retried.fate = Fate::InItsTurn;
            }
            info!(channel = %channel.name, offset = %retried.offset, fate = ?retried.fate, "quarantined event verified again");
            retried
        };
        Ok(judged.into_iter().map(told).collect())
    }

    pub(super) async fn discard(&self, channel: &str, offsets: Vec<Offset>) -> Result<Answer, Refusal> {
        let channel = self.find(channel)?;
        let quarantined = self.state.quarantined(channel.id)?;
        if let Some(missing) = offsets.iter().find(|offset| !quarantined.contains_key(offset)) {
            return Err(not_there(&channel, *missing));
        }
        let dropped = offsets.iter().map(|offset| (channel.id, *offset)).collect();
        self.state.commit(Commit { dropped, ..Commit::default() }).await?;
        for offset in &offsets {
            let reason = &*quarantined[offset].reason;
            warn!(target: ALWAYS, channel = %channel.name, %offset, reason, "evidence dropped by an operator");
        }
        Ok(Answer::Dropped(offsets))
    }
}

impl Selection {
    fn takes(&self, facts: &Quarantined) -> bool {
        let named = self.offsets.is_empty() || self.offsets.contains(&facts.offset);
        named && self.reason.as_ref().is_none_or(|reason| *reason == facts.reason)
    }
}

impl Kept {
    fn of(channel: &ChannelRef, facts: Quarantined) -> Self {
        Self { channel: channel.name.to_string(), channel_id: channel.id, facts }
    }
}

fn take_what_is_not_there(quarantined: &BTreeMap<Offset, Quarantined>, which: &Selection) -> Vec<Retried> {
    let missing = which.offsets.iter().filter(|offset| !quarantined.contains_key(offset));
    missing.map(|offset| Retried { offset: *offset, fate: Fate::NotThere }).collect()
}

fn judge(
    state: &State,
    verifier: &Verifier,
    sinks: &[Arc<str>],
    channel: ChannelId,
    facts: Quarantined,
    now: i64,
) -> Result<Judged, StateError> {
    let Quarantined { offset, event_id, .. } = facts;
    let Some(json) = state.json(channel, offset)? else {
        return Ok(Judged { retried: Retried { offset, fate: Fate::NotThere }, acquitted: None });
    };
    let kept = |reason: &str, detail: String| Fate::Kept { reason: reason.to_owned(), detail };
    let fate = match verifier.judge(RawEvent { offset, id: event_id, json }) {
        Verdict::Verified(_) | Verdict::Unsigned(_) => Fate::Delivering,
        Verdict::Pending(_) if event_id.is_some() => Fate::Waiting,
        Verdict::Pending(_) => kept(&facts.reason, facts.detail),
        Verdict::Rejected(_, reason) => kept(reason.name(), reason.to_string()),
    };
    let goes = matches!(fate, Fate::Delivering | Fate::Waiting);
    let acquitted = goes.then(|| Acquitted { offset, event_id, since: now, sinks: sinks.to_vec() });
    Ok(Judged { retried: Retried { offset, fate }, acquitted })
}

fn not_there(channel: &ChannelRef, offset: Offset) -> Refusal {
    Refusal::Usage(format!(
        "there is no event {offset} of channel {} in the quarantine: see `quarantine list`",
        channel.name
    ))
}

//! Verdicts and what follows from them, with the second look that condemning an event takes.
//!
//! # Invariants
//!
//! * **Nobody is condemned on one reading.** A rejected event is read once more by its id, because a proxy may have
//!   damaged it; what the service says then holds. Where the service does not answer, judging waits.
//! * **Off the async threads.** Signatures are checked, and records made, on blocking threads.
//!
//! # Cancellation
//!
//! Nothing is changed here: stopped at any point, the same events are read and judged again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::api::ApiError;
use crate::config::UnsignedPolicy;
use crate::event::{EventId, Offset, RawEvent};
use crate::record::{ChannelRef, Record};
use crate::retry::{Retry, RetryPolicy};
use crate::state::{Evidence, Late, Pending, Quarantined};
use crate::telemetry::Chain;
use crate::verify::{Reason, Verdict, Verifier};

use super::batch::Outcome;
use super::reader::ReadError;
use super::source::Source;
use super::trouble::Trouble;
use super::{ChannelError, Settings, pause};

/// Rejected events of one page that are read again at the same time.
const SECOND_LOOKS: usize = 8;

/// Waits for a readable answer about one event, before the lack of one holds up its channel no longer.
const STUBBORN_ANSWERS: u32 = 3;

/// Rejected events that are remembered as logged.
const MAX_SAID: usize = 10_000;

/// Waits between two questions for a proof that has not come.
pub(super) const PROOF_RETRY: RetryPolicy =
    RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(60) };

/// An event whose proof is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Awaited {
    pub(super) offset: Offset,
    /// None has only what left the quarantine.
    pub(super) event_id: Option<EventId>,
    /// Unix seconds.
    pub(super) first_seen: i64,
}

impl From<&Pending> for Awaited {
    fn from(pending: &Pending) -> Self {
        Self { offset: pending.offset, event_id: Some(pending.event_id), first_seen: pending.first_seen }
    }
}

impl From<(Offset, Late)> for Awaited {
    fn from((offset, late): (Offset, Late)) -> Self {
        Self { offset, event_id: late.event_id, first_seen: late.first_seen }
    }
}

/// What came of asking for a proof.
#[derive(Debug)]
pub(super) enum Answer {
    /// `stop` fired first.
    Stopped,
    /// Still without; the record as it was read, if it was.
    NotYet(Option<Bytes>),
    /// It came, or the event turned out to be something else.
    Settled(Outcome),
}

/// Gives a channel's events their outcome.
#[derive(Debug)]
pub(super) struct Judge {
    source: Arc<dyn Source>,
    channel: ChannelRef,
    verifier: Arc<Verifier>,
    unsigned: UnsignedPolicy,
    proof_timeout: Duration,
    retry: RetryPolicy,
    /// The offsets of rejected events that have been logged: some are read, and rejected, again and again.
    said: Mutex<BTreeSet<Offset>>,
}

impl Judge {
    pub(super) fn new(settings: &Settings, source: Arc<dyn Source>) -> Self {
        Self {
            source,
            channel: settings.channel.clone(),
            verifier: settings.verifier.clone(),
            unsigned: settings.unsigned,
            proof_timeout: settings.proof_timeout,
            retry: settings.retry,
            said: Mutex::default(),
        }
    }

    /// Where the events come from.
    pub(super) fn source(&self) -> Arc<dyn Source> {
        self.source.clone()
    }

    /// Judges a range, in its order; `None` where `stop` fired first.
    pub(super) async fn page(
        &self,
        events: Vec<RawEvent>,
        stop: &CancellationToken,
    ) -> Result<Option<Vec<Outcome>>, ChannelError> {
        let judged = self.verdicts(events).await?;
        let outcomes: Vec<_> =
            stream::iter(judged).map(|first| self.outcome(first, stop)).buffered(SECOND_LOOKS).collect().await;
        outcomes.into_iter().collect()
    }

    /// Waits for the proof of an event that everything else waits for; `None` where `stop` fired first.
    pub(super) async fn hold(
        &self,
        pending: Pending,
        stop: &CancellationToken,
    ) -> Result<Option<Outcome>, ChannelError> {
        warn!(channel = %self.channel.name, offset = %pending.offset, "proof pending: later events wait for it");
        let mut retry = Retry::new(PROOF_RETRY);
        let awaited = Awaited::from(&pending);
        while !self.timed_out(&awaited) {
            if !pause(retry.next_wait(None), stop).await {
                return Ok(None);
            }
            match self.ask_for_proof(&awaited, stop).await? {
                Answer::Stopped => return Ok(None),
                Answer::NotYet(_) => {}
                Answer::Settled(outcome) => return Ok(Some(outcome)),
            }
        }
        Ok(Some(Outcome::Condemned(self.proof_timeout(&awaited, pending.json))))
    }

    /// Reads an event without its proof once more. One that is nowhere to be found, or that the service fails to give,
    /// may still come.
    pub(super) async fn ask_for_proof(
        &self,
        awaited: &Awaited,
        stop: &CancellationToken,
    ) -> Result<Answer, ChannelError> {
        let Some(event_id) = awaited.event_id else { return Ok(Answer::NotYet(None)) };
        let answer = tokio::select! {
            answer = self.source.event(event_id) => answer,
            () = stop.cancelled() => return Ok(Answer::Stopped),
        };
        let again = match answer {
            Ok(again) if again.offset == awaited.offset => again,
            Ok(_) => return Ok(Answer::NotYet(None)),
            Err(error) => {
                debug!(channel = %self.channel.name, offset = %awaited.offset, error = %Chain(&error), "no answer about a late proof");
                return Ok(Answer::NotYet(None));
            }
        };
        let json = again.json.clone();
        Ok(match self.outcome(self.verdict(again).await?, stop).await? {
            None => Answer::Stopped,
            Some(Outcome::Pending(_)) => Answer::NotYet(Some(json)),
            Some(settled) => Answer::Settled(settled),
        })
    }

    /// What becomes of an event by the bytes that are kept of it; `None` where the service has to be asked.
    pub(super) async fn by_kept_bytes(&self, awaited: &Awaited, json: Bytes) -> Result<Option<Outcome>, ChannelError> {
        let verdict = self.verdict(RawEvent { offset: awaited.offset, id: awaited.event_id, json }).await?;
        Ok(match verdict {
            Verdict::Pending(_) => None,
            Verdict::Rejected(..) if awaited.event_id.is_some() => None,
            settled => Some(self.settle(settled)),
        })
    }

    /// Whether an event has waited for its proof as long as the configuration allows.
    pub(super) fn timed_out(&self, awaited: &Awaited) -> bool {
        let waited = u64::try_from(now() - awaited.first_seen).unwrap_or(0);
        waited >= self.proof_timeout.as_secs()
    }

    /// The evidence of an event whose proof has not come.
    pub(super) fn proof_timeout(&self, awaited: &Awaited, json: Bytes) -> Evidence {
        let raw = RawEvent { offset: awaited.offset, id: awaited.event_id, json };
        self.condemn(raw, "proof-timeout", "its proof has not come in time".to_owned())
    }

    async fn verdicts(&self, events: Vec<RawEvent>) -> Result<Vec<Verdict>, ChannelError> {
        let verifier = self.verifier.clone();
        let judge = move || events.into_iter().map(|raw| verifier.judge(raw)).collect();
        tokio::task::spawn_blocking(judge).await.map_err(ChannelError::Panicked)
    }

    async fn verdict(&self, event: RawEvent) -> Result<Verdict, ChannelError> {
        let verifier = self.verifier.clone();
        tokio::task::spawn_blocking(move || verifier.judge(event)).await.map_err(ChannelError::Panicked)
    }

    async fn outcome(&self, verdict: Verdict, stop: &CancellationToken) -> Result<Option<Outcome>, ChannelError> {
        let Verdict::Rejected(raw, reason) = verdict else { return Ok(Some(self.settle(verdict))) };
        let again = match raw.id {
            None => None,
            Some(id) => match self.read_again(raw.offset, id, stop).await {
                None => return Ok(None),
                Some(again) => again,
            },
        };
        Ok(Some(match again {
            Some(again) => self.settle(self.verdict(again).await?),
            None => Outcome::Unplaced(self.reject(raw, &reason)),
        }))
    }

    /// Reads an event by its id until the service answers. `None` where `stop` fired first, `Some(None)` where there is
    /// no such event at that offset.
    async fn read_again(&self, offset: Offset, id: EventId, stop: &CancellationToken) -> Option<Option<RawEvent>> {
        let (mut retry, mut trouble) = (Retry::new(self.retry), Trouble::new(&self.channel));
        loop {
            let answer = tokio::select! {
                answer = self.source.event(id) => answer,
                () = stop.cancelled() => return None,
            };
            let error = match answer {
                Ok(again) => return Some(Some(again).filter(|again| again.offset == offset)),
                Err(ApiError::NotFound(_)) => return Some(None),
                Err(error) if retry.attempt() >= STUBBORN_ANSWERS && self.is_about_this_event(&error).await => {
                    return Some(None);
                }
                Err(error) => error,
            };
            let wait = retry.next_wait(error.retry_after());
            trouble.report("reading an event again", &ReadError::Api(error), wait);
            if !pause(wait, stop).await {
                return None;
            }
        }
    }

    /// Whether the service answers, but not with this event: others may well be read.
    async fn is_about_this_event(&self, error: &ApiError) -> bool {
        match error {
            ApiError::Malformed(_) => true,
            ApiError::Refused(answer) => !matches!(answer.status, 401 | 403),
            ApiError::Transient { .. } => self.source.poll(None, 1).await.is_ok(),
            ApiError::ChannelGone(_) | ApiError::NotFound(_) | ApiError::RateLimited { .. } => false,
        }
    }

    fn settle(&self, verdict: Verdict) -> Outcome {
        match verdict {
            Verdict::Verified(verified) => Outcome::Deliver(Record::verified(&self.channel, &verified)),
            Verdict::Unsigned(unsigned) if self.unsigned == UnsignedPolicy::Drop => {
                Outcome::Dropped(unsigned.event().offset())
            }
            Verdict::Unsigned(unsigned) => Outcome::Deliver(Record::unsigned(&self.channel, &unsigned)),
            Verdict::Pending(raw) => self.set_aside(raw),
            Verdict::Rejected(raw, reason) => Outcome::Condemned(self.reject(raw, &reason)),
        }
    }

    /// Without an id there is nothing to ask for again by.
    fn set_aside(&self, raw: RawEvent) -> Outcome {
        match raw.id {
            Some(event_id) => {
                // A copy: a slice would keep its whole page in memory for as long as it waits.
                let json = Bytes::copy_from_slice(&raw.json);
                Outcome::Pending(Pending { offset: raw.offset, event_id, first_seen: now(), json })
            }
            None => Outcome::Condemned(self.condemn(
                raw,
                "pending-without-id",
                "a proof is due, and there is no event_id to ask for it by".to_owned(),
            )),
        }
    }

    /// Whether nothing has been said of that offset yet, as far as is remembered.
    fn is_news(&self, offset: Offset) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= MAX_SAID {
            said.clear();
        }
        said.insert(offset)
    }

    fn reject(&self, raw: RawEvent, reason: &Reason) -> Evidence {
        self.condemn(raw, reason.name(), reason.to_string())
    }

    fn condemn(&self, raw: RawEvent, reason: &'static str, detail: String) -> Evidence {
        let RawEvent { offset, id, json } = raw;
        let event_id = id.map(tracing::field::display);
        if self.is_news(offset) {
            error!(channel = %self.channel.name, %offset, event_id, reason, detail, "event rejected: quarantined, not delivered");
        }
        Evidence { facts: Quarantined { offset, event_id: id, reason: reason.to_owned(), detail, at: now() }, json }
    }
}

/// Unix seconds.
fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

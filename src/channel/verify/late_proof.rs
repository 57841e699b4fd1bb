//! Asking for proofs that are late, and the time after which an event is rejected for want of one.

use std::time::Duration;

use bytes::Bytes;
use tracing::field::display;
use tracing::{debug, warn};

use crate::channel::deliver::batch::Outcome;
use crate::channel::status::Activity;
use crate::channel::verify::assembler::Checked;
use crate::channel::verify::counters::Rejection;
use crate::channel::verify::{StageContext, VerifyStage};
use crate::channel::{ChannelError, pause};
use crate::event::{EventId, Offset, RawEvent};
use crate::ledger::{Late, Ledger, Pending, QuarantinedEvent};
use crate::retry::RetryPolicy;
use crate::telemetry::Chain;
use crate::telemetry::trace::TraceId;

/// Waits between two requests for a proof that has not come.
pub(in crate::channel) const PROOF_RETRY: RetryPolicy =
    RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(60) };

/// The reason of an event whose proof has not come.
pub(in crate::channel) const PROOF_TIMEOUT: &str = "proof-timeout";

/// An event whose proof is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::channel) struct Awaited {
    pub(in crate::channel) offset: Offset,
    /// `None` only for an event that an operator released or redelivered.
    pub(in crate::channel) event_id: Option<EventId>,
    /// Unix seconds.
    pub(in crate::channel) first_seen: i64,
    /// The size of its body, as it is kept.
    pub(in crate::channel) bytes: u64,
}

impl Awaited {
    /// Every late event of a channel.
    pub(in crate::channel) fn all(ledger: &Ledger) -> Vec<Self> {
        ledger.late().iter().map(Self::from).collect()
    }
}

impl From<&Pending> for Awaited {
    fn from(pending: &Pending) -> Self {
        let Pending { offset, event_id, first_seen, json } = pending;
        Self { offset: *offset, event_id: *event_id, first_seen: *first_seen, bytes: json.len() as u64 }
    }
}

impl From<(&Offset, &Late)> for Awaited {
    fn from((offset, late): (&Offset, &Late)) -> Self {
        Self { offset: *offset, event_id: late.event_id, first_seen: late.first_seen, bytes: late.bytes }
    }
}

/// What came of asking for a proof.
#[derive(Debug)]
pub(in crate::channel) enum Answer {
    /// `stop` fired first.
    Stopped,
    /// It has not come; with the event as it was read, if it was.
    NotYet(Option<Bytes>),
    /// It came, or the event turned out to be something else.
    Settled(Outcome),
}

impl VerifyStage {
    /// Waits for an event's proof, in strict ordering: nothing after the event is handed on meanwhile. `None` where `stop`
    /// fired first.
    pub(in crate::channel) async fn hold(
        &self,
        pending: Pending,
        context: StageContext<'_>,
    ) -> Result<Option<Outcome>, ChannelError> {
        let trace_id = context.trace.map(display);
        warn!(channel = %self.channel.name, trace_id, offset = %pending.offset, "proof pending: later events wait for it");
        let mut retry = self.machine.retry(PROOF_RETRY);
        let awaited = Awaited::from(&pending);
        loop {
            context.reporter.waits(Activity::AwaitingProof { offset: pending.offset }, PROOF_RETRY.max_wait);
            // Its time may have run out while it waited behind another event. Its proof may be there: ask before rejecting.
            if !self.timed_out(&awaited) && !pause(retry.next_wait(None), context.stop).await {
                return Ok(None);
            }
            match self.ask_for_proof(&awaited, context).await? {
                Answer::Stopped => return Ok(None),
                Answer::NotYet(_) if self.timed_out(&awaited) => {
                    return Ok(Some(Outcome::Rejected(self.proof_timeout(&awaited, pending.json, context.trace))));
                }
                Answer::NotYet(_) => {}
                Answer::Settled(outcome) => return Ok(Some(outcome)),
            }
        }
    }

    /// Asks the service once for an event's proof. No answer, or another event, counts as a proof that may still come.
    pub(in crate::channel) async fn ask_for_proof(
        &self,
        awaited: &Awaited,
        context: StageContext<'_>,
    ) -> Result<Answer, ChannelError> {
        let Some(event_id) = awaited.event_id else { return Ok(Answer::NotYet(None)) };
        let answer = tokio::select! {
            biased;
            () = context.stop.cancelled() => return Ok(Answer::Stopped),
            answer = self.source.event(event_id) => answer,
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
        Ok(match self.outcome(self.check_one(again).await?, context).await? {
            None => Answer::Stopped,
            Some(Outcome::Pending(_)) => Answer::NotYet(Some(json)),
            Some(settled) => Answer::Settled(settled),
        })
    }

    /// The outcome by the bytes that are kept of an event; `None` where the service has to be asked.
    pub(in crate::channel) async fn by_kept_bytes(
        &self,
        awaited: &Awaited,
        json: Bytes,
    ) -> Result<Option<Outcome>, ChannelError> {
        let checked = self.check_one(RawEvent { offset: awaited.offset, id: awaited.event_id, json }).await?;
        Ok(match checked {
            Checked::Pending(_) => None,
            Checked::Rejected(..) if awaited.event_id.is_some() => None,
            settled => Some(self.settle_finally(settled, None)),
        })
    }

    /// Whether an event has waited for its proof as long as the configuration allows.
    pub(in crate::channel) fn timed_out(&self, awaited: &Awaited) -> bool {
        let waited = u64::try_from(self.machine.now() - awaited.first_seen).unwrap_or(0);
        waited >= self.proof_timeout.as_secs()
    }

    /// Rejects an event whose proof has not come in time.
    pub(in crate::channel) fn proof_timeout(
        &self,
        awaited: &Awaited,
        json: Bytes,
        trace: Option<TraceId>,
    ) -> QuarantinedEvent {
        let raw = RawEvent { offset: awaited.offset, id: awaited.event_id, json };
        self.quarantine(raw, Rejection::new(PROOF_TIMEOUT, "its proof has not come in time"), trace)
    }
}

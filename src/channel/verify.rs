//! The verify stage: each event's verdict, and what follows from it.
//!
//! # Invariants
//!
//! * **No rejection on one reading.** A proxy may have damaged the event, so it is read once more by its id, and what the
//!   service says then holds. While the service does not answer, the stage waits. The same holds for a duplicate proof and
//!   a contradiction, see [`recent`].
//! * **Admitted in order.** An event is looked up among the recent ones when everything before it in its range is settled:
//!   of two with the same proof the first is delivered.
//! * **Off the async threads.** Signatures are checked on threads of their own, see [`Machine`].
//!
//! # Cancellation
//!
//! At any point: the stage changes nothing durable, and the same events are read and verified again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio_util::sync::CancellationToken;
use tracing::error;
use tracing::field::display;

use crate::channel::ChannelError;
use crate::channel::deliver::batch::Outcome;
use crate::channel::machine::Machine;
use crate::channel::read::permits::ReadPermit;
use crate::channel::read::source::Source;
use crate::channel::reporter::StatusReporter;
use crate::channel::settings::Settings;
use crate::event::{Offset, RawEvent};
use crate::ledger::{Pending, Quarantined, QuarantinedEvent};
use crate::record::ChannelRef;
use crate::retry::RetryPolicy;
use crate::telemetry::trace::TraceId;

pub(super) mod assembler;
mod counters;
mod late_proof;
pub(super) mod recent;
mod second_look;

pub(super) use counters::Counters;
pub(super) use late_proof::{Answer, Awaited, PROOF_RETRY, PROOF_TIMEOUT};

use assembler::{Assembler, Checked};
use counters::Rejection;
use recent::{Admitted, Alarm, RecentEvents};
use second_look::Reviewed;

/// Rejected events of one range that are read again at the same time.
const SECOND_LOOKS: usize = 8;

/// Rejected events that are remembered as logged.
const MAX_LOGGED: usize = 10_000;

/// The reason of an event whose proof can never come.
const PENDING_WITHOUT_ID: &str = "pending-without-id";

/// For which part of the loop, and for which batch, events are verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageContext<'a> {
    pub(super) reporter: &'a StatusReporter,
    pub(super) stop: &'a CancellationToken,
    /// `None` for an event that is read outside a batch.
    pub(super) trace: Option<TraceId>,
}

/// Gives a channel's events their outcome.
#[derive(Debug)]
pub(super) struct VerifyStage {
    source: Arc<dyn Source>,
    recent: Arc<RecentEvents>,
    channel: ChannelRef,
    assembler: Arc<Assembler>,
    proof_timeout: Duration,
    retry: RetryPolicy,
    machine: Arc<dyn Machine>,
    /// The offsets of rejected events that have been logged: some are read, and rejected, again and again.
    logged: Mutex<BTreeSet<Offset>>,
    counters: Counters,
}

impl VerifyStage {
    pub(super) fn new(
        settings: &Settings,
        source: Arc<dyn Source>,
        recent: Arc<RecentEvents>,
        machine: Arc<dyn Machine>,
        counters: Counters,
    ) -> Self {
        Self {
            source,
            recent,
            channel: settings.channel.clone(),
            assembler: Arc::new(Assembler::new(settings)),
            proof_timeout: settings.proof_timeout,
            retry: settings.retry,
            machine,
            logged: Mutex::default(),
            counters,
        }
    }

    /// Where the events come from.
    pub(super) fn source(&self) -> Arc<dyn Source> {
        self.source.clone()
    }

    /// A permit to ask for a range and to check it.
    pub(super) async fn permit(&self) -> ReadPermit {
        self.machine.permit().await
    }

    /// Checks the proofs of a range, in its order. Needs nothing of the range before it, so it can run ahead.
    pub(super) fn check(
        &self,
        events: Vec<RawEvent>,
    ) -> impl Future<Output = Result<Vec<Checked>, ChannelError>> + Send + use<> {
        let (machine, assembler) = (self.machine.clone(), self.assembler.clone());
        async move { machine.check(&assembler, events).await }
    }

    /// The outcomes of a range whose proofs were checked, in its order; `None` where `stop` fired first.
    pub(super) async fn page(
        &self,
        checked: Vec<Checked>,
        context: StageContext<'_>,
    ) -> Result<Option<Vec<Outcome>>, ChannelError> {
        let rejected: Vec<_> = checked.iter().filter_map(Checked::rejected).collect();
        let looks = stream::iter(rejected).map(|(raw, reason)| self.second_look(raw, reason, context));
        let mut second_looks = looks.buffered(SECOND_LOOKS).collect::<Vec<_>>().await.into_iter();
        let mut outcomes = Vec::with_capacity(checked.len());
        for checked in checked {
            let reviewed = match checked {
                Checked::Rejected(..) => second_looks.next().expect("each rejected event is read again")?,
                confirmed => Some(Reviewed::Confirmed(confirmed)),
            };
            let Some(reviewed) = reviewed else { return Ok(None) };
            let Some(outcome) = self.admit(reviewed, context).await? else { return Ok(None) };
            outcomes.push(outcome);
        }
        self.counters.page(&outcomes, context.reporter);
        Ok(Some(outcomes))
    }

    async fn check_one(&self, event: RawEvent) -> Result<Checked, ChannelError> {
        let mut checked = self.check(vec![event]).await?;
        Ok(checked.pop().expect("as many verdicts as events"))
    }

    /// The outcome of one event that is verified outside a range; `None` where `stop` fired first.
    async fn outcome(&self, checked: Checked, context: StageContext<'_>) -> Result<Option<Outcome>, ChannelError> {
        let reviewed = match checked {
            Checked::Rejected(raw, reason) => self.second_look(raw, reason, context).await?,
            confirmed => Some(Reviewed::Confirmed(confirmed)),
        };
        match reviewed {
            Some(reviewed) => self.admit(reviewed, context).await,
            None => Ok(None),
        }
    }

    /// The outcome after the second look. A duplicate or a contradiction is read again as well. `None` where `stop` fired
    /// first.
    async fn admit(&self, reviewed: Reviewed, context: StageContext<'_>) -> Result<Option<Outcome>, ChannelError> {
        let checked = match reviewed {
            Reviewed::Confirmed(checked) => checked,
            Reviewed::Unconfirmed(raw, reason) => {
                return Ok(Some(Outcome::Unconfirmed(self.quarantine(raw, (&reason).into(), context.trace))));
            }
        };
        let (raw, alarm) = match self.settle(checked, context.trace) {
            Ok(outcome) => return Ok(Some(outcome)),
            Err(alarmed) => alarmed,
        };
        Ok(match self.read_again(&raw, context).await {
            None => None,
            Some(None) => Some(Outcome::Unconfirmed(self.quarantine(raw, alarm.into(), context.trace))),
            Some(Some(again)) => Some(self.settle_finally(self.check_one(again).await?, context.trace)),
        })
    }

    /// The outcome of an event that is not read again: an alarm rejects it.
    fn settle_finally(&self, checked: Checked, trace: Option<TraceId>) -> Outcome {
        self.settle(checked, trace)
            .unwrap_or_else(|(raw, alarm)| Outcome::Rejected(self.quarantine(raw, alarm.into(), trace)))
    }

    /// The outcome of an event; an alarm where it is a duplicate or a contradiction.
    fn settle(&self, checked: Checked, trace: Option<TraceId>) -> Result<Outcome, (RawEvent, Alarm)> {
        let channel = self.channel.id;
        Ok(match checked {
            Checked::Verified(raw, proof, record) => {
                if self.note_admitted(&raw, self.recent.verified(channel, &raw, &proof), trace)? {
                    self.counters.verified(&record.kind, &proof, self.machine.now());
                }
                Outcome::Deliver(record)
            }
            Checked::Unsigned(unsigned, None) => {
                self.counters.unsigned(&unsigned);
                Outcome::Dropped(unsigned.event().raw.offset)
            }
            Checked::Unsigned(unsigned, Some(record)) => {
                if self.note_admitted(&unsigned.event().raw, self.recent.notice(channel, &unsigned), trace)? {
                    self.counters.unsigned(&unsigned);
                }
                Outcome::Deliver(record)
            }
            Checked::Pending(raw) => self.set_aside(raw, trace),
            Checked::Rejected(raw, reason) => Outcome::Rejected(self.quarantine(raw, (&reason).into(), trace)),
        })
    }

    /// Whether the event is admitted for the first time, as far as is remembered.
    fn note_admitted(
        &self,
        raw: &RawEvent,
        admitted: Result<Admitted, Alarm>,
        trace: Option<TraceId>,
    ) -> Result<bool, (RawEvent, Alarm)> {
        let Admitted { duplicate_at, is_news } = admitted.map_err(|alarm| (raw.clone(), alarm))?;
        if let Some(later) = duplicate_at {
            let (offset, reason, trace_id) = (raw.offset, Alarm::DUPLICATE_PROOF, trace.map(display));
            error!(channel = %self.channel.name, trace_id, %offset, reason, duplicate = %later.offset, "an event that was delivered before is a duplicate of this one");
        }
        Ok(is_news)
    }

    /// Without an id the service cannot be asked for the proof.
    fn set_aside(&self, raw: RawEvent, trace: Option<TraceId>) -> Outcome {
        let Some(event_id) = raw.id else {
            let detail = "a proof is due, and there is no event_id to ask for it by";
            return Outcome::Rejected(self.quarantine(raw, Rejection::new(PENDING_WITHOUT_ID, detail), trace));
        };
        // A copy: a slice would keep its whole page in memory for as long as it waits.
        let json = Bytes::copy_from_slice(&raw.json);
        let first_seen = self.machine.now();
        Outcome::Pending(Pending { offset: raw.offset, event_id: Some(event_id), first_seen, json })
    }

    fn quarantine(&self, raw: RawEvent, rejection: Rejection, trace: Option<TraceId>) -> QuarantinedEvent {
        let RawEvent { offset, id, json } = raw;
        let at = self.machine.now();
        let (event_id, trace_id) = (id.map(display), trace.map(display));
        if self.is_first_rejection(offset) {
            self.counters.rejected(&json, &rejection);
            let Rejection { reason, detail, .. } = &rejection;
            error!(channel = %self.channel.name, trace_id, %offset, event_id, reason, detail, "event rejected: quarantined, not delivered");
        }
        let Rejection { reason, detail, original, .. } = rejection;
        if let Some(original) = original.filter(|original| original.channel_id != self.channel.id) {
            error!(channel_id = %original.channel_id, offset = %original.offset, other = %self.channel.name, other_offset = %offset, "a proof of this channel was shown in another one too: one of them was shown an event that is not its own");
        }
        let (reason, bytes) = (reason.to_owned(), json.len() as u64);
        QuarantinedEvent { facts: Quarantined { offset, event_id: id, reason, detail, at, original, bytes }, json }
    }

    /// Whether no rejection of that offset has been logged yet, as far as is remembered.
    fn is_first_rejection(&self, offset: Offset) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= MAX_LOGGED {
            logged.clear();
        }
        logged.insert(offset)
    }
}

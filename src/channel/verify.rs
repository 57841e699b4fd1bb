//! The verify stage: decides the verdict of each event and its outcome.
//!
//! # Invariants
//!
//! * **No rejection after one reading.** A proxy may have damaged the event, so it is read again by its id, and the second
//!   answer counts. While the service does not answer, the stage waits. The same applies to a duplicate proof and a
//!   contradiction, see [`recent`].
//! * **Admitted in order.** An event is compared with the recent events after every earlier event of its range is settled.
//!   If two events have the same proof, the first is delivered.
//! * **Known to all before admitted.** If instances share the state, a proof that is new here is first recorded there. If
//!   two channels show it, only one of them delivers it, regardless of the instances that run them.
//! * **Off the async threads.** Signatures are checked on separate threads, see [`machine`](super::machine).
//!
//! # Cancellation
//!
//! Safe at any point: the same events are read and verified again. Nothing durable changes, with one exception: if instances
//! share the state, it records the proofs that the channel has shown. If they are shown again, they belong to the channel.

use std::slice;

use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use tracing::field::display;
use tracing::{error, warn};

use crate::context::ReadPlan;
use crate::deliver::batch::Outcome;
use crate::reporter::StatusReporter;
use crate::{Channel, ChannelError, SharedParts};
use ledger::Pending;
use proof::event::RawEvent;
use proof::verify::Proof;
use record::Record;
use telemetry::metrics::Sort;
use telemetry::trace::TraceId;

mod checked;
pub(super) mod expect;
mod read_again;
pub(super) mod reason;
pub(super) mod recent;
mod rejection;
mod workflows;

pub(super) use checked::Checked;
pub(super) use read_again::PROOF_RETRY;
pub(super) use reason::RejectionReason;
pub(super) use rejection::Rejection;

use expect::Named;
use recent::{Admitted, Alarm, Known};
use rejection::kind_of;

/// The number of rejected events of one range that are read again at the same time.
const SECOND_LOOKS: usize = 8;

/// The part of the loop and the batch for which events are verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageContext<'a> {
    pub(super) reporter: &'a StatusReporter,
    /// When the events were first read.
    pub(super) received: Timestamp,
    /// `None` for an event that is read outside a batch.
    pub(super) trace: Option<TraceId>,
}

impl ReadPlan {
    /// Checks consecutive events that were first read at `received`. The results have the same order.
    pub(super) async fn check(&self, received: Timestamp, events: Vec<RawEvent>) -> Result<Vec<Checked>, ChannelError> {
        let Channel { parts, handle, .. } = &*self.channel;
        parts.machine.check(&self.settings, received, events, &handle.memory).await
    }

    async fn check_one(&self, received: Timestamp, event: RawEvent) -> Result<Checked, ChannelError> {
        let mut checked = self.check(received, vec![event]).await?;
        Ok(checked.pop().expect("as many verdicts as events"))
    }

    /// Returns the outcomes of a range whose proofs were checked, in its order.
    pub(super) async fn page(
        &self,
        mut checked: Vec<Checked>,
        context: StageContext<'_>,
    ) -> Result<Vec<Outcome>, ChannelError> {
        let rejected = checked.iter_mut().filter(|checked| matches!(checked, Checked::Rejected(..)));
        let second_looks: Vec<_> = rejected.map(|rejected| self.second_look(rejected, context)).collect();
        stream::iter(second_looks).buffer_unordered(SECOND_LOOKS).try_collect::<()>().await?;
        self.show(&checked).await;
        let mut outcomes = Vec::with_capacity(checked.len());
        for checked in checked {
            outcomes.push(self.admit(checked, context).await?);
        }
        self.report(&outcomes, context.reporter.reads_first());
        Ok(outcomes)
    }

    /// Counts pending events, and reports the newest confirmed offset and each unconfirmed one.
    fn report(&self, outcomes: &[Outcome], reads_first: bool) {
        let newest = &mut self.channel.handle.board().newest;
        if let Some(highest) = outcomes.iter().rfind(|outcome| !matches!(outcome, Outcome::Unconfirmed(_))) {
            newest.placed(highest.offset(), Timestamp::now());
        }
        for outcome in outcomes {
            match outcome {
                Outcome::Unconfirmed(event) => newest.unconfirmed(event.facts.offset),
                Outcome::Pending(pending) if reads_first => {
                    self.channel.metrics.verdict(kind_of(&pending.json).as_ref(), Sort::Pending);
                }
                _ => {}
            }
        }
    }

    /// If instances share the state, records that the channel shows these proofs, and learns which of them another channel
    /// has shown before. Every event passes this step before it is admitted, regardless of how it was read.
    async fn show(&self, checked: &[Checked]) {
        let SharedParts { ledgers, recent, .. } = &self.channel.parts;
        if !ledgers.store.is_shared() {
            return;
        }
        let channel = self.settings.channel.id;
        let unknown = |checked: &Checked| match checked {
            Checked::Verified(raw, proof, _) => recent.unknown(channel, raw, proof),
            _ => None,
        };
        let unknown: Vec<_> = checked.iter().filter_map(unknown).collect();
        if !unknown.is_empty() {
            recent.learn(&ledgers.show(channel, &unknown).await);
        }
    }

    /// Returns the outcome after the second look. A duplicate or a contradiction is read again too.
    async fn admit(&self, checked: Checked, context: StageContext<'_>) -> Result<Outcome, ChannelError> {
        let (raw, alarm) = match self.settle(checked, context) {
            Ok(outcome) => return Ok(outcome),
            Err(alarmed) => *alarmed,
        };
        Ok(match self.read_again(&raw, context).await {
            None => Outcome::Unconfirmed(self.quarantine(raw, alarm.into(), context)),
            Some(again) => {
                let again = self.check_one(context.received, again).await?;
                self.show(slice::from_ref(&again)).await;
                self.settle_finally(again, context)
            }
        })
    }

    /// Returns the outcome of an event that is not read again: an alarm rejects it.
    fn settle_finally(&self, checked: Checked, context: StageContext<'_>) -> Outcome {
        self.settle(checked, context).unwrap_or_else(|alarmed| {
            let (raw, alarm) = *alarmed;
            Outcome::Rejected(self.quarantine(raw, alarm.into(), context))
        })
    }

    /// Returns the outcome of an event, or an alarm if it is a duplicate or a contradiction. An event is counted once, as
    /// far as is remembered.
    fn settle(&self, checked: Checked, context: StageContext<'_>) -> Result<Outcome, Box<(RawEvent, Alarm)>> {
        let (channel, recent) = (self.settings.channel.id, &self.channel.parts.recent);
        Ok(match checked {
            Checked::Verified(raw, proof, record) => {
                if self.note_admitted(&raw, recent.verified(channel, &raw, &proof), context.trace)? {
                    self.channel.metrics.verdict(Some(&record.kind), Sort::Verified);
                    self.channel.metrics.unknown_signers(proof.strangers);
                    self.channel.handle.board().verified(&proof.signers, self.channel.parts.machine.now());
                }
                self.note_workflow(&raw, &proof, context.trace);
                Outcome::Deliver(record)
            }
            Checked::Unsigned(unsigned, record) => {
                let event = unsigned.event();
                let is_news = record.is_none()
                    || self.note_admitted(&event.raw, recent.notice(channel, &unsigned), context.trace)?;
                if is_news {
                    self.channel.metrics.verdict(Some(&event.kind), Sort::Unsigned);
                }
                record.map_or(Outcome::Dropped(event.raw.event_key()), Outcome::Deliver)
            }
            Checked::Pending(raw) => self.set_aside(raw, context),
            Checked::Rejected(raw, rejection) => Outcome::Rejected(self.quarantine(raw, rejection, context)),
            Checked::Unconfirmed(raw, rejection) => Outcome::Unconfirmed(self.quarantine(raw, rejection, context)),
        })
    }

    /// Returns whether the event is admitted for the first time, as far as is remembered.
    fn note_admitted(
        &self,
        raw: &RawEvent,
        admitted: Result<Admitted, Alarm>,
        trace: Option<TraceId>,
    ) -> Result<bool, Box<(RawEvent, Alarm)>> {
        let Admitted { duplicate_at, is_news } = admitted.map_err(|alarm| Box::new((raw.clone(), alarm)))?;
        if let Some(later) = duplicate_at {
            let (offset, reason, trace_id) = (raw.offset, RejectionReason::DuplicateProof.name(), trace.map(display));
            error!(channel = %self.settings.channel.name, trace_id, offset = offset.get(), reason, duplicate = later.offset.get(), "an event that was delivered before is a duplicate of this one");
        }
        Ok(is_news)
    }

    /// Reports once each workflow that another channel showed first.
    fn note_workflow(&self, raw: &RawEvent, proof: &Proof, trace: Option<TraceId>) {
        let Channel { parts, identity, .. } = &*self.channel;
        let first_in = parts.recent.workflows.note(identity.id, proof.workflow_id.0, || parts.machine.now());
        if let Some(first_in) = first_in.filter(|_| !self.settings.verification.expect.has(Named::WorkflowId)) {
            let (offset, workflow_id, trace_id) = (raw.offset, proof.workflow_id, trace.map(display));
            warn!(channel = %identity.name, trace_id, offset = offset.get(), %workflow_id, %first_in, "a workflow that another channel showed first: it may be right, and is said once; `channeld channels pin` says what each channel is about");
        }
    }

    /// For an event that an operator released: accepts a proof that another channel has shown first, if the `expect` lists
    /// assign it to this channel.
    fn claim(&self, raw: &RawEvent, proof: &Proof, record: &Record) {
        let (channel, parts, signed) = (self.settings.channel.id, &self.channel.parts, record.decoded());
        let expect = &self.settings.verification.expect;
        let of_other = |other| Some(parts.handles.of(other).board().expect.clone());
        if let Ok(Known::Elsewhere) = parts.recent.belongs(channel, raw, proof, signed, expect, of_other) {
            parts.recent.accept(channel, raw, proof);
        }
    }

    /// Sets a pending event aside. Without an id its proof cannot be requested, and it is rejected.
    fn set_aside(&self, raw: RawEvent, context: StageContext<'_>) -> Outcome {
        let Some(event_id) = raw.id else {
            let detail = "a proof is due, and there is no event_id to ask for it by";
            return Outcome::Rejected(self.quarantine(
                raw,
                Rejection::new(RejectionReason::PendingWithoutId, detail),
                context,
            ));
        };
        // Copied, because a slice would keep its whole page in memory while the event waits.
        let json = self.channel.handle.memory.copy(&raw.json);
        let first_seen = self.channel.parts.machine.now();
        let received = Some(context.received);
        let (offset, event_id) = (raw.offset, Some(event_id));
        Outcome::Pending(Pending { offset, event_id, first_seen, received, appeared: false, json })
    }
}

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
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use tracing::field::display;
use tracing::{error, warn};

use crate::channel::Channel;
use crate::context::ReadPlan;
use crate::deliver::batch::Outcome;
use crate::error::ChannelError;
use crate::parts::SharedParts;
use crate::status::reporter::StatusReporter;
use ledger::{Pending, Quarantined, QuarantinedEvent};
use net::tasks::lock;
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
pub(super) use reason::RejectionReason;
pub(super) use rejection::Rejection;

use expect::Named;
use recent::{Admitted, Alarm, Known};
use rejection::kind_of;

/// The number of rejected events that are remembered as logged.
const MAX_LOGGED: usize = 10_000;

/// The number of rejected events of one range that are read again at the same time.
const SECOND_LOOKS: usize = 8;

/// The verify stage for one answer of the service, or for one event.
#[derive(Clone, Debug)]
pub(super) struct Stage<'a> {
    pub(super) read_plan: Arc<ReadPlan>,
    /// Reports for the part of the loop that needs the verdicts.
    pub(super) reporter: &'a StatusReporter,
    /// When the events were first read.
    pub(super) received: Timestamp,
    /// `None` for an event that is read outside a batch.
    pub(super) trace: Option<TraceId>,
}

impl Stage<'_> {
    async fn check_one(&self, event: RawEvent) -> Result<Checked, ChannelError> {
        let mut checked = self.read_plan.check(self.received, vec![event]).await?;
        Ok(checked.pop().expect("as many verdicts as events"))
    }

    /// Returns the outcomes of a range whose proofs were checked, in its order.
    pub(super) async fn page(&self, mut checked: Vec<Checked>) -> Result<Vec<Outcome>, ChannelError> {
        let rejected = checked.iter_mut().filter(|checked| matches!(checked, Checked::Rejected(..)));
        let second_looks: Vec<_> = rejected.map(|rejected| self.second_look(rejected)).collect();
        stream::iter(second_looks).buffer_unordered(SECOND_LOOKS).try_collect::<()>().await?;
        self.show(&checked).await;
        let mut outcomes = Vec::with_capacity(checked.len());
        for checked in checked {
            outcomes.push(self.admit(checked).await?);
        }
        self.report(&outcomes, self.reporter.reads_first());
        Ok(outcomes)
    }

    /// Counts pending events, and reports the newest confirmed offset and each unconfirmed one.
    fn report(&self, outcomes: &[Outcome], reads_first: bool) {
        let newest = &mut self.read_plan.channel.handle.board().newest;
        if let Some(highest) = outcomes.iter().rfind(|outcome| !matches!(outcome, Outcome::Unconfirmed(_))) {
            newest.placed(highest.offset(), Timestamp::now());
        }
        for outcome in outcomes {
            match outcome {
                Outcome::Unconfirmed(event) => newest.unconfirmed(event.facts.offset),
                Outcome::Pending(pending) if reads_first => {
                    self.read_plan.channel.metrics.verdict(kind_of(&pending.json).as_ref(), Sort::Pending);
                }
                _ => {}
            }
        }
    }

    /// If instances share the state, records that the channel shows these proofs, and learns which of them another channel
    /// has shown before. Every event passes this step before it is admitted, regardless of how it was read.
    async fn show(&self, checked: &[Checked]) {
        let SharedParts { ledgers, recent, .. } = &self.read_plan.channel.parts;
        if !ledgers.store.is_shared() {
            return;
        }
        let channel = self.read_plan.settings.channel.id;
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
    async fn admit(&self, checked: Checked) -> Result<Outcome, ChannelError> {
        let (raw, alarm) = match self.settle(checked) {
            Ok(outcome) => return Ok(outcome),
            Err(alarmed) => *alarmed,
        };
        Ok(match self.read_again(&raw).await {
            None => Outcome::Unconfirmed(self.quarantine(raw, alarm.into())),
            Some(again) => {
                let again = self.check_one(again).await?;
                self.show(slice::from_ref(&again)).await;
                self.settle_finally(again)
            }
        })
    }

    /// Returns the outcome of an event that is not read again: an alarm rejects it.
    fn settle_finally(&self, checked: Checked) -> Outcome {
        self.settle(checked).unwrap_or_else(|alarmed| {
            let (raw, alarm) = *alarmed;
            Outcome::Rejected(self.quarantine(raw, alarm.into()))
        })
    }

    /// Returns the outcome of an event, or an alarm if it is a duplicate or a contradiction. An event is counted once, as
    /// far as is remembered.
    fn settle(&self, checked: Checked) -> Result<Outcome, Box<(RawEvent, Alarm)>> {
        let (channel, recent) = (self.read_plan.settings.channel.id, &self.read_plan.channel.parts.recent);
        Ok(match checked {
            Checked::Verified(raw, proof, record) => {
                if self.note_admitted(&raw, recent.verified(channel, &raw, &proof), self.trace)? {
                    self.read_plan.channel.metrics.verdict(Some(&record.kind), Sort::Verified);
                    self.read_plan.channel.metrics.unknown_signers(proof.strangers);
                    self.read_plan
                        .channel
                        .handle
                        .board()
                        .verified(&proof.signers, self.read_plan.channel.parts.machine.now());
                }
                self.note_workflow(&raw, &proof, self.trace);
                Outcome::Deliver(record)
            }
            Checked::Unsigned(unsigned, record) => {
                let event = unsigned.event();
                let is_news = record.is_none()
                    || self.note_admitted(&event.raw, recent.notice(channel, &unsigned), self.trace)?;
                if is_news {
                    self.read_plan.channel.metrics.verdict(Some(&event.kind), Sort::Unsigned);
                }
                record.map_or(Outcome::Dropped(event.raw.event_key()), Outcome::Deliver)
            }
            Checked::Pending(raw) => self.set_aside(raw),
            Checked::Rejected(raw, rejection) => Outcome::Rejected(self.quarantine(raw, rejection)),
            Checked::Unconfirmed(raw, rejection) => Outcome::Unconfirmed(self.quarantine(raw, rejection)),
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
            error!(channel = %self.read_plan.settings.channel.name, trace_id, offset = offset.get(), reason, duplicate = later.offset.get(), "an event that was delivered earlier is a duplicate of this one");
        }
        Ok(is_news)
    }

    /// Reports once each workflow that another channel showed first.
    fn note_workflow(&self, raw: &RawEvent, proof: &Proof, trace: Option<TraceId>) {
        let Channel { parts, identity, .. } = &*self.read_plan.channel;
        let first_in = parts.recent.workflows.note(identity.id, proof.workflow_id.0, || parts.machine.now());
        if let Some(first_in) = first_in.filter(|_| !self.read_plan.settings.verification.expect.has(Named::WorkflowId))
        {
            let (offset, workflow_id, trace_id) = (raw.offset, proof.workflow_id, trace.map(display));
            warn!(channel = %identity.name, trace_id, offset = offset.get(), %workflow_id, %first_in, "another channel showed this workflow first: this may be correct, and is logged once; `channeld channels pin` shows the contents of each channel");
        }
    }

    /// For an event that an operator released: accepts a proof that another channel has shown first, if the `expect` lists
    /// assign it to this channel.
    fn claim(&self, raw: &RawEvent, proof: &Proof, record: &Record) {
        let (channel, parts, signed) =
            (self.read_plan.settings.channel.id, &self.read_plan.channel.parts, record.decoded());
        let expect = &self.read_plan.settings.verification.expect;
        let of_other = |other| Some(parts.handles.of(other).board().expect.clone());
        if let Ok(Known::Elsewhere) = parts.recent.belongs(channel, raw, proof, signed, expect, of_other) {
            parts.recent.accept(channel, raw, proof);
        }
    }

    /// Sets a pending event aside. Without an id its proof cannot be requested, and it is rejected.
    fn set_aside(&self, raw: RawEvent) -> Outcome {
        let Some(event_id) = raw.id else {
            let detail = "a proof is due, but the event has no event_id by which to request it";
            return Outcome::Rejected(self.quarantine(raw, Rejection::new(RejectionReason::PendingWithoutId, detail)));
        };
        // Copied, because a slice would keep its whole page in memory while the event waits.
        let json = self.read_plan.channel.handle.memory.copy(&raw.json);
        let first_seen = self.read_plan.channel.parts.machine.now();
        let received = Some(self.received);
        let (offset, event_id) = (raw.offset, Some(event_id));
        Outcome::Pending(Pending { offset, event_id, first_seen, received, appeared: false, json })
    }

    /// Counts, logs and quarantines an event. Repeated rejections of an event are counted and logged once.
    pub(crate) fn quarantine(&self, raw: RawEvent, rejection: Rejection) -> QuarantinedEvent {
        let RawEvent { offset, id, json } = raw;
        let Rejection { reason, detail, original, digest, strangers } = rejection;
        let mut logged = lock(&self.read_plan.logged);
        if logged.len() >= MAX_LOGGED {
            logged.clear();
        }
        if logged.insert(offset) {
            self.read_plan.channel.metrics.verdict(kind_of(&json).as_ref(), Sort::Rejected);
            self.read_plan.channel.metrics.rejected(reason.name());
            // The proof is valid, but belongs to another channel's event. The board does not count it.
            if reason != RejectionReason::ProofOfChannel {
                self.read_plan.channel.handle.board().rejected(reason);
            }
            self.read_plan.channel.metrics.unknown_signers(strangers);
            let (event_id, trace_id) = (id.map(display), self.trace.map(display));
            error!(channel = %self.read_plan.settings.channel.name, trace_id, offset = offset.get(), event_id, reason = reason.name(), detail, "event rejected: not delivered");
        }
        if let Some(original) = original.filter(|original| original.channel_id != self.read_plan.settings.channel.id) {
            error!(channel_id = %original.channel_id, offset = original.offset.get(), other = %self.read_plan.settings.channel.name, other_offset = offset.get(), "a proof of this channel was shown in another channel too: one of them was shown an event that is not its own");
        }
        let (reason, at, bytes) =
            (reason.name().to_owned(), self.read_plan.channel.parts.machine.now(), json.len() as u64);
        // The bytes are copied, as for an event that is set aside.
        let json = self.read_plan.channel.handle.memory.copy(&json);
        let digest = digest.map(|digest| digest.to_string());
        let received = Some(self.received);
        let facts = Quarantined { offset, event_id: id, reason, detail, at, received, original, digest, bytes };
        QuarantinedEvent { facts, json }
    }
}

//! The verify stage: decides the verdict on each event, and the consequence of the verdict.
//!
//! # Invariants
//!
//! * **No rejection after one reading.** A proxy may have damaged the event. The event is therefore read again by its id, and
//!   the second answer counts. The stage waits until the service answers. An event that raises an alarm of [`recent`] is read
//!   again in the same way.
//! * **Admitted in order.** An event is compared with the recent events only after the outcome of every earlier event of its
//!   range is known. If two events have the same proof, the first of them is delivered.
//! * **Known to all before admitted.** If instances share the state, a new proof is recorded in the shared state before the
//!   event with this proof is admitted. If two channels show the same proof, only one of the channels delivers it, even if
//!   they run on different instances.
//! * **Off the async threads.** Signatures are checked on separate threads, see [`machine`](super::run::machine).
//! * **Safe to cancel** at any point: the same events are read and verified again. Only the proofs in a shared state are
//!   durable. They stay assigned to this channel, and raise no alarm when the channel shows them again.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use tracing::field::display;
use tracing::{debug, error, warn};

use crate::channel::{Channel, SharedParts};
use crate::deliver::batch::Disposition;
use crate::run::context::ReadPlan;
use crate::status::Activity;
use crate::status::reporter::{ErrorReporter, StatusReporter};
use api::ApiError;
use ledger::{Quarantined, QuarantinedEvent, StateError};
use net::Chain;
use net::tasks::lock;
use proof::event::{Event, EventKey, EventType, RawEvent};
use proof::verify::Proof;
use record::Record;
use telemetry::metrics::Sort;
use telemetry::trace::TraceId;

pub(super) mod checked;
pub(super) mod expect;
pub(super) mod reason;
pub(super) mod recent;
mod workflows;

use checked::Checked;
use expect::SignedField;
use reason::{Rejection, RejectionReason};
use recent::{Admitted, Alarm};

/// The maximum size of [`ReadPlan::logged`], the set of rejected events that were already logged.
const MAX_LOGGED: usize = 10_000;

/// The number of rejected events of one range that are read again at the same time.
const SECOND_LOOKS: usize = 8;

/// The number of waits for an answer about one event. After that, the event counts as unconfirmed if the error concerns only
/// this event, so that one event cannot block its channel.
const MAX_WAITS: u32 = 3;

#[derive(Clone, Debug)]
pub(super) struct Stage<'a> {
    pub(super) read_plan: Arc<ReadPlan>,
    pub(super) reporter: &'a StatusReporter,
    /// When the events were first read.
    pub(super) received: Timestamp,
    /// The trace of the batch. `None` for an event that is read outside a batch.
    pub(super) trace: Option<TraceId>,
    /// Whether the events are replayed. A replayed event is no news: it is not counted again.
    pub(super) replayed: bool,
}

impl Stage<'_> {
    async fn check_one(&self, event: RawEvent) -> Checked {
        let mut checked = self.read_plan.check(self.received, vec![event]).await;
        checked.pop().expect("one verdict per event")
    }

    pub(super) async fn page(&self, mut checked: Vec<Checked>) -> Vec<Disposition> {
        let rejected = checked.iter_mut().filter(|checked| matches!(checked, Checked::Rejected(..)));
        let second_looks: Vec<_> = rejected.map(|rejected| self.second_look(rejected)).collect();
        stream::iter(second_looks).buffer_unordered(SECOND_LOOKS).collect::<()>().await;
        self.show(&checked).await;
        let mut outcomes = Vec::with_capacity(checked.len());
        for checked in checked {
            outcomes.push(self.admit(checked).await);
        }
        self.report(&outcomes);
        outcomes
    }

    /// Counts the pending events. Reports the highest confirmed offset and each unconfirmed offset on the board.
    fn report(&self, outcomes: &[Disposition]) {
        let Channel { handle, metrics, .. } = &*self.read_plan.channel;
        let newest = &mut handle.board().newest;
        if let Some(highest) = outcomes.iter().rfind(|outcome| !matches!(outcome, Disposition::Unconfirmed(_))) {
            newest.placed(highest.offset(), Timestamp::now());
        }
        for outcome in outcomes {
            match outcome {
                Disposition::Unconfirmed(event) => newest.unconfirmed(event.facts.offset),
                Disposition::Pending(pending) if self.reporter.reads_first() => {
                    metrics.verdict(kind_of(&pending.json).as_ref(), Sort::Pending);
                }
                _ => {}
            }
        }
    }

    /// If instances share the state, stores there that this channel shows these proofs, and learns which of the proofs
    /// another channel has shown before. Every event passes this step before it is admitted, however it was read.
    async fn show(&self, checked: &[Checked]) {
        let Channel { identity, parts: SharedParts { ledgers, recent, .. }, .. } = &*self.read_plan.channel;
        if !ledgers.store.is_shared() {
            return;
        }
        let unknown = |checked: &Checked| match checked {
            Checked::Verified(raw, proof, _) => recent.unknown(identity.id, raw, proof),
            _ => None,
        };
        let unknown: Vec<_> = checked.iter().filter_map(unknown).collect();
        if unknown.is_empty() {
            return;
        }
        let mut times = 0;
        let failed = |lasts: Duration, error: &StateError| {
            times += 1;
            self.reporter.report_unrecorded_proofs(lasts, times, error);
        };
        recent.learn(&ledgers.show(identity.id, &unknown, failed).await);
        if times > 0 {
            self.reporter.report(Activity::Reading);
        }
    }

    /// Returns the outcome of an event. A rejected event was already read a second time. A duplicate or a contradiction is
    /// read again here.
    async fn admit(&self, checked: Checked) -> Disposition {
        let (raw, alarm) = match self.settle(checked) {
            Ok(outcome) => return outcome,
            Err(alarmed) => *alarmed,
        };
        let Some(again) = self.read_again(raw.event_key()).await else {
            return Disposition::Unconfirmed(self.quarantine(raw, alarm.into()));
        };
        let again = self.check_one(again).await;
        self.show(slice::from_ref(&again)).await;
        self.settle_finally(again)
    }

    /// Returns the outcome of an event that is not read again. If the event raises an alarm, it is rejected.
    fn settle_finally(&self, checked: Checked) -> Disposition {
        self.settle(checked).unwrap_or_else(|alarmed| {
            let (raw, alarm) = *alarmed;
            Disposition::Rejected(self.quarantine(raw, alarm.into()))
        })
    }

    /// Returns the outcome of an event. Returns an alarm if the event is a duplicate or a contradiction. Each event is
    /// counted only once.
    fn settle(&self, checked: Checked) -> Result<Disposition, Box<(RawEvent, Alarm)>> {
        let Channel { identity, parts, handle, metrics, .. } = &*self.read_plan.channel;
        Ok(match checked {
            Checked::Verified(raw, proof, record) => {
                if self.note_admitted(&raw, parts.recent.verified(identity.id, &raw, &proof, self.replayed))? {
                    metrics.verdict(Some(&record.kind), Sort::Verified);
                    metrics.unknown_signers(proof.strangers);
                    handle.board().verified(&proof.signers, parts.machine.now());
                }
                self.note_workflow(&raw, &proof);
                Disposition::Deliver(record)
            }
            Checked::Unsigned(unsigned, record) => {
                let event = unsigned.event();
                let is_news =
                    record.is_none() || self.note_admitted(&event.raw, parts.recent.notice(identity.id, &unsigned))?;
                if is_news {
                    metrics.verdict(Some(&event.kind), Sort::Unsigned);
                }
                record.map_or(Disposition::Dropped(event.raw.event_key()), Disposition::Deliver)
            }
            Checked::Pending(raw) => self.set_aside(raw),
            Checked::Rejected(raw, rejection) => Disposition::Rejected(self.quarantine(raw, rejection)),
            Checked::Unconfirmed(raw, rejection) => Disposition::Unconfirmed(self.quarantine(raw, rejection)),
        })
    }

    /// Returns whether the event is admitted for the first time, as far as the recent events show. A replayed event is not.
    fn note_admitted(&self, raw: &RawEvent, admitted: Result<Admitted, Alarm>) -> Result<bool, Box<(RawEvent, Alarm)>> {
        let Admitted { duplicate_at, is_news } = admitted.map_err(|alarm| Box::new((raw.clone(), alarm)))?;
        if let Some(later) = duplicate_at {
            let (offset, reason, trace_id) =
                (raw.offset, RejectionReason::DuplicateProof.name(), self.trace.map(display));
            error!(channel = %self.read_plan.settings.channel.name, trace_id, offset = offset.get(), reason, duplicate = later.offset.get(), "an event that was delivered earlier is a duplicate of this event");
        }
        Ok(is_news && !self.replayed)
    }

    /// Reports each workflow that another channel showed first, once per workflow.
    fn note_workflow(&self, raw: &RawEvent, proof: &Proof) {
        let Channel { parts, identity, .. } = &*self.read_plan.channel;
        let first_in = parts.recent.workflows.note(identity.id, proof.workflow_id.0, || parts.machine.now());
        let is_expected = self.read_plan.settings.verification.expect.has(SignedField::WorkflowId);
        if let Some(first_in) = first_in.filter(|_| !is_expected) {
            let (offset, workflow_id, trace_id) = (raw.offset, proof.workflow_id, self.trace.map(display));
            warn!(channel = %identity.name, trace_id, offset = offset.get(), %workflow_id, %first_in, "another channel showed this workflow first: this may be correct, and is logged once; to see the workflows of a channel, run `channeld channels pin` with its name");
        }
    }

    /// Accepts an event whose proof another channel has shown first, if the `expect` lists of both channels assign the proof
    /// to this channel. An example is an event that an operator has released from the quarantine.
    fn claim(&self, raw: &RawEvent, proof: &Proof, record: &Record) {
        let Channel { identity, parts, .. } = &*self.read_plan.channel;
        let expect = &self.read_plan.settings.verification.expect;
        let of_other = |other| Some(parts.handles.of(other).board().expect.clone());
        let known = parts.recent.belongs(identity.id, raw, proof, record.decoded(), expect, of_other);
        if let Ok(Some(_)) = known {
            parts.recent.accept(identity.id, raw, proof);
        }
    }

    async fn second_look(&self, checked: &mut Checked) {
        if let Checked::Rejected(raw, rejection) = checked {
            *checked = match self.read_again(raw.event_key()).await {
                Some(again) => self.check_one(again).await,
                None => Checked::Unconfirmed(raw.clone(), rejection.clone()),
            };
        }
    }

    /// Reads an event by its id until the service answers. Returns `None` if the event does not exist at that offset, or if
    /// repeated errors concern only this event.
    async fn read_again(&self, EventKey { offset, id }: EventKey) -> Option<RawEvent> {
        let id = id?;
        let mut trouble = ErrorReporter::new(&self.read_plan, self.reporter, self.trace);
        loop {
            let answer = self.read_plan.source.event(id).await;
            let waited = trouble.retry.attempt() >= MAX_WAITS;
            match answer {
                Ok(again) => {
                    trouble.over();
                    return Some(again).filter(|again| again.offset == offset);
                }
                Err(ApiError::NotFound(_)) => return None,
                Err(error) if waited && self.is_about_this_event(&error).await => return None,
                Err(error) => trouble.wait_out("reading an event again", error).await,
            }
        }
    }

    /// Returns whether the error concerns only this event, so that requests for other events may succeed.
    async fn is_about_this_event(&self, error: &ApiError) -> bool {
        match error {
            ApiError::Malformed(_) | ApiError::TooLong { .. } => true,
            ApiError::Refused(answer) => !matches!(answer.status, 401 | 403),
            ApiError::Transient { .. } => self.read_plan.source.poll(None, 1).await.is_ok(),
            ApiError::ChannelGone(_) | ApiError::NotFound(_) | ApiError::RateLimited { .. } => false,
        }
    }

    /// Requests an event with its proof: once or, if `is_last`, until the service answers. Returns `None` if the service did
    /// not return the event at its offset.
    pub(crate) async fn ask_for_proof(&self, key: EventKey, is_last: bool) -> Option<Disposition> {
        let EventKey { offset, id } = key;
        let again = if is_last {
            self.read_again(key).await
        } else {
            let answer = self.read_plan.source.event(id?).await.inspect_err(|error| {
                debug!(channel = %self.read_plan.settings.channel.name, offset = offset.get(), error = %Chain(error), "no answer for a pending event");
            });
            answer.ok().filter(|again| again.offset == offset)
        };
        let mut checked = self.check_one(again?).await;
        self.second_look(&mut checked).await;
        self.show(slice::from_ref(&checked)).await;
        Some(self.admit(checked).await)
    }

    /// Returns the outcome of an event based on its stored bytes. Returns `None` if a request to the service is needed.
    ///
    /// An operator has decided that an event is correct if the operator released it, and an event that became visible late
    /// was compared when it was found. A replayed event was only read again, so it is admitted like every event of a page.
    pub(crate) async fn by_kept_bytes(&self, kept: RawEvent) -> Option<Disposition> {
        let checked = self.check_one(kept).await;
        match &checked {
            Checked::Pending(_) => return None,
            Checked::Rejected(raw, _) if raw.id.is_some() => return None,
            _ => self.show(slice::from_ref(&checked)).await,
        }
        if self.replayed {
            return Some(self.admit(checked).await);
        }
        let (channel, recent) = (self.read_plan.settings.channel.id, &self.read_plan.channel.parts.recent);
        match &checked {
            Checked::Verified(raw, proof, record) => {
                self.claim(raw, proof, record);
                recent.accept_verified(channel, raw, proof);
            }
            Checked::Unsigned(unsigned, _) => recent.accept_notice(channel, unsigned),
            _ => {}
        }
        Some(self.settle_finally(checked))
    }

    pub(crate) fn proof_timeout(&self, EventKey { offset, id }: EventKey, json: Bytes) -> QuarantinedEvent {
        let raw = RawEvent { offset, id, json };
        self.quarantine(raw, Rejection::new(RejectionReason::ProofTimeout, "its proof did not arrive in time"))
    }

    /// Sets a pending event aside. An event without an id is rejected, because its proof cannot be requested.
    fn set_aside(&self, raw: RawEvent) -> Disposition {
        if raw.id.is_none() {
            let detail = "a proof is due, but the event has no event_id by which to request it";
            let rejection = Rejection::new(RejectionReason::PendingWithoutId, detail);
            return Disposition::Rejected(self.quarantine(raw, rejection));
        }
        Disposition::Pending(self.read_plan.channel.pending(&raw, self.received, false))
    }

    /// Returns a rejected event for the quarantine, and counts and logs the rejection. If the same event is rejected
    /// repeatedly, only the first rejection is counted and logged.
    pub(crate) fn quarantine(&self, raw: RawEvent, rejection: Rejection) -> QuarantinedEvent {
        let Channel { identity, parts, handle, metrics, .. } = &*self.read_plan.channel;
        let RawEvent { offset, id, json } = raw;
        let Rejection { reason, detail, original, digest, strangers } = rejection;
        let mut logged = lock(&self.read_plan.logged);
        if logged.len() >= MAX_LOGGED {
            logged.clear();
        }
        if logged.insert(offset) {
            metrics.verdict(kind_of(&json).as_ref(), Sort::Rejected);
            metrics.rejected(reason.name());
            // The board does not count this rejection, because the proof is valid, although it belongs to an event of another
            // channel.
            if reason != RejectionReason::ProofOfChannel {
                handle.board().rejected(EventKey { offset, id }, reason);
            }
            metrics.unknown_signers(strangers);
            let (event_id, trace_id) = (id.map(display), self.trace.map(display));
            error!(channel = %identity.name, trace_id, offset = offset.get(), event_id, reason = reason.name(), detail, "event rejected: not delivered");
        }
        if let Some(original) = original.filter(|original| original.channel_id != identity.id) {
            error!(channel_id = %original.channel_id, offset = original.offset.get(), other = %identity.name, other_offset = offset.get(), "a proof of this channel was also shown in the channel `other`: in at least one of the two, the service showed an event that does not belong to that channel");
        }
        let facts = Quarantined {
            offset,
            event_id: id,
            reason: reason.name().to_owned(),
            detail,
            at: parts.machine.now(),
            received: Some(self.received),
            original,
            digest: digest.map(|digest| digest.to_string()),
            bytes: json.len() as u64,
        };
        // The bytes are copied, as for a pending event.
        QuarantinedEvent { facts, json: handle.memory.copy(&json) }
    }
}

fn kind_of(json: &Bytes) -> Option<EventType> {
    Event::parse(json.clone()).ok().map(|event| event.kind)
}

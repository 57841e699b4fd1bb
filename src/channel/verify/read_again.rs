//! Reads an event again by its id: before it is rejected, and until its proof arrives.

use std::slice;

use tracing::debug;

use crate::deliver::batch::Outcome;
use crate::error::ChannelError;
use crate::status::trouble::Trouble;
use crate::verify::{Checked, Rejection, RejectionReason, Stage};
use api::ApiError;
use ledger::QuarantinedEvent;
use net::Chain;
use proof::event::{EventId, EventKey, Offset, RawEvent};

/// How often to wait for a usable answer about one event. After that, the event counts as unconfirmed, so that it does not
/// block its channel.
const MAX_WAITS: u32 = 3;

impl Stage<'_> {
    /// If an event was rejected, reads and verifies it a second time.
    pub(super) async fn second_look(&self, checked: &mut Checked) -> Result<(), ChannelError> {
        if let Checked::Rejected(raw, rejection) = checked {
            *checked = match self.read_again(raw).await {
                Some(again) => self.check_one(again).await?,
                None => Checked::Unconfirmed(raw.clone(), rejection.clone()),
            };
        }
        Ok(())
    }

    /// Reads an event by its id until the service answers. Returns `None` if no such event exists at that offset, or if the
    /// event has no id.
    pub(super) async fn read_again(&self, event: &RawEvent) -> Option<RawEvent> {
        self.until_answered(event.offset, event.id?).await
    }

    async fn until_answered(&self, offset: Offset, id: EventId) -> Option<RawEvent> {
        let mut trouble = Trouble::new(&self.read_plan, self.reporter, self.trace);
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

    /// Requests an event's proof once or, if `is_last`, until the service answers. Returns `None` if the service does not
    /// answer, or returns another event.
    pub(crate) async fn ask_for_proof(
        &self,
        EventKey { offset, id }: EventKey,
        is_last: bool,
    ) -> Result<Option<Outcome>, ChannelError> {
        let Some(event_id) = id else { return Ok(None) };
        let again = if is_last {
            self.until_answered(offset, event_id).await
        } else {
            let answer = self.read_plan.source.event(event_id).await.inspect_err(|error| {
                debug!(channel = %self.read_plan.settings.channel.name, offset = offset.get(), error = %Chain(error), "no answer for a late proof");
            });
            answer.ok().filter(|again| again.offset == offset)
        };
        let Some(again) = again else { return Ok(None) };
        let mut checked = self.check_one(again).await?;
        self.second_look(&mut checked).await?;
        self.show(slice::from_ref(&checked)).await;
        self.admit(checked).await.map(Some)
    }

    /// Returns the outcome from an event's stored bytes, or `None` if a request to the service is needed.
    pub(crate) async fn by_kept_bytes(&self, kept: RawEvent) -> Result<Option<Outcome>, ChannelError> {
        Ok(match self.check_one(kept).await? {
            Checked::Pending(_) => None,
            Checked::Rejected(raw, _) if raw.id.is_some() => None,
            checked => {
                self.show(slice::from_ref(&checked)).await;
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
        })
    }

    /// Rejects an event whose proof did not arrive in time.
    pub(crate) fn proof_timeout(&self, raw: RawEvent) -> QuarantinedEvent {
        self.quarantine(raw, Rejection::new(RejectionReason::ProofTimeout, "its proof did not arrive in time"))
    }
}

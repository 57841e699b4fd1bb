//! The second look: an event is read once more by its id before it is rejected.

use crate::api::ApiError;
use crate::channel::read::reader::ReadError;
use crate::channel::trouble::Trouble;
use crate::channel::verify::assembler::Checked;
use crate::channel::verify::{StageContext, VerifyStage};
use crate::channel::{ChannelError, pause};
use crate::event::RawEvent;
use crate::verify::Reason;

/// Waits for a readable answer about one event. After them the event counts as not confirmed, so that it does not hold up
/// its channel.
const MAX_WAITS: u32 = 3;

/// An event after the second look.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are the large variant")]
pub(super) enum Reviewed {
    /// With the verdict that holds.
    Confirmed(Checked),
    /// It was rejected for that reason, and the service does not confirm that it exists at its offset.
    Unconfirmed(RawEvent, Reason),
}

impl VerifyStage {
    /// Reads and checks a rejected event again; `None` where `stop` fired first.
    pub(super) async fn second_look(
        &self,
        raw: RawEvent,
        reason: Reason,
        context: StageContext<'_>,
    ) -> Result<Option<Reviewed>, ChannelError> {
        let Some(again) = self.read_again(&raw, context).await else { return Ok(None) };
        Ok(Some(match again {
            Some(again) => Reviewed::Confirmed(self.check_one(again).await?),
            None => Reviewed::Unconfirmed(raw, reason),
        }))
    }

    /// Reads an event by its id until the service answers. `None` where `stop` fired first, `Some(None)` where there is
    /// no such event at that offset, or no id to ask by.
    pub(super) async fn read_again(&self, event: &RawEvent, context: StageContext<'_>) -> Option<Option<RawEvent>> {
        let Some(id) = event.id else { return Some(None) };
        let mut retry = self.machine.retry(self.retry);
        let mut trouble = Trouble::new(&self.channel, context.reporter, context.trace);
        loop {
            let answer = tokio::select! {
                biased;
                () = context.stop.cancelled() => return None,
                answer = self.source.event(id) => answer,
            };
            context.reporter.moves();
            let error = match answer {
                Ok(again) => {
                    trouble.over();
                    return Some(Some(again).filter(|again| again.offset == event.offset));
                }
                Err(ApiError::NotFound(_)) => return Some(None),
                Err(error) if retry.attempt() >= MAX_WAITS && self.is_about_this_event(&error).await => {
                    return Some(None);
                }
                Err(error) => error,
            };
            let wait = retry.next_wait(error.retry_after());
            trouble.report("reading an event again", &ReadError::Api(error), wait);
            if !pause(wait, context.stop).await {
                return None;
            }
        }
    }

    /// Whether the error concerns this event alone: the service may well answer about others.
    async fn is_about_this_event(&self, error: &ApiError) -> bool {
        match error {
            ApiError::Malformed(_) => true,
            ApiError::Refused(answer) => !matches!(answer.status, 401 | 403),
            ApiError::Transient { .. } => self.source.poll(None, 1).await.is_ok(),
            ApiError::ChannelGone(_) | ApiError::NotFound(_) | ApiError::RateLimited { .. } => false,
        }
    }
}

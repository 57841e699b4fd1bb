//! How long a lane offers an event that its sink refuses, and the dead letter that is left when it gives up.

use std::time::Duration;

use crate::event::Offset;
use crate::ledger::{DeadLetter, GivenUp};
use crate::record::Message;
use crate::sink::SinkError;
use crate::telemetry::Chain;

/// Times the refusals of the event that one lane offers.
#[derive(Debug)]
pub(in crate::channel) struct GiveUpTimer {
    /// `None`: never.
    gives_up_after: Option<Duration>,
    refused: Option<Refused>,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    offset: Offset,
    /// Unix seconds.
    since: i64,
    attempts: u32,
}

impl GiveUpTimer {
    pub(in crate::channel) fn new(gives_up_after: Option<Duration>) -> Self {
        Self { gives_up_after, refused: None }
    }

    /// Counts a refusal at `now`, in Unix seconds; the dead letter once refusals have gone on for too long. An error of the
    /// system is not the event's: no other event would fare better, so the event is offered on.
    pub(in crate::channel) fn ends_with(&mut self, event: &Message, error: &SinkError, now: i64) -> Option<DeadLetter> {
        let SinkError::Refused { .. } = error else { return None };
        let offset = event.offset();
        let earlier = self.refused.filter(|refused| refused.offset == offset);
        let Refused { since, attempts, .. } = earlier.unwrap_or(Refused { offset, since: now, attempts: 0 });
        let attempts = attempts.saturating_add(1);
        self.refused = Some(Refused { offset, since, attempts });
        let waited = Duration::from_secs(u64::try_from(now - since).unwrap_or(0));
        self.gives_up_after.is_some_and(|limit| waited >= limit).then(|| DeadLetter {
            facts: GivenUp {
                offset,
                event_id: event.record().event_id,
                reason: Chain(error).to_string(),
                attempts,
                since,
                at: now,
                bytes: 0,
            },
            json: event.record().event(),
        })
    }
}

#[cfg(test)]
mod tests;

//! How long a lane offers one event that its sink refuses, and what it leaves behind when it gives it up.

use std::time::Duration;

use crate::event::Offset;
use crate::record::Message;
use crate::sink::SinkError;
use crate::state::{DeadLetter, GivenUp};
use crate::telemetry::Chain;

/// The patience of one lane with the event that it offers.
#[derive(Debug)]
pub(super) struct Patience {
    /// `None` is for ever.
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

impl Patience {
    pub(super) fn new(gives_up_after: Option<Duration>) -> Self {
        Self { gives_up_after, refused: None }
    }

    /// Notes that an event was refused at `now`, in Unix seconds. It is a dead letter once that has gone on for too long.
    /// What the system does not let us write is offered for ever: no other event would fare better.
    pub(super) fn ends_with(&mut self, event: &Message, error: &SinkError, now: i64) -> Option<DeadLetter> {
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
                event_id: event.record().event_id(),
                reason: Chain(error).to_string(),
                attempts,
                since,
                at: now,
            },
            json: event.record().event(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::record::Shape;
    use crate::record::tests::notice;

    fn refusal() -> SinkError {
        SinkError::Refused { message: "answered 503".to_owned(), retry_after: None, needs_attention: false }
    }

    #[test]
    fn an_event_is_given_up_when_it_was_refused_for_too_long_and_not_before() {
        let event = Message::new(&Arc::new(notice("wallet.status", "{}")), Shape::default());
        let mut patience = Patience::new(Some(Duration::from_secs(60)));
        for now in [1_000, 1_030, 1_059, 900] {
            assert_eq!(patience.ends_with(&event, &refusal(), now), None, "{now}");
        }
        let letter = patience.ends_with(&event, &refusal(), 1_060).unwrap();
        assert_eq!(letter.json, event.record().event());
        let GivenUp { reason, attempts, since, at, .. } = letter.facts;
        assert_eq!((&*reason, attempts, since, at), ("answered 503", 5, 1_000, 1_060));
    }

    #[test]
    fn without_a_limit_nothing_is_given_up_nor_is_what_the_system_refuses() {
        let event = Message::new(&Arc::new(notice("wallet.status", "{}")), Shape::default());
        let io = || SinkError::Io { doing: "writing".to_owned(), source: std::io::ErrorKind::StorageFull.into() };
        let (mut for_ever, mut short) = (Patience::new(None), Patience::new(Some(Duration::ZERO)));
        assert_eq!(for_ever.ends_with(&event, &refusal(), i64::MAX), None);
        assert_eq!(short.ends_with(&event, &io(), i64::MAX), None);
    }
}

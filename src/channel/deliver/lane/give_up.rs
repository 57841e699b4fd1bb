//! Decides when a lane gives up on an event.

use std::time::Duration;

use ledger::{DeadLetter, GivenUp};
use net::Chain;
use proof::event::EventKey;
use record::Message;
use sink::SinkError;

/// Times the refusals of the event that a lane offers.
#[derive(Debug)]
pub(super) struct GiveUpTimer {
    /// `None` disables giving up.
    gives_up_after: Option<Duration>,
    /// The event that was last refused.
    refused: Option<GivenUp>,
}

impl GiveUpTimer {
    pub(super) fn new(gives_up_after: Option<Duration>) -> Self {
        Self { gives_up_after, refused: None }
    }

    /// Counts a refusal at `now`, in Unix seconds. Returns the dead letter if the event was refused for too long. Other
    /// errors are not caused by the event and would affect any event, so the event is offered again.
    pub(super) fn ends_with(&mut self, event: &Message, error: &SinkError, now: i64) -> Option<DeadLetter> {
        let SinkError::Refused { .. } = error else { return None };
        let limit = self.gives_up_after?;
        let (key, received) = (event.event_key(), event.record().received);
        let EventKey { offset, id: event_id } = key;
        let earlier = self.refused.as_ref().filter(|refused| refused.event_key() == key);
        let (since, attempts) = earlier.map_or((now, 0), |refused| (refused.since, refused.attempts));
        let (reason, attempts) = (Chain(error).to_string(), attempts.saturating_add(1));
        let facts = GivenUp { offset, event_id, reason, attempts, since, at: now, received, bytes: 0 };
        self.refused = Some(facts.clone());
        let waited = Duration::from_secs(u64::try_from(now - since).unwrap_or(0));
        (waited >= limit).then(|| DeadLetter { facts, json: event.record().event() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use record::Shape;
    use record::testing::notice;
    use sink::Fault;

    fn refusal() -> SinkError {
        SinkError::Refused { message: "answered 503".to_owned(), retry_after: None, fault: Fault::Target }
    }

    #[test]
    fn an_event_is_given_up_when_it_was_refused_for_too_long_and_not_before() {
        let event = Message::new(&Arc::new(notice("wallet.status", "{}")), &Shape::default());
        let mut give_up = GiveUpTimer::new(Some(Duration::from_secs(60)));
        for now in [1_000, 1_030, 1_059, 900] {
            assert_eq!(give_up.ends_with(&event, &refusal(), now), None, "{now}");
        }
        let letter = give_up.ends_with(&event, &refusal(), 1_060).unwrap();
        assert_eq!(letter.json, event.record().event());
        let GivenUp { reason, attempts, since, at, .. } = letter.facts;
        assert_eq!((&*reason, attempts, since, at), ("answered 503", 5, 1_000, 1_060));
    }

    #[test]
    fn without_a_limit_nothing_is_given_up_nor_is_what_the_system_refuses() {
        let event = Message::new(&Arc::new(notice("wallet.status", "{}")), &Shape::default());
        let io = || SinkError::io("writing", std::io::ErrorKind::StorageFull.into());
        let (mut for_ever, mut short) = (GiveUpTimer::new(None), GiveUpTimer::new(Some(Duration::ZERO)));
        assert_eq!(for_ever.ends_with(&event, &refusal(), i64::MAX), None);
        assert_eq!(short.ends_with(&event, &io(), i64::MAX), None);
    }
}

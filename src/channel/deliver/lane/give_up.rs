//! Decides whether a refusal is the fault of the event or of the target, and when a refused event becomes a dead letter.
//!
//! Only an event that is at fault may become a dead letter. Some refusals name the event as the cause: the sink has offered
//! other content without effect, or the endpoint refuses the content of the event. After any other refusal, such as a 404
//! or a timeout of a webhook, the events beside the refused one decide. When `give_up_after` has passed, the lane offers the
//! refused event alone, and then the next events, one at a time:
//!
//! | the sink | the lane |
//! |---|---|
//! | accepts the event alone | continues: the sink refused the event only together with others |
//! | refuses the event and accepts the next one | makes the event a dead letter |
//! | refuses both | waits, and reports that the target refuses every event |
//! | refuses the event, and no next event was read | makes the event a dead letter, but not two such events in a row |
//!
//! If the next event has also been refused for `give_up_after`, the event after it decides about both. If the sink sends
//! several requests at a time, and has accepted later events meanwhile, no next event is needed.
//!
//! # Invariants
//!
//! * **In order.** An event is offered before an earlier one only if the earlier one becomes a dead letter when the sink
//!   accepts the event.
//! * **The target is at fault until another event is accepted.** If a target refuses every event for a long time, at most one
//!   event becomes a dead letter: an event that waits alone, or an event that the target refused just before it recovered.
//! * A target that asks for a wait is not judged. A sink with positions judges its refusals itself, because its position would
//!   pass the refused event.

use std::slice;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::deliver::batch::Batch;
use crate::deliver::lane::{Halt, Lane};
use crate::error::ChannelError;
use ledger::{DEAD_LETTERS, DeadLetter, DeadLetterFacts};
use net::Chain;
use proof::event::EventKey;
use record::Message;
use sink::{Fault, OtherContent, SinkError, Undelivered};

/// The maximum number of events in a row that become dead letters together.
const MAX_TOGETHER: usize = 8;

/// The events at the front of a lane that the sink has refused, and the evidence against them.
#[derive(Debug, Default)]
pub(super) struct RefusedEvents {
    /// In the order of the lane, each with the time of its first refusal. The facts contain this time by the time of day, which
    /// an operator or a time server can set forward or back.
    events: Vec<(DeadLetterFacts, Instant)>,
    /// Whether the sink has accepted a later event since it refused the first of these events.
    others_accepted: bool,
    /// Whether an event without a next one became a dead letter, and the sink has accepted no event since.
    pub(super) gave_up_alone: bool,
}

impl Lane {
    /// Handles the refusal of the first waiting event. `others_accepted` tells whether the sink has accepted later events of
    /// the same offer. Makes events that are at fault dead letters. Returns the error to report, or `None` if the sink has accepted
    /// events meanwhile.
    pub(super) async fn judge(
        &mut self,
        batch: &Batch,
        waiting: &mut Vec<Message>,
        (error, others_accepted): (SinkError, bool),
        stop: &CancellationToken,
    ) -> Result<Option<SinkError>, Halt> {
        let Some(first) = waiting.first() else { return Ok(Some(error)) };
        self.refused_events.begin_at(&first.event_key(), others_accepted);
        let Some(letter) = self.due(first, &error) else { return Ok(Some(error)) };
        if error.fault() == Fault::Event {
            self.give_up(batch, waiting, letter).await?;
            return Ok(Some(error));
        }
        if !self.is_unclear(&error) {
            return Ok(Some(error));
        }
        self.offer_alone(batch, waiting, stop).await
    }

    /// Offers the waiting events one at a time, until it is clear whose fault the refusals are. In a batch, or if several
    /// requests are sent at a time, the first waiting event may not be the refused one.
    async fn offer_alone(
        &mut self,
        batch: &Batch,
        waiting: &mut Vec<Message>,
        stop: &CancellationToken,
    ) -> Result<Option<SinkError>, Halt> {
        let (mut letters, mut refusal, mut has_accepted) = (Vec::new(), None, false);
        while let Some(event) = waiting.get(letters.len()).filter(|_| letters.len() < MAX_TOGETHER) {
            self.ready(stop).await?;
            let Err(Undelivered { error, .. }) = self.offer(slice::from_ref(event), event.offset()).await else {
                let is_found = !letters.is_empty();
                for letter in letters.drain(..) {
                    self.give_up(batch, waiting, letter).await?;
                }
                let accepted = waiting.remove(0).offset();
                self.record(batch, if waiting.is_empty() { batch.through } else { accepted }, None).await?;
                self.accepted();
                if is_found {
                    return Ok(None);
                }
                has_accepted = true;
                continue;
            };
            let letter = self.due(event, &error);
            // An error other than a plain refusal decides how the lane continues: the sink may be gone, or ask for a wait.
            let is_refused = matches!(error, SinkError::Refused { retry_after: None, .. });
            if !is_refused || (letters.is_empty() && !self.is_unclear(&error)) {
                return Ok(Some(error));
            }
            refusal.get_or_insert(error);
            let Some(letter) = letter else { break };
            letters.push(letter);
            if self.refused_events.others_accepted {
                break;
            }
        }
        let Some(error) = refusal else { return Ok(None) };
        if has_accepted || letters.is_empty() {
            return Ok(Some(error));
        }
        let is_alone = waiting.len() == 1 && !self.refused_events.gave_up_alone;
        if !is_alone && !self.refused_events.others_accepted {
            return Ok(Some(error.judged(OtherContent::Refused)));
        }
        self.refused_events.gave_up_alone |= !self.refused_events.others_accepted;
        self.give_up(batch, waiting, letters.remove(0)).await?;
        Ok(Some(error))
    }

    /// Returns the dead letter of a late event, if it becomes one. The next event is not known.
    pub(super) fn late_dead_letter(&mut self, event: &Message, error: &SinkError) -> Option<DeadLetter> {
        self.refused_events.begin_at(&event.event_key(), false);
        let letter = self.due(event, error)?;
        if error.fault() != Fault::Event {
            if !self.is_unclear(error) || self.refused_events.gave_up_alone {
                return None;
            }
            self.refused_events.gave_up_alone = true;
        }
        self.report_dead_letter(&letter.facts);
        Some(letter)
    }

    /// Whether a refusal can be the fault of the event or of the target, and other events can show which.
    fn is_unclear(&self, error: &SinkError) -> bool {
        let is_asked_to_wait = !matches!(error, SinkError::Refused { retry_after: None, .. });
        error.fault() != Fault::Event && !is_asked_to_wait && self.confirmed.is_none()
    }

    /// Counts a refusal. Returns the dead letter of the event if the sink has refused it for `give_up_after`. Returns `None`
    /// while the dead letters are full.
    fn due(&mut self, event: &Message, error: &SinkError) -> Option<DeadLetter> {
        let now = self.shared.channel.parts.machine.now();
        let letter = self.refused_events.count(event, error, self.settings.gives_up_after, now)?;
        let is_full = self.shared.look(|ledger| ledger.dead_letter_room().is_full(DEAD_LETTERS));
        (!is_full).then_some(letter)
    }

    /// Records the first waiting event as a dead letter.
    async fn give_up(
        &mut self,
        batch: &Batch,
        waiting: &mut Vec<Message>,
        letter: DeadLetter,
    ) -> Result<(), ChannelError> {
        self.report_dead_letter(&letter.facts);
        let offset = waiting.remove(0).offset();
        self.record(batch, if waiting.is_empty() { batch.through } else { offset }, Some(letter)).await
    }

    fn report_dead_letter(&self, facts: &DeadLetterFacts) {
        let (channel, sink) = (&self.identity.channel.name, &self.identity.sink);
        self.shared.channel.metrics.gave_up(sink);
        self.shared.channel.handle.board().lane_gave_up(sink);
        error!(%channel, %sink, trace_id = self.trace_id(), offset = facts.offset.get(), attempts = facts.attempts, reason = facts.reason, "the sink refused the event for too long: the event is a dead letter now, see `channeld dead-letters list`");
    }
}

impl RefusedEvents {
    /// Removes the events before the first waiting event, because they are no longer refused.
    fn begin_at(&mut self, first: &EventKey, others_accepted: bool) {
        let before = self.events.iter().position(|(refused, _)| refused.event_key() == *first);
        self.events.drain(..before.unwrap_or(self.events.len()));
        self.others_accepted = others_accepted || (self.others_accepted && !self.events.is_empty());
    }

    /// Counts a refusal. Returns the dead letter if the event was refused for at least `limit`. Returns `None` for an error
    /// other than a refusal, because such an error would affect every event. `now` is the time of day, in Unix seconds.
    fn count(&mut self, event: &Message, error: &SinkError, limit: Option<Duration>, now: i64) -> Option<DeadLetter> {
        let (SinkError::Refused { .. }, limit) = (error, limit?) else { return None };
        let (key, received) = (event.event_key(), event.record().received);
        let at = self.events.iter().position(|(refused, _)| refused.event_key() == key).unwrap_or(self.events.len());
        if at == self.events.len() {
            let EventKey { offset, id: event_id } = key;
            let (reason, attempts, since) = (String::new(), 0, now);
            let facts = DeadLetterFacts { offset, event_id, reason, attempts, since, at: now, received, bytes: 0 };
            self.events.push((facts, Instant::now()));
        }
        let (facts, first) = &mut self.events[at];
        (facts.reason, facts.attempts, facts.at) = (Chain(error).to_string(), facts.attempts.saturating_add(1), now);
        (first.elapsed() >= limit).then(|| DeadLetter { facts: facts.clone(), json: event.record().event() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;
    use tokio::time::advance;

    use super::*;
    use crate::run::tests::{channel, run_for};
    use record::Shape;
    use record::testing::notice;
    use sink::{Delivery, Sink};

    fn refusal() -> SinkError {
        SinkError::Refused { message: "answered 503".to_owned(), retry_after: None, fault: Fault::Target }
    }

    fn event() -> Message {
        Message::new(&Arc::new(notice("wallet.status", "{}")), &Shape::default())
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_becomes_a_dead_letter_only_after_give_up_after() {
        let (event, mut refused) = (event(), RefusedEvents::default());
        let mut give_up = |now| refused.count(&event, &refusal(), Some(Duration::from_secs(60)), now);
        // The time of day is set forward by a day, and then back.
        for now in [1_000, 87_420, 1_040] {
            assert_eq!(give_up(now), None, "{now}");
            advance(Duration::from_secs(20)).await;
        }
        let letter = give_up(900).unwrap();
        assert_eq!(letter.json, event.record().event());
        let DeadLetterFacts { reason, attempts, since, at, .. } = letter.facts;
        assert_eq!((&*reason, attempts, since, at), ("answered 503", 4, 1_000, 900));
    }

    #[test]
    fn without_a_limit_or_on_a_system_failure_there_are_no_dead_letters() {
        let (event, mut refused) = (event(), RefusedEvents::default());
        let io = || SinkError::io("writing", std::io::ErrorKind::StorageFull.into());
        assert_eq!(refused.count(&event, &refusal(), None, i64::MAX), None);
        assert_eq!(refused.count(&event, &io(), Some(Duration::ZERO), i64::MAX), None);
    }

    #[tokio::test(start_paused = true)]
    async fn evidence_and_times_last_until_the_event_is_no_longer_first() {
        let (event, mut refused) = (event(), RefusedEvents::default());
        let (limit, other) = (Some(Duration::from_secs(60)), EventKey { id: None, ..event.event_key() });
        refused.begin_at(&event.event_key(), true);
        assert_eq!(refused.count(&event, &refusal(), limit, 1_000), None);
        advance(Duration::from_secs(60)).await;
        refused.begin_at(&event.event_key(), false);
        assert!(refused.others_accepted && refused.count(&event, &refusal(), limit, 1_060).is_some());
        refused.begin_at(&EventKey { offset: other.offset.before().unwrap_or(other.offset), id: None }, false);
        assert!(!refused.others_accepted && refused.count(&event, &refusal(), limit, 1_060).is_none());
    }

    /// A sink that refuses the first event, and returns another error for any other event.
    #[derive(Debug)]
    struct SecondAnswer {
        error: SinkError,
        /// The first event of each offer.
        offers: Mutex<Vec<i64>>,
    }

    #[async_trait]
    impl Sink for SecondAnswer {
        async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
            let first = delivery.messages[0].offset().get();
            self.offers.lock().unwrap().push(first);
            Err(Undelivered::after(0, if first == 1 { refusal() } else { self.error.clone() }))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_obeys_the_answer_to_the_event_after_a_refused_one() {
        let (message, asked) = ("answered 503".to_owned(), Some(Duration::from_secs(3600)));
        let wait = SinkError::Refused { message, retry_after: asked, fault: Fault::Target };
        for error in [SinkError::Gone("answered 410".to_owned()), wait] {
            let sink = Arc::new(SecondAnswer { error: error.clone(), offers: Mutex::default() });
            let (channel, handle) = channel(5, sink.clone());
            channel.plan.send_modify(|plan| plan.lanes[0].gives_up_after = Some(Duration::from_secs(60)));
            run_for(&channel, Duration::from_secs(1800), &CancellationToken::new()).await;
            let offers = sink.offers.lock().unwrap();
            let second = offers.iter().position(|first| *first == 2);
            assert_eq!(second, Some(offers.len() - 1), "nothing is sent after \"{error}\": {offers:?}");
            assert_eq!(handle.pauses().gone.contains_key("sink"), matches!(error, SinkError::Gone(_)), "{error}");
        }
    }
}

//! Requests late proofs: reads each pending event again by its id, with growing waits, until its proof arrives or the event
//! times out.
//!
//! This task also settles events that an operator releases from the quarantine, and events that an operator replays. It
//! verifies the stored bytes of such an event first, because the service may no longer have the event. A replayed event must
//! pass every check of an event that is read for the first time.
//!
//! # Invariants
//!
//! * **Durable.** Every event of the queue ([`queue`]) is also a late event in the ledger. Only the times of the next
//!   requests are not durable, so this task is safe to cancel at any point.
//! * **In lane order.** A late event passes through the lane's queue. It is therefore delivered after the batch in which it
//!   was set aside.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep_until};

use crate::deliver::batch::{Cause, Disposition, LateRecord};
use crate::error::ChannelError;
use crate::run::context::{ReadPlan, RunContext};
use crate::status::Activity;
use crate::status::reporter::{LoopPart, StatusReporter};
use crate::verify::Stage;
use ledger::{Change, Key, LATE, QUARANTINE, SinkName};
use proof::event::{EventKey, RawEvent};

pub(super) mod queue;
pub(super) mod replay;

use queue::{IsStored, PROOF_RETRY};

/// The interval at which the running time of the channel is recorded. How long an event has waited for its proof is measured in running time.
/// A crash loses at most this much of each wait.
const RECORD_ASKED: Duration = Duration::from_secs(60);

/// How long a replayed or retried event waits for room in the queues of the lanes. Other late events wait during this time.
const ROOM_WAIT: Duration = Duration::from_millis(50);

/// Returns whether the limit of pending events is reached. Events that have left the queue, on their way to the lanes, do not
/// count.
pub(super) fn is_full(shared: &RunContext) -> bool {
    shared.look(|ledger| {
        let waiting = || shared.late.room(|key| ledger.late().get(key).map(|late| late.bytes));
        ledger.late_room().is_full(LATE) && waiting().is_full(LATE)
    })
}

pub(super) async fn room(shared: &RunContext, reporter: &StatusReporter) {
    loop {
        let removed = shared.late.removed.notified();
        if !is_full(shared) {
            return;
        }
        reporter.report(Activity::TooManyLate);
        removed.await;
    }
}

/// Requests the proofs of a channel's late events, beginning with the events of an earlier run.
pub(super) async fn settle(shared: &RunContext) -> Result<(), ChannelError> {
    let reporter = StatusReporter { handle: shared.channel.handle.clone(), part: LoopPart::Late };
    shared.late.add(all(shared, false));
    let mut record_at = Instant::now() + RECORD_ASKED;
    loop {
        let key = tokio::select! {
            biased;
            () = sleep_until(record_at) => {
                record_at = Instant::now() + RECORD_ASKED;
                if !shared.look(|ledger| ledger.late().is_empty()) {
                    shared.commit(vec![Change::Asked(shared.asked())]).await?;
                }
                continue;
            }
            key = next_due(shared) => key,
        };
        // Boxed, because most channels have no late event.
        Box::pin(async {
            let answer = shared.by_plan(|read_plan| ask(shared, read_plan, key, &reporter)).await?;
            take(shared, key, answer).await
        })
        .await?;
    }
}

async fn next_due(shared: &RunContext) -> EventKey {
    let RunContext { late, owned, hub, .. } = shared;
    loop {
        let added = late.added.notified();
        let first = late.first_due();
        let due = async {
            let Some((due, key)) = first else { return std::future::pending().await };
            sleep_until(due).await;
            key
        };
        let room = async {
            let Some(key) = late.first_without_room() else { return std::future::pending().await };
            // This event is due at the latest when this patience ends. Boxed, because most channels have no such event.
            Box::pin(hub.room_for_late(PROOF_RETRY.max_wait, |_| true)).await;
            key
        };
        tokio::select! {
            biased;
            key = due => return key,
            () = added => {}
            () = owned.released.notified() => late.add(all(shared, true)),
            key = room => return key,
        }
    }
}

fn all(shared: &RunContext, is_stored: IsStored) -> Vec<(EventKey, IsStored)> {
    shared.look(|ledger| ledger.late().keys().map(|key| (*key, is_stored)).collect())
}

/// The result of a request for a proof.
struct ProofRequestResult<'a> {
    since: SystemTime,
    stage: Stage<'a>,
    /// `None` if the service did not return the event, or if the event is no longer late.
    outcome: Option<Disposition>,
    cause: Cause,
    /// Whether the event had timed out before the request. If the answer has no proof either, the event is rejected.
    is_last: bool,
}

async fn ask<'a>(
    shared: &RunContext,
    read_plan: Arc<ReadPlan>,
    key: EventKey,
    reporter: &'a StatusReporter,
) -> Result<ProofRequestResult<'a>, ChannelError> {
    let since = SystemTime::now();
    let known = shared.look(|ledger| {
        let late = ledger.late().get(&key)?;
        Some((late.appeared, late.replayed, late.received, shared.is_timed_out(&read_plan, late.asked_at)))
    });
    let (appeared, replayed, received, is_last) = known.unwrap_or_default();
    let received = received.unwrap_or_else(|| shared.channel.parts.machine.time());
    let stage = Stage { read_plan, reporter, received, trace: None, replayed };
    let mut asked = ProofRequestResult { since, stage, outcome: None, cause: Cause::Proof, is_last };
    if known.is_none() {
        // The event is no longer late.
        return Ok(asked);
    }
    // The bytes of an event are stored if the event became visible late, or if an operator released or replays it.
    if let Some(json) = shared.owned.leased.body(Key::Body(key)).await? {
        let EventKey { offset, id } = key;
        asked.outcome = asked.stage.by_kept_bytes(RawEvent { offset, id, json }).await;
        asked.cause = if appeared { Cause::Appeared } else { Cause::Operator };
    }
    if asked.outcome.is_none() {
        asked.outcome = asked.stage.ask_for_proof(key, is_last).await;
        asked.cause = Cause::Proof;
    }
    Ok(asked)
}

async fn take(
    shared: &RunContext,
    key: EventKey,
    ProofRequestResult { since, stage, outcome, cause, is_last }: ProofRequestResult<'_>,
) -> Result<(), ChannelError> {
    let RunContext { late, hub, .. } = shared;
    let (settled, last_read) = match outcome {
        Some(Disposition::Pending(pending)) => (None, Some(pending.json)),
        settled => (settled, None),
    };
    let is_rejected = settled.as_ref().is_none_or(Disposition::is_rejected);
    let kept =
        if settled.is_none() && is_last { shared.owned.leased.body(Key::Body(key)).await?.or(last_read) } else { None };
    let asks_later = shared.look(|ledger| {
        // An event that is late because a sink has lost it has no stored bytes, so it cannot be quarantined. It is requested
        // until the service returns it.
        let waits_on = settled.is_none() && kept.is_none();
        // While the quarantine is full, the event stays late in the ledger.
        let is_kept = is_rejected && ledger.quarantine_room().is_full(QUARANTINE);
        ledger.late().contains_key(&key) && (waits_on || is_kept)
    });
    if asks_later {
        late.ask_later(key);
        return Ok(());
    }
    // Remove the event first. If a lane then passes the event without its proof, the lane can insert the event again.
    let removed = late.remove(key);
    let Some(facts) = shared.look(|ledger| ledger.late().get(&key).cloned()) else { return Ok(()) };
    let changes = match settled {
        Some(Disposition::Deliver(record)) => {
            let trace = shared.channel.parts.traces.begin("late", &shared.channel.identity, since);
            trace.note(|| vec![("offset", key.offset.get())]);
            let record = LateRecord::new(record, cause, trace);
            // An event that an operator asked for is meant only for the lanes that still owe it. A lane that has not passed
            // such an event reads it in order. Any other event is meant for all lanes: a lane that has the event in its queue
            // delivers it late.
            let is_meant = |sink: &SinkName| cause != Cause::Operator || facts.owed.contains(sink);
            if cause == Cause::Operator {
                hub.room_for_late(ROOM_WAIT, is_meant).await;
            }
            if !hub.offer_late(&record, is_meant) {
                match removed {
                    Some(removed) if cause == Cause::Proof => late.ask_when_room(key, removed),
                    _ => late.wait_for_room(key),
                }
            }
            return Ok(());
        }
        Some(Disposition::Rejected(event) | Disposition::Unconfirmed(event)) => vec![Change::Quarantine(event)],
        // The service now shows a notice at this place, and the configuration drops notices: no lane has to deliver the event any more.
        Some(Disposition::Dropped(_) | Disposition::Pending(_)) => {
            facts.owed.iter().map(|sink| Change::Settle { sink: sink.clone(), key }).collect()
        }
        // The event timed out. Quarantine the stored bytes or, if they are missing, the bytes of the last answer.
        None => {
            let Some(json) = kept else { return Ok(()) };
            vec![Change::Quarantine(stage.proof_timeout(key, json))]
        }
    };
    shared.commit(changes).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use async_trait::async_trait;
    use bytes::Bytes;
    use tokio::time::sleep;

    use super::*;
    use crate::deliver::batch::Work;
    use crate::read::source::Source;
    use crate::run::tests::{Receives, begun, channel, notice};
    use api::{ApiError, Page};
    use ledger::Cursor;
    use proof::event::{EventId, Offset};

    /// A service that has the proofs of all events.
    #[derive(Debug, Default)]
    struct TestSource {
        requests: AtomicUsize,
    }

    #[async_trait]
    impl Source for TestSource {
        async fn poll(&self, _: Option<Offset>, _: u16) -> Result<Page, ApiError> {
            Err(ApiError::RateLimited { retry_after: None })
        }

        async fn created(&self, _: Option<i64>, _: i64, _: u16) -> Result<Page, ApiError> {
            Err(ApiError::RateLimited { retry_after: None })
        }

        async fn event(&self, id: EventId) -> Result<RawEvent, ApiError> {
            self.requests.fetch_add(1, Relaxed);
            Ok(notice(id.0.as_u128().try_into().unwrap()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sink_without_room_causes_few_requests_and_receives_the_events_when_it_has_room() {
        let (source, events) = (Arc::new(TestSource::default()), 20);
        let (channel, _) = channel(0, Arc::new(Receives::Everything));
        channel.plan.send_modify(|plan| plan.source = source.clone());
        let (shared, plan, _) = begun(&channel).await;
        let (sink, through) = (plan.lanes[0].name.clone(), Offset::new(events));
        let unproved = |at| RawEvent { json: Bytes::from_static(b"{}"), ..notice(at) };
        let pending = |at| channel.pending(&unproved(at), channel.parts.machine.time(), false);
        let owe = |at| Change::Owe { sink: sink.clone(), event: pending(at) };
        let advance = Change::Advance { sink: sink.clone(), to: Cursor { through } };
        shared.commit((1..=events).map(owe).chain([advance]).collect()).await.unwrap();
        let (mut input, _waiting) = shared.hub.add(&sink, through);
        let story = async {
            sleep(Duration::from_secs(600)).await;
            let requests = source.requests.load(Relaxed);
            assert!((20..20 * 20).contains(&requests), "{requests} requests");
            let began = Instant::now();
            for _ in 0..events {
                assert!(matches!(input.next().await, Some(Work::Late(_))));
            }
            assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
            assert!(
                source.requests.load(Relaxed) <= requests + 20,
                "each event is requested at most once when the lane has room"
            );
        };
        tokio::select! {
            biased;
            ended = settle(&shared) => panic!("{ended:?}"),
            () = story => {}
        }
    }
}

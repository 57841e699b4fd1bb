//! Compares the service's history with the events that were read before.
//!
//! The service can be restored from a backup and use offsets again. Its answers do not report a restore, but they contain
//! other events at known offsets. Each page therefore overlaps the events that were already read, and the overlapping events
//! are compared with the remembered events. The ledger stores the newest recorded events, so that the comparison is also
//! possible after a restart. After a start or an error, no event is passed on before a comparison. The newest event is compared too,
//! because no page overlaps an event at offset 0 if `offset` excludes the event at this offset.
//!
//! If an event differs, the ledger records a [`Contradiction`]. The channel is then not ready, and new events are
//! quarantined, until an operator accepts the service's history (`channeld cursor set`). After that, reading continues at the
//! last event on which the two histories agree, so no event is skipped. A proxy can damage a page, so the service is asked a
//! second time before a difference is recorded. Safe to cancel: a difference that was not committed is found again.

use std::time::Duration;

use tokio::time::sleep;
use tracing::error;

use crate::deliver::batch::Disposition;
use crate::error::ChannelError;
use crate::read::source::Source;
use crate::run::context::{ReadPlan, RunContext};
use crate::verify::Stage;
use crate::verify::reason::Rejection;
use api::{ApiError, Page, SMALLEST_PAGE, TransientError};
use ledger::{Change, Contradiction, History, KnownEvent};
use net::tasks::lock;
use proof::event::{EventId, EventKey, Offset, RawEvent};

/// The waits after the failed lookups of an event by its id. After the last failed lookup, the event counts as gone. One
/// lookup is not enough, because an answer of the service can be outdated.
const BETWEEN_LOOKUPS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::ZERO];

/// After a timeout, the number of events of the next page is divided by this.
const SHRINK: u16 = 8;

#[derive(Debug, PartialEq, Eq)]
enum EventMatch {
    Same,
    /// Another event with this id or, if `None`, no event.
    Other(Option<EventId>),
}

/// Compares events that were shown again with the remembered events. If `thorough`, the newest remembered event at or below
/// `position` is compared even if the overlap does not contain it. Returns a new difference, and the changes that record the
/// difference.
pub(crate) async fn compare(
    shared: &RunContext,
    stage: &Stage<'_>,
    overlap: &[RawEvent],
    position: Option<Offset>,
    thorough: bool,
) -> Result<Option<(Contradiction, Vec<Change>)>, ApiError> {
    if (overlap.is_empty() && !thorough) || shared.look(|ledger| ledger.contradiction().is_some()) {
        return Ok(None);
    }
    let (known, suspect): (Vec<KnownEvent>, _) = {
        let read = lock(&shared.read);
        let known = read.events().filter(|event| Some(event.key.offset) <= position && event.key.id.is_some());
        let is_shown = |offset: Offset| overlap.iter().any(|event| event.offset == offset);
        let newest = known.clone().next_back().map(|newest| newest.key.offset);
        let newest = newest.filter(|newest| thorough && !is_shown(*newest));
        let shown = overlap.iter().find(|event| differs(&read, event)).map(|event| event.offset);
        let Some(suspect) = shown.or(newest) else { return Ok(None) };
        (known.copied().collect(), suspect)
    };
    // Boxed, because most answers differ in nothing.
    Box::pin(examine(shared, stage, &known, suspect)).await
}

/// Reads the event at `suspect` a second time, because a proxy can have damaged the page, and compares it.
async fn examine(
    shared: &RunContext,
    stage: &Stage<'_>,
    known: &[KnownEvent],
    suspect: Offset,
) -> Result<Option<(Contradiction, Vec<Change>)>, ApiError> {
    let Some(event) = known.iter().find(|event| event.key.offset == suspect) else { return Ok(None) };
    let ReadPlan { source, settings, .. } = &*stage.read_plan;
    let EventMatch::Other(found) = find(&**source, settings.page_limit, event).await? else { return Ok(None) };
    contradict(shared, stage, known, event, found).await.map(Some)
}

/// Returns whether the service shows an event that differs from the known event at the same offset.
pub(crate) fn differs(read: &History, event: &RawEvent) -> bool {
    let mut known = read.at(event.offset).peekable();
    let has_known = known.peek().is_some();
    // An event without an id cannot be distinguished from another event.
    has_known && event.id.is_some() && known.all(|known| known.key.id.is_some() && known.key.id != event.id)
}

/// Looks for an event at the offset of the known event, on a page of at most `limit` events.
async fn find(source: &dyn Source, limit: u16, known: &KnownEvent) -> Result<EventMatch, ApiError> {
    let (offset, mut limit) = (known.key.offset, limit.max(SMALLEST_PAGE));
    let Page { events, has_more } = loop {
        match source.poll(offset.before().or(Some(offset)), limit).await {
            // A smaller page may arrive in time.
            Err(ApiError::Transient(TransientError::Timeout)) if limit > SMALLEST_PAGE => {
                limit = (limit / SHRINK).max(SMALLEST_PAGE);
            }
            page => break page?,
        }
    };
    if let Some(event) = events.iter().find(|event| event.offset == offset) {
        let is_same = event.id.is_none() || event.id == known.key.id;
        return Ok(if is_same { EventMatch::Same } else { EventMatch::Other(event.id) });
    }
    let is_whole = events.len() < usize::from(limit) && !has_more;
    let ends = events.last().zip(events.first());
    let is_between = |(lowest, highest): (&RawEvent, &RawEvent)| lowest.offset < offset && offset < highest.offset;
    // The service can treat a poll's `offset` as exclusive. Then no poll with an `offset` returns an event at offset 0,
    // because no smaller offset can be requested. The absence of that event therefore proves nothing.
    let is_absent = offset != Offset::ZERO && (is_whole || ends.is_some_and(is_between));
    // A page can be outdated too, so an event with an id is looked up even if the page lacks it.
    let Some(id) = known.key.id else { return Ok(if is_absent { EventMatch::Other(None) } else { EventMatch::Same }) };
    for wait in BETWEEN_LOOKUPS {
        match source.event(id).await {
            Ok(event) if event.offset == offset => return Ok(EventMatch::Same),
            Ok(_) | Err(ApiError::NotFound(_)) => sleep(wait).await,
            Err(error) => return Err(error),
        }
    }
    Ok(EventMatch::Other(None))
}

/// Returns the contradiction, and the changes that record it. The contradiction names the highest known offset up to which
/// the histories agree.
async fn contradict(
    shared: &RunContext,
    stage: &Stage<'_>,
    known: &[KnownEvent],
    event: &KnownEvent,
    mut found: Option<EventId>,
) -> Result<(Contradiction, Vec<Change>), ApiError> {
    let read_plan = &stage.read_plan;
    let (mut agree, mut differ) = (0, known.partition_point(|other| other.key.offset < event.key.offset));
    // A binary search: if an event is the same in both histories, the histories agree on every event below it.
    while agree < differ {
        let middle = agree + (differ - agree) / 2;
        match find(&*read_plan.source, read_plan.settings.page_limit, &known[middle]).await? {
            EventMatch::Same => agree = middle + 1,
            EventMatch::Other(other) => (differ, found) = (middle, other),
        }
    }
    let first = known.get(agree).unwrap_or(event);
    let agrees_through = agree.checked_sub(1).map(|at| known[at].key.offset);
    let (machine, offset) = (&shared.channel.parts.machine, first.key.offset);
    let contradiction = Contradiction { offset, known: first.key.id, found, agrees_through, since: machine.now() };
    let mut changes = vec![Change::Contradict(contradiction)];
    if let Some(id) = found
        && let Ok(raw) = stage.read_plan.source.event(id).await
    {
        changes.push(Change::Quarantine(stage.quarantine(raw, Rejection::contradicted(contradiction))));
    }
    Ok((contradiction, changes))
}

/// Records and logs a new difference.
pub(crate) async fn record(
    shared: &RunContext,
    difference: Option<(Contradiction, Vec<Change>)>,
) -> Result<(), ChannelError> {
    let Some((Contradiction { offset, known, found, agrees_through, .. }, changes)) = difference else { return Ok(()) };
    shared.commit(changes).await?;
    let (known, found) = (known.map(tracing::field::display), found.map(tracing::field::display));
    error!(channel = %shared.channel.identity.name, offset = offset.get(), known, found, agrees_through = agrees_through.map(Offset::get), "the service has a different event at a known offset: the service was probably restored from a backup; new events are quarantined until an operator accepts the service's history, see `channeld status`");
    Ok(())
}

/// Quarantines the events above the offset up to which the histories agree. The events up to this offset can still be
/// delivered, by lanes that are behind.
pub(crate) fn quarantined(
    stage: &Stage<'_>,
    contradiction: Contradiction,
    outcomes: Vec<Disposition>,
) -> Vec<Disposition> {
    let outcome = |outcome: Disposition| {
        if Some(outcome.offset()) <= contradiction.agrees_through {
            return outcome;
        }
        let (EventKey { offset, id }, json) = match outcome {
            Disposition::Deliver(record) => (record.event_key(), record.event()),
            Disposition::Pending(pending) => (pending.event_key(), pending.json),
            other => return other,
        };
        let raw = RawEvent { offset, id, json };
        Disposition::Rejected(stage.quarantine(raw, Rejection::contradicted(contradiction)))
    };
    outcomes.into_iter().map(outcome).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use bytes::Bytes;
    use uuid::Uuid;

    use super::*;

    /// A service with an event at each offset. Pages of more than `most` events do not arrive in time.
    #[derive(Debug)]
    struct SlowLine {
        most: u16,
        asked: Mutex<Vec<u16>>,
    }

    fn id(offset: i64) -> EventId {
        EventId(Uuid::from_u128(u128::try_from(offset).unwrap()))
    }

    #[async_trait]
    impl Source for SlowLine {
        async fn poll(&self, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError> {
            self.asked.lock().unwrap().push(limit);
            if limit > self.most {
                return Err(ApiError::Transient(TransientError::Timeout));
            }
            let above = offset.unwrap().get();
            let event = |offset: i64| RawEvent {
                offset: Offset::new(offset).unwrap(),
                id: Some(id(offset)),
                json: Bytes::new(),
            };
            Ok(Page { events: (above + 1..=above + i64::from(limit)).rev().map(event).collect(), has_more: true })
        }

        async fn created(&self, _: Option<i64>, _: i64, _: u16) -> Result<Page, ApiError> {
            unreachable!("the times of events are not compared")
        }

        async fn event(&self, _: EventId) -> Result<RawEvent, ApiError> {
            unreachable!("the page contains the event")
        }
    }

    #[tokio::test]
    async fn on_a_slow_line_an_event_is_compared_with_a_smaller_page() {
        let key = EventKey { offset: Offset::new(500).unwrap(), id: Some(id(500)) };
        let known = KnownEvent { key, previous: None, digest: None };
        let other = KnownEvent { key: EventKey { id: Some(id(7)), ..key }, ..known };
        for (known, expected) in [(known, EventMatch::Same), (other, EventMatch::Other(Some(id(500))))] {
            let line = SlowLine { most: 30, asked: Mutex::default() };
            assert_eq!(find(&line, 200, &known).await.unwrap(), expected);
            assert_eq!(*line.asked.lock().unwrap(), [200, 25]);
        }
        let line = SlowLine { most: 0, asked: Mutex::default() };
        assert!(matches!(find(&line, 200, &known).await, Err(ApiError::Transient(TransientError::Timeout))));
        assert_eq!(*line.asked.lock().unwrap(), [200, 25, SMALLEST_PAGE], "the caller waits before it tries again");
    }
}

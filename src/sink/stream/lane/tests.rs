//! Tests a lane on a log in memory. The log accepts appends under the same conditions as a server, and refuses the event that
//! a test selects.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::FutureExt;

use super::*;
use crate::stream::Limits;
use crate::tests::{channel, lane, offset, records};
use crate::{Confirmed, Fault};
use proof::event::Offset;

/// The records of a stream: events and positions. The last claim is the only one that may append.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate behavior")]
struct Stream {
    events: Vec<EventKey>,
    position: Option<Position>,
    /// Whether a lane has claimed the stream, as in the claims that Kafka keeps.
    was_claimed: bool,
    refused: Option<Offset>,
    /// Whether every event is refused.
    is_closed: bool,
    /// The offset from which events exceed a limit of the stream, and whether small events exceed it too.
    limit: Option<(Offset, bool)>,
    /// Whether the log reports which event is refused, and stores the events before it, like a server without batches.
    is_one_by_one: bool,
    /// Whether only a search of the whole stream finds events, as in Kafka.
    is_searched_whole: bool,
    /// Whether the next append is carried out and never answered.
    is_silent: bool,
    /// The most events that are appended before the time limit of an append.
    in_time: Option<usize>,
    /// The number of events of each append that was tried.
    tried: Vec<usize>,
}

#[derive(Clone, Default)]
struct LogInMemory(Arc<Mutex<Stream>>);

#[async_trait]
impl Log for LogInMemory {
    type Event = EventKey;

    const MOVED_BACK: &str = "moved back";
    const HOLDS: &str = "holds";

    async fn claim(&mut self, recorded: &Recorded) -> Result<ClaimedPosition, SinkError> {
        let mut stream = lock(&self.0);
        let was_missing = stream.position.is_none() && stream.was_claimed;
        stream.position = Position::adopted(stream.position.clone(), recorded, was_missing);
        stream.was_claimed = true;
        Ok(stream
            .position
            .clone()
            .map_or_else(|| ClaimedPosition::Missing("it is missing".to_owned()), ClaimedPosition::At))
    }

    async fn search(&mut self, everywhere: bool, unrecorded: &Unrecorded) -> Result<UnrecordedEvents, SinkError> {
        let stream = lock(&self.0);
        let events = if everywhere || !stream.is_searched_whole { stream.events.clone() } else { Vec::new() };
        Ok(UnrecordedEvents {
            earlier: events.into_iter().filter(|key| unrecorded.contains(key)).collect(),
            ..UnrecordedEvents::default()
        })
    }

    async fn ready(&mut self, _: &Position) -> Result<(), SinkError> {
        Ok(())
    }

    async fn refresh(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits { events: 8, bytes: usize::MAX }
    }

    fn event(&self, message: &Message) -> Result<(EventKey, usize), SinkError> {
        match lock(&self.0).limit {
            Some((from, _)) if message.offset() >= from => Err(SinkError::refused("too large".to_owned())),
            _ => Ok((message.event_key(), 1)),
        }
    }

    fn takes_small(&self, _: &Message) -> bool {
        lock(&self.0).limit.is_none_or(|(_, is_for_all)| !is_for_all)
    }

    async fn offer_others(&mut self, others: Vec<EventKey>, _: &Position) -> OtherContent {
        let is_closed = lock(&self.0).is_closed;
        others.first().map_or(OtherContent::Untried, |_| OtherContent::accepted(!is_closed))
    }

    async fn append(&mut self, events: Vec<EventKey>, position: &Position) -> Result<Appended, SinkError> {
        let is_silent = {
            let mut stream = lock(&self.0);
            stream.tried.push(events.len());
            if stream.in_time.is_some_and(|most| events.len() > most) {
                return Err(SinkError::away("no answer in time".to_owned()));
            }
            let is_refused = |key: &EventKey| stream.is_closed || Some(key.offset) == stream.refused;
            if let Some(at) = events.iter().position(is_refused) {
                let is_one_by_one = stream.is_one_by_one;
                stream.events.extend(&events[..if is_one_by_one { at } else { 0 }]);
                let error = SinkError::refused("not this one".to_owned());
                return Ok(Appended::Refused { at: is_one_by_one.then_some(at), error });
            }
            stream.events.extend(events);
            stream.position = Some(position.clone());
            std::mem::take(&mut stream.is_silent)
        };
        if is_silent { std::future::pending().await } else { Ok(Appended::All) }
    }

    fn displaced(&self) -> SinkError {
        SinkError::Displaced("it is another".to_owned())
    }
}

impl LogInMemory {
    fn offsets(&self) -> Vec<i64> {
        lock(&self.0).events.iter().map(|key| key.offset.get()).collect()
    }
}

/// Resumes with this cursor. If `confirmed` is `None`, an operator has set the cursor.
async fn resume(lane: &mut Lane<LogInMemory>, through: Option<Offset>, confirmed: Option<Confirmed>) -> Resumed {
    lane.resume(&recorded(lane, through, confirmed)).await.unwrap()
}

fn recorded(lane: &Lane<LogInMemory>, through: Option<Offset>, confirmed: Option<Confirmed>) -> Recorded {
    let (pending, replayed) = (BTreeSet::new(), BTreeSet::new());
    Recorded { lane: lane.identity.clone(), epoch: 1, through, pending, replayed, confirmed, late: Vec::new() }
}

async fn begun(log: &LogInMemory) -> Lane<LogInMemory> {
    let mut lane = Lane::new(lane(&channel(1)), log.clone());
    resume(&mut lane, None, None).await;
    lane
}

async fn deliver(lane: &mut Lane<LogInMemory>, after: i64, offsets: RangeInclusive<i64>) -> Result<(), Undelivered> {
    let (identity, through) = (lane.identity.clone(), offset(*offsets.end()));
    let messages = records(&identity.channel, offsets);
    let after = (after > 0).then(|| offset(after));
    lane.deliver(&Delivery { lane: &identity, epoch: 1, after, through, messages: &messages }).await
}

#[tokio::test]
async fn a_refused_event_is_reported_and_its_neighbors_are_stored_once() {
    for is_one_by_one in [false, true] {
        let log = LogInMemory::default();
        *lock(&log.0) = Stream { refused: Some(offset(13)), is_one_by_one, ..Stream::default() };
        let mut lane = begun(&log).await;
        let refused = deliver(&mut lane, 0, 1..=20).await.unwrap_err();
        assert!(matches!(refused, Undelivered { delivered: 12, error: SinkError::Refused { .. }, .. }), "{refused:?}");
        let resumed = resume(&mut lane, Some(offset(12)), Some(Confirmed::default())).await;
        assert_eq!(resumed.position, LanePosition::At(Some(offset(12))));
        deliver(&mut lane, 12, 14..=20).await.unwrap();
        assert_eq!(log.offsets(), (1..=12).chain(14..=20).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn an_event_refused_after_existing_ones_is_reported() {
    let log = LogInMemory::default();
    let there = records(&channel(1), 1..=3).iter().map(Message::event_key).collect();
    *lock(&log.0) = Stream { events: there, refused: Some(offset(4)), ..Stream::default() };
    let mut lane = begun(&log).await;
    let refused = deliver(&mut lane, 0, 1..=5).await.unwrap_err();
    assert!(matches!(refused, Undelivered { delivered: 3, error: SinkError::Refused { .. }, .. }), "{refused:?}");
    assert_eq!(log.offsets(), [1, 2, 3]);
}

#[tokio::test]
async fn an_unknown_outcome_is_resolved_before_the_next_delivery() {
    let log = LogInMemory::default();
    let mut lane = begun(&log).await;
    lock(&log.0).is_silent = true;
    assert!(deliver(&mut lane, 0, 1..=5).now_or_never().is_none(), "the append is not answered");
    let next = deliver(&mut lane, 0, 1..=5).await.unwrap_err();
    assert!(matches!(next, Undelivered { delivered: 0, error: SinkError::Displaced(_), .. }), "{next:?}");
    let resumed = resume(&mut lane, None, Some(Confirmed::default())).await;
    assert_eq!((resumed.position, resumed.held.len()), (LanePosition::At(Some(offset(5))), 5));
    deliver(&mut lane, 5, 1..=7).await.unwrap();
    assert_eq!(log.offsets(), [1, 2, 3, 4, 5, 6, 7]);
}

/// Another instance without state has taken the lane over, and its cursor has become the position.
#[tokio::test]
async fn events_above_a_moved_position_are_found() {
    let log = LogInMemory::default();
    lock(&log.0).is_searched_whole = true;
    let mut lane = begun(&log).await;
    deliver(&mut lane, 0, 1..=3).await.unwrap();
    deliver(&mut lane, 3, 4..=6).await.unwrap();
    begun(&log).await;

    let confirmed = Confirmed { position: Some(offset(6)), last: None };
    let resumed = resume(&mut lane, Some(offset(6)), Some(confirmed)).await;
    assert_eq!((resumed.position, resumed.held.len()), (LanePosition::At(None), 6));
    deliver(&mut lane, 0, 1..=7).await.unwrap();
    assert_eq!(log.offsets(), [1, 2, 3, 4, 5, 6, 7]);
}

/// The topic of positions was restored to an earlier state, and the topic of events was not.
#[tokio::test]
async fn events_above_a_restored_position_are_found() {
    let log = LogInMemory::default();
    lock(&log.0).is_searched_whole = true;
    let mut lane = begun(&log).await;
    deliver(&mut lane, 0, 1..=3).await.unwrap();
    let restored = lock(&log.0).position.clone();
    deliver(&mut lane, 3, 4..=6).await.unwrap();
    lock(&log.0).position = restored;

    let confirmed = |number| Some(Confirmed { position: Some(offset(number)), last: None });
    let resumed = resume(&mut lane, Some(offset(6)), confirmed(6)).await;
    assert_eq!((resumed.position, resumed.held.len()), (LanePosition::At(Some(offset(3))), 3));
    // The daemon moves its cursor back, and crashes.
    let mut lane = Lane::new(lane.identity, log.clone());
    assert_eq!(resume(&mut lane, Some(offset(3)), confirmed(3)).await.held.len(), 3);
    deliver(&mut lane, 3, 4..=7).await.unwrap();
    assert_eq!(log.offsets(), [1, 2, 3, 4, 5, 6, 7]);
    assert!(resume(&mut lane, Some(offset(7)), confirmed(7)).await.held.is_empty());
    assert!(lock(&log.0).position.as_ref().is_some_and(|position| !position.is_unsearched));
}

#[tokio::test]
async fn a_crash_does_not_prevent_the_search_after_a_missing_position() {
    for is_claimed_before in [false, true] {
        let log = LogInMemory::default();
        lock(&log.0).is_searched_whole = true;
        let mut lane = begun(&log).await;
        deliver(&mut lane, 0, 1..=3).await.unwrap();
        deliver(&mut lane, 3, 4..=6).await.unwrap();
        lock(&log.0).position = None;
        let missing = resume(&mut lane, Some(offset(6)), Some(Confirmed::default())).await;
        assert_eq!(missing.position, LanePosition::Missing("it is missing".to_owned()));

        // An operator sets the cursor to the start. The daemon crashes, in the second case before the search has ended.
        if is_claimed_before {
            lane.log.claim(&recorded(&lane, None, None)).await.unwrap();
        }
        let mut lane = Lane::new(lane.identity, log.clone());
        assert_eq!(resume(&mut lane, None, None).await.held.len(), 6);
        deliver(&mut lane, 0, 1..=7).await.unwrap();
        assert_eq!(log.offsets(), [1, 2, 3, 4, 5, 6, 7]);
    }
}

#[tokio::test]
async fn a_replayed_event_is_published_although_the_stream_has_it() {
    for is_searched in [false, true] {
        let log = LogInMemory::default();
        lock(&log.0).is_searched_whole = true;
        let mut lane = begun(&log).await;
        deliver(&mut lane, 0, 1..=3).await.unwrap();
        let [key] = <[_; 1]>::try_from(records(&channel(1), [2])).unwrap().map(|message| message.event_key());
        let confirmed = Some(Confirmed { position: Some(offset(3)), last: None });
        let (pending, none) = (BTreeSet::from([key]), BTreeSet::new());
        let late = Recorded { pending: pending.clone(), ..recorded(&lane, Some(offset(3)), confirmed) };
        assert_eq!(lane.resume(&late).await.unwrap().held, [key], "only a replay is published again");
        let replay = Recorded { replayed: pending, ..late };
        lock(&log.0).position.as_mut().unwrap().is_unsearched = is_searched;
        assert_eq!(lane.resume(&replay).await.unwrap().held, []);

        lock(&log.0).is_silent = true;
        assert!(deliver(&mut lane, 3, 2..=2).now_or_never().is_none(), "the append is not answered");
        assert_eq!(log.offsets(), [1, 2, 3, 2]);
        assert_eq!(lane.resume(&replay).await.unwrap().held, [key], "the unanswered append has delivered it");
        let settled = Recorded { pending: none.clone(), replayed: none, ..replay.clone() };
        assert_eq!(lane.resume(&settled).await.unwrap().held, []);

        // An operator replays the event once more. The position still names it.
        assert_eq!(lane.resume(&replay).await.unwrap().held, []);
        deliver(&mut lane, 3, 2..=2).await.unwrap();
        assert_eq!(log.offsets(), [1, 2, 3, 2, 2]);
    }
}

#[tokio::test]
async fn only_a_refusal_of_one_event_is_the_fault_of_the_event() {
    let at = |from: i64, is_for_all| Some((offset(from), is_for_all));
    for (stream, fault) in [
        (Stream { refused: Some(offset(1)), ..Stream::default() }, Fault::Event),
        (Stream { is_closed: true, ..Stream::default() }, Fault::Operator),
        // Later events also exceed the limit, but a small event would not.
        (Stream { limit: at(1, false), ..Stream::default() }, Fault::Event),
        (Stream { limit: at(1, true), ..Stream::default() }, Fault::Operator),
        // An earlier event was accepted.
        (Stream { limit: at(2, true), ..Stream::default() }, Fault::Event),
    ] {
        let log = LogInMemory::default();
        let delivered = usize::from(stream.limit == at(2, true));
        *lock(&log.0) = stream;
        let mut lane = begun(&log).await;
        let refused = deliver(&mut lane, 0, 1..=5).await.unwrap_err();
        assert_eq!((refused.error.fault(), refused.delivered), (fault, delivered), "{refused:?}");
        assert_eq!(log.offsets().len(), delivered, "no other event stays in the stream");
    }
}

#[tokio::test]
async fn nothing_is_appended_with_a_wrong_or_missing_position() {
    let log = LogInMemory::default();
    let mut lane = begun(&log).await;
    deliver(&mut lane, 0, 1..=2).await.unwrap();
    let displaced = deliver(&mut lane, 1, 3..=4).await.unwrap_err();
    assert!(matches!(displaced.error, SinkError::Displaced(_)), "{displaced:?}");

    lock(&log.0).position = None;
    let missing = resume(&mut lane, Some(offset(2)), Some(Confirmed::default())).await;
    assert_eq!(missing.position, LanePosition::Missing("it is missing".to_owned()));
    let displaced = deliver(&mut lane, 2, 3..=4).await.unwrap_err();
    assert!(matches!(displaced.error, SinkError::Displaced(_)), "{displaced:?}");
    assert_eq!(log.offsets(), [1, 2]);
}

#[tokio::test]
async fn late_deliveries_after_a_lost_position_are_lost() {
    let log = LogInMemory::default();
    let mut lane = begun(&log).await;
    deliver(&mut lane, 0, 1..=5).await.unwrap();
    let key = |number| records(&channel(1), [number])[0].event_key();
    let late =
        [(2, 5), (3, 6), (4, 7)].map(|(number, after)| LateDelivery { event: key(number), after: Some(offset(after)) });
    let (identity, through) = (lane.identity.clone(), Some(offset(7)));
    let confirmed = Some(Confirmed { position: through, last: None });
    let recorded = Recorded {
        lane: identity,
        epoch: 1,
        through,
        pending: BTreeSet::new(),
        replayed: BTreeSet::new(),
        confirmed,
        late: late.into(),
    };
    assert_eq!(lane.resume(&recorded).await.unwrap().lost, [3, 4].map(key).into());
}

#[tokio::test]
async fn late_deliveries_at_the_position_of_a_restored_stream_are_searched() {
    let log = LogInMemory::default();
    let mut lane = begun(&log).await;
    let key = |number| records(&channel(1), [number])[0].event_key();
    let at = |number| Some(offset(number));
    let mut backups = Vec::new();
    for (after, offsets) in [(0, 3..=5), (5, 1..=1), (5, 2..=2), (5, 6..=6)] {
        deliver(&mut lane, after, offsets).await.unwrap();
        let stream = lock(&log.0);
        backups.push((stream.events.clone(), stream.position.clone()));
    }
    let [regular, first_late, late, newest] = <[_; 4]>::try_from(backups).unwrap();
    let other_backup = (late.0.clone(), regular.1.clone());
    let (expired, mut rewritten) = (Vec::new(), Position::first(&lane.identity, at(5)));
    rewritten.prior = at(2);
    let late_2 = Some(Confirmed { position: at(5), last: Some(key(2)) });
    let newest_6 = Some(Confirmed { position: at(6), last: Some(key(6)) });
    let accepted = Some(Confirmed { position: at(5), last: None });
    for ((events, position), confirmed, pending, lost) in [
        (regular.clone(), late_2, None, &[1, 2][..]),
        (regular.clone(), newest_6, None, &[1, 2]),
        (regular.clone(), newest_6, Some(1), &[2]),
        (first_late, newest_6, None, &[2]),
        // The stream has the events, but an earlier position, or it has deleted the events that its position covers.
        (other_backup, newest_6, None, &[]),
        ((expired.clone(), late.1), late_2, None, &[]),
        ((expired, Some(rewritten)), late_2, None, &[]),
        (newest, newest_6, None, &[]),
        (regular, accepted, None, &[]),
    ] {
        *lock(&log.0) = Stream { events, position, ..Stream::default() };
        let recorded = Recorded {
            lane: lane.identity.clone(),
            epoch: 1,
            through: confirmed.and_then(|confirmed| confirmed.position),
            pending: pending.into_iter().map(key).collect(),
            replayed: BTreeSet::new(),
            confirmed,
            late: [1, 2].map(|number| LateDelivery { event: key(number), after: at(5) }).into(),
        };
        let resumed = lane.resume(&recorded).await.unwrap();
        assert_eq!((resumed.lost, resumed.held.len()), (lost.iter().copied().map(key).collect(), 0), "{recorded:?}");
    }
}

#[tokio::test]
async fn an_append_that_takes_too_long_is_repeated_in_smaller_parts_which_grow_again() {
    let log = LogInMemory::default();
    lock(&log.0).in_time = Some(3);
    let mut lane = begun(&log).await;
    let (mut delivered, mut failures) = (0, 0);
    while let Err(late) = deliver(&mut lane, delivered, delivered + 1..=100).await {
        assert!(matches!(late.error, SinkError::Unavailable { .. }), "{late:?}");
        (delivered, failures) = (delivered + i64::try_from(late.delivered).unwrap(), failures + 1);
        resume(&mut lane, (delivered > 0).then(|| offset(delivered)), Some(Confirmed::default())).await;
    }
    let tried = mem::take(&mut lock(&log.0).tried);
    assert_eq!(tried[..4], [8, 4, 2, 2]);
    assert!(failures < 6, "progress does not need a failure each time: {tried:?}");

    lock(&log.0).in_time = None;
    let mut after = 100;
    while lock(&log.0).tried.last() != Some(&8) {
        deliver(&mut lane, after, after + 1..=after + 16).await.unwrap();
        after += 16;
        assert!(after < 2_000, "{:?}", lock(&log.0).tried);
    }
    assert_eq!(log.offsets(), (1..=after).collect::<Vec<_>>());
}

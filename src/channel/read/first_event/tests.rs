//! Finds first events at an in-memory service.

use std::sync::Mutex;

use async_trait::async_trait;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use api::{AccountName, ErrorResponse, Page};
use proof::event::EventId;

const BEGIN: i64 = 1_700_000_000;

/// A service in memory.
#[derive(Debug, Default)]
struct Memory {
    /// The offset and the creation time of each event, in ascending order of the offsets.
    events: Vec<(i64, i64)>,
    has_more_is_of_older: bool,
    /// Search does not show this many of the newest events.
    not_searchable: usize,
    /// The events at these offsets cannot be requested by their ids.
    unknown: Vec<i64>,
    /// How many events each search has requested.
    limits: Mutex<Vec<u16>>,
}

impl Memory {
    fn page(&self, matching: &[(i64, i64)], limit: u16) -> Page {
        let from = matching.len().saturating_sub(limit.into());
        let is_older = |event: &(i64, i64)| matching.get(from).is_some_and(|lowest| event.0 < lowest.0);
        let has_more = from > 0 || self.has_more_is_of_older && self.events.iter().any(is_older);
        Page {
            events: matching[from..].iter().rev().map(|(offset, created)| raw(*offset, *created)).collect(),
            has_more,
        }
    }
}

fn id(offset: i64) -> EventId {
    EventId(Uuid::from_u128(u128::try_from(offset).unwrap()))
}

fn raw(offset: i64, created: i64) -> RawEvent {
    let headers = format!(r#"{{"type":"other","offset":{offset},"proofs":[]}}"#);
    let json = format!(r#"{{"event_id":"{}","headers":{headers},"payload":{{"timestamp":{created}}}}}"#, id(offset));
    RawEvent { offset: Offset::new(offset).unwrap(), id: Some(id(offset)), json: json.into() }
}

#[async_trait]
impl Source for Memory {
    async fn poll(&self, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError> {
        assert_eq!(offset, None, "only the newest event is requested");
        Ok(self.page(&self.events, limit))
    }

    async fn created(&self, after: Option<i64>, through: i64, limit: u16) -> Result<Page, ApiError> {
        self.limits.lock().unwrap().push(limit);
        let mut matching = self.events[..self.events.len() - self.not_searchable].to_vec();
        matching.retain(|(_, created)| after.is_none_or(|after| *created > after) && *created <= through);
        Ok(self.page(&matching, limit))
    }

    async fn event(&self, wanted: EventId) -> Result<RawEvent, ApiError> {
        let is_wanted = |event: &&(i64, i64)| id(event.0) == wanted && !self.unknown.contains(&event.0);
        let found = self.events.iter().find(is_wanted).map(|(offset, created)| raw(*offset, *created));
        found.ok_or(ApiError::NotFound(ErrorResponse {
            status: 404,
            code: None,
            message: None,
            unknown_type: None,
            account: AccountName::default(),
            resource: None,
        }))
    }
}

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn first_since(memory: &Memory, time: i64) -> Result<FirstEvent, ApiError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(FirstEvent::since(memory, Time::At(second(time)), second(BEGIN + 1_000_000)))
}

fn offset_of(first: Result<FirstEvent, ApiError>) -> Option<i64> {
    match first.unwrap() {
        FirstEvent::Found { key, .. } => Some(key.offset.get()),
        FirstEvent::NotYet { .. } => None,
        inexact @ FirstEvent::AtLeast(_) => panic!("{inexact}"),
    }
}

/// Events with these distances between offsets and between times. `skew` is added to the time of each event.
fn events(gaps: &[i64], pace: &[i64], skew: &[i64]) -> Vec<(i64, i64)> {
    let (mut offset, mut time) = (0, BEGIN);
    let event = |(at, gap): (usize, &i64)| {
        offset += gap;
        time += pace[at % pace.len()];
        (offset, time + skew[at % skew.len()])
    };
    gaps.iter().enumerate().map(event).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_first_event_has_the_lowest_offset_of_all_events_since_the_time(
        gaps in prop::collection::vec(1_i64..5, 0..600),
        pace in prop::collection::vec(1_i64..400, 1..20),
        skew in prop::collection::vec(0_i64..50, 1..20),
        has_more_is_of_older in any::<bool>(),
        share in 0_i64..=1000,
    ) {
        let events = events(&gaps, &pace, &skew);
        let span = events.last().map_or(0, |last| last.1 - BEGIN);
        let time = BEGIN + span * share / 900;
        let expected = events.iter().filter(|event| event.1 >= time).map(|event| event.0).min();
        let memory = Memory { events, has_more_is_of_older, ..Memory::default() };
        prop_assert_eq!(offset_of(first_since(&memory, time)), expected);
        let requests = memory.limits.lock().unwrap().len();
        prop_assert!(requests < 200, "{requests} searches");
    }
}

#[test]
fn the_answer_has_the_id_and_the_time_of_the_event() {
    let memory = Memory { events: events(&[1; 10], &[10], &[0]), ..Memory::default() };
    let key = EventKey { offset: Offset::new(4).unwrap(), id: Some(id(4)) };
    let first = first_since(&memory, BEGIN + 35).unwrap();
    assert_eq!(first, FirstEvent::Found { key, time: Some(second(BEGIN + 40)) });
    assert_eq!(first.before(), Offset::new(3));
    let time = second(BEGIN + 40);
    assert_eq!(first.to_string(), format!("offset 4, event {}, time {time}", id(4)));
}

#[test]
fn an_event_that_the_service_does_not_confirm_is_not_named_and_not_left_out() {
    let memory = Memory { events: events(&[1; 20], &[10], &[0]), unknown: vec![14], ..Memory::default() };
    assert_eq!(first_since(&memory, BEGIN + 135).unwrap(), FirstEvent::AtLeast(Offset::new(8).unwrap()));
}

#[test]
fn a_new_event_that_search_does_not_show_yet_is_not_left_out() {
    let events = events(&[1; 10], &[10], &[0]);
    let memory = Memory { events: events.clone(), not_searchable: 1, ..Memory::default() };
    assert_eq!(first_since(&memory, BEGIN + 95).unwrap(), FirstEvent::AtLeast(Offset::new(10).unwrap()));
    let memory = Memory { events, ..Memory::default() };
    let not_yet = first_since(&memory, BEGIN + 101).unwrap();
    assert_eq!(not_yet, FirstEvent::NotYet { newest: Offset::new(10) });
    assert_eq!(not_yet.before(), Offset::new(10));
    assert_eq!(first_since(&Memory::default(), BEGIN).unwrap(), FirstEvent::NotYet { newest: None });
}

#[test]
fn a_second_with_too_many_events_is_included_completely() {
    let pace = [vec![100; 10], vec![0; 500], vec![100; 10]].concat();
    let memory = Memory { events: events(&[1; 520], &pace, &[0]), ..Memory::default() };
    let crowded = BEGIN + 1000;
    assert_eq!(first_since(&memory, crowded).unwrap(), FirstEvent::AtLeast(Offset::new(10).unwrap()));
    let expected = memory.events.iter().filter(|event| event.1 >= crowded).map(|event| event.0).min();
    assert!(expected >= Some(10), "no event since the time is left out");
    assert_eq!(offset_of(first_since(&memory, crowded + 1)), Some(511));
}

#[test]
fn a_wrong_clock_of_this_machine_leaves_no_event_out() {
    let memory = Memory { events: events(&[1; 10], &[10], &[0]), ..Memory::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (time, now, expected) in [
        (Time::At(second(BEGIN + 35)), second(1000), Some(4)),
        (Time::Ago(jiff::SignedDuration::from_hours(1)), second(1000), Some(1)),
        (Time::Ago(jiff::SignedDuration::MAX), second(1000), Some(1)),
        (Time::At(Timestamp::MAX), second(BEGIN), None),
    ] {
        assert_eq!(offset_of(runtime.block_on(FirstEvent::since(&memory, time, now))), expected, "{time} at {now}");
    }
}

#[test]
fn a_position_is_an_offset_if_it_is_a_plain_number_and_otherwise_a_time() {
    for (text, offset) in [("0", 0), ("15520", 15520), ("1760000000", 1_760_000_000)] {
        assert_eq!(text.parse(), Ok(OffsetOrTime::Offset(Offset::new(offset).unwrap())));
    }
    for text in ["@1760000000", "2026-05-14", "2026-05-14T12:00:00Z", "2999-01-01", "7d", "0s"] {
        assert_eq!(text.parse(), Ok(OffsetOrTime::Time(text.parse().unwrap())), "{text}");
    }
    for text in ["", "-1", "1.5", "soon", "@", "-7d", "99999999999999999999"] {
        assert!(text.parse::<OffsetOrTime>().is_err(), "{text}");
    }
}

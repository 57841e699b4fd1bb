//! Tests the reader against in-memory services. Together, the services behave in every way that the specification leaves
//! open.

use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use api::InvalidResponse;
use proof::event::EventId;

/// The behavior of the service that the specification leaves open, and the events of the test.
#[derive(Clone, Debug)]
struct Nature {
    shows_newest: bool,
    inclusive: bool,
    has_more_is_of_older: bool,
    limit: u16,
    /// The maximum number of events in an answer to a poll, regardless of the requested number.
    most: u16,
    /// The distances between offsets.
    gaps: Vec<i64>,
    /// The numbers of seconds between events.
    pace: Vec<i64>,
    /// The numbers of seconds by which `created` differs from the event's time.
    skew: Vec<i64>,
    /// The number of events when reading begins.
    backlog: usize,
    /// The number of events that arrive with each request.
    arrivals: Vec<usize>,
    /// The numbers of the requests that fail.
    failures: Vec<usize>,
    /// The numbers of the requests whose answers exceed the memory. A request for the smallest number of events is still
    /// answered.
    too_long: Vec<usize>,
}

#[derive(Debug)]
struct Memory {
    nature: Nature,
    events: Vec<(Offset, i64)>,
    world: Mutex<World>,
}

#[derive(Debug, Default)]
struct World {
    published: usize,
    requests: usize,
}

impl Memory {
    fn new(nature: Nature) -> Self {
        let (mut offset, mut time) = (0, 1_700_000_000);
        let count = nature.gaps.len();
        let events = (0..count).map(|at| {
            offset += nature.gaps[at];
            time += nature.pace[at % nature.pace.len()];
            (Offset::new(offset).unwrap(), time + nature.skew[at % nature.skew.len()])
        });
        let events = events.collect();
        let world = Mutex::new(World { published: nature.backlog.min(count), requests: 0 });
        Self { nature, events, world }
    }

    /// Returns the events that are published at this request. Returns an error if the request fails.
    fn ask(&self) -> Result<Vec<(Offset, i64)>, ApiError> {
        let mut world = self.world.lock().unwrap();
        let number = world.requests;
        world.requests += 1;
        let more = self.nature.arrivals.get(number).copied().unwrap_or(0);
        world.published = (world.published + more).min(self.events.len());
        if self.nature.failures.contains(&number) {
            return Err(ApiError::Malformed(InvalidResponse("not JSON".into())));
        }
        Ok(self.events[..world.published].to_vec())
    }

    /// Returns an error if this request's answer is too long and more than `least` events were requested.
    fn fits(&self, asked: u16, least: u16) -> Result<(), ApiError> {
        let number = self.world.lock().unwrap().requests;
        let fits = asked <= least || !self.nature.too_long.contains(&number);
        if fits { Ok(()) } else { self.ask().and(Err(ApiError::TooLong { bytes: 100 * usize::from(asked) })) }
    }

    fn page(&self, matching: &[(Offset, i64)], from: usize, limit: u16) -> Page {
        let to = (from + usize::from(limit)).min(matching.len());
        let record = |(offset, _): &(Offset, i64)| RawEvent { offset: *offset, id: None, json: Bytes::new() };
        let events = matching[from..to].iter().rev().map(record).collect();
        let has_more = if self.nature.has_more_is_of_older { from > 0 } else { from > 0 || to < matching.len() };
        Page { events, has_more }
    }
}

#[async_trait]
impl Source for Memory {
    async fn poll(&self, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError> {
        self.fits(limit, SMALLEST_PAGE)?;
        let (mut matching, limit) = (self.ask()?, limit.min(self.nature.most));
        let oldest = offset.is_some() && !self.nature.shows_newest;
        if let Some(offset) = offset {
            matching.retain(|event| event.0 > offset || (self.nature.inclusive && event.0 == offset));
        }
        let from = if oldest { 0 } else { matching.len().saturating_sub(usize::from(limit)) };
        Ok(self.page(&matching, from, limit))
    }

    async fn created(&self, after: Option<i64>, through: i64, limit: u16) -> Result<Page, ApiError> {
        let span = after.map_or(1, |after| through - after);
        self.fits(u16::try_from(span).unwrap_or(u16::MAX), 1)?;
        let mut matching = self.ask()?;
        matching.retain(|(_, created)| after.is_none_or(|after| *created > after) && *created <= through);
        Ok(self.page(&matching, matching.len().saturating_sub(usize::from(limit)), limit))
    }

    async fn event(&self, _: EventId) -> Result<RawEvent, ApiError> {
        unreachable!("a reader never requests a single event")
    }

    fn room(&self) -> usize {
        1_000
    }
}

/// Reads until every event that will be published has been read, or until nothing new arrives.
async fn read_all(memory: &Arc<Memory>) -> Vec<i64> {
    let mut reader = Reader::new(memory.clone(), memory.nature.limit);
    let (mut last, mut read, mut quiet) = (None, Vec::new(), 0);
    while quiet < 10 {
        match reader.next(last).await {
            Ok(range) => {
                quiet = if range.more || !range.events.is_empty() { 0 } else { quiet + 1 };
                read.extend(range.events.iter().map(|event| event.offset.get()));
                last = range.events.last().map(|event| event.offset).or(last);
            }
            Err(ReadError::Api(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    read
}

fn natures() -> impl Strategy<Value = Nature> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let most = prop_oneof![3 => Just(u16::MAX), 1 => 3_u16..20];
    let shape = (1_u16..=20, most, prop_oneof![Just(1_i64..2), Just(1_i64..9)], 0_usize..400);
    (flags, shape).prop_flat_map(|((shows_newest, inclusive, has_more_is_of_older), (limit, most, gaps, count))| {
        let series = (
            prop::collection::vec(gaps, count),
            prop::collection::vec(0_i64..40, 1..50),
            prop::collection::vec(0_i64..3, 1..50),
            0..=count,
            prop::collection::vec(0_usize..30, 0..60),
            prop::collection::vec(0_usize..120, 0..6),
            prop::collection::vec(0_usize..120, 0..20),
        );
        series.prop_map(move |(gaps, pace, skew, backlog, arrivals, failures, too_long)| Nature {
            shows_newest,
            inclusive,
            has_more_is_of_older,
            limit,
            most,
            gaps,
            pace,
            skew,
            backlog,
            arrivals,
            failures,
            too_long,
        })
    })
}

/// A service whose events are one second apart.
fn service(shows_newest: bool, inclusive: bool, sparse: bool, events: usize) -> Nature {
    Nature {
        shows_newest,
        inclusive,
        has_more_is_of_older: false,
        limit: 10,
        most: u16::MAX,
        gaps: (0..events).map(|at| if sparse { 1 + i64::try_from(at % 3).unwrap() } else { 1 }).collect(),
        pace: vec![1],
        skew: vec![0],
        backlog: events,
        arrivals: vec![],
        failures: vec![],
        too_long: vec![],
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_event_is_read_once_and_in_order_whatever_the_service_does(nature in natures()) {
        // If the events of one second fill a page, they cannot be read. Another test covers that case.
        prop_assume!(nature.pace.iter().sum::<i64>() > 0);
        let memory = Arc::new(Memory::new(nature));
        let read = block_on(read_all(&memory));
        let published = memory.world.lock().unwrap().published;
        let expected: Vec<_> = memory.events[..published].iter().map(|(offset, _)| offset.get()).collect();
        prop_assert_eq!(read, expected);
    }
}

#[test]
fn an_idle_cycle_costs_one_request() {
    for (shows_newest, inclusive, sparse) in (0..8).map(|bits| (bits & 1 == 1, bits & 2 == 2, bits & 4 == 4)) {
        let memory = Arc::new(Memory::new(service(shows_newest, inclusive, sparse, 95)));
        let requests = || memory.world.lock().unwrap().requests;
        block_on(async {
            let mut reader = Reader::new(memory.clone(), 10);
            let (mut last, mut more) = (None, true);
            while last != memory.events.last().map(|event| event.0) || more {
                let range = reader.next(last).await.unwrap();
                more = range.more;
                last = range.events.last().map(|event| event.offset).or(last);
            }
            let before = requests();
            for _ in 0..5 {
                assert!(reader.next(last).await.unwrap().events.is_empty());
            }
            assert_eq!(requests() - before, 5, "{shows_newest} {inclusive} {sparse}");
        });
    }
}

#[test]
fn a_second_that_fills_a_page_is_in_doubt_and_not_skipped() {
    let mut nature = service(true, false, true, 700);
    nature.pace = [vec![1; 100], vec![0; 300], vec![1; 300]].concat();
    let memory = Arc::new(Memory::new(nature));
    block_on(async {
        let mut reader = Reader::new(memory.clone(), 10);
        let (mut last, mut read) = (None, Vec::new());
        let doubt = loop {
            match reader.next(last).await {
                Ok(range) => {
                    read.extend(range.events.iter().map(|event| event.offset));
                    last = range.events.last().map(|event| event.offset).or(last);
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(doubt, ReadError::InDoubt { .. }), "{doubt}");
        let expected: Vec<_> = memory.events.iter().map(|event| event.0).take(read.len()).collect();
        assert_eq!(read, expected, "no event is missing");
        assert!(matches!(reader.next(last).await, Err(ReadError::InDoubt { .. })), "it stays in doubt");
    });
}

#[test]
fn an_event_at_offset_zero_is_read() {
    for shows_newest in [false, true] {
        let mut nature = service(shows_newest, false, false, 5);
        nature.gaps[0] = 0;
        nature.backlog = 1;
        nature.arrivals = vec![0, 0, 2, 0, 2];
        let memory = Arc::new(Memory::new(nature));
        assert_eq!(block_on(read_all(&memory)), [0, 1, 2, 3, 4]);
    }
}

#[test]
fn an_event_far_out_of_time_order_is_in_doubt_while_it_is_shown() {
    let mut nature = service(true, false, true, 700);
    nature.skew = vec![0; 700];
    nature.skew[300] = 150;
    let memory = Arc::new(Memory::new(nature));
    block_on(async {
        let mut reader = Reader::new(memory.clone(), 10);
        let (mut last, mut read, mut doubts) = (None, Vec::new(), 0);
        for _ in 0..1000 {
            match reader.next(last).await {
                Ok(range) => {
                    read.extend(range.events.iter().map(|event| event.offset));
                    last = range.events.last().map(|event| event.offset).or(last);
                }
                Err(ReadError::InDoubt { .. }) => doubts += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(doubts > 500, "it stays in doubt: {doubts}");
        let above = memory.events[300].0;
        assert!(read.iter().all(|offset| *offset != above), "the event cannot be read in order");
    });
}

/// A service behind a slow line: only a page of at most `most` events arrives in time.
#[derive(Debug)]
struct SlowLine {
    service: Memory,
    most: u16,
    /// The number of requests that were not answered in time.
    timeouts: Mutex<usize>,
}

impl SlowLine {
    fn in_time(&self, page: Page) -> Result<Page, ApiError> {
        if page.events.len() <= usize::from(self.most) {
            return Ok(page);
        }
        *self.timeouts.lock().unwrap() += 1;
        Err(ApiError::Transient(TransientError::Timeout))
    }
}

#[async_trait]
impl Source for SlowLine {
    async fn poll(&self, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError> {
        self.in_time(self.service.poll(offset, limit).await?)
    }

    async fn created(&self, after: Option<i64>, through: i64, limit: u16) -> Result<Page, ApiError> {
        self.in_time(self.service.created(after, through, limit).await?)
    }

    async fn event(&self, id: EventId) -> Result<RawEvent, ApiError> {
        self.service.event(id).await
    }
}

#[test]
fn on_a_slow_line_pages_shrink_until_they_arrive_and_grow_again() {
    for (shows_newest, inclusive) in [(false, true), (true, true), (false, false), (true, false)] {
        let mut nature = service(shows_newest, inclusive, false, 700);
        nature.gaps[0] = 0;
        let service = Memory::new(nature);
        let line = Arc::new(SlowLine { service, most: 40, timeouts: Mutex::default() });
        block_on(async {
            let mut reader = Reader::new(line.clone(), 200);
            let (mut last, mut read, mut largest) = (None, Vec::new(), 0);
            for _ in 0..300 {
                match reader.next(last).await {
                    Ok(range) => {
                        largest = largest.max(range.events.len());
                        last = range.events.last().map(|event| event.offset).or(last);
                        read.extend(range.events.iter().map(|event| event.offset));
                    }
                    Err(ReadError::Api(ApiError::Transient(TransientError::Timeout))) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(read.iter().eq(line.service.events.iter().map(|(offset, _)| offset)), "each event once, in order");
            let timeouts = *line.timeouts.lock().unwrap();
            assert!((3..40).contains(&timeouts), "{timeouts}");
            // A walk returns the events of several pages together.
            assert!(shows_newest || (25..=40).contains(&largest), "{largest}");
        });
    }
}

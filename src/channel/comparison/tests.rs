use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::*;
use crate::channel::settings::{Plan, UnsignedPolicy};
use crate::read::source::Source;
use crate::run::tests::{OpenGate, RETRY, TestMachine, begun, settings};
use crate::{Channel, Handle, SharedParts};
use api::{ApiError, Page};
use ledger::testing::Disk;
use ledger::{Change, KnownEvent, Ledgers};
use net::tasks::lock;
use proof::event::EventId;
use record::{Field, Filter, Rule};
use sink::{Delivery, Sink, Undelivered};
use telemetry::metrics::Metrics;

/// A sink that has these events, in this order.
#[derive(Debug)]
struct Holder {
    held: Mutex<Vec<EventKey>>,
    fails: bool,
}

#[async_trait]
impl Sink for Holder {
    async fn oldest(&self, _: ChannelId) -> Result<Oldest, SinkError> {
        Ok(lock(&self.held).first().map_or(Oldest::Nothing, |key| Oldest::Event(*key)))
    }

    async fn holds(&self, _: ChannelId, keys: &BTreeSet<EventKey>) -> Result<BTreeSet<EventKey>, SinkError> {
        if self.fails {
            return Err(SinkError::Gone("it is away".to_owned()));
        }
        Ok(lock(&self.held).iter().filter(|key| keys.contains(key)).copied().collect())
    }

    fn is_local(&self) -> bool {
        true
    }

    async fn deliver(&self, _: &Delivery<'_>) -> Result<(), Undelivered> {
        Ok(())
    }
}

/// A sink that cannot list its events.
#[derive(Debug)]
struct Silent;

#[async_trait]
impl Sink for Silent {
    async fn deliver(&self, _: &Delivery<'_>) -> Result<(), Undelivered> {
        Ok(())
    }
}

fn offset(number: i64) -> Offset {
    Offset::new(number).unwrap()
}

fn id(number: i64) -> Uuid {
    Uuid::from_u128(number.unsigned_abs().into())
}

fn key(number: i64) -> EventKey {
    EventKey { offset: offset(number), id: Some(EventId(id(number))) }
}

fn keys(numbers: impl IntoIterator<Item = i64>) -> BTreeSet<EventKey> {
    numbers.into_iter().map(key).collect()
}

fn event(number: i64, kind: &str, payload: &str) -> RawEvent {
    let id = id(number);
    let json = format!(
        r#"{{"event_id":"{id}","headers":{{"type":"{kind}","offset":{number},"proofs":[]}},"payload":{payload}}}"#
    );
    RawEvent::locate(json.into()).unwrap()
}

/// An event that never carries a proof.
fn notice(number: i64) -> RawEvent {
    event(number, "wallet.status", r#"{"status":"deployed","timestamp":1750000000}"#)
}

/// An event whose proof has not arrived.
fn unproved(number: i64) -> RawEvent {
    let signed = r#"{"verifiable_event":"e30=","timestamp":1750000000}"#;
    event(number, "watcher.event", signed)
}

/// An event with an invalid proof.
fn forged(number: i64) -> RawEvent {
    let json = String::from_utf8(unproved(number).json.to_vec()).unwrap();
    let proof = r#""proofs":[{"alg":"x","ocr_report":"0x00","ocr_context":"0x00","signatures":[]}]"#;
    RawEvent::locate(json.replace(r#""proofs":[]"#, proof).into()).unwrap()
}

fn holder(held: impl IntoIterator<Item = i64>) -> Arc<Holder> {
    Arc::new(Holder { held: Mutex::new(held.into_iter().map(key).collect()), fails: false })
}

fn lane_settings(sink: Arc<dyn Sink>) -> LaneSettings {
    LaneSettings::new("sink", sink, RETRY)
}

fn accounts(cursor: i64) -> Accounts {
    let sink = SinkAccounts { cursor: Cursor { through: Some(offset(cursor)) }, ..SinkAccounts::default() };
    Accounts { sinks: BTreeMap::from([("sink".to_owned(), sink)]), ..Accounts::default() }
}

/// Compares events with one sink in pages of two and pieces of three.
async fn compare(
    lane_settings: LaneSettings,
    scope: Scope,
    accounts: Accounts,
    events: Vec<RawEvent>,
) -> SinkComparison {
    let settings = Arc::new(settings());
    let sink = SinkComparison::begin(lane_settings, settings.channel.id, scope).await;
    let mut comparison = Comparison::new(settings, vec![sink], accounts.clone(), 3);
    let accounts = || async { Ok::<_, Infallible>(accounts.clone()) };
    for page in events.chunks(2) {
        comparison.add(page.to_vec()).await;
        let Ok(()) = comparison.look_if_due(false, &accounts).await;
    }
    let Ok(()) = comparison.look_if_due(true, &accounts).await;
    comparison.sinks.remove(0)
}

fn missing(sink: &SinkComparison) -> Vec<i64> {
    sink.missing.iter().map(|event| event.key.offset.get()).collect()
}

#[tokio::test]
async fn an_event_that_neither_the_sink_nor_the_ledger_has_is_missing() {
    let mut accounts = accounts(12);
    accounts.quarantined = keys([4, 6]);
    accounts.sinks.get_mut("sink").unwrap().pending = keys([5, 8]);
    accounts.sinks.get_mut("sink").unwrap().dead_letters = keys([9]);
    let mut events: Vec<_> = (1..=13).map(notice).collect();
    (events[5], events[6], events[7], events[9]) = (forged(6), forged(7), unproved(8), unproved(10));
    let sink = compare(lane_settings(holder([1, 2, 12])), Scope::default(), accounts, events).await;
    assert_eq!(missing(&sink), [3, 11]);
    let expected = Tally {
        events: 13,
        held: 3,
        pending: 3,
        quarantined: 2,
        dead_letters: 1,
        excluded: 0,
        rejected: 1,
        above_cursor: 1,
        missing: 2,
    };
    assert_eq!(sink.tally, expected);
    let first = &sink.missing[0];
    assert_eq!((first.kind.as_ref(), first.time, first.is_verified), ("wallet.status", Some(1_750_000_000), false));
}

#[tokio::test]
async fn two_events_at_one_offset_are_compared_by_id() {
    let other = EventKey { offset: offset(2), id: Some(EventId(id(102))) };
    let sink = holder([1]);
    lock(&sink.held).push(other);
    let sink = compare(lane_settings(sink), Scope::default(), accounts(2), vec![notice(1), notice(2)]).await;
    assert_eq!(sink.missing.iter().map(|event| event.key).collect::<Vec<_>>(), [key(2)]);
}

#[tokio::test]
async fn excluded_events_are_not_missing() {
    let filter = Filter::any_of(vec![Rule::from([(Field::Type, vec!["watcher.event".to_owned()])])]);
    let filtered = LaneSettings { filter: Some(Arc::new(filter)), ..lane_settings(holder([1])) };
    let sink = compare(filtered, Scope::default(), accounts(3), vec![notice(1), notice(2), notice(3)]).await;
    assert_eq!((missing(&sink), sink.tally.excluded), (vec![], 3));

    let mut settings = settings();
    settings.verification.unsigned = UnsignedPolicy::Drop;
    let settings = Arc::new(settings);
    let sink = SinkComparison::begin(lane_settings(holder([1])), settings.channel.id, Scope::default()).await;
    let mut comparison = Comparison::new(settings, vec![sink], accounts(2), 3);
    comparison.add(vec![notice(1), notice(2)]).await;
    assert!(!comparison.look().await);
    assert_eq!(comparison.sinks[0].tally.excluded, 2);
}

#[tokio::test]
async fn the_comparison_starts_at_the_sinks_first_event_or_a_given_offset() {
    let events = || (1..=7).map(notice).collect::<Vec<_>>();
    let held = || lane_settings(holder([4, 2, 6, 7]));
    let at = |number| Some(offset(number));
    for (scope, expected) in [
        (Scope::default(), vec![5]),
        (Scope { since: at(2), ..Scope::default() }, vec![5]),
        (Scope { since: at(6), ..Scope::default() }, vec![]),
        (Scope { from: at(0), ..Scope::default() }, vec![1, 3, 5]),
    ] {
        let sink = compare(held(), scope, accounts(7), events()).await;
        assert_eq!(missing(&sink), expected, "{scope:?}");
    }
    let nothing = compare(lane_settings(holder([])), Scope::default(), accounts(7), events()).await;
    assert!(matches!(nothing.from, Err(NotCompared::HoldsNothing)) && nothing.tally == Tally::default());
    let everything = Scope { from: at(6), ..Scope::default() };
    let sink = compare(lane_settings(holder([])), everything, accounts(7), events()).await;
    assert_eq!(missing(&sink), [6, 7]);
}

#[tokio::test]
async fn a_sink_that_cannot_be_read_is_not_compared() {
    let sink = compare(lane_settings(Arc::new(Silent)), Scope::default(), accounts(1), vec![notice(1)]).await;
    assert!(matches!(sink.from, Err(NotCompared::CannotSay)) && sink.tally == Tally::default());
    let shared = Scope { is_shared: true, ..Scope::default() };
    let sink = compare(lane_settings(holder([2])), shared, accounts(2), vec![notice(1), notice(2)]).await;
    assert!(matches!(sink.from, Err(NotCompared::Local)) && sink.tally == Tally::default());
    let failing = Arc::new(Holder { held: Mutex::new(vec![key(1)]), fails: true });
    let sink = compare(lane_settings(failing), Scope::default(), accounts(2), vec![notice(1), notice(2)]).await;
    assert!(matches!(sink.from, Err(NotCompared::Failed(_))) && sink.missing.is_empty());
}

#[tokio::test]
async fn events_delivered_during_the_comparison_are_not_missing() {
    let (holder, settings) = (holder([1]), Arc::new(settings()));
    let sink = SinkComparison::begin(lane_settings(holder.clone()), settings.channel.id, Scope::default()).await;
    let mut comparison = Comparison::new(settings, vec![sink], accounts(9), 100);
    comparison.add((1..=6).map(notice).collect()).await;
    assert!(comparison.look().await);
    lock(&holder.held).push(key(2));
    let mut later = accounts(9);
    later.sinks.get_mut("sink").unwrap().pending = keys([3]);
    later.gaps = vec![(Some(offset(3)), offset(5))];
    comparison.look_again(later).await;
    let sink = &comparison.sinks[0];
    assert_eq!((missing(sink), sink.tally.held, sink.tally.pending), (vec![5, 6], 2, 2));
}

#[tokio::test]
async fn a_proposed_replay_contains_only_missing_events() {
    let events = [1, 2, 3, 5, 8, 9, 11].map(notice).to_vec();
    let sink = compare(lane_settings(holder([1, 9])), Scope::default(), accounts(11), events).await;
    assert_eq!(missing(&sink), [2, 3, 5, 8, 11]);
    let ranges = sink.ranges().into_iter().map(|(from, to)| (from.get(), to.get()));
    assert_eq!(ranges.collect::<Vec<_>>(), [(2, 8), (11, 11)]);
}

#[test]
fn pending_quarantined_and_dead_letter_events_are_not_missing() {
    use ledger::{Commit, Pending};
    let mut ledger = Ledger::default();
    let owed = key(3);
    let event = Pending {
        offset: owed.offset,
        event_id: owed.id,
        first_seen: 0,
        received: None,
        appeared: false,
        json: bytes::Bytes::from_static(b"{}"),
    };
    let advance = Change::Advance { sink: "sink".into(), to: Cursor { through: Some(offset(5)) } };
    ledger.apply(Commit(vec![advance, Change::Owe { sink: "sink".into(), event }])).unwrap();
    let accounts = Accounts::of(&ledger, Vec::new());
    let mut tally = Tally::default();
    assert!(accounts.count("sink", &owed, &mut tally) && !accounts.count("other", &owed, &mut tally));
    assert_eq!((tally.pending, accounts.sinks["sink"].cursor.through), (1, Some(offset(5))));
    let json = serde_json::to_string(&accounts).unwrap();
    assert_eq!(serde_json::from_str::<Accounts>(&json).unwrap().sinks["sink"].pending, keys([3]));
}

const EVERY: Duration = Duration::from_secs(3600);

/// A service with notices from offset 1 to `through`. Every tenth poll fails.
#[derive(Debug)]
struct FaultySource {
    through: i64,
    polls: AtomicU64,
}

#[async_trait]
impl Source for FaultySource {
    async fn poll(&self, above: Option<Offset>, limit: u16) -> Result<Page, ApiError> {
        if self.polls.fetch_add(1, Relaxed) % 10 == 9 {
            return Err(ApiError::RateLimited { retry_after: None });
        }
        let first = above.map_or(0, Offset::get) + 1;
        let last = self.through.min(first + i64::from(limit) - 1);
        Ok(Page { events: (first..=last).rev().map(notice).collect(), has_more: last < self.through })
    }

    async fn created(&self, _: Option<i64>, _: i64, _: u16) -> Result<Page, ApiError> {
        Ok(Page { events: Vec::new(), has_more: false })
    }

    async fn event(&self, _: EventId) -> Result<RawEvent, ApiError> {
        Err(ApiError::RateLimited { retry_after: None })
    }
}

/// Returns the number of compared events after the daily comparison was due, or the kind of the error if it did not end. The
/// channel has read 300 events, and the sink has all of them. The service shows the events up to `through`.
async fn compared_daily(through: i64, cursor: i64) -> Result<u64, String> {
    let handle = Arc::<Handle>::default();
    let settings = Arc::new(Settings { compare: Some(EVERY), ..settings() });
    let source = Arc::new(FaultySource { through, polls: AtomicU64::default() });
    let plan = Plan { settings, source, lanes: vec![lane_settings(holder(1..=300))] };
    let ledgers = Arc::new(Ledgers::in_memory(&Arc::<Disk>::default(), Arc::new(OpenGate)));
    let metrics = Arc::new(Metrics::default().channel(&plan.settings.channel));
    let parts = SharedParts::on(Arc::new(TestMachine { began: Instant::now() }), ledgers);
    let channel = Arc::new(Channel::with_plan(plan, handle.clone(), metrics, parts));
    let (shared, ..) = begun(&channel).await;
    let read = Change::Read(vec![KnownEvent { key: key(300), previous: Some(offset(299)), digest: None }]);
    let advance = Change::Advance { sink: "sink".into(), to: Cursor { through: Some(offset(cursor)) } };
    shared.commit(vec![read, advance]).await.unwrap();
    timeout(EVERY * 3 / 2, daily::watch(&shared, shared.read_plan())).await.unwrap_err();
    let board = handle.board();
    let compared = board.comparisons.of("sink");
    assert_eq!(compared.is_some(), board.comparisons.last.is_some());
    let status = board.status(&shared.channel.identity, &[], &handle.pauses(), &Ledger::default());
    match (compared, status.compare_error) {
        (Some(compared), None) => Ok(compared.events),
        (None, Some(error)) => Err(error.kind),
        other => panic!("either a result or an error: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_daily_comparison_continues_after_an_error() {
    assert_eq!(compared_daily(300, 300).await, Ok(300));
}

#[tokio::test(start_paused = true)]
async fn a_daily_comparison_fails_if_the_service_shows_fewer_events_than_were_read() {
    for through in [0, 200, 299] {
        // The last attempt may be the poll that fails.
        let error = compared_daily(through, 300).await.unwrap_err();
        assert!(["range-in-doubt", "rate-limited"].contains(&&*error), "{through}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cursor_above_every_event_does_not_prevent_a_daily_comparison() {
    assert_eq!(compared_daily(300, 1000).await, Ok(300));
}

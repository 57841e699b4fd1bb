//! Tests the status board over virtual time, how far a channel reads ahead, and when it polls.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use jiff::Timestamp;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{CHANNELS_OF_A_SLOT, SLOTS, read, slots, until_next_poll};
use crate::channel::settings::Plan;
use crate::deliver::hub::QUEUE_BATCHES;
use crate::deliver::lane::Lane;
use crate::deliver::upcoming::MAX_JOINED;
use crate::read::source::Source;
use crate::run::context::RunContext;
use crate::run::machine::{Machine, ThisMachine};
use crate::status::reporter::RunOnBoard;
use crate::verify::checked::{CheckParameters, Checked};
use crate::*;
use api::{ApiError, Page};
use ledger::testing::{Disk, Gate, Write};
use ledger::{Cursor, Effects, Lease, Ledger, Ledgers};
use net::retry::RetryPolicy;
use net::turns::Rate;
use proof::event::{ChannelId, EventId, Offset, RawEvent};
use proof::verify::{Address, SignerSet, Verifier};
use record::ChannelRef;
use sink::{Delivery, Sink, Undelivered};
use telemetry::metrics::Metrics;

/// The duration of a request.
const TAKES: Duration = Duration::from_secs(1);
pub(crate) const RETRY: RetryPolicy = RetryPolicy { wait: Duration::from_secs(2), max_wait: Duration::from_secs(60) };

#[derive(Debug)]
struct TestSource {
    /// The number of events. Their offsets begin at 1.
    events: i64,
    handle: Arc<Handle>,
    /// The highest offset that was returned for a request by offset.
    read_through: AtomicI64,
    /// The number of polls.
    polls: AtomicI64,
}

impl TestSource {
    fn of(events: i64, handle: &Arc<Handle>) -> Self {
        Self { events, handle: handle.clone(), read_through: AtomicI64::default(), polls: AtomicI64::default() }
    }
}

#[async_trait]
impl Source for TestSource {
    async fn poll(&self, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError> {
        sleep(TAKES).await;
        self.polls.fetch_add(1, Relaxed);
        let all = self.events;
        let first = offset.map_or(all - i64::from(limit) + 1, |offset| offset.get() + 1).max(1);
        let last = all.min(first + i64::from(limit) - 1);
        let events: Vec<_> = (first..=last).rev().map(notice).collect();
        let page = Page { events, has_more: last < all };
        self.handle.board().polled(offset, &page);
        if offset.is_some() {
            self.read_through.fetch_max(last, Relaxed);
        }
        Ok(page)
    }

    async fn created(&self, _: Option<i64>, _: i64, _: u16) -> Result<Page, ApiError> {
        Err(ApiError::RateLimited { retry_after: None })
    }

    async fn event(&self, _: EventId) -> Result<RawEvent, ApiError> {
        Err(ApiError::RateLimited { retry_after: None })
    }
}

pub(crate) fn notice(offset: i64) -> RawEvent {
    let id = Uuid::from_u128(u128::try_from(offset).unwrap());
    let headers = format!(r#"{{"type":"wallet.status","offset":{offset},"proofs":[]}}"#);
    let json = format!(r#"{{"event_id":"{id}","headers":{headers},"payload":{{"status":"deployed"}}}}"#);
    RawEvent { offset: Offset::new(offset).unwrap(), id: Some(EventId(id)), json: json.into() }
}

/// The behavior of the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receives {
    Everything,
    /// The sink never answers an offer.
    Nothing,
}

#[async_trait]
impl Sink for Receives {
    async fn deliver(&self, _: &Delivery<'_>) -> Result<(), Undelivered> {
        match self {
            Self::Everything => Ok(()),
            Self::Nothing => std::future::pending().await,
        }
    }
}

/// A sink that needs a minute for each delivery.
#[derive(Debug, Default)]
struct SlowSink {
    /// The number of events in each offer.
    offered: Mutex<Vec<usize>>,
}

#[async_trait]
impl Sink for SlowSink {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        self.offered.lock().unwrap().push(delivery.messages.len());
        sleep(Duration::from_secs(60)).await;
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct OpenGate;

#[async_trait]
impl Gate for OpenGate {
    async fn before(&self, _: &[(Lease, Effects)]) -> Write {
        Write::Done
    }

    async fn after(&self, _: &[(Lease, Effects)]) {}
}

/// A store that never answers a write.
#[derive(Debug)]
struct StuckGate;

#[async_trait]
impl Gate for StuckGate {
    async fn before(&self, _: &[(Lease, Effects)]) -> Write {
        std::future::pending().await
    }

    async fn after(&self, _: &[(Lease, Effects)]) {}
}

/// A machine that checks events inline. With other threads, the paused clock would advance while a thread works, because all
/// tasks wait.
#[derive(Debug)]
pub(crate) struct TestMachine {
    pub(crate) began: Instant,
}

#[async_trait]
impl Machine for TestMachine {
    fn time(&self) -> Timestamp {
        Timestamp::from_second(self.began.elapsed().as_secs().cast_signed()).unwrap()
    }

    fn began(&self) -> Instant {
        self.began
    }

    async fn check(&self, parameters: CheckParameters, events: Vec<RawEvent>) -> Vec<Checked> {
        Checked::all(&parameters, events)
    }
}

/// A channel and its handle.
pub(crate) fn channel(events: i64, sink: Arc<dyn Sink>) -> (Arc<Channel>, Arc<Handle>) {
    let handle = Arc::<Handle>::default();
    let source = TestSource::of(events, &handle);
    (channel_from(&Arc::new(source), sink), handle)
}

/// The settings of these tests.
pub(crate) fn settings() -> Settings {
    let signers = SignerSet::new(vec![Address([1; 20])], 1).unwrap();
    Settings {
        channel: ChannelRef { name: "c".into(), id: ChannelId(Uuid::from_u128(7)) },
        start: Start::Earliest,
        verification: Verification {
            verifier: Arc::new(Verifier::new(signers, Address([2; 20]))),
            expect: Arc::default(),
            unsigned: UnsignedPolicy::Deliver,
            ordering: Ordering::Available,
            proof_timeout: Duration::from_secs(60),
        },
        page_limit: 10,
        retry: RETRY,
        idle_wait: Duration::from_secs(5),
        settle: Duration::ZERO,
        compare: None,
        grace: Duration::from_secs(30),
    }
}

fn channel_from(source: &Arc<TestSource>, sink: Arc<dyn Sink>) -> Arc<Channel> {
    channel_over(Arc::new(OpenGate), source, sink)
}

fn channel_over(gate: Arc<dyn Gate>, source: &Arc<TestSource>, sink: Arc<dyn Sink>) -> Arc<Channel> {
    let machine = Arc::new(TestMachine { began: Instant::now() });
    let handle = source.handle.clone();
    let plan = Plan {
        settings: Arc::new(settings()),
        source: source.clone(),
        lanes: vec![LaneSettings::new("sink", sink, RETRY)],
    };
    let ledgers = Arc::new(Ledgers::in_memory(&Arc::<Disk>::default(), gate));
    let metrics = Arc::new(Metrics::default().channel(&plan.settings.channel));
    Arc::new(Channel::with_plan(plan, handle, metrics, SharedParts::on(machine, ledgers)))
}

/// Returns the status of a channel that has run.
fn status(handle: &Handle) -> ChannelStatus {
    let ledger = handle.board().ledger.clone().unwrap();
    handle.board().status(&settings().channel, &["sink".into()], &handle.pauses(), &ledger.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_newest_offset_is_known_although_no_page_shows_it() {
    for receives in [Receives::Everything, Receives::Nothing] {
        let (channel, handle) = channel(3000, Arc::new(receives));
        let start = Start::Offset(Offset::new(1).unwrap());
        channel.plan.send_modify(|plan| Arc::make_mut(&mut plan.settings).start = start);
        run_for(&channel, Duration::from_secs(30), &CancellationToken::new()).await;
        assert_eq!(status(&handle).newest, Offset::new(3000), "{receives:?}");
        assert!(handle.board().newest.since(Offset::new(2999)).is_some());
    }
}

/// Runs a channel for some time, and then drops it. The channel must not end before.
pub(crate) async fn run_for(channel: &Arc<Channel>, time: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = sleep(time) => {}
        ended = channel.run(stop) => panic!("the channel ended: {ended:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_channel_without_events_sends_one_request_per_wait() {
    let source = Arc::new(TestSource::of(0, &Arc::default()));
    let channel = channel_from(&source, Arc::new(Receives::Everything));
    run_for(&channel, Duration::from_secs(62), &CancellationToken::new()).await;
    assert_eq!(source.polls.load(Relaxed), 1 + 60 / 5);
    assert!(source.handle.board().newest_at_start.get().is_some(), "the newest event was requested");
}

/// Claims a channel, which does not run yet.
pub(crate) async fn begun(channel: &Arc<Channel>) -> (Arc<RunContext>, Plan, CancellationToken) {
    let SharedParts { ledgers, recent, .. } = &channel.parts;
    let claimed = ledgers.claim(channel.identity.id, recent.proofs_each()).await.unwrap().unwrap();
    let owned = channel.handle.own(&channel.identity, claimed, recent);
    let plan = channel.plan.borrow().clone();
    (Arc::new(RunContext::new(channel, &owned, &plan)), plan, CancellationToken::new())
}

/// Claims a channel whose store never answers. Its next commit waits for room in the queue of commits.
pub(crate) async fn stuck() -> (Arc<RunContext>, Plan) {
    let source = Arc::new(TestSource::of(0, &Arc::default()));
    let channel = channel_over(Arc::new(StuckGate), &source, Arc::new(Receives::Everything));
    let (shared, plan, _) = begun(&channel).await;
    for _ in 0..500 {
        let shared = shared.clone();
        drop(tokio::spawn(async move { shared.commit(Vec::new()).await }));
    }
    sleep(Duration::from_secs(1)).await;
    (shared, plan)
}

/// The largest size of the futures that an idle channel with one lane always keeps, in bytes.
const IDLE: usize = 8 << 10;

#[tokio::test]
async fn the_futures_of_an_idle_channel_are_small() {
    let channel = channel_from(&Arc::new(TestSource::of(0, &Arc::default())), Arc::new(Receives::Everything));
    let (shared, plan, stop) = begun(&channel).await;
    let reading = size_of_val(&read(&shared, &stop));
    let (lane, upcoming) = Lane::new(shared.clone(), plan.lanes[0].clone(), Cursor::default());
    let delivering = size_of_val(&lane.run(upcoming, stop.clone()));
    assert!(reading + delivering < IDLE, "{reading} bytes to read, and {delivering} bytes to deliver");
}

#[tokio::test(start_paused = true)]
async fn at_most_two_ranges_are_read_ahead() {
    let source = Arc::new(TestSource::of(1000, &Arc::default()));
    let channel = channel_from(&source, Arc::new(Receives::Nothing));
    run_for(&channel, Duration::from_secs(600), &CancellationToken::new()).await;
    // A page contains ten events. In every page after the first, one of these events is already known. One page is at the
    // sink, several pages are prepared or in the lane's queue, one page waits for room in the queue, and two pages are read
    // ahead.
    let pages = 1 + i64::try_from(MAX_JOINED + QUEUE_BATCHES).unwrap() + 1 + 2;
    assert_eq!(source.read_through.load(Relaxed), 10 + 9 * (pages - 1));
}

#[tokio::test(start_paused = true)]
async fn events_read_during_a_delivery_form_the_next_batch() {
    let source = TestSource::of(1000, &Arc::default());
    let sink = Arc::new(SlowSink::default());
    let channel = channel_from(&Arc::new(source), sink.clone());
    run_for(&channel, Duration::from_secs(200), &CancellationToken::new()).await;
    // The first page contains ten new events, and each later page nine.
    let joined = 9 * MAX_JOINED;
    assert_eq!(*sink.offered.lock().unwrap(), [10, joined, joined, joined]);
}

#[tokio::test]
async fn a_page_is_verified_in_parallel_and_keeps_its_order() {
    let (settings, memory) = (Arc::new(settings()), Arc::default());
    let events = (1..=1000).map(notice).collect();
    let machine = ThisMachine::new(Arc::default());
    let parameters = CheckParameters { settings, received: Timestamp::UNIX_EPOCH, memory, unknown: None };
    let checked = machine.check(parameters, events).await;
    let offsets = checked.iter().map(|checked| match checked {
        Checked::Unsigned(notice, _) => notice.event().raw.offset.get(),
        other => panic!("{other:?}"),
    });
    assert!(offsets.eq(1..=1000));
}

#[tokio::test]
async fn a_channel_that_waits_for_memory_reports_it() {
    let handles = Handles::default();
    handles.memory.share_among(8 << 20, 2);
    let [handle, other] = [7, 8].map(|id| handles.of(ChannelId(Uuid::from_u128(id))));
    let _on_board = RunOnBoard::begin(&handle, &"c".into());
    let activity = || handle.board().status(&settings().channel, &[], &handle.pauses(), &Ledger::default()).activity;
    let held = other.memory.exceed(8 << 20);
    let mut waiting = Box::pin(handle.memory.reserve(2 << 20));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!(activity(), Activity::AwaitingMemory);
    drop(held);
    waiting.await;
    assert_eq!(activity(), Activity::Reading);
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_waits_for_its_turn_reports_it_and_the_service_is_not_silent() {
    let handles = Handles::default();
    handles.turns.of(&api::AccountName::default()).limit(Some(Rate { requests: 1, per: Duration::from_secs(3600) }));
    let [handle, other] = [7, 8].map(|id| handles.of(ChannelId(Uuid::from_u128(id))));
    let _on_board = RunOnBoard::begin(&handle, &"c".into());
    let status = || handle.board().status(&settings().channel, &[], &handle.pauses(), &Ledger::default());
    // The poll began long ago, but was not sent yet.
    let long_ago = Arc::new(std::time::Instant::now().checked_sub(Duration::from_secs(60)).unwrap());
    handle.board().begin_plan(&settings());
    handle.board().poll_begins(&long_ago);
    assert!(status().unanswered_seconds.is_some());
    let [turns, others] = [&handle, &other].map(|handle| handle.turns());
    others.turn().await;
    let mut waiting = Box::pin(turns.turn());
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!((status().activity, status().unanswered_seconds), (Activity::AwaitingTurn, None));
    handle.board().report(Activity::Idle);
    assert_eq!(status().activity, Activity::AwaitingTurn);
    waiting.await;
    assert_eq!((status().activity, status().unanswered_seconds), (Activity::Idle, None));
}

const EVERY: Duration = Duration::from_secs(5);

fn channel_id(number: u32) -> ChannelId {
    ChannelId(Uuid::from_u128(number.into()))
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_the_next_scheduled_poll() {
    let origin = Instant::now();
    let wait = || until_next_poll(channel_id(25), origin, EVERY, SLOTS);
    assert_eq!(wait(), EVERY / 2);
    for busy_ms in [0, 1, 4999, 5000, 12_000] {
        tokio::time::sleep(wait()).await;
        tokio::time::sleep(Duration::from_millis(busy_ms)).await;
        assert_eq!(wait(), EVERY.saturating_sub(Duration::from_millis(busy_ms % 5000)), "{busy_ms}");
    }
}

#[tokio::test(start_paused = true)]
async fn channels_that_start_together_are_spread_over_all_slots_and_few_poll_together() {
    for (channels, together) in [(200, 4), (400, CHANNELS_OF_A_SLOT), (10_000, CHANNELS_OF_A_SLOT)] {
        let wait = |at| until_next_poll(channel_id(at), Instant::now(), EVERY, slots(channels as usize));
        let mut waits: Vec<_> = (0..channels).map(wait).collect();
        assert!(waits.iter().all(|wait| !wait.is_zero() && *wait <= EVERY), "{waits:?}");
        waits.sort_unstable();
        assert!(waits.chunk_by(|one, other| one == other).all(|slot| slot.len() == together), "{waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_zero_interval_means_no_wait() {
    assert_eq!(until_next_poll(channel_id(7), Instant::now(), Duration::ZERO, SLOTS), Duration::ZERO);
}

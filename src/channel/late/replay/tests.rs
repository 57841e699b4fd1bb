//! Tests replays of a channel with two sinks over virtual time.

use std::slice;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use jiff::Timestamp;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::channel::settings::Plan;
use crate::read::source::Source;
use crate::run::tests::{OpenGate, RETRY, TestMachine, settings, stuck};
use crate::verify::reason::RejectionReason;
use crate::{Channel, ChannelStatus, Handle, SharedParts};
use api::{ApiError, Page};
use ledger::testing::Disk;
use ledger::{Commit, Ledgers, Pause};
use net::tasks::lock;
use proof::event::EventId;
use sink::{Delivery, Sink, Undelivered};
use telemetry::metrics::Metrics;

/// A service whose events are notices, which never have a proof.
#[derive(Debug)]
struct TestSource {
    handle: Arc<Handle>,
    events: Mutex<BTreeMap<i64, RawEvent>>,
    /// A replay and an offset: an operator pauses the replay when a page is read from below this offset.
    pauses: Mutex<Option<(ReplayId, i64)>>,
}

#[async_trait]
impl Source for TestSource {
    async fn poll(&self, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError> {
        let above = offset.map(Offset::get);
        let pauses = lock(&self.pauses).take_if(|(_, below)| above.is_some_and(|above| above < *below));
        if let Some((id, _)) = pauses {
            self.set(id, ReplayState::Paused).await;
        }
        let limit = usize::from(limit);
        let mut events: Vec<_> = lock(&self.events).values().cloned().collect();
        events.retain(|event| above.is_none_or(|above| event.offset.get() > above));
        let has_more = events.len() > limit;
        let first = if above.is_none() { events.len().saturating_sub(limit) } else { 0 };
        let events = events.into_iter().skip(first).take(limit).rev().collect();
        let page = Page { events, has_more };
        self.handle.board().polled(offset, &page);
        Ok(page)
    }

    async fn created(&self, _: Option<i64>, _: i64, _: u16) -> Result<Page, ApiError> {
        Err(ApiError::RateLimited { retry_after: None })
    }

    async fn event(&self, id: EventId) -> Result<RawEvent, ApiError> {
        let found = lock(&self.events).values().find(|event| event.id == Some(id)).cloned();
        found.ok_or(ApiError::RateLimited { retry_after: None })
    }
}

impl TestSource {
    async fn commit(&self, change: Change) {
        let owned = self.handle.owned().expect("the channel runs");
        owned.leased.commit(Commit(vec![change])).await.unwrap();
    }

    async fn set(&self, id: ReplayId, state: ReplayState) {
        self.commit(Change::SetReplay { id, state }).await;
    }

    /// Shows another event at an offset.
    fn replace(&self, at: i64, id: i64, status: &str) {
        lock(&self.events).insert(at, notice(at, id, status));
    }
}

fn offset(number: i64) -> Offset {
    Offset::new(number).unwrap()
}

fn notice(at: i64, id: i64, status: &str) -> RawEvent {
    let id = Uuid::from_u128(id.unsigned_abs().into());
    let headers = format!(r#"{{"type":"wallet.status","offset":{at},"proofs":[]}}"#);
    let json = format!(r#"{{"event_id":"{id}","headers":{headers},"payload":{{"status":"{status}"}}}}"#);
    RawEvent { offset: offset(at), id: Some(EventId(id)), json: json.into() }
}

/// The offsets of the received events, in the order of their arrival.
#[derive(Debug, Default)]
struct Receiver(Mutex<Vec<i64>>);

#[async_trait]
impl Sink for Receiver {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        lock(&self.0).extend(delivery.messages.iter().map(|message| message.offset().get()));
        Ok(())
    }
}

/// A channel with the sinks `a` and `b`.
struct TestChannel {
    source: Arc<TestSource>,
    handle: Arc<Handle>,
    receivers: BTreeMap<&'static str, Arc<Receiver>>,
    channel: Arc<Channel>,
    events: usize,
}

impl TestChannel {
    fn of(events: i64) -> Self {
        let handle = Arc::<Handle>::default();
        let all = (1..=events).map(|at| (at, notice(at, at, "deployed"))).collect();
        let source = TestSource { handle: handle.clone(), events: Mutex::new(all), pauses: Mutex::default() };
        let (source, receivers) = (Arc::new(source), BTreeMap::from(["a", "b"].map(|sink| (sink, Arc::default()))));
        let lanes = receivers.iter().map(|(sink, receiver)| lane(sink, receiver)).collect();
        let plan = Plan { settings: Arc::new(settings()), source: source.clone(), lanes };
        let ledgers = Arc::new(Ledgers::in_memory(&Arc::<Disk>::default(), Arc::new(OpenGate)));
        let metrics = Arc::new(Metrics::default().channel(&plan.settings.channel));
        let parts = SharedParts::on(Arc::new(TestMachine { began: Instant::now() }), ledgers);
        let channel = Arc::new(Channel::with_plan(plan, handle.clone(), metrics, parts));
        Self { source, handle, receivers, channel, events: usize::try_from(events).unwrap() }
    }

    /// Runs the channel. After it has delivered everything, `story` happens.
    async fn runs(&self, story: impl Future<Output = ()>) {
        let stop = CancellationToken::new();
        let story = async {
            until("everything is delivered", || self.receivers.keys().all(|sink| self.delivered(sink) == self.events))
                .await;
            story.await;
        };
        tokio::select! {
            biased;
            ended = self.channel.run(&stop) => panic!("the channel ended: {ended:?}"),
            () = story => {}
        }
    }

    fn delivered(&self, sink: &str) -> usize {
        lock(&self.receivers[sink].0).len()
    }

    /// The events that a sink has received again.
    fn again(&self, sink: &str) -> Vec<i64> {
        lock(&self.receivers[sink].0)[self.events..].to_vec()
    }

    /// Asserts that a sink has received the events 1 to 50 again, in any order: the events of a replay are late events.
    fn assert_all_again(&self, sink: &str) {
        let mut again = self.again(sink);
        again.sort_unstable();
        assert!(again.iter().copied().eq(1..=50), "{again:?}");
    }

    fn look<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        look(&self.handle.owned().expect("the channel runs").leased.ledger())
    }

    fn state(&self, id: ReplayId) -> ReplayState {
        self.look(|ledger| ledger.replays()[&id].state)
    }

    fn status(&self) -> ChannelStatus {
        let ledger = self.handle.board().ledger.clone().unwrap();
        let (ledger, sinks) = (lock(&ledger), ["a", "b"].map(SinkName::from));
        self.handle.board().status(&settings().channel, &sinks, &self.handle.pauses(), &ledger)
    }

    async fn start(&self, sink: &str, from: i64, to: i64) {
        let replay = Replay::new(vec![sink.into()], offset(from), offset(to), 0);
        self.source.commit(Change::StartReplay(replay)).await;
    }

    fn pause(&self, sink: &str, pauses: bool) {
        let pause = Pause { since: Timestamp::UNIX_EPOCH, until: None };
        self.handle.set_paused(Some(&sink.into()), pauses.then_some(pause));
    }

    fn problem(&self) -> Option<String> {
        self.status().replay_error.map(|problem| problem.kind)
    }
}

fn lane(sink: &str, receiver: &Arc<Receiver>) -> LaneSettings {
    LaneSettings::new(sink, receiver.clone(), RETRY)
}

/// Waits in virtual time.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..3600 {
        if holds() {
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("never happened: {what}");
}

#[tokio::test(start_paused = true)]
async fn a_replayed_event_with_other_content_is_quarantined() {
    let it = TestChannel::of(30);
    it.runs(async {
        it.source.replace(15, 15, "failed");
        // The content stays a contradiction however often it is replayed.
        for id in [1, 2] {
            it.start("a", 14, 16).await;
            until("the replay ends", || it.state(id).has_ended()).await;
        }
        assert_eq!(it.again("a"), [14, 16, 14, 16]);
        let reasons =
            |ledger: &Ledger| ledger.quarantined_at(offset(15)).map(|facts| facts.reason.clone()).collect::<Vec<_>>();
        assert_eq!(it.look(reasons), [RejectionReason::Contradiction.name()]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_finds_another_event_stops_and_delivers_nothing() {
    let it = TestChannel::of(30);
    it.runs(async {
        it.source.replace(15, 1015, "deployed");
        it.start("a", 14, 16).await;
        until("the other event is noticed", || it.look(|ledger| ledger.contradiction().is_some())).await;
        sleep(Duration::from_secs(600)).await;
        assert_eq!(it.look(|ledger| ledger.contradiction().map(|found| found.offset)), Some(offset(15)));
        assert_eq!((it.again("a"), it.state(1)), (Vec::new(), ReplayState::Running));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_sink_does_not_delay_the_replay_to_another_sink() {
    let it = TestChannel::of(60);
    it.runs(async {
        it.pause("b", true);
        it.start("b", 1, 50).await;
        until("a page of the first replay is pending", || it.look(|ledger| !ledger.late().is_empty())).await;
        it.start("a", 1, 50).await;
        until("the second replay ends", || it.state(2).has_ended()).await;
        it.assert_all_again("a");
        assert!(it.again("b").is_empty(), "the sink is paused");
        it.pause("b", false);
        until("the first replay ends", || it.state(1).has_ended()).await;
        it.assert_all_again("b");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_replay_whose_sink_was_removed_says_so_and_continues_when_it_returns() {
    let it = TestChannel::of(60);
    it.runs(async {
        it.pause("b", true);
        it.start("b", 1, 50).await;
        until("a page of the replay is pending", || it.look(|ledger| !ledger.late().is_empty())).await;
        assert_eq!(it.problem(), None);
        it.channel.plan.send_modify(|plan| plan.lanes.retain(|lane| &*lane.name != "b"));
        until("the problem is reported", || it.problem().as_deref() == Some("sink-not-configured")).await;
        it.pause("b", false);
        it.channel.plan.send_modify(|plan| plan.lanes.push(lane("b", &it.receivers["b"])));
        until("the replay ends", || it.state(1).has_ended()).await;
        assert_eq!(it.problem(), None);
        it.assert_all_again("b");
    })
    .await;
}

/// A reload interrupts a replay. If the replay had closed the gap, the other sinks would never receive the event.
#[tokio::test(start_paused = true)]
async fn a_replay_closes_a_gap_only_when_its_commit_starts() {
    let (shared, _) = stuck().await;
    shared.gaps.note(Some(offset(10)), [(offset(12), None)].into_iter(), Duration::from_secs(30));
    let (event, replay) = (notice(11, 11, "deployed"), Replay::new(vec!["a".into()], offset(11), offset(11), 0));
    assert!(release(&shared, 1, &replay, slice::from_ref(&event), None).now_or_never().is_none());
    assert!(!gap_search::found_by(&shared, None, [event].into_iter()).is_empty());
}

/// Another replay, whose sink is paused, runs at the same time.
#[tokio::test(start_paused = true)]
async fn a_replay_that_is_paused_while_its_last_page_is_read_reads_the_page_again() {
    let it = TestChannel::of(50);
    it.runs(async {
        it.pause("b", true);
        it.start("b", 1, 50).await;
        until("the first replay waits", || it.look(|ledger| ledger.replays()[&1].events > 20)).await;
        *lock(&it.source.pauses) = Some((2, 45));
        it.start("a", 41, 45).await;
        until("the second replay is paused", || it.state(2) == ReplayState::Paused).await;
        sleep(Duration::from_secs(60)).await;
        assert!(it.again("a").is_empty(), "the page was not released");
        it.source.set(2, ReplayState::Running).await;
        until("the second replay ends", || it.state(2).has_ended()).await;
        assert!(it.again("a").into_iter().eq(41..=45), "{:?}", it.again("a"));
    })
    .await;
}

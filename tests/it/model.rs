//! Random histories against a model: whatever the service, the sinks and the machine do, each lane is given everything
//! that can be delivered, ascending but for late events, and nothing twice beyond the batch in hand at a crash.
//!
//! The channel runs in this process on a real state; its sinks write down what they are told.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use channeld::api::{self, Client};
use channeld::channel::{Channel, Lasting, Outlet, Settings};
use channeld::config::{Ordering, Start, UnsignedPolicy};
use channeld::record::{ChannelRef, Message};
use channeld::retry::RetryPolicy;
use channeld::simulator::{HasMore, Honesty, LateProofs, Options, Simulator, Window};
use channeld::sink::{Sink, SinkError, Undelivered};
use channeld::state::{State, StateError};
use channeld::verify::{SignerSet, Verifier};
use proptest::prelude::*;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::{eventually, everything};

const RETRY: RetryPolicy = RetryPolicy { wait: Duration::from_millis(1), max_wait: Duration::from_millis(5) };

/// Histories that pass at the same time: most of each is waiting.
const AT_ONCE: usize = 8;

/// One history.
#[expect(clippy::struct_excessive_bools, reason = "they are independent questions")]
#[derive(Clone, Debug)]
struct History {
    newest: bool,
    inclusive: bool,
    older: bool,
    sparse: bool,
    seed: u64,
    backlog: u64,
    /// Events that come while each run lasts, how many deliveries it lasts for, and whether it ends by a crash.
    runs: Vec<(u64, usize, bool)>,
    page: u16,
    faults: f64,
    /// Of each sink: the offers, by their number, of which it takes only so many events.
    refusals: [Vec<(usize, usize)>; 2],
}

fn histories() -> impl Strategy<Value = History> {
    let flags = any::<[bool; 4]>();
    let refusals = || prop::collection::vec((0_usize..30, 0_usize..4), 0..8);
    let runs = prop::collection::vec((0_u64..20, 0_usize..40, any::<bool>()), 0..4);
    let faults = prop_oneof![Just(0.0), Just(0.05)];
    (flags, any::<u64>(), 0_u64..60, runs, 2_u16..25, faults, [refusals(), refusals()]).prop_map(
        |([newest, inclusive, older, sparse], seed, backlog, runs, page, faults, refusals)| History {
            newest,
            inclusive,
            older,
            sparse,
            seed,
            backlog,
            runs,
            page,
            faults,
            refusals,
        },
    )
}

/// A sink that writes down what it takes, and takes what the history says.
#[derive(Debug)]
struct Book {
    refusals: Vec<(usize, usize)>,
    written: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Written {
    offers: usize,
    taken: Vec<i64>,
}

impl Book {
    fn new(refusals: &[(usize, usize)]) -> Arc<Self> {
        Arc::new(Self { refusals: refusals.to_vec(), written: Mutex::default() })
    }

    fn taken(&self) -> Vec<i64> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).taken.clone()
    }
}

#[async_trait]
impl Sink for Book {
    async fn deliver(&self, _: &ChannelRef, batch: &[Message]) -> Result<(), Undelivered> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let offer = written.offers;
        written.offers += 1;
        let refusal = self.refusals.iter().find(|(refused, _)| *refused == offer);
        let takes = refusal.map_or(batch.len(), |(_, takes)| batch.len().min(*takes));
        written.taken.extend(batch[..takes].iter().map(|record| record.offset().get()));
        if takes == batch.len() {
            return Ok(());
        }
        let error =
            SinkError::Refused { message: "as the history says".to_owned(), retry_after: None, needs_attention: false };
        Err(Undelivered::after(takes, error))
    }
}

fn channel(history: &History, simulator: &Simulator, state: Arc<State>, books: &[Arc<Book>; 2]) -> Channel {
    let known = simulator.announcement();
    let signers = SignerSet::new(known.valid_signers.clone(), known.min_required_signatures).unwrap();
    let client = Client::new(api::Settings {
        base_url: known.base_url.parse().unwrap(),
        api_key: known.api_key.clone(),
        connect_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_secs(5),
    });
    let settings = Settings {
        channel: ChannelRef { name: "c0".into(), id: known.channels[0] },
        start: Start::Earliest,
        verifier: Arc::new(Verifier::new(signers, known.workflow_owner)),
        unsigned: UnsignedPolicy::Deliver,
        ordering: Ordering::Available,
        proof_timeout: Duration::from_secs(3600),
        page_limit: history.page,
        retry: RETRY,
        idle_wait: Duration::from_millis(2),
        grace: Duration::from_secs(30),
    };
    let outlet = |name: &str, book: &Arc<Book>| Outlet::new(name, book.clone(), RETRY);
    let outlets = vec![outlet("one", &books[0]), outlet("two", &books[1])];
    Channel::new(settings, client.unwrap(), outlets, &Lasting::new(state, Arc::default()))
}

async fn live_through(history: History) {
    let simulator = Simulator::start(Options {
        events: history.backlog,
        seed: history.seed,
        unsigned: 0.2,
        forged: 0.05,
        late_proofs: Some(LateProofs { share: 0.1, delay: Duration::from_millis(150) }),
        faults: history.faults,
        window: if history.newest { Window::Newest } else { Window::Oldest },
        has_more: if history.older { HasMore::Older } else { HasMore::Remaining },
        inclusive: history.inclusive,
        sparse: history.sparse,
        ..Options::default()
    });
    let simulator = simulator.await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let books = [Book::new(&history.refusals[0]), Book::new(&history.refusals[1])];
    let all = |simulator: &Simulator| {
        let found = simulator.offsets(0).into_iter().filter(|(_, honesty)| *honesty != Honesty::Forged);
        found.map(|(offset, _)| offset).collect::<BTreeSet<_>>()
    };
    let has_all = |simulator: &Simulator| {
        let all = all(simulator);
        books.iter().all(|book| book.taken().into_iter().collect::<BTreeSet<_>>() == all)
    };
    let mut late = BTreeSet::new();
    let (mut crashes, last) = (0, (0, usize::MAX, false));
    for (more, deliveries, crash) in history.runs.iter().copied().chain([last]) {
        // What held it last may still be letting go of it: the directory, or sled's own file.
        let state = eventually("the state is free", || match State::open(directory.path()) {
            Err(StateError::InUse { .. } | StateError::Database { doing: "opening", .. }) => None,
            opened => Some(opened.unwrap()),
        });
        let state = Arc::new(state.await);
        let open = Arc::downgrade(&state);
        let channel = channel(&history, &simulator, state, &books);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move { channel.run(&stopped).await.unwrap() });
        simulator.publish(0, more);
        late.extend(
            simulator.offsets(0).into_iter().filter(|(_, honesty)| *honesty == Honesty::Pending).map(|it| it.0),
        );
        let enough = books[0].taken().len().saturating_add(deliveries);
        eventually("the run lasts as long as it should", || {
            assert!(!running.is_finished(), "it ended by itself");
            let over = has_all(&simulator) || books[0].taken().len() >= enough;
            over.then_some(())
        })
        .await;
        if crash {
            // What it was doing is dropped at once, between any two steps.
            running.abort();
            crashes += 1;
        } else {
            stop.cancel();
        }
        assert!(running.await.is_ok() || crash);
        eventually("its parts let go of the state", || open.upgrade().is_none().then_some(())).await;
    }

    let all: Vec<_> = all(&simulator).into_iter().collect();
    for book in &books {
        let taken = book.taken();
        let distinct: Vec<_> = taken.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        assert_eq!(distinct, all, "complete: {taken:?}");
        let mut seen = BTreeSet::new();
        let first: Vec<_> =
            taken.iter().copied().filter(|offset| seen.insert(*offset) && !late.contains(offset)).collect();
        assert!(first.is_sorted(), "ascending apart from late events: {taken:?}");
        let repeats = taken.len() - distinct.len();
        assert!(
            repeats <= crashes * usize::from(history.page.max(2)),
            "{repeats} repeats, {crashes} crashes: {taken:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if everything() { 125 } else { 4 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_lane_is_given_what_the_model_says(histories in prop::collection::vec(histories(), AT_ONCE)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let lives: JoinSet<_> = histories.into_iter().map(live_through).collect();
            lives.join_all().await;
        });
    }
}

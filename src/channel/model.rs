//! Tests the whole channel against a model. The tests run random histories: a service, sinks and a machine in memory, and
//! everything that happens to them. In each history, every lane must receive the events that the model requires.
//!
//! A history runs in virtual time, on one thread, and without random values, so that it repeats exactly. Every answer of the
//! service, every offer to a sink and every write is a numbered step. A run can end at each step. See [`history`] for
//! everything that can happen, and [`expect`] for the required results.

use std::cell::{Cell, RefCell};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use crate::channel::settings::Plan;
use crate::{Channel, ChannelError, Handle, Ordering, Settings, SharedParts, Start, UnsignedPolicy, Verification};
use ledger::testing::Disk;
use ledger::{Change, Commit, Cursor, Ledgers};
use net::retry::RetryPolicy;
use record::ChannelRef;
use telemetry::metrics::Metrics;

mod expect;
mod history;
mod machine;
mod pool;
mod regressions;
mod reload;
mod service;
mod sink;
mod story;
mod strategy;
mod totals;
mod world;

use history::{End, History, Run};
use reload::lane_settings;
use service::Memory;
use strategy::histories;
use totals::Totals;
use world::World;

const IDLE: Duration = Duration::from_secs(10);
/// This is longer than any event of a history stays hidden.
const SETTLE: Duration = Duration::from_secs(30);
/// This is longer than any sink of a history needs for a batch.
const GRACE: Duration = Duration::from_secs(10_000);
const RETRY: RetryPolicy = RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(8) };

fn sink_name(number: usize) -> Arc<str> {
    ["one", "two", "three"][number].into()
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    InOrder,
    BrokenOff,
}

/// A history while it runs.
struct Life {
    world: Arc<World>,
    disk: Arc<Disk>,
}

/// Runs a history, and returns its counts. If the history contradicts the model, returns the contradiction and the trace of
/// the last run.
fn live(history: &Arc<History>, logs: bool) -> Result<Totals, (String, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let life = Life { world: World::new(history.clone(), logs), disk: Arc::default() };
        let lived = life.pass().await;
        match lived {
            Ok(()) => Ok(life.world.lock().totals),
            Err(problem) => Err((problem, life.world.trace())),
        }
    })
}

impl Life {
    async fn pass(&self) -> Result<(), String> {
        let mut ended = Ended::InOrder;
        let runs = self.world.history.runs.iter().copied().map(Some).chain([None]);
        for (number, run) in runs.enumerate() {
            self.world.lose(&self.disk, number);
            reload::replay(&self.world, &self.disk, number).await;
            ended = self.run(run, ended).await?;
        }
        if self.accept().await {
            self.run(None, ended).await?;
        }
        Ok(())
    }

    /// Runs the daemon once, from the state that the previous run left.
    async fn run(&self, run: Option<Run>, before: Ended) -> Result<Ended, String> {
        let ledgers = Arc::new(Ledgers::in_memory(&self.disk, self.world.clone()));
        let handle = Arc::<Handle>::default();
        let (over, stop) = self.world.begin(run, &handle);
        self.world.log(|| format!("-- a run begins, which ends with {run:?}"));
        self.world.check_between(&self.disk, before == Ended::InOrder)?;
        let channel = Arc::new(self.channel(&ledgers, handle));
        self.world.runs(&channel);
        let ended = {
            let running = channel.run(&stop);
            tokio::pin!(running);
            tokio::select! {
                biased;
                () = over.cancelled() => Ok(Ended::BrokenOff),
                ended = &mut running => self.check_run_end(run, ended),
                () = self.enough(run) => {
                    let stopped = async {
                        stop.cancel();
                        timeout(self.world.history.time_limit(), &mut running).await
                    };
                    tokio::select! {
                        biased;
                        () = over.cancelled() => Ok(Ended::BrokenOff),
                        ended = stopped => match ended {
                            Ok(ended) => self.check_run_end(run, ended),
                            Err(_) => Err("the channel does not stop".to_owned()),
                        },
                    }
                }
            }
        };
        if let Some(problem) = self.world.lock().problem.take() {
            return Err(problem);
        }
        if run.is_none() && ended.is_ok() {
            self.world.check_end(&self.disk)?;
        }
        drop(channel);
        let left = Arc::downgrade(&ledgers);
        drop(ledgers);
        // Aborted tasks are dropped when the runtime polls them again.
        for _ in 0..1000 {
            if left.strong_count() == 0 {
                break;
            }
            yield_now().await;
        }
        if left.strong_count() > 0 {
            return Err("a task of the channel still runs".to_owned());
        }
        ended
    }

    /// Accepts the history of a restored service, as an operator does. Returns `false` if the ledger has no contradiction to
    /// accept.
    async fn accept(&self) -> bool {
        let ledgers = Ledgers::in_memory(&self.disk, self.world.clone());
        let (claim, _) = ledgers.claim(pool::channel(), usize::MAX).await.unwrap().expect("no other process claims it");
        let Some(contradiction) = claim.ledger().contradiction() else { return false };
        let to = Cursor { through: contradiction.agrees_through };
        // `channeld cursor set --back-to`
        let is_above = |sink: &Arc<str>| claim.ledger().cursor(sink).is_some_and(|cursor| cursor > to);
        let above = (0..self.world.history.sinks.len()).map(sink_name).filter(is_above);
        let changes: Vec<_> = above.map(|sink| Change::SetCursor { sink, to }).collect();
        let changes = changes.into_iter();
        claim.commit(Commit(changes.chain([Change::AcceptHistory { above: to.through }]).collect())).await.unwrap();
        self.world.accept(to.through);
        true
    }

    fn channel(&self, ledgers: &Arc<Ledgers>, handle: Arc<Handle>) -> Channel {
        let history = &self.world.history;
        let start = history.start.and_then(|at| self.world.offsets.get(at));
        let settings = Settings {
            channel: ChannelRef { name: "c".into(), id: pool::channel() },
            start: start.map_or(Start::Earliest, |offset| Start::Offset(*offset)),
            verification: Verification {
                verifier: pool::verifier(),
                expect: Arc::default(),
                unsigned: if history.drop_notices { UnsignedPolicy::Drop } else { UnsignedPolicy::Deliver },
                ordering: if history.strict { Ordering::Strict } else { Ordering::Available },
                proof_timeout: history.proof_timeout(),
            },
            page_limit: history.page,
            retry: RETRY,
            idle_wait: IDLE,
            settle: SETTLE,
            compare: None,
            grace: GRACE,
        };
        let lanes = (0..history.sinks.len()).map(|lane| lane_settings(&self.world, lane)).collect();
        let plan = Plan { settings: Arc::new(settings), source: Arc::new(Memory::new(&self.world)), lanes };
        let metrics = Arc::new(Metrics::default().channel(&plan.settings.channel));
        Channel::with_plan(plan, handle, metrics, SharedParts::on(self.world.clone(), ledgers.clone()))
    }

    /// If no step ends the run, waits until everything is settled. Otherwise waits until the time limit: the run must end
    /// earlier.
    async fn enough(&self, run: Option<Run>) {
        let ends_by_itself = !matches!(run, None | Some(Run { ends: End::WriteFails(_), .. }));
        let (began, time_limit) = (Instant::now(), self.world.history.time_limit());
        let mut quiet = 0;
        while quiet < 2 && began.elapsed() < time_limit {
            sleep(IDLE + IDLE / 2).await;
            quiet = if !ends_by_itself && self.world.is_settled(&self.disk) { quiet + 1 } else { 0 };
        }
    }

    /// Checks that a run ended as the history requires.
    fn check_run_end(&self, run: Option<Run>, ended: Result<(), ChannelError>) -> Result<Ended, String> {
        match ended {
            Ok(()) => Ok(Ended::InOrder),
            Err(ChannelError::State(_)) if self.world.write_failed() => Ok(Ended::BrokenOff),
            Err(ChannelError::Lost) if self.world.is_overtaken() => Ok(Ended::BrokenOff),
            Err(error) => Err(format!("run {run:?} ended without a stop: {error}")),
        }
    }
}

/// Runs this number of histories, drawn from a seed, and returns their counts. If a history contradicts the model, returns
/// this history.
fn try_histories(cases: u32, seed: u64, failed: &AtomicBool) -> Result<Totals, String> {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 30_000,
        max_shrink_time: 120_000,
        ..Config::default()
    };
    let mut key = [1; 16];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::XorShift, &key));
    let (totals, found) = (RefCell::new(Totals::default()), Cell::new(None));
    let tried = runner.run(&histories(), |history| {
        if failed.load(Relaxed) && found.get().is_none() {
            // Another thread has found a contradiction.
            return Ok(());
        }
        match live(&Arc::new(history), false) {
            Ok(lived) => totals.borrow_mut().add(&lived),
            Err((problem, _)) => {
                failed.store(true, Relaxed);
                found.set(found.get().or(Some(totals.borrow().histories)));
                return Err(TestCaseError::fail(problem));
            }
        }
        Ok(())
    });
    match tried {
        Ok(()) => Ok(totals.into_inner()),
        Err(TestError::Abort(reason)) => Err(reason.to_string()),
        Err(TestError::Fail(reason, least)) => Err(format!(
            "{reason}\n\nfound after {} histories of seed {seed}; the smallest that shows it:\n\n{least:?}\n{}",
            found.get().unwrap_or_default(),
            last_run(&least),
        )),
    }
}

fn last_run(history: &History) -> String {
    match live(&Arc::new(history.clone()), true) {
        Ok(_) => "a second run does not show the problem: the run is not fully deterministic".to_owned(),
        Err((problem, trace)) => format!("the last run:\n\n{trace}\n\n{problem}"),
    }
}

/// Returns a number from the environment: `CHANNELD_TEST_HISTORIES`, or `CHANNELD_TEST_SEED` to repeat a run.
fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|given| given.parse().ok())
}

#[test]
fn every_lane_receives_what_the_model_expects() {
    let everything = std::env::var_os("CHANNELD_TEST_FULL").is_some_and(|value| value != "0");
    let all = if everything { 200_000 } else { 6_000 };
    let histories = given("CHANNELD_TEST_HISTORIES").unwrap_or(all);
    let seed = given("CHANNELD_TEST_SEED").unwrap_or(0);
    let shards = std::thread::available_parallelism().map_or(1, NonZero::get) as u64;
    let cases = u32::try_from(histories.div_ceil(shards)).unwrap();
    let (began, failed) = (std::time::Instant::now(), AtomicBool::new(false));
    let tried: Vec<_> = std::thread::scope(|scope| {
        let failed = &failed;
        let try_shard = move |shard| try_histories(cases, seed.wrapping_add(shard), failed);
        let shards: Vec<_> = (0..shards).map(|shard| scope.spawn(move || try_shard(shard))).collect();
        shards.into_iter().map(|shard| shard.join().unwrap()).collect()
    });
    let mut totals = Totals::default();
    for tried in tried {
        match tried {
            Ok(tried) => totals.add(&tried),
            Err(story) => panic!("{story}"),
        }
    }
    assert!(totals.below_limit > 0, "no history has a sink with a limit");
    assert!(totals.replayed > 0, "no history has a replay");
    println!("seed {seed}, {:.1} s: {totals}", began.elapsed().as_secs_f64());
}

#[test]
fn a_seed_reproduces_its_history_exactly() {
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    for _ in 0..200 {
        let history = Arc::new(histories().new_tree(&mut runner).unwrap().current());
        assert_eq!(live(&history, false), live(&history, false), "{history:?}");
    }
}

//! Every write, sync and rename of the daemon is a numbered point. The daemon is killed at each point in turn, or the
//! file system freezes or fails there. No event is lost, at most one batch is repeated, and the file contains every
//! event exactly once.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use rand::Rng;
use simulator::{EventSpec, Honesty, Kind, LateProofs, Options, Simulator, Tampering};
use tokio::task::JoinSet;

use crate::support::{
    Files, Log, Receiver, Setup, Strike, Traced, Traces, can_trace, deliverable, eventually, everything, offsets,
    random,
};

const PAGE: usize = 10;

/// Enough events to fill a file, so that it is closed.
const FOLLOWING: u64 = 10;

/// The number of events that a webhook's lane delivers between two commits.
const IN_HAND: usize = 8;

/// The number of concurrent runs.
const AT_ONCE: u64 = 3;

/// The number of points in a sample, which is spread over all points.
const SAMPLE: u64 = 24;

/// The number of points in a sample with rotated files, for each kind of strike.
const SAMPLE_ROTATING: u64 = 5;

/// How long a daemon that survived and reported a failure may wait before the test kills it.
const WAITS: Duration = Duration::from_secs(5);

/// How long a daemon may be silent about a failure before the test kills it. A daemon that the failure does not disturb ends
/// sooner, also on a busy machine.
const SILENT: Duration = Duration::from_secs(90);

/// Whether the file is rotated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Plain,
    /// Closed after about one page of events and compressed, with a link to the latest closed file.
    Rotating,
}

/// A service with every kind of event, and a setup that delivers to a file and a webhook.
struct Rig {
    simulator: Simulator,
    receiver: Receiver,
    setup: Setup,
    files: Files,
    life: Life,
    late: i64,
    forged: i64,
}

impl Rig {
    async fn new(life: Life) -> Self {
        let simulator = Simulator::start(Options { unsigned: 0.2, ..Options::default() }).await.unwrap();
        simulator.publish(0, 4);
        let late = simulator.publish_one(0, EventSpec::Late(Kind::WatcherEvent));
        simulator.publish(0, 8);
        let forged = simulator.publish_one(0, EventSpec::Forged(Tampering::ContentChanged));
        simulator.publish(0, 16);
        let receiver = Receiver::start().await;
        let mut setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", PAGE);
        if life == Life::Rotating {
            setup.set("sinks.file.rotate_size", "16KiB");
            setup.set("sinks.file.compress", "zstd");
            setup.set("sinks.file.latest_link", setup.path("latest").display().to_string());
        }
        let files = Files::of(setup.path("events.jsonl"));
        Self { simulator, receiver, setup, files, life, late, forged }
    }

    /// Whether both sinks have every event that is deliverable now.
    fn has_all(&self) -> bool {
        let expected = deliverable(&self.simulator, 0).len();
        let distinct: BTreeSet<_> = self.receiver.ids().into_iter().collect();
        let lines = if self.life == Life::Plain { self.setup.lines() } else { self.files.lines() };
        lines >= expected && distinct.len() >= expected
    }

    /// Whether several files are closed, all of them are compressed, and the link points to the latest. Always true
    /// without rotation.
    fn is_kept(&self) -> bool {
        let closed = self.files.closed();
        let linked = || {
            std::fs::canonicalize(self.setup.path("latest")).ok()
                == std::fs::canonicalize(&closed[closed.len() - 1]).ok()
        };
        self.life == Life::Plain
            || (closed.len() > 1 && closed.iter().all(|path| path.to_string_lossy().ends_with(".zst")) && linked())
    }

    /// Publishes more events if files are rotated: the backlog can be a single batch, and no file is closed within a
    /// batch.
    fn follow(&self, events: u64) {
        if self.life == Life::Rotating {
            self.simulator.publish(0, events);
        }
    }

    /// Runs the daemon until it stops cleanly or the strike ends it.
    async fn run(&self, strike: Option<(u64, Strike)>) -> Traces {
        let daemon = Traced::start(&self.setup, strike);
        let mut struck = None;
        let (mut proved, mut followed, mut told) = (false, false, false);
        let watched = || {
            if daemon.has_ended() {
                return Some(());
            }
            if let Some((at, Strike::Freeze(errno) | Strike::Fail(errno))) = strike
                && daemon.points() >= at
            {
                let waits = struck.get_or_insert_with(Instant::now).elapsed();
                if waits > SILENT || (waits > WAITS && is_reported(errno, &daemon.log())) {
                    daemon.signal(Signal::SIGKILL);
                }
            }
            if self.has_all() && !proved {
                self.simulator.prove(0, self.late);
                proved = true;
            } else if self.has_all() && !followed {
                self.follow(FOLLOWING);
                followed = true;
            } else if self.has_all() && self.is_kept() && !told {
                told = true;
                daemon.signal(Signal::SIGTERM);
            }
            None
        };
        eventually("the traced daemon ends", watched).await;
        daemon.traces()
    }

    /// Starts the daemon again without a strike, and compares all deliveries with the service. Returns the number of
    /// repeats.
    async fn recover(&self, what: &str) -> usize {
        self.simulator.prove(0, self.late);
        let mut daemon = self.setup.start();
        daemon.until_logged("channel started").await;
        for events in [FOLLOWING, 1] {
            daemon.until(what, |_| self.has_all()).await;
            self.follow(events);
        }
        daemon.until(what, |_| self.has_all() && self.is_kept()).await;
        daemon.stop().await;

        let expected = deliverable(&self.simulator, 0);
        let in_time = |offsets: Vec<i64>| offsets.into_iter().filter(|offset| *offset != self.late).collect::<Vec<_>>();
        let mut in_file = self.files.offsets_of("c0");
        let ascending = in_time(in_file.clone());
        assert!(ascending.is_sorted(), "{what}: {in_file:?}");
        in_file.sort_unstable();
        assert_eq!(in_file, expected, "{what}: each event exactly once");
        let posted = offsets(&self.receiver.delivered());
        assert_eq!(posted.iter().copied().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>(), expected, "{what}");
        let ledger = self.setup.ledger(self.simulator.announcement().channels[0]).await;
        assert_eq!(
            ledger.quarantined().keys().map(|key| key.offset.get()).collect::<Vec<_>>(),
            [self.forged],
            "{what}"
        );
        let repeats = posted.len() - expected.len();
        assert!(repeats <= IN_HAND, "{what}: {repeats} repeats are more than a batch: {posted:?}");
        repeats
    }
}

/// The result of a sweep over the points.
#[derive(Default)]
struct Sweep {
    struck: usize,
    repeats: usize,
}

/// Strikes at each chosen point, each time in a new rig.
async fn sweep(life: Life, strikes: &[Strike], sample: u64) {
    if !can_trace() {
        return;
    }
    let rig = Rig::new(life).await;
    let whole = rig.run(None).await;
    assert_eq!(whole.code, Some(0), "{}", whole.log.0);
    rig.recover("after a run without a strike").await;

    for &strike in strikes {
        let points = chosen(whole.points, sample);
        let mut sweep = Sweep::default();
        let mut running = JoinSet::new();
        for (number, point) in points.iter().copied().enumerate() {
            running.spawn(struck(life, point, strike));
            if running.len() as u64 >= AT_ONCE || number + 1 == points.len() {
                while let Some(ended) = running.join_next().await {
                    let (struck, repeats) = ended.unwrap();
                    sweep.struck += usize::from(struck);
                    sweep.repeats += repeats;
                }
            }
        }
        println!("{strike:?}: struck at {} of {} points, {} repeats", sweep.struck, whole.points, sweep.repeats);
        // Concurrent commits share their syncs, so the number of points differs slightly between runs.
        assert!(sweep.struck * 10 >= points.len() * 8, "{} of {}", sweep.struck, points.len());
    }
}

/// All points, or a sample of them.
fn chosen(points: u64, sample: u64) -> Vec<u64> {
    if everything() {
        return (1..=points).collect();
    }
    let step = points.div_ceil(sample).max(1);
    let mut drawn = random(11);
    (0..points).step_by(usize::try_from(step).unwrap()).map(|from| drawn.random_range(from..from + step) + 1).collect()
}

/// Runs the daemon with a strike at a point, then again without. Returns whether it was struck, and the number of
/// repeats.
async fn struck(life: Life, point: u64, strike: Strike) -> (bool, usize) {
    let rig = Rig::new(life).await;
    let traces = rig.run(Some((point, strike))).await;
    let struck = traces.points >= point;
    let change = traces.changes.get(usize::try_from(point).unwrap() - 1);
    let what = format!("{strike:?} at point {point}, {change:?}");
    match strike {
        Strike::Kill | Strike::KillHalfway => assert_eq!(traces.code.is_none(), struck, "{what}:\n{}", traces.log.0),
        Strike::Freeze(errno) | Strike::Fail(errno) if struck && traces.code != Some(0) => {
            assert_ne!(traces.code, Some(101), "{what}: the daemon panicked\n{}", traces.log.0);
            let reported = is_reported(errno, &traces.log);
            assert!(reported, "{what}: the log does not contain the reason\n{}", traces.log.0);
        }
        Strike::Freeze(_) | Strike::Fail(_) => {}
    }
    let repeats = rig.recover(&what).await;
    (struck, repeats)
}

/// Whether an error or a warning contains the reason of a failure.
fn is_reported(errno: Errno, log: &Log) -> bool {
    let why = std::io::Error::from(errno).to_string();
    let why = why.split(" (os").next().unwrap();
    let says = |line: &serde_json::Value| line["error"].as_str().is_some_and(|error| error.contains(why));
    [log.at("ERROR"), log.at("WARN")].concat().iter().any(says)
}

#[tokio::test]
async fn a_kill_before_each_file_change_loses_nothing() {
    sweep(Life::Plain, &[Strike::Kill], SAMPLE).await;
}

#[tokio::test]
async fn a_kill_during_each_file_change_loses_nothing() {
    sweep(Life::Plain, &[Strike::KillHalfway], SAMPLE).await;
}

#[tokio::test]
async fn a_file_system_frozen_at_any_point_is_reported_and_loses_nothing() {
    sweep(Life::Plain, &[Strike::Freeze(Errno::EIO)], SAMPLE).await;
}

#[tokio::test]
async fn a_disk_full_at_any_point_is_reported_and_loses_nothing() {
    sweep(Life::Plain, &[Strike::Freeze(Errno::ENOSPC)], SAMPLE).await;
}

#[tokio::test]
async fn a_single_failed_file_change_loses_nothing() {
    sweep(Life::Plain, &[Strike::Fail(Errno::EIO)], SAMPLE).await;
}

#[tokio::test]
async fn a_kill_or_failure_during_rotation_loses_and_repeats_nothing() {
    let strikes = [Strike::Kill, Strike::KillHalfway, Strike::Fail(Errno::ENOSPC)];
    sweep(Life::Rotating, &strikes, SAMPLE_ROTATING).await;
}

/// A service with late events, whose proofs arrive after this delay. Every service that this function starts has
/// exactly the same events.
async fn backlog_with_late_events(delay: Duration) -> Simulator {
    let late_proofs = Some(LateProofs { share: 0.2, delay });
    Simulator::start(Options { events: 20, late_proofs, ends_at: Some(1_750_000_000), ..Options::default() })
        .await
        .unwrap()
}

#[tokio::test]
async fn a_late_delivery_before_a_kill_is_not_repeated_two_restarts_later() {
    let simulator = backlog_with_late_events(Duration::from_secs(1_000_000)).await;
    let setup = Setup::reading(&simulator).with("api.page_limit", PAGE);
    setup.run_until_lines(deliverable(&simulator, 0).len()).await;

    // As if the first run had been killed after it wrote a late event to the file and before it committed.
    let proved = backlog_with_late_events(Duration::ZERO).await;
    let elsewhere = Setup::reading(&proved);
    elsewhere.run_until_lines(20).await;
    let late = simulator.offsets(0).into_iter().find(|(_, honesty)| *honesty == Honesty::Pending).unwrap().0;
    let lines = elsewhere.delivered();
    let line = &lines.iter().find(|delivered| delivered.offset == late).unwrap().json;
    let mut file = std::fs::OpenOptions::new().append(true).open(setup.path("events.jsonl")).unwrap();
    writeln!(file, "{line}").unwrap();

    // The second run writes other events after it, and ends before the late event is offered again.
    simulator.publish(0, 5);
    setup.run_until_lines(deliverable(&simulator, 0).len() + 1).await;

    // The third run offers the late event.
    simulator.prove(0, late);
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    daemon
        .until("the late event is settled", |_| {
            let mirror = std::fs::read_to_string(setup.path("state/cursors.json")).unwrap_or_default();
            !mirror.contains(&format!(r#""{late}": "#))
        })
        .await;
    daemon.stop().await;

    let mut in_file = setup.offsets("c0");
    in_file.sort_unstable();
    assert_eq!(in_file, deliverable(&simulator, 0), "each event exactly once");
}

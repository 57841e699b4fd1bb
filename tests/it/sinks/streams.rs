//! The promises of the sinks that publish to a stream, `nats` and `kafka`. The stream contains each event exactly once,
//! even if processes are killed, answers are lost, the server is unavailable, or another instance takes over. The same
//! tests run for both sinks.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rand::Rng;
use rustix::process::Signal;
use simulator::{Honesty, LateProofs, Options, Simulator};

use crate::support::{Daemon, Database, Line, Mount, Relay, Setup, deliverable, everything, fill, random};

pub(super) mod direct;
pub(super) mod positions;

/// The number of events and of kills.
const SAMPLE: (u64, usize) = (600, 8);
const FULL: (u64, usize) = (6_000, 25);

/// How often the connection fails.
const TROUBLES: usize = 10;

/// At every failure of the connection whose number is a multiple of this, the server is killed too.
const KILLED: usize = 4;

/// Longer than any test: a proof arrives only when the test releases it.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// The time limit for the file sink while the stream is unavailable. The file sink normally needs far less.
const ON_TIME: Duration = Duration::from_secs(20);

/// A stream and its server.
pub(super) trait Stream {
    /// The name of the sink in the configuration.
    const SINK: &str;

    /// The `timeout` of the sink in tests that lose answers.
    const TIMEOUT: &str;

    fn address(&self) -> SocketAddr;

    /// Adds the stream as a sink, reached at this address. No channel uses it yet.
    fn beside(&self, setup: Setup, address: SocketAddr) -> Setup;

    /// The number of committed events in the stream.
    async fn count(&self) -> usize;

    /// Waits until the stream contains at least this many events.
    async fn until_count(&self, count: usize);

    /// Asserts that the stream contains every deliverable event exactly once, in order apart from late deliveries.
    async fn assert_whole(&self, simulator: &Simulator, late: &[i64]);

    fn kill(&self);

    /// Starts the server on its existing data.
    fn run(&self);
}

/// A service with forged events, notices and pending events.
pub(super) async fn service(events: u64) -> Simulator {
    let late_proofs = Some(LateProofs { share: 0.05, delay: NEVER });
    let options = Options { events, unsigned: 0.2, forged: 0.02, late_proofs, ..Options::default() };
    Simulator::start(options).await.unwrap()
}

/// A service whose events all have proofs.
pub(super) async fn proved(events: u64) -> Simulator {
    Simulator::start(Options { events, ..Options::default() }).await.unwrap()
}

/// The offsets of the pending events.
pub(super) fn late(simulator: &Simulator) -> Vec<i64> {
    let pending = |(offset, honesty): (i64, Honesty)| (honesty == Honesty::Pending).then_some(offset);
    simulator.offsets(0).into_iter().filter_map(pending).collect()
}

/// The stream as the only sink, reached at this address.
fn only<S: Stream>(stream: &S, simulator: &Simulator, address: SocketAddr, page_limit: usize) -> Setup {
    let mut setup = stream.beside(Setup::reading(simulator), address).with("channels.c0.sinks", vec![S::SINK]);
    setup.remove("sinks.file");
    setup.with("api.page_limit", page_limit)
}

/// The stream and a file as sinks. An event that the stream refuses for one second becomes a dead letter.
fn with_file<S: Stream>(stream: &S, simulator: &Simulator) -> Setup {
    let setup = stream.beside(Setup::reading(simulator), stream.address());
    let setup = setup.with("channels.c0.sinks", vec!["file", S::SINK]).with("api.page_limit", 20);
    setup.with(&format!("sinks.{}.give_up_after", S::SINK), "1s").with(&format!("sinks.{}.timeout", S::SINK), "2s")
}

async fn until_all(stream: &impl Stream, simulator: &Simulator) {
    stream.until_count(deliverable(simulator, 0).len()).await;
}

/// Publishes events, and asserts that the file contains them within [`ON_TIME`].
async fn other_is_on_time(daemon: &mut Daemon, setup: &Setup, simulator: &Simulator, events: u64) {
    let began = Instant::now();
    simulator.publish(0, events);
    daemon.until("the file has all events", |_| setup.lines() == deliverable(simulator, 0).len()).await;
    assert!(began.elapsed() < ON_TIME, "{:?}", began.elapsed());
}

async fn assert_none_given_up(setup: &Setup) {
    assert!(setup.tell(&["dead-letters", "list", "--json"]).await.json().is_empty(), "no event became a dead letter");
}

/// Kills the daemon repeatedly. Some proofs arrive between the kills.
pub(super) async fn killed_again_and_again(stream: &impl Stream) {
    let (events, kills) = if everything() { FULL } else { SAMPLE };
    let simulator = service(events).await;
    let (late, mut random) = (late(&simulator), random(41));
    let mut unproved = late.clone();
    let setup = only(stream, &simulator, stream.address(), 50);
    for kill in 1..=kills {
        let daemon = setup.start();
        let all = deliverable(&simulator, 0).len();
        let done = stream.count().await;
        let share = (all - done).div_ceil(kills - kill + 2).max(1);
        stream.until_count((done + random.random_range(1..=2 * share)).min(all)).await;
        daemon.kill().await;
        for _ in 0..unproved.len().div_ceil(kills - kill + 1) {
            simulator.prove(0, unproved.swap_remove(random.random_range(0..unproved.len())));
        }
    }
    assert!(unproved.is_empty() && !late.is_empty());
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    until_all(stream, &simulator).await;
    daemon.stop().await;
    stream.assert_whole(&simulator, &late).await;
}

/// The server is killed during deliveries, and started again.
pub(super) async fn restarted_in_the_middle(stream: &impl Stream) {
    let simulator = service(SAMPLE.0).await;
    let (late, mut random) = (late(&simulator), random(42));
    let setup = only(stream, &simulator, stream.address(), 20);
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    for _ in 0..2 {
        let done = stream.count().await;
        stream.until_count((done + random.random_range(1..100)).min(deliverable(&simulator, 0).len())).await;
        stream.kill();
        stream.run();
    }
    for offset in &late {
        simulator.prove(0, *offset);
    }
    until_all(stream, &simulator).await;
    daemon.stop().await;
    stream.assert_whole(&simulator, &late).await;
}

/// The server is unavailable when the daemon starts, and again later. The file sink continues.
pub(super) async fn away(stream: &impl Stream) {
    let simulator = proved(50).await;
    let setup = with_file(stream, &simulator);
    stream.kill();
    let mut daemon = setup.start();
    daemon.until("the file has all events", |_| setup.lines() == deliverable(&simulator, 0).len()).await;
    daemon.until_logged("sink refused again").await;
    stream.run();
    until_all(stream, &simulator).await;

    stream.kill();
    let began = Instant::now();
    other_is_on_time(&mut daemon, &setup, &simulator, 50).await;
    let longer = if everything() { Duration::from_secs(60) } else { Duration::from_millis(2_500) };
    daemon
        .while_it_moves("give_up_after has passed", |_| {
            (began.elapsed() < longer).then(|| usize::try_from(began.elapsed().as_secs()).unwrap())
        })
        .await;
    other_is_on_time(&mut daemon, &setup, &simulator, 50).await;
    stream.run();
    until_all(stream, &simulator).await;
    assert_none_given_up(&setup).await;
    let log = daemon.stop().await;
    assert!(log.lines("sink accepts events again").len() >= 2);
    stream.assert_whole(&simulator, &[]).await;
}

/// Answers of the server are repeatedly lost after the server has carried out the request. Sometimes the server is
/// killed too.
pub(super) async fn answers_lost<S: Stream>(stream: &S, relay: &Relay) {
    let ((events, _), troubles) = if everything() { (FULL, 10 * TROUBLES) } else { (SAMPLE, TROUBLES) };
    let simulator = service(events / 2).await;
    let (proved, mut random) = (late(&simulator), random(43));
    for offset in proved {
        simulator.prove(0, offset);
    }
    let setup = only(stream, &simulator, relay.address(), 20).with(&format!("sinks.{}.timeout", S::SINK), S::TIMEOUT);
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    for trouble in 1..=troubles {
        // Each round has new events, even if the daemon has already delivered all earlier ones.
        simulator.publish(0, events / 2 / u64::try_from(troubles).unwrap());
        let done = stream.count().await;
        // Held answers arrive late. Cut answers never arrive.
        relay.becomes(if random.random() { Line::CutsAnswers } else { Line::HoldsAnswers });
        tokio::time::sleep(Duration::from_millis(random.random_range(0..400))).await;
        if trouble % KILLED == 0 {
            stream.kill();
            stream.run();
        }
        relay.becomes(Line::Good);
        if random.random() {
            relay.cut();
        }
        stream.until_count(done + 1).await;
    }
    let late = late(&simulator);
    for offset in &late {
        simulator.prove(0, *offset);
    }
    until_all(stream, &simulator).await;
    daemon.stop().await;
    stream.assert_whole(&simulator, &late).await;
}

/// Two instances run the same lane. The older one is stopped during a delivery, and continues after the newer one has
/// taken over.
pub(super) async fn frozen_and_thawed<S: Stream>(stream: &S, relay: &Relay, database: &Database) {
    let simulator = proved(200).await;
    let setup = |name: &str, address| {
        let setup = only(stream, &simulator, address, 10).sharing(database, name).with("cluster.lease", "3s");
        setup.with(&format!("sinks.{}.timeout", S::SINK), "20s")
    };
    let (older_setup, newer_setup) = (setup("older", relay.address()), setup("newer", stream.address()));
    let mut older = older_setup.start();
    older.until_logged("channel started").await;
    stream.until_count(30).await;
    // From now on the relay withholds the requests of the older instance.
    relay.becomes(Line::Silent);
    simulator.publish(0, 20);
    older.until("the relay withholds a delivery", |_| relay.withheld() > 0).await;
    older.signal(Signal::STOP);

    let mut newer = newer_setup.start();
    newer.until_logged("channel started").await;
    until_all(stream, &simulator).await;
    simulator.publish(0, 20);
    until_all(stream, &simulator).await;
    // The withheld requests arrive, and the older instance continues.
    relay.becomes(Line::Good);
    older.signal(Signal::CONT);
    // The older instance learns of the newer one either from the answer of the server or from its lease.
    let words = ["another instance", "the channel's lease is lost"];
    older.until("the older instance is fenced", |older| words.iter().any(|words| older.log().0.contains(words))).await;
    simulator.publish(0, 20);
    until_all(stream, &simulator).await;
    older.stop().await;
    newer.stop().await;
    stream.assert_whole(&simulator, &[]).await;
}

/// Two daemons with separate states take the lane from each other. Only the server prevents both of them from
/// writing.
pub(super) async fn taken_from_each_other(stream: &impl Stream) {
    let simulator = proved(100).await;
    let setup = || only(stream, &simulator, stream.address(), 10);
    let (one_setup, other_setup) = (setup(), setup());
    let (mut one, mut other) = (one_setup.start(), other_setup.start());
    one.until_logged("channel started").await;
    other.until_logged("channel started").await;
    until_all(stream, &simulator).await;
    for _ in 0..10 {
        simulator.publish(0, 10);
        until_all(stream, &simulator).await;
    }
    let said = |log: &str| log.contains("another instance delivers to this sink");
    one.until("one of them was overtaken", |one| said(&one.log().0) || said(&other.log().0)).await;
    one.stop().await;
    other.stop().await;
    stream.assert_whole(&simulator, &[]).await;
}

/// The disk of the server is full. The server stops because of that, so the test restarts it after freeing the disk.
pub(super) async fn disk_full(stream: &impl Stream, mount: &Mount) {
    let simulator = proved(20).await;
    let setup = with_file(stream, &simulator);
    let mut daemon = setup.start();
    until_all(stream, &simulator).await;
    let filling = fill(&mount.at);
    other_is_on_time(&mut daemon, &setup, &simulator, 100).await;
    daemon.until_logged("sink refused again").await;
    std::fs::remove_file(filling).unwrap();
    stream.kill();
    stream.run();
    until_all(stream, &simulator).await;
    assert_none_given_up(&setup).await;
    daemon.stop().await;
    stream.assert_whole(&simulator, &[]).await;
}

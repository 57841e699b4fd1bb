//! Answers of the service use at most `limits.memory`, and no channel keeps memory that another one needs.

use std::path::Path;

use simulator::{Misbehaviour, Options, Simulator};

use crate::support::{Admin, Answered, Setup, deliverable, value};

const LIMIT: u64 = 64 << 20;

/// The memory that the rest of the process may use.
const REST: u64 = 64 << 20;

/// The additional memory of many channels.
const MORE: u64 = 32 << 20;

/// One healthy channel, and others that all misbehave in the same way.
async fn crowd(others: usize, how: Misbehaviour) -> (Simulator, Setup) {
    let options = Options { channels: 1 + others, events: 1_000, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let mut setup = Setup::reading(&simulator).with("limits.memory", "64MiB");
    deliver_apart(&mut setup, others);
    (1..=others).for_each(|other| simulator.misbehave(other, Some(how)));
    (simulator, setup)
}

/// Delivers the events of all channels except the first one to another file.
fn deliver_apart(setup: &mut Setup, others: usize) {
    setup.set("sinks.other.type", "file");
    setup.set("sinks.other.path", setup.path("others.jsonl").display().to_string());
    setup.set("sinks.other.rotate_size", "20MiB");
    setup.set("sinks.other.keep_files", 1);
    for other in 1..=others {
        setup.set(&format!("channels.c{other}.sinks"), vec!["other"]);
    }
}

#[tokio::test]
async fn large_pages_use_and_release_their_memory_share() {
    for how in [Misbehaviour::LargeNotices, Misbehaviour::WithheldProofs, Misbehaviour::DeepJson] {
        let (simulator, setup) = crowd(8, how).await;
        let mut daemon = setup.start();
        daemon.until("the healthy channel's backlog arrives", |_| setup.lines() == 1_000).await;
        daemon.until("the others are read", |_| simulator.requests().poll > 40).await;
        let peak = daemon.memory("VmHWM");
        assert!(peak < LIMIT + REST, "{how:?}: {peak} bytes");
        (1..=8).for_each(|other| simulator.misbehave(other, None));
        // `RssAnon` excludes the pages of the executable, which is large in a debug build.
        daemon.until("the memory is released", |daemon| daemon.memory("RssAnon") < REST).await;
        daemon.stop().await;
        assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0), "{how:?}");
    }
}

#[tokio::test]
async fn blocked_channels_release_memory_that_others_need() {
    for how in [Misbehaviour::WithheldProofs, Misbehaviour::SamePage, Misbehaviour::SlowBody] {
        let (simulator, mut setup) = crowd(8, how).await;
        // Each event of this channel needs memory from the shared budget.
        simulator.misbehave(1, Some(Misbehaviour::LargeNotices));
        setup.set("channels.c1.sinks", vec!["file"]);
        setup.set("channels.c0.sinks", vec!["other"]);
        let mut daemon = setup.start();
        daemon.until("the others are read", |_| simulator.requests().poll > 40).await;
        let before = setup.lines();
        daemon.until("large events keep arriving", |_| setup.lines() > before + 4).await;
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_crowd_that_has_recovered_uses_little_more_memory_than_an_idle_crowd() {
    const CROWD: usize = 100;
    const EVERY_KIND: [Misbehaviour; 8] = [
        Misbehaviour::LargeNotices,
        Misbehaviour::LargeEvents,
        Misbehaviour::WithheldProofs,
        Misbehaviour::DeepJson,
        Misbehaviour::LargeError,
        Misbehaviour::GzipBomb,
        Misbehaviour::SlowBody,
        Misbehaviour::SamePage,
    ];
    let options = Options { channels: CROWD, events: 20, ..Options::default() };
    let simulator = Simulator::start(options.clone()).await.unwrap();
    let setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until("the healthy crowd is idle", |_| setup.lines() == 20 * CROWD).await;
    let idle = daemon.memory("RssAnon");
    daemon.stop().await;

    let simulator = Simulator::start(options).await.unwrap();
    let setup = Setup::reading(&simulator).with("sinks.file.rotate_size", "20MiB").with("sinks.file.keep_files", 1);
    for (channel, how) in (0..CROWD).zip(EVERY_KIND.into_iter().cycle()) {
        simulator.misbehave(channel, Some(how));
        simulator.publish(channel, 20);
    }
    let mut daemon = setup.start();
    daemon.until("each channel has been read twice", |_| simulator.requests().poll > 2 * CROWD as u64).await;
    (0..CROWD).for_each(|channel| simulator.misbehave(channel, None));
    daemon.until("the memory is released", |daemon| daemon.memory("RssAnon") < idle + MORE).await;
    daemon.stop().await;
}

/// The part of the state's size that is not events: the database reserves space.
const STATE_REST: u64 = 64 << 20;

#[tokio::test]
async fn many_channels_that_misbehave_in_every_way_use_little_memory_and_the_state_grows_only_by_their_events() {
    const CROWD: usize = 200;
    let misbehave = vec![format!("1-{CROWD}:all").parse().unwrap()];
    let options = Options { channels: 1 + CROWD, events: 10, misbehave, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let mut setup = Setup::reading(&simulator).with("limits.memory", "64MiB");
    setup.set("admin.listen", "127.0.0.1:0");
    deliver_apart(&mut setup, CROWD);
    (1..=CROWD).for_each(|channel| simulator.publish(channel, 10));
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("the healthy channel's backlog arrives", |_| setup.lines() == 10).await;
    simulator.publish(0, 10);
    let quarantined = |answer: &Answered| value(&answer.text, "channeld_quarantine_events") >= Some(100.0);
    admin.until(&mut daemon, "/metrics", "the forged events of ten channels are quarantined", quarantined).await;
    daemon.until("the healthy channel continues", |_| setup.lines() == 20).await;
    let peak = daemon.memory("VmHWM");
    daemon.stop().await;
    assert!(peak < LIMIT + REST + MORE, "{peak} bytes");

    let size = size_of(&setup.path("state"));
    let (ledgers, mut stored) = (setup.ledgers().await, 0);
    for channel in &simulator.announcement().channels {
        let ledger = ledgers.read(*channel).await.unwrap();
        let rooms = [ledger.quarantine_room(), ledger.late_room(), ledger.dead_letter_room()];
        stored += rooms.iter().map(|room| room.bytes).sum::<u64>();
    }
    ledgers.close().await;
    assert!(stored > 0 && size < stored + STATE_REST, "{size} bytes for {stored} bytes of events");
}

/// The size of the files in a directory and in the directories below it.
fn size_of(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let size = |entry: std::fs::DirEntry| match entry.metadata().unwrap() {
        found if found.is_dir() => size_of(&entry.path()),
        found => found.len(),
    };
    entries.map(size).sum()
}
